"""`insitu advise`: what typical reads take, as an archive is and in other chunks."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from insitu.cli.access import StorageOption, storage_options
from insitu.cli.copy import parse_chunks, parse_lengths
from insitu.cli.screen import print_table, stderr
from insitu.copying.advise import PATTERN_WORDS, Advice, Pattern
from insitu.model.description import format_bytes

__all__ = ["advise"]


def advise(
    places: Annotated[
        list[str], typer.Argument(help="Files, patterns, saved references or a store.", metavar="ARCHIVE")
    ],
    pattern: Annotated[
        list[str] | None,
        typer.Option(
            "--pattern",
            metavar="LENGTHS",
            help="What is read at a time: time=1 (other dimensions are read as a whole), maps, series, or boxes (a "
            "tenth of each dimension); may be repeated. By default these three.",
        ),
    ] = None,
    chunks: Annotated[
        list[str] | None,
        typer.Option(
            "--chunks",
            metavar="LENGTHS",
            help="Chunks of a copy to compare with, as for insitu copy; may be repeated. By default series, maps and "
            "both.",
        ),
    ] = None,
    codec: Annotated[str | None, typer.Option("--codec", help="Codec of the copies, as for insitu copy.")] = None,
    variable: Annotated[
        list[str] | None,
        typer.Option(
            "--variable",
            help="Only this variable; may be repeated. By default all of two dimensions or more that are not small "
            "beside the largest.",
        ),
    ] = None,
    price: Annotated[
        float | None, typer.Option("--price", help="Price of 10^9 bytes that leave the storage: what a read costs.")
    ] = None,
    as_text: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    option: StorageOption = None,
) -> None:
    """Say what typical reads of an archive take, as it is and in the chunks that a copy would have."""
    from insitu.archive import Archive

    archive = Archive.open(places[0] if len(places) == 1 else places, storage_options=storage_options(option))
    found = archive.advise(
        variable or None,
        [parse_pattern(text) for text in pattern] if pattern else None,
        chunks=[parse_chunks(text) for text in chunks] if chunks else ("series", "maps", "both"),
        codec=codec,
        price=price,
    )
    if as_text:
        typer.echo(json.dumps(found.as_dict(), indent=2))
        return
    print_table(_as_table(found))
    for note in found.notes:
        stderr.print(note, style="dim", soft_wrap=True, markup=False)


def parse_pattern(text: str) -> Pattern:
    """Return a pattern as `Archive.advise` takes it.

    Examples
    --------
    >>> parse_pattern("maps"), parse_pattern("lat=1,lon=1")
    ('maps', {'lat': 1, 'lon': 1})
    """
    return text if text in PATTERN_WORDS else parse_lengths(text, "--pattern")


def _as_table(advice: Advice) -> Table:
    """Return a table with a row for each pattern and grid."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("variable", "pattern", "wanted", "in chunks", "of"):
        table.add_column(heading)
    has_price = any(row.cost is not None for row in advice.rows)
    for heading in ("chunks", "requests", "bytes read", "read / wanted", "seconds", *["cost"] * has_price):
        table.add_column(heading, justify="right")
    last: tuple[str, str] | None = None
    for row in advice.rows:
        here = (row.variable, row.pattern)
        table.add_row(
            *(("", "", "") if here == last else (row.variable, row.pattern, _join_lengths(row.box))),
            row.grid,
            _join_lengths(row.chunks),
            f"{row.touched:,.1f}",
            f"{row.requests:,.1f}",
            format_bytes(round(row.bytes_fetched)),
            f"{row.overhead:,.3g}",
            f"~{row.seconds:.2g}",
            *([] if row.cost is None else [f"{row.cost:.3g}"]),
        )
        last = here
    return table


def _join_lengths(lengths: tuple[int, ...]) -> str:
    return "×".join(map(str, lengths)) or "scalar"
