"""The chunks of a target: lengths by dimension, or a word for what is read of it.

`maps` is for whole fields at one time: one, or a few small ones, in a chunk. `series` is for one place at all times;
`both` touches as many chunks for the one as for the other; `auto` keeps the chunks of the source where they are of a
usual size, and else is `both`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from insitu.errors import SelectionError, UnsupportedError

__all__ = ["CHUNK_WORDS", "Chunks", "check_chunks", "choose_chunks", "choose_shards"]

CHUNK_WORDS = ("auto", "series", "maps", "both")
Chunks = Mapping[str, int] | str | None
"""Lengths by dimension (-1: the whole dimension), one of `CHUNK_WORDS`, or None: as in the source."""

CHUNK_BYTES = 2 << 20
"""Bytes of a chunk that a word chooses, about."""
MAPS_BYTES = 256 << 10
"""Bytes up to which small fields share a chunk of `maps`: one field is read with few others, and objects stay usual."""
USUAL_BYTES = (256 << 10, 16 << 20)
"""Chunks of the source that `auto` keeps."""
LABEL_BYTES = 4 << 20
"""Arrays of one dimension up to this size are one chunk: they are labels, which are read as a whole."""


def check_chunks(given: Chunks, sizes: Mapping[str, int], what: str = "chunks") -> None:
    """Raise an error that names what is wrong with chunks, before anything is read.

    Parameters
    ----------
    given
        The chunks.
    sizes
        All dimensions of the variables, and their lengths.
    what
        The name of the option, for messages.
    """
    if given is None:
        return
    if isinstance(given, str):
        if given not in CHUNK_WORDS:
            raise UnsupportedError(
                f"{what}={given!r} is unknown",
                hint=f"Give one of {', '.join(CHUNK_WORDS)}, or lengths by dimension, such as time=365",
            )
        return
    for dim, length in given.items():
        if dim not in sizes:
            raise SelectionError(
                f"{what} are given for {dim!r}, which is no dimension of the variables",
                hint=f"There are: {', '.join(sizes) or 'none'}",
            )
        if isinstance(length, bool) or not isinstance(length, int) or not (length > 0 or length == -1):
            raise SelectionError(
                f"{what} of length {length!r} along {dim!r} are not possible",
                hint="Give a length of 1 or more, or -1 for the whole dimension",
            )


def choose_chunks(
    given: Chunks,
    dims: Sequence[str],
    shape: Sequence[int],
    itemsize: int,
    stored: Sequence[int] | None,
    time: str | None,
) -> tuple[int, ...]:
    """Return the chunks of an array.

    Parameters
    ----------
    given
        What was asked for; `check_chunks` has accepted it.
    dims, shape, itemsize
        Of the array.
    stored
        Lengths of its chunks in the source; None: they are not worth keeping (values in memory, one contiguous block).
    time
        The dimension of which `series` are long.

    Examples
    --------
    >>> args = ("time", "lat", "lon"), (3650, 180, 360), 4, (1, 180, 360), "time"
    >>> choose_chunks("series", *args), choose_chunks("maps", *args), choose_chunks("both", *args)
    ((3650, 8, 17), (1, 180, 360), (166, 36, 72))
    >>> choose_chunks({"time": 365, "lat": -1}, *args)
    (365, 180, 360)
    """
    whole = tuple(max(length, 1) for length in shape)
    if len(whole) < 2 and math.prod(whole) * itemsize <= LABEL_BYTES:
        return whole
    current = tuple(min(size, n) for size, n in zip(stored, whole, strict=True)) if stored is not None else None
    if isinstance(given, Mapping):
        default = current or _balance(whole, itemsize, dims, time)
        lengths = {
            dim: whole[axis] if given[dim] == -1 else given[dim] for axis, dim in enumerate(dims) if dim in given
        }
        return tuple(min(lengths.get(dim, default[axis]), whole[axis]) for axis, dim in enumerate(dims))
    if given is None and current is not None:
        return current
    if given in (None, "auto"):
        if current is not None and USUAL_BYTES[0] <= math.prod(current) * itemsize <= USUAL_BYTES[1]:
            return current
        return _even_out(_balance(whole, itemsize, dims, time), whole)
    if given == "both":
        return _even_out(_balance(whole, itemsize, dims, time), whole)
    long = _time_axis(dims, time)
    fields = [axis for axis in range(len(whole)) if axis != long]
    if given == "series":
        return _even_out(_fill(whole, itemsize, ([long], CHUNK_BYTES), (fields, CHUNK_BYTES)), whole)
    steps = (fields[-2:], CHUNK_BYTES), ([*fields[:-2], long], MAPS_BYTES)
    return _even_out(_fill(whole, itemsize, *steps), whole)


def choose_shards(
    given: Mapping[str, int] | None, dims: Sequence[str], shape: Sequence[int], chunks: Sequence[int]
) -> tuple[int, ...] | None:
    """Return the shards of an array; None: it has none.

    Raises
    ------
    UnsupportedError
        If a shard does not consist of whole chunks.
    """
    whole = all(size >= length for size, length in zip(chunks, shape, strict=True))
    if given is None or not set(given) & set(dims) or (whole and len(shape) < 2):
        return None
    found = []
    for dim, length, chunk in zip(dims, shape, chunks, strict=True):
        size = given.get(dim, chunk)
        if size == -1 or size >= length:
            size = -(-max(length, 1) // chunk) * chunk
        if size % chunk:
            raise UnsupportedError(
                f"shards of {size} along {dim!r} cannot be divided into chunks of {chunk}",
                hint=f"Give a multiple, such as {max(size // chunk, 1) * chunk}",
            )
        found.append(size)
    return None if tuple(found) == tuple(chunks) else tuple(found)


def _time_axis(dims: Sequence[str], time: str | None) -> int:
    return list(dims).index(time) if time is not None and time in dims else 0


def _even_out(sizes: Sequence[int], whole: Sequence[int]) -> tuple[int, ...]:
    """Return lengths that give as many chunks, and of these the last as full as the others, about: chunks of 31 would
    fill 93 elements where there are 72, of 24 none more.
    """
    return tuple(-(-n // -(-n // size)) for size, n in zip(sizes, whole, strict=True))


def _fill(whole: tuple[int, ...], itemsize: int, *steps: tuple[Sequence[int], int]) -> tuple[int, ...]:
    """Return lengths of a chunk: for each step, as long along some axes as a number of bytes allows, in the same
    proportion of each.
    """
    sizes = [1] * len(whole)
    for axes, nbytes in steps:
        _extend_together(sizes, whole, axes, max(nbytes // max(itemsize, 1), 1))
    return tuple(sizes)


def _extend_together(sizes: list[int], whole: Sequence[int], axes: Sequence[int], room: int) -> None:
    """Extend lengths along axes to the same share of each, so that there are at most `room` elements."""
    left = sorted(axes, key=lambda axis: whole[axis])
    taken = math.prod(sizes)
    while left:  # a short axis takes less than its share, the others then have more
        share = (room / taken / math.prod(whole[axis] for axis in left)) ** (1 / len(left))
        axis = left.pop(0)
        sizes[axis] = max(int(whole[axis] * min(share, 1)), 1)
        taken *= sizes[axis]


def _balance(whole: tuple[int, ...], itemsize: int, dims: Sequence[str], time: str | None) -> tuple[int, ...]:
    """Return chunks of which a map and a series touch about as many."""
    room = max(CHUNK_BYTES // max(itemsize, 1), 1)
    if math.prod(whole) <= room:
        return whole
    long = _time_axis(dims, time)
    others = [axis for axis in range(len(whole)) if axis != long]
    field = math.prod(whole[axis] for axis in others)
    sizes = [1] * len(whole)
    # Equal counts: whole[long] / size == field / (room / size).
    sizes[long] = max(min(int(math.sqrt(room * whole[long] / field)), whole[long], room), 1)
    _extend_together(sizes, whole, others, room)
    return tuple(sizes)
