"""`insitu rollback`: undo the last change of a saved archive."""

from __future__ import annotations

from typing import Annotated

import typer

from insitu.cli.access import StorageOption, storage_options
from insitu.cli.screen import stderr

__all__ = ["rollback"]


def rollback(
    target: Annotated[str, typer.Argument(help="An insitu store.", metavar="REFS")],
    option: StorageOption = None,
) -> None:
    """Undo the last change of a saved archive (append, drop, refresh, save).

    A second rollback undoes the first.
    """
    from insitu.maintenance import rollback as rollback_archive

    done = rollback_archive(target, storage_options=storage_options(option))
    stderr.print(str(done), markup=False, soft_wrap=True)
