"""`insitu scan`: where do the chunks of these files lie?"""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.table import Table

from insitu.cli.screen import plural, problems, results, size
from insitu.errors import InsituError
from insitu.model import VirtualGroup, census
from insitu.opening import scan as scan_url
from insitu.sources import Counted, open_source

__all__ = ["scan"]


def scan(
    urls: Annotated[list[str], typer.Argument(help="Files: paths or URLs.", metavar="URL...")],
    group: Annotated[str | None, typer.Option(help="Only this group.")] = None,
    variable: Annotated[
        list[str] | None, typer.Option("--variable", "-V", help="Only this variable; may be repeated.")
    ] = None,
    errors: Annotated[str, typer.Option(help="'raise', or 'warn' to leave out what cannot be taken.")] = "raise",
) -> None:
    """Find every chunk of some files, and say how much there is and what finding it cost."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("file", "variables", "chunks", "stored", "virtual", "requests", "bytes read", "ms"):
        table.add_column(heading, justify="left" if heading == "file" else "right", overflow="fold")
    failed = 0
    for url in urls:
        begin = time.perf_counter()
        try:
            with Counted(open_source(url)) as source:
                found = scan_url(source, group=group, variables=variable, errors=errors)  # type: ignore[arg-type]
        except InsituError as problem:
            if errors == "raise":
                raise
            failed += 1
            problems.print(f"left out: {problem}", style="yellow", markup=False)
            continue
        milliseconds = 1000 * (time.perf_counter() - begin)
        arrays, chunks, stored, virtual = _totals(found)
        table.add_row(
            url, f"{arrays:,}", f"{chunks:,}", size(stored), size(virtual),
            f"{source.requests:,}", size(source.bytes), f"{milliseconds:.1f}",
        )  # fmt: skip
    results.print(table)
    if failed:
        problems.print(f"{plural(failed, 'file')} left out", style="yellow")
        raise typer.Exit(1)


def _totals(group: VirtualGroup) -> tuple[int, int, int, int]:
    counts = [(census(array), array.nbytes) for _, array in group.all_arrays()]
    return (
        len(counts),
        sum(counted.cells for counted, _ in counts),
        sum(counted.nbytes for counted, _ in counts),
        sum(virtual for _, virtual in counts),
    )
