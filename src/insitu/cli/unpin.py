"""`insitu unpin`: read pinned parts of a saved archive from the files again."""

from __future__ import annotations

from typing import Annotated

import typer

from insitu.cli.access import StorageOption, storage_options
from insitu.cli.screen import stderr

__all__ = ["unpin"]


def unpin(
    target: Annotated[str, typer.Argument(help="An insitu store.", metavar="REFS")],
    variables: Annotated[
        list[str] | None, typer.Argument(help="Variables; by default all.", metavar="VARIABLE...")
    ] = None,
    option: StorageOption = None,
) -> None:
    """Read pinned parts of a saved archive from the files again.

    Their chunks stay until `insitu compact`, so that `insitu rollback` undoes it.
    """
    from insitu.archive import Archive

    archive = Archive.open(target, many=False, storage_options=storage_options(option))
    stderr.print(str(archive.unpin(variables or None)), markup=False, soft_wrap=True)
