"""`insitu drop`: remove files from a saved archive, or replace them."""

from __future__ import annotations

from typing import Annotated

import typer

from insitu.cli.access import StorageOption, storage_options
from insitu.cli.screen import stderr
from insitu.model.description import count_text

__all__ = ["drop"]


def drop(
    target: Annotated[str, typer.Argument(help="An insitu store.", metavar="REFS")],
    urls: Annotated[list[str], typer.Argument(help="Files to remove, as `insitu check` names them.", metavar="URL...")],
    replacement: Annotated[
        list[str] | None,
        typer.Option("--replace-with", metavar="URL", help="Insert this file in their place; may be repeated."),
    ] = None,
    option: StorageOption = None,
) -> None:
    """Remove files from a saved archive, or replace them. `insitu rollback` undoes it."""
    from insitu.archive import Archive

    archive = Archive.open(target, many=False, storage_options=storage_options(option))
    dropped = archive.drop(urls, replacement or None)
    put = f", inserted {count_text(len(replacement), 'file')}" if replacement else ""
    stderr.print(f"{target}: removed {count_text(len(dropped), 'file')}{put}", markup=False)
