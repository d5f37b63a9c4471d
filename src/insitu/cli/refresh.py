"""`insitu refresh`: update saved references after their source files have changed."""

from __future__ import annotations

from typing import Annotated

import typer

from insitu.cli.access import AllowLocal, StorageOption, storage_options
from insitu.cli.convert import parse_prefixes
from insitu.cli.progress import progress_bar
from insitu.cli.screen import stdout
from insitu.model.description import count_text

__all__ = ["refresh"]


def refresh(
    references: Annotated[str, typer.Argument(help="Saved references.", metavar="REFS")],
    allow_local: AllowLocal = False,
    rename: Annotated[
        list[str] | None,
        typer.Option(
            "--rename",
            metavar="OLD=NEW",
            help="The files have moved: replace the prefix OLD of URLs by NEW first; may be repeated.",
        ),
    ] = None,
    option: StorageOption = None,
) -> None:
    """Scan the source files that have changed, and only those, and save the updated references."""
    from insitu.maintenance import refresh as refresh_references
    from insitu.maintenance import rename_sources

    if rename:
        done = rename_sources(references, parse_prefixes(rename), storage_options=storage_options(option))
        stdout.print(f"{count_text(done, 'source')} renamed", markup=False)
    with progress_bar("sources") as progress:
        report = refresh_references(
            references, progress=progress, allow_local=allow_local, storage_options=storage_options(option)
        )
    changed = len(report.stale) + len(report.by_size_only)
    stdout.print(
        f"{count_text(len(report.findings), 'source')}: "
        + (f"{changed:,} changed, scanned again" if changed else "nothing changed"),
        markup=False,
    )
