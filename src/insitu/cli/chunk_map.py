"""Map of a file for the terminal: its bytes, coloured by the variable that they belong to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from rich.text import Text

from insitu.cli.screen import format_bytes
from insitu.model import VirtualGroup, byte_ranges

__all__ = ["chunk_map"]

COLOURS = (
    "blue",
    "green",
    "yellow",
    "magenta",
    "cyan",
    "red",
    "bright_blue",
    "bright_green",
    "bright_yellow",
    "bright_magenta",
)
ROWS = 6


def chunk_map(group: VirtualGroup, width: int = 100) -> Text:
    """Return a map of the file that a group was scanned from."""
    sources = group.sources
    end = max((source.size or 0 for source in sources), default=0)
    arrays = [(name, array) for name, array in group.all_arrays() if array.sources]
    if not arrays or not end:
        return Text("the file has no chunks apart from its metadata")
    width = max(min(width - 2, 120), 20)
    bins = width * ROWS
    share = np.zeros((len(arrays), bins))
    for number, (_, array) in enumerate(arrays):
        for _, offset, length in byte_ranges(array):
            share[number] += _bytes_per_bin(offset, length, end, bins)
    owner = share.argmax(0)
    bin_bytes = end / bins
    filled = share.sum(0) / bin_bytes
    text = Text()
    for row in range(ROWS):
        for at in range(row * width, (row + 1) * width):
            if filled[at] < 0.02:
                text.append("·", style="dim")
            else:
                text.append("█" if filled[at] > 0.6 else "▄", style=COLOURS[owner[at] % len(COLOURS)])
        text.append("\n")
    order = np.argsort(-share.sum(1))
    for number in order[: len(COLOURS)]:
        text.append("█ ", style=COLOURS[number % len(COLOURS)])
        text.append(f"{arrays[number][0]} {format_bytes(int(share[number].sum()))}   ")
    if len(order) > len(COLOURS):
        text.append(f"and {len(order) - len(COLOURS)} more   ")
    text.append("· ", style="dim")
    text.append(
        f"metadata or unused {format_bytes(max(end - int(share.sum()), 0))}   (one character: {format_bytes(round(bin_bytes))})"
    )
    return text


def _bytes_per_bin(
    offset: npt.NDArray[np.int64], length: npt.NDArray[np.int64], end: int, bins: int
) -> npt.NDArray[np.float64]:
    """Return how many bytes of some ranges lie in each bin."""
    edges = np.linspace(0, end, bins + 1)
    order = np.argsort(offset, kind="stable")
    starts, sizes = offset[order], np.maximum(length[order], 0)
    before = np.concatenate([[0], np.cumsum(sizes)])
    # Bytes before each edge:
    # those of all ranges that begin before it, minus what the last has behind it.
    begun = np.searchsorted(starts, edges, side="left")
    last = np.maximum(begun - 1, 0)
    behind = np.where(begun > 0, np.maximum(starts[last] + sizes[last] - edges, 0), 0) if len(starts) else 0.0
    return np.diff(before[begun] - behind)
