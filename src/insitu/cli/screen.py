"""How do things look on a terminal? Two consoles, and the words for sizes and codecs."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from insitu.model import Encoding, VirtualArray

__all__ = ["chain", "chunk_shape", "plural", "problems", "results", "show", "size"]

MOST_CHAINS = 3
"""Chains of codecs that are told of an array: an archive that grew for twenty years has many."""

results = Console(highlight=False)
problems = Console(stderr=True)


def show(table: Table) -> None:
    """Print a table; into a file or a pipe as wide as it is, so that no name is broken."""
    if results.is_terminal:
        results.print(table)
        return
    wide = results.measure(table, options=results.options.update(max_width=1_000_000)).maximum
    Console(highlight=False, width=wide).print(table)


def size(count: int) -> str:
    """Bytes as people write them."""
    number = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 1000 or unit == "TB":
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.0f} TB"


def plural(count: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def chain(encodings: Iterable[Encoding]) -> str:
    """The codecs of an array, each chain once."""
    chains = dict.fromkeys(
        " → ".join(
            f"{codec.name}({level})" if (level := codec.configuration.get("level")) is not None else codec.name
            for codec in encoding.codecs
        )
        or "none"
        for encoding in encodings
    )
    few = list(chains)[:MOST_CHAINS]
    return " | ".join(few) + (f" | {len(chains) - len(few)} more" if len(few) < len(chains) else "")


def chunk_shape(array: VirtualArray) -> str:
    """How an array is cut."""
    if not array.tiles:
        return "–"
    tile = array.tiles[0]
    cuts = []
    for dimension in range(array.ndim):
        axis = tile.axis_of(dimension)
        cuts.append(str(axis.size) if axis.is_regular else f"~{max(axis.length // max(axis.count, 1), 1)}")
    text = "×".join(cuts) or "scalar"
    return text if len(array.tiles) == 1 else f"{text} and {len(array.tiles) - 1} more grids"
