"""`insitu cache`: show or clear the scans that are kept on disk."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.table import Table

from insitu.cli.screen import stderr, stdout
from insitu.model.description import count_text, format_bytes
from insitu.scanning.scan_cache import default_scan_cache

__all__ = ["cache"]


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete all scans that no process has open.")] = False,
) -> None:
    """Show or clear the scans that are kept on disk, so that an archive opens at once the second time.

    The environment variable INSITU_SCAN_CACHE names another folder, or "off".
    """
    found = default_scan_cache()
    if found is None:
        stderr.print("The cache of scans is switched off (INSITU_SCAN_CACHE).")
        return
    if clear:
        left = found.clear()
        stderr.print(f"cleared{f', {format_bytes(left)} are in use' if left else ''}: {found.folder}")
        return
    entries = found.entries()
    total = sum(entry.size for entry in entries)
    stderr.print(
        f"{count_text(len(entries), 'scan')}, {format_bytes(total)} of at most {format_bytes(found.max_bytes)}: "
        f"{found.folder}",
        soft_wrap=True,
    )
    if entries:
        table = Table("scan of", "size", "last used", box=None)
        for entry in reversed(entries):
            used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
            table.add_row(entry.title or entry.name[:16], format_bytes(entry.size), used)
        stdout.print(table)
