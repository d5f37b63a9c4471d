"""Writing of virtual arrays to other stores (`to_netcdf`, `to_zarr`), piece by piece in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from insitu.expressions.boxes import Box, BoxMemory, iterate_boxes
from insitu.expressions.evaluate import box_reader
from insitu.lazy_array.duck_array import LazyArray
from insitu.process_options import options

__all__ = ["write_in_pieces"]


def write_in_pieces(source: LazyArray, target: Any, region: Sequence[Any] | None = None) -> None:
    """Write an array to a target, in pieces of `options.block_bytes` that are cut where the target's chunks are.

    Parameters
    ----------
    source
        What is written.
    target
        An array of a store that takes values by `target[key] = values`.
    region
        For each dimension of the target a slice or an integer; None: all of it.
    """
    memory = BoxMemory(options.block_bytes)
    read = box_reader(source.node, memory)
    starts = [part.start or 0 for part in region or () if isinstance(part, slice)] or [0] * source.ndim
    for piece in iterate_boxes(source.node, memory, _writable_chunks(target, source.ndim), starts):
        target[_place_in_target(region, piece)] = read(piece)


def _writable_chunks(target: Any, ndim: int) -> Sequence[int] | None:
    """Return the lengths of what a store writes at once (a shard, a chunk); None if it does not say."""
    for name in ("shards", "chunks"):
        lengths = getattr(target, name, None)
        if isinstance(lengths, tuple) and len(lengths) == ndim and all(isinstance(n, int) for n in lengths):
            return lengths
    return None


def _place_in_target(region: Sequence[Any] | None, piece: Box) -> tuple[Any, ...]:
    """Return where in the target a piece of the source is written, given the target's region."""
    if not region:
        return piece or (...,)
    place = []
    pieces = iter(piece)
    for part in region:
        if isinstance(part, slice):
            own = next(pieces)
            start, step = part.start or 0, part.step or 1
            place.append(slice(start + own.start * step, start + own.stop * step, step))
        else:
            place.append(part)
    return tuple(place)
