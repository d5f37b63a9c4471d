"""`insitu append`: more files at the end of a saved archive."""

from __future__ import annotations

from typing import Annotated

import typer

from insitu.cli.access import Options, storage_options
from insitu.cli.progress import bar
from insitu.cli.screen import plural, problems
from insitu.errors import SelectionError

__all__ = ["append"]


def append(
    target: Annotated[str, typer.Argument(help="An insitu store or an Icechunk repository.", metavar="REFS")],
    urls: Annotated[list[str], typer.Argument(help="The new files: paths, URLs, patterns.", metavar="URL...")],
    dim: Annotated[str, typer.Option("--dim", "-d", help="The dimension that grows.")] = "time",
    relative: Annotated[bool, typer.Option("--relative", help="URLs relative to the target.")] = False,
    option: Options = None,
) -> None:
    """Scan new files and add them to a saved archive. Files that are there already, unchanged, are skipped."""
    from insitu.archive import Archive

    archive = Archive.open(target, many=False, storage_options=storage_options(option))
    try:
        with bar("files") as progress:
            done = archive.append(urls, dim, relative=relative, progress=progress)
    except SelectionError as problem:  # --dim names no dimension of the archive
        raise typer.BadParameter(str(problem), param_hint="--dim") from None
    for url in done.skipped:
        problems.print(f"skipped, already there: {url}", markup=False, soft_wrap=True)
    what = f"{plural(done.steps, 'step')} of {dim} more" if done.steps else "nothing new"
    problems.print(f"{target}: {what}", markup=False, soft_wrap=True)
