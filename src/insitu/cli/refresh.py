"""`insitu refresh`: make references true again."""

from __future__ import annotations

from typing import Annotated

import typer

from insitu.cli.progress import bar
from insitu.cli.screen import plural, results

__all__ = ["refresh"]


def refresh(
    references: Annotated[str, typer.Argument(help="A saved set of references.", metavar="REFS")],
    allow_local: Annotated[
        bool, typer.Option("--allow-local", help="References from elsewhere may name files of this machine.")
    ] = False,
) -> None:
    """Make references true again after sources changed: as if the files had been opened and saved anew. What cannot be is refused."""
    from insitu.keeping import refresh as refresh_references

    with bar("sources") as progress:
        report = refresh_references(references, progress=progress, allow_local=allow_local)
    changed = len(report.stale)
    results.print(
        f"{plural(len(report.findings), 'source')}: "
        + (f"{changed:,} changed, scanned again" if changed else "nothing changed"),
        markup=False,
    )
