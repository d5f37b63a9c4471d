"""`insitu compact`: merge the files of a store that has grown by many appends."""

from __future__ import annotations

from typing import Annotated

import typer

from insitu.cli.access import StorageOption, storage_options
from insitu.cli.screen import stderr

__all__ = ["compact"]


def compact(
    target: Annotated[str, typer.Argument(help="An insitu store.", metavar="REFS")],
    option: StorageOption = None,
) -> None:
    """Write the references of a saved archive anew, into as few files as possible.

    The dataset stays the same. `insitu rollback` undoes it.
    """
    from insitu.maintenance import compact as compact_archive

    stderr.print(str(compact_archive(target, storage_options=storage_options(option))), markup=False, soft_wrap=True)
