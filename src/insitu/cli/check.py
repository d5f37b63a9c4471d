"""`insitu check`: compare saved references with their source files."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from insitu.cli.access import AllowLocal, StorageOption, storage_options
from insitu.cli.progress import progress_bar
from insitu.cli.screen import stdout

__all__ = ["check"]


def check(
    references: Annotated[str, typer.Argument(help="Saved references.", metavar="REFS")],
    allow_local: AllowLocal = False,
    as_text: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    option: StorageOption = None,
) -> None:
    """Check whether the source files of saved references are unchanged.

    Exit code 1 if one has changed or was added twice, or if the references are damaged.
    """
    from insitu.maintenance import check as check_references  # Arrow takes long to import: not for `insitu --help`

    with progress_bar("sources") as progress:
        report = check_references(
            references, progress=progress, allow_local=allow_local, storage_options=storage_options(option)
        )
    if as_text:
        rows = [
            {"url": finding.source.url, "status": finding.status, "reason": finding.reason}
            for finding in report.findings
        ]
        double = [{"url": duplicate.url, "reason": duplicate.reason} for duplicate in report.duplicates]
        damaged = [{"url": url, "reason": reason} for url, reason in report.damaged]
        found = {"ok": report.ok, "sources": rows, "duplicates": double, "damaged": damaged}
        typer.echo(json.dumps(found, indent=2))
    else:
        stdout.print(str(report), markup=False, soft_wrap=True)
    if not report.ok:
        raise typer.Exit(1)
