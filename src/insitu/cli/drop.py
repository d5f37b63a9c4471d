"""`insitu drop`: remove files from a saved archive, or replace them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from insitu.cli.access import StorageOption, storage_options
from insitu.cli.screen import stderr
from insitu.model.description import count_text

__all__ = ["drop"]


def drop(
    target: Annotated[str, typer.Argument(help="An insitu store.", metavar="REFS")],
    urls: Annotated[
        list[str] | None, typer.Argument(help="Files to remove, as `insitu check` names them.", metavar="URL...")
    ] = None,
    replacement: Annotated[
        list[str] | None,
        typer.Option("--replace-with", metavar="URL", help="Insert this file in their place; may be repeated."),
    ] = None,
    keep_last: Annotated[
        list[str] | None,
        typer.Option(
            "--keep-last", metavar="DIM=COUNT", help="Instead of files: keep so many of the last steps of a dimension."
        ),
    ] = None,
    option: StorageOption = None,
) -> None:
    """Remove files from a saved archive, or replace them. `insitu rollback` undoes it."""
    if bool(urls) is bool(keep_last):
        raise typer.BadParameter("give the files to remove, or --keep-last", param_hint="URL...")
    counts = _counts_of(keep_last or ())
    from insitu.archive import Archive

    archive = Archive.open(target, many=False, storage_options=storage_options(option))
    dropped = archive.drop(keep_last=counts) if counts else archive.drop(urls or (), replacement or None)
    put = f", inserted {count_text(len(replacement), 'file')}" if replacement else ""
    stderr.print(f"{target}: removed {count_text(len(dropped), 'file')}{put}", markup=False)


def _counts_of(given: Sequence[str]) -> dict[str, int]:
    """Return how many steps --keep-last keeps of each dimension."""
    found = {}
    for one in given:
        dim, _, count = one.partition("=")
        if not dim or not count.isdecimal() or int(count) < 1:
            raise typer.BadParameter(f"{one!r} is not DIM=COUNT, such as time=30", param_hint="--keep-last")
        found[dim] = int(count)
    return found
