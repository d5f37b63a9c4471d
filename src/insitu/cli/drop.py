"""`insitu drop`: take files out of a saved archive, or put others in their place."""

from __future__ import annotations

from typing import Annotated

import typer

from insitu.cli.access import Options, storage_options
from insitu.cli.screen import plural, problems

__all__ = ["drop"]


def drop(
    target: Annotated[str, typer.Argument(help="An insitu store.", metavar="REFS")],
    urls: Annotated[list[str], typer.Argument(help="The files, as `insitu check` names them.", metavar="URL...")],
    replacement: Annotated[
        list[str] | None,
        typer.Option("--replace-with", metavar="URL", help="Add this file in their place; may be repeated."),
    ] = None,
    option: Options = None,
) -> None:
    """Take files out of a saved archive. `insitu rollback` undoes it."""
    from insitu.archive import Archive

    archive = Archive.open(target, many=False, storage_options=storage_options(option))
    dropped = archive.drop(urls, replacement or None)
    put = f", {plural(len(replacement), 'file')} put in place" if replacement else ""
    problems.print(f"{target}: {plural(len(dropped), 'file')} taken out{put}", markup=False)
