"""Placement of source arrays in a virtual dataset.

Each mapping places boxes of a source dataset. If both selections have the same shape, the boxes are
slices of the source's virtual array; otherwise elements are paired run by run. Elements that no box
covers have the fill value of the virtual dataset.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.hdf5.structures.stored_selection import RUNS_LIMIT, AxisHyperslab, StoredSelection
from insitu.model import Tile, VirtualArray

__all__ = ["PlacedArray", "assemble", "place_mapping"]


@dataclass(frozen=True, slots=True)
class PlacedArray:
    """An array at a place."""

    array: VirtualArray
    origin: tuple[int, ...]

    def box(self) -> npt.NDArray[np.int64]:
        """Return its corners: (2, dimensions), without the axes that a datatype adds."""
        low = np.array(self.origin, np.int64)
        return np.stack([low, low + np.array(self.array.shape[: len(low)], np.int64)])


def place_mapping(
    target_selection: StoredSelection,
    source_selection: StoredSelection,
    source: VirtualArray,
    shape: tuple[int, ...],
    extra: int,
) -> Iterator[PlacedArray]:
    """Return the placed arrays of one mapping.

    Parameters
    ----------
    target_selection, source_selection
        What is selected of the virtual dataset and of the source.
    source
        The source.
    shape
        Of the virtual dataset, without the axes that its datatype adds.
    extra
        The number of those, which both have.
    """
    if "none" in (target_selection.kind, source_selection.kind):
        return
    from_shape = source.shape[: source.ndim - extra]
    target_selection, source_selection = target_selection.with_lines(shape), source_selection.with_lines(from_shape)
    _check_selection(target_selection, shape, "the virtual dataset")
    _check_selection(source_selection, from_shape, "its source")
    if target_selection.kind == source_selection.kind == "lines":
        to, of = [line.length for line in target_selection.lines], [line.length for line in source_selection.lines]
        if 0 in to or 0 in of:
            return
        if [n for n in to if n > 1] == [n for n in of if n > 1]:
            yield from _matching_pieces(target_selection.lines, source_selection.lines, source, extra)
            return
    yield from _pair_runs(target_selection, source_selection, source, len(shape), len(from_shape))


def _check_selection(selection: StoredSelection, shape: tuple[int, ...], owner: str) -> None:
    """Raise for a selection that reaches out of its dataspace."""
    for axis, length in enumerate(shape):
        if selection.kind == "lines":
            if len(selection.lines) != len(shape):
                raise FormatError(f"a selection has {len(selection.lines)} axes, but {owner} has {len(shape)}")
            line = selection.lines[axis]
            end = line.required_extent(line.length)
        else:
            if any(len(first) != len(shape) for first, _ in selection.boxes):
                raise FormatError(f"a selection has another number of axes than {owner}")
            end = max((box_end[axis] for _, box_end in selection.boxes), default=0)
        if end > length:
            raise FormatError(
                f"a selection reaches up to {end}, but the axis of {owner} has {length} elements",
                structure="virtual dataset",
            )


def _matching_pieces(
    target_lines: tuple[AxisHyperslab, ...], source_lines: tuple[AxisHyperslab, ...], source: VirtualArray, extra: int
) -> Iterator[PlacedArray]:
    """Selections of one shape: each run of neighbours here is a slice there."""
    runs: list[list[tuple[int, int, int]]] = []
    for line in target_lines:
        at, found = 0, []
        for start, length in line.runs():
            found.append((start, at, length))
            at += length
        runs.append(found)
    if int(np.prod([len(found) for found in runs], dtype=object)) > RUNS_LIMIT:
        raise UnsupportedError(
            f"a mapping of more than {RUNS_LIMIT} boxes is not supported", structure="virtual dataset"
        )
    long = [axis for axis, line in enumerate(source_lines) if line.length > 1]
    for combination in itertools.product(*runs):
        parts = iter(
            [
                run for run, line in zip(combination, target_lines, strict=True) if line.length > 1
            ]  # those along longer axes
        )
        key: list[slice | npt.NDArray[np.int64]] = []
        for axis, line in enumerate(source_lines):
            _, first, length = next(parts) if axis in long else (0, 0, 1)
            key.append(line.part(first, length))
        shape = tuple(length for _, _, length in combination)
        yield PlacedArray(
            _reshape_unit_axes(source[tuple(key)], shape, extra), tuple(start for start, _, _ in combination)
        )


def _reshape_unit_axes(array: VirtualArray, shape: tuple[int, ...], extra: int) -> VirtualArray:
    """The array with its axes of length 1 where they are wanted."""
    own = array.shape[: array.ndim - extra]
    if own == shape:
        return array
    for axis in reversed([axis for axis, length in enumerate(own) if length == 1]):
        array = array.drop(axis)
    for axis, length in enumerate(shape):
        if length == 1:
            array = array.expand_dims(axis, f"one_{axis}")
    return array


def _pair_runs(
    target_selection: StoredSelection,
    source_selection: StoredSelection,
    source: VirtualArray,
    rank: int,
    from_rank: int,
) -> Iterator[PlacedArray]:
    """Any two selections: the elements of both in order, cut where a run of either ends."""
    to, to_lengths = target_selection.rows(rank)
    of, of_lengths = source_selection.rows(from_rank)
    to_ends, of_ends = np.cumsum(to_lengths), np.cumsum(of_lengths)
    if not len(to_ends) or not len(of_ends) or to_ends[-1] != of_ends[-1]:
        raise FormatError(
            "the two selections of a mapping have different numbers of elements", structure="virtual dataset"
        )
    ends = np.union1d(to_ends, of_ends)
    if len(ends) > RUNS_LIMIT:
        raise UnsupportedError(
            f"a mapping of {len(ends)} runs is not supported (at most {RUNS_LIMIT})", structure="virtual dataset"
        )
    begins = np.concatenate([[0], ends[:-1]])
    to_run, of_run = np.searchsorted(to_ends, begins, "right"), np.searchsorted(of_ends, begins, "right")
    for begin, end, i, j in zip(begins.tolist(), ends.tolist(), to_run.tolist(), of_run.tolist(), strict=True):
        origin, source_start = to[i].tolist(), of[j].tolist()
        origin[-1] += begin - (to_ends[i] - to_lengths[i])
        first = source_start[-1] + begin - int(of_ends[j] - of_lengths[j])
        array = source[(*source_start[:-1], slice(first, first + end - begin))]
        for axis in range(rank - 1):
            array = array.expand_dims(axis, f"one_{axis}")
        yield PlacedArray(array, tuple(int(n) for n in origin))


def assemble(pieces: list[PlacedArray], rank: int) -> tuple[tuple[Tile, ...], npt.NDArray[np.int64]]:
    """Return the tiles of placed arrays, and their origins.

    Where arrays overlap, the later one counts.
    """
    pieces = _remove_covered(pieces)
    tiles: list[Tile] = []
    origins: list[npt.NDArray[np.int64]] = [np.zeros((0, rank), np.int64)]
    for piece in pieces:
        tiles += piece.array.tiles
        origin = np.zeros(rank, np.int64)
        origin[: len(piece.origin)] = piece.origin
        origins.append(piece.array.origins + origin)
    return tuple(tiles), np.concatenate(origins)


def _remove_covered(pieces: list[PlacedArray]) -> list[PlacedArray]:
    """Without what later pieces cover."""
    if len(pieces) < 2:
        return pieces
    rank = len(pieces[0].origin)
    boxes = np.stack([piece.box() for piece in pieces])
    visible: list[PlacedArray] = []
    for number, piece in enumerate(pieces):
        low, high = boxes[number]
        later = boxes[number + 1 :]
        covering = later[((later[:, 0] < high) & (later[:, 1] > low)).all(axis=1)]
        parts = [piece]
        for box in covering:
            parts = [rest for part in parts for rest in _subtract_box(part, box, rank)]
            if len(parts) > RUNS_LIMIT:
                raise UnsupportedError(
                    "mappings that overlap in too many ways are not supported", structure="virtual dataset"
                )
        visible += parts
    return visible


def _subtract_box(piece: PlacedArray, box: npt.NDArray[np.int64], rank: int) -> list[PlacedArray]:
    """What is left of a piece outside of a box: a slab on either side along each axis."""
    piece_low, piece_high = piece.box()
    low, high = np.maximum(piece_low, box[0]), np.minimum(piece_high, box[1])
    if (low >= high).any():
        return [piece]
    rest: list[PlacedArray] = []
    for axis in range(rank):
        for begin, end in ((piece_low[axis], low[axis]), (high[axis], piece_high[axis])):
            if begin < end:
                rest.append(_slice_piece(piece, axis, int(begin), int(end)))
        piece = _slice_piece(piece, axis, int(low[axis]), int(high[axis]))
        piece_low, piece_high = piece.box()
    return rest


def _slice_piece(piece: PlacedArray, axis: int, begin: int, end: int) -> PlacedArray:
    origin = piece.origin
    if (begin, end) == (origin[axis], origin[axis] + piece.array.shape[axis]):
        return piece
    key = (slice(None),) * axis + (slice(begin - origin[axis], end - origin[axis]),)
    return PlacedArray(piece.array[key], (*origin[:axis], begin, *origin[axis + 1 :]))
