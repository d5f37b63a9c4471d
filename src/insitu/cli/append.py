"""`insitu append`: more files at the end of a saved archive."""

from __future__ import annotations

from typing import Annotated

import typer

from insitu.cli.access import Options, storage_options
from insitu.cli.progress import bar
from insitu.cli.screen import plural, problems

__all__ = ["append"]


def append(
    target: Annotated[str, typer.Argument(help="An insitu store or an Icechunk repository.", metavar="REFS")],
    urls: Annotated[list[str], typer.Argument(help="The new files: paths, URLs, patterns.", metavar="URL...")],
    dim: Annotated[str, typer.Option("--dim", "-d", help="The dimension that grows.")] = "time",
    relative: Annotated[bool, typer.Option("--relative", help="URLs relative to the target.")] = False,
    option: Options = None,
) -> None:
    """Scan new files and add them to a saved archive. Files that it has already are left out."""
    from insitu.archive import Archive

    options = storage_options(option)
    with bar("files") as progress:
        done = Archive.open(target, many=False, storage_options=options).append(
            urls, dim, relative=relative, progress=progress
        )
    if done.skipped:
        problems.print(f"{plural(len(done.skipped), 'file')} already in {target}, left out", markup=False)
    problems.print(f"{target}: {plural(done.steps, 'step')} of {dim} more", markup=False)
