"""Output on the terminal: the two consoles, tables, and texts of codecs and chunks."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from insitu.model import Encoding, VirtualArray
from insitu.model.encoding_texts import codec_chain_text

__all__ = ["format_chunk_shape", "format_codecs", "print_table", "stderr", "stdout"]

MAX_CHAINS = 3
"""Number of codec chains that are shown for an array: a long-lived archive may have many."""

stdout = Console(highlight=False)
stderr = Console(stderr=True)


def print_table(table: Table) -> None:
    """Print a table; into a file or a pipe in full width, so that no name is wrapped."""
    if stdout.is_terminal:
        stdout.print(table)
        return
    wide = stdout.measure(table, options=stdout.options.update(max_width=1_000_000)).maximum
    Console(highlight=False, width=wide).print(table)


def format_codecs(encodings: Iterable[Encoding]) -> str:
    """Return the codecs of encodings, each chain once."""
    chains = dict.fromkeys(map(codec_chain_text, encodings))
    few = list(chains)[:MAX_CHAINS]
    return " | ".join(few) + (f" | {len(chains) - len(few)} more" if len(few) < len(chains) else "")


def format_chunk_shape(array: VirtualArray) -> str:
    """Return the shape of the chunks of an array as text."""
    if not array.tiles:
        return "–"
    tile = array.tiles[0]
    cuts = []
    for dimension in range(array.ndim):
        axis = tile.axis_of(dimension)
        cuts.append(str(axis.size) if axis.is_regular else f"~{max(axis.length // max(axis.count, 1), 1)}")
    text = "×".join(cuts) or "scalar"
    return text if len(array.tiles) == 1 else f"{text} and {len(array.tiles) - 1} more grids"
