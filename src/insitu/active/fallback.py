"""Warnings about reductions that run on this machine although a server was named.

Such a fallback moves all chunks over the network. If that is less than
`options.fallback_bytes`, each reason is warned about once; above, every fallback warns and
names the bytes, because each of them costs time and money.
"""

from __future__ import annotations

import warnings

from insitu.errors import ActiveWarning, InsituError
from insitu.model import VirtualArray
from insitu.model.cell_counts import count_cells
from insitu.model.chunks import Columns
from insitu.model.sparse_chunks import SparseTable
from insitu.process_options import options
from insitu.sources.redaction import redact_url

__all__ = ["bytes_to_move", "warn_of_fallback", "warn_of_takeover"]


_warned: set[tuple[str, str]] = set()


def bytes_to_move(array: VirtualArray) -> int:
    """Return about how many bytes reading an array fetches, without any I/O.

    The sizes of the stored chunks if they are known without a request; else the size of the values.
    For uncompressed data, at most the size of the values.
    """
    decoded = array.nbytes
    if not all(isinstance(tile.chunks, (Columns, SparseTable)) for tile in array.tiles):
        return decoded
    counted = count_cells(array)
    if counted.stored and not counted.nbytes:
        return decoded  # whole objects, whose sizes are unknown without a request
    is_raw = all(encoding.raw for tile in array.tiles for encoding in tile.encodings)
    return min(counted.nbytes, decoded) if is_raw else counted.nbytes


def warn_of_fallback(server: str, problem: InsituError, name: str | None, nbytes: int, *, stacklevel: int) -> None:
    """Warn about a fallback: every time, or once per reason if it moves few bytes.

    Parameters
    ----------
    server
        URL of the server, or several with commas in between; shown without their tokens.
    problem
        Why the server could not do it.
    name
        The variable.
    nbytes
        About how many bytes are moved.
    stacklevel
        As for `warnings.warn`, counted from the caller.
    """
    key = (server, problem.kind)
    if nbytes <= options.fallback_bytes and key in _warned:
        return
    _warned.add(key)
    warnings.warn(
        f"{name or 'an array'} is read and reduced here, not by {_redact_urls(server)}, "
        f"which moves about {nbytes:,} bytes: {problem}. "
        "Set active_required=True to get an error instead",
        ActiveWarning,
        stacklevel=stacklevel + 1,
    )


def warn_of_takeover(server: str, problem: InsituError, name: str | None) -> None:
    """Warn, once per server and reason, that other servers with the same data do the work of one."""
    key = (server, f"takeover {problem.kind}")
    if key in _warned:
        return
    _warned.add(key)
    warnings.warn(
        f"{redact_url(server)} did not reduce its share of {name or 'an array'}, others with the same data did: "
        f"{problem}",
        ActiveWarning,
        stacklevel=2,
    )


def _redact_urls(servers: str) -> str:
    return ", ".join(map(redact_url, servers.split(", ")))
