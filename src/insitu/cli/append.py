"""`insitu append`: add files to a saved archive."""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import typer

from insitu.cli.access import Errors, StorageOption, check_errors, check_overlap, flag_of, storage_options
from insitu.cli.progress import progress_bar
from insitu.cli.screen import stderr
from insitu.errors import SelectionError
from insitu.model.description import count_text

__all__ = ["append"]


def append(
    target: Annotated[str, typer.Argument(help="An insitu store or an Icechunk repository.", metavar="REFS")],
    urls: Annotated[list[str], typer.Argument(help="New files: paths, URLs or patterns.", metavar="URL...")],
    dim: Annotated[str, typer.Option("--dim", "-d", help="Dimension along which the files are added.")] = "time",
    overlap: Annotated[str | None, flag_of("overlap")] = None,
    relative: Annotated[bool, typer.Option("--relative", help="Save URLs relative to the archive.")] = False,
    errors: Errors = "raise",
    option: StorageOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="List the files that were skipped or left out.")
    ] = False,
) -> None:
    """Scan new files and add them to a saved archive.

    Unchanged files that it already has are skipped.
    """
    check_errors(errors)
    check_overlap(overlap)
    from insitu.archive import Archive

    archive = Archive.open(target, many=False, storage_options=storage_options(option))
    try:
        with progress_bar("files") as progress, warnings.catch_warnings():
            warnings.simplefilter("ignore" if errors == "skip" else "default")
            how: dict[str, Any] = {"overlap": overlap, "relative": relative, "errors": errors}
            done = archive.append(urls, dim, progress=progress, **how)
    except SelectionError as problem:  # --dim names no dimension of the archive
        raise typer.BadParameter(str(problem), param_hint="--dim") from None
    if verbose:
        for url in done.skipped:
            stderr.print(f"skipped, already there: {url}", markup=False, soft_wrap=True)
        for url, reason in done.left_out.items() if errors == "skip" else ():  # else a warning has said it
            stderr.print(f"left out: {url}: {reason}", style="yellow", markup=False, soft_wrap=True)
    changes = [f"added {count_text(done.steps, 'step')} of {dim}" if done.steps else "nothing new"]
    if done.skipped:
        changes.append(f"{count_text(len(done.skipped), 'file')} skipped, already there")
    if done.shadowed:
        changes.append(f"{count_text(len(done.shadowed), 'file')} shadowed by others")
    if done.left_out:
        changes.append(f"{count_text(len(done.left_out), 'file')} left out: unreadable")
    stderr.print(f"{target}: {'; '.join(changes)}", markup=False, soft_wrap=True)
