"""Random virtual arrays whose values are known: an array, what NumPy says it is, and the bytes it
refers to.

`evaluate` is the plainest possible reader (one cell after another, no planning): the oracle for the
model's algebra.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from insitu.model import (
    ABSENT,
    INLINE,
    UNWRITTEN,
    Axis,
    ChunkTable,
    Columns,
    Encoding,
    Source,
    Tile,
    VirtualArray,
    concatenate,
    stack,
)
from insitu.model.derived_tables import SelectedTable

FILL = 7
ABSENT_VALUE = -9


@dataclass
class Case:
    """A virtual array and what it must be equal to."""

    array: VirtualArray
    values: np.ndarray
    disk: dict[str, bytes]


def evaluate(array: VirtualArray, disk: dict[str, bytes]) -> np.ndarray:
    """Read an array of raw encodings, cell by cell."""
    out = np.full(array.shape, array.absent_value(), array.dtype)
    for tile, origin in zip(array.tiles, array.origins, strict=True):
        box = np.full([axis.length for axis in tile.axes], array.absent_value(), array.dtype)
        for cell in itertools.product(*(range(axis.count) for axis in tile.axes)):
            shown = [axis.show(np.array([c])) for axis, c in zip(tile.axes, cell, strict=True)]
            begins = [int(axis.begin(np.array([c]))[0]) for axis, c in zip(tile.axes, cell, strict=True)]
            where = tuple(slice(b, b + int(s.extent[0])) for b, s in zip(begins, shown, strict=True))
            row = tile.chunks.locate([np.array([c]) for c in cell])
            source, offset, length = int(row.source[0]), int(row.offset[0]), int(row.length[0])
            encoding = tile.encodings[int(row.encoding[0])]
            stored = [max(int(s.stored[0]), 1) for s in shown]
            if source == ABSENT:
                continue
            if source == UNWRITTEN:
                chunk = np.full(stored, encoding.fill_value(), encoding.dtype)
            else:
                data = row.inline if source == INLINE else disk[tile.chunks.sources[source].url]
                raw = np.frombuffer(data[offset : offset + length], encoding.dtype)
                real = [i for i, s in enumerate(shown) if s.stored[0]]
                order = encoding.order or tuple(range(len(real)))
                sizes = [stored[i] for i in real]
                chunk = raw.reshape([sizes[i] for i in order]).transpose(np.argsort(order)).reshape(stored)
            index = [s.skip[0] + s.step[0] * np.arange(s.extent[0]) for s in shown]
            box[where] = chunk[np.ix_(*index)] if index else chunk
        lead = tuple(
            slice(None) if i in tile.dimensions else 0 for i in range(len(tile.axes))
        )  # axes that no dimension names have one element
        named = [i for i in range(len(tile.axes)) if i in tile.dimensions]
        part = box[lead].transpose([named.index(axis) for axis in tile.dimensions])
        out[tuple(slice(int(o), int(o) + n) for o, n in zip(origin, part.shape, strict=True))] = part
    return out


def chunked(
    values: np.ndarray,
    chunk_shape: tuple[int, ...],
    url: str,
    *,
    padded: bool = True,
    order: tuple[int, ...] | None = None,
    states: dict[tuple[int, ...], int] | None = None,
    lazy: bool = False,
) -> Case:
    """Values laid out in chunks, as a file would; `states` makes some cells Unwritten or Inline.

    With `lazy` the table is not a plain one in memory, so that selections and joins go through the
    derived tables.
    """
    values = values.copy()
    axes = tuple(Axis.regular(n, c, padded) for n, c in zip(values.shape, chunk_shape, strict=True))
    grid = tuple(axis.count for axis in axes)
    source, offset, length = (np.zeros(grid, np.int64) for _ in range(3))
    disk, inline = bytearray(b"head"), bytearray()
    fill = np.array(FILL, values.dtype).tobytes()
    for cell in np.ndindex(*grid):
        where = tuple(slice(c * n, (c + 1) * n) for c, n in zip(cell, chunk_shape, strict=True))
        part = values[where]
        state = (states or {}).get(cell, 0)
        if state == UNWRITTEN:
            values[where] = np.frombuffer(fill, values.dtype)[0]
        if padded:
            part = np.pad(part, [(0, n - m) for n, m in zip(chunk_shape, part.shape, strict=True)], constant_values=1)
        data = np.ascontiguousarray(part.transpose(order) if order else part).tobytes()
        target = inline if state == INLINE else disk
        source[cell], offset[cell], length[cell] = state, len(target), len(data)
        if state != UNWRITTEN:
            target += data
    table = Columns(grid, (Source(url),), source, offset, length, inline=bytes(inline))
    chunks: ChunkTable = SelectedTable(table, (None,) * values.ndim) if lazy else table
    tile = Tile(axes, (Encoding(values.dtype, (), order, fill),), chunks)
    dims = tuple("abcdef"[: values.ndim])
    array = VirtualArray.of(tile, dims=dims, fill_value=values.dtype.type(ABSENT_VALUE))
    return Case(array, values, {url: bytes(disk)})


_counter = itertools.count()


@st.composite
def bases(draw: Any, shape: tuple[int, ...] | None = None) -> Case:
    """One file's array."""
    if shape is None:
        shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    chunk_shape = tuple(draw(st.integers(1, 5)) for _ in shape)
    number = next(_counter)
    dtype = draw(st.sampled_from(["<i4", ">i2", "<f8"]))
    values = (np.arange(int(np.prod(shape))) + 1000 * (number % 20)).astype(dtype).reshape(shape)
    order = draw(st.sampled_from([None, tuple(reversed(range(len(shape))))]))
    grid = tuple(-(-n // c) for n, c in zip(shape, chunk_shape, strict=True))
    states = draw(
        st.dictionaries(
            st.tuples(*(st.integers(0, n - 1) for n in grid)), st.sampled_from([UNWRITTEN, INLINE]), max_size=2
        )
    )
    padded, lazy = draw(st.booleans()), draw(st.booleans())
    return chunked(values, chunk_shape, f"file-{number}", padded=padded, order=order, states=states, lazy=lazy)


@st.composite
def basic_keys(draw: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Integers, slices of any step, and ellipses for an array of that shape."""
    key: list[Any] = []
    for length in shape:
        steps = st.integers(-4, 4).filter(bool)
        bound = st.none() | st.integers(-length - 2, length + 2)
        slices = st.builds(slice, bound, bound, steps)
        key.append(draw(st.one_of(slices, st.integers(-length, length - 1)) if length else slices))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(key)))
        key = [*key[:at], Ellipsis, *key[at + draw(st.integers(0, len(key) - at)) :]]
    return tuple(key)


@st.composite
def changed(draw: Any, case: Case) -> Case:
    """A case after one structural operation, done to both sides."""
    array, values, disk = case.array, case.values, case.disk
    operation = draw(
        st.sampled_from(["slice", "index", "take", "transpose", "expand", "broadcast", "join", "stack", "split"])
    )
    if operation == "slice":
        key = draw(basic_keys(values.shape))
        array, values = array[key], values[key]
    elif operation in ("index", "take") and values.ndim:
        axis = draw(st.integers(0, values.ndim - 1))
        low = -1 if operation == "take" else 0
        if values.shape[axis]:
            index = np.array(draw(st.lists(st.integers(low, values.shape[axis] - 1), max_size=9)), np.int64)
            taken = np.take(values, np.maximum(index, 0), axis)
            taken[(slice(None),) * axis + (index < 0,)] = ABSENT_VALUE
            array = array.take(axis, index) if low else array[(slice(None),) * axis + (index,)]
            values = taken
    elif operation == "transpose":
        order = tuple(draw(st.permutations(range(values.ndim))))
        array, values = array.transpose(*order) if order else array, values.transpose(order)
    elif operation == "expand" and values.ndim < 4:
        axis, length = draw(st.integers(0, values.ndim)), draw(st.integers(1, 3))
        array = array.expand_dims(axis, f"new{values.ndim}", length)
        values = np.repeat(np.expand_dims(values, axis), length, axis)
    elif operation == "broadcast" and values.ndim < 4:
        shape = tuple(draw(st.integers(0, 3)) if n == 1 else n for n in values.shape)
        extra = (draw(st.integers(1, 2)),) if draw(st.booleans()) else ()
        array, values = array.broadcast_to(extra + shape), np.broadcast_to(values, extra + shape)
    elif operation == "join" and values.ndim:
        axis = draw(st.integers(0, values.ndim - 1))
        others = [case]
        for _ in range(draw(st.integers(1, 2))):
            shape = (*values.shape[:axis], draw(st.integers(1, 5)), *values.shape[axis + 1 :])
            if 0 in shape:
                return case
            others.append(draw(bases(shape)))
        if draw(st.booleans()):
            others.append(case)
        array = concatenate([other.array for other in others], axis)
        values = np.concatenate([other.values for other in others], axis)
        disk = {url: data for other in others for url, data in other.disk.items()}
    elif operation == "stack" and values.ndim < 4 and 0 not in values.shape:
        axis = draw(st.integers(0, values.ndim))
        other = draw(bases(values.shape)) if values.ndim else case
        array = stack([array, other.array], f"s{values.ndim}", axis)
        values = np.stack([values, other.values], axis)
        disk = disk | other.disk
    elif operation == "split":
        array = array.split(draw(st.sampled_from([1, 8, 30])))
    return Case(array, values, disk)


@st.composite
def mosaics(draw: Any, changes: int = 5) -> Case:
    """A case after several operations."""
    case = draw(bases())
    for _ in range(draw(st.integers(0, changes))):
        case = draw(changed(case))
    return case
