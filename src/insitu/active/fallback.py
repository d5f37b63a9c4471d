"""Fallback from a server to this machine: how many bytes it moves, and when it warns.

A reduction that was meant for a server and runs here moves all its chunks over the network. Below `FallbackSettings.warn_bytes` one
warning for each reason is enough; above, every fallback warns and names the bytes, because each of them costs time and money.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from insitu.errors import InsituError
from insitu.model import VirtualArray
from insitu.model.census import census
from insitu.model.chunks import Columns
from insitu.model.sparse import Sparse
from insitu.sources.redaction import displayed

__all__ = ["ActiveWarning", "FallbackSettings", "bytes_to_move", "settings", "warn_of_fallback"]


class ActiveWarning(UserWarning):
    """A reduction ran here, although a server was named."""


# Behind all filters of the user: without one, Python shows a warning of one line of code once, and never again.
warnings.simplefilter("always", ActiveWarning, append=True)


@dataclass(slots=True)
class FallbackSettings:
    """Settings of this process; assign to change them."""

    warn_bytes: int = 16 << 20
    """A fallback that moves more than this warns every time; a smaller one once for each server and reason."""


settings = FallbackSettings()
"""The settings in force."""
_warned: set[tuple[str, str]] = set()


def bytes_to_move(array: VirtualArray) -> int:
    """Return about how many bytes reading an array fetches, without any I/O.

    The stored chunks where their lengths are at hand; else, and where nothing is compressed, at most the bytes of the values.
    """
    decoded = array.nbytes
    if not all(isinstance(tile.chunks, (Columns, Sparse)) for tile in array.tiles):
        return decoded
    counted = census(array)
    if counted.stored and not counted.nbytes:
        return decoded  # whole objects, whose lengths nobody knows
    is_raw = all(encoding.raw for tile in array.tiles for encoding in tile.encodings)
    return min(counted.nbytes, decoded) if is_raw else counted.nbytes


def warn_of_fallback(server: str, problem: InsituError, name: str | None, nbytes: int, *, stacklevel: int) -> None:
    """Warn that something is done here, and why: every time, or once for a reason if it moves little.

    Parameters
    ----------
    server
        Its address; shown without a token.
    problem
        Why it could not.
    name
        The variable.
    nbytes
        About how much is moved.
    stacklevel
        As for `warnings.warn`, from the caller's point of view.
    """
    key = (server, problem.kind)
    if nbytes <= settings.warn_bytes and key in _warned:
        return
    _warned.add(key)
    warnings.warn(
        f"{name or 'an array'} is read and reduced here, not by {displayed(server)}, which moves about {nbytes:,} bytes: {problem}. "
        "With active_required=True this is an error",
        ActiveWarning,
        stacklevel=stacklevel + 1,
    )
