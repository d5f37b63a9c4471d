"""Virtual arrays of HDF5 virtual datasets (VDS).

Sources are opened relative to the file, each with its own encoding. A missing source leaves the
fill value. Unlimited mappings, and those with one numbered source per block, decide how long the
dataset is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.hdf5.datasets.arrays import details_of, encoding_of, virtual_array
from insitu.formats.hdf5.datasets.external_data import external_array
from insitu.formats.hdf5.datasets.object_at_path import Opened, open_at
from insitu.formats.hdf5.datasets.objects import Dataset
from insitu.formats.hdf5.datasets.set_members import member_array
from insitu.formats.hdf5.datasets.virtual_mapping import Mapping
from insitu.formats.hdf5.datasets.virtual_sources import Piece, assemble, place
from insitu.formats.hdf5.linked.joined_file import as_joined_file
from insitu.formats.hdf5.structures.file import File
from insitu.formats.hdf5.structures.layout import VirtualLayout
from insitu.formats.hdf5.structures.stored_selection import Line, Picked
from insitu.formats.parsing.read_cache import Window
from insitu.formats.parsing.sibling_files import Neighbours
from insitu.model import VirtualArray

__all__ = ["array_of", "settle"]

NESTED_LIMIT = 16
BLOCKS_LIMIT = 1 << 16
EXTENT_LIMIT = 1 << 62


def settle(neighbours: Neighbours, window: Window, dataset: Dataset) -> None:
    """Set the shape of an unlimited virtual dataset from the current shapes of its sources."""
    space = dataset.space
    shape = list(space.shape)
    found: dict[int, int] = {}
    least = [0] * len(shape)
    for mapping in dataset.mappings:
        axis = mapping.target_selection.endless_axis
        for number, line in enumerate(mapping.target_selection.lines[: len(shape)]):
            if not line.is_endless:
                least[number] = max(least[number], line.reach(line.length))
        for _, behind in mapping.target_selection.boxes:
            least = [max(a, b) for a, b in zip(least, behind, strict=True)]
        if axis is None:
            continue
        if axis >= len(shape):
            raise FormatError("a selection has more axes than the virtual dataset", structure="virtual dataset")
        end = 0
        for here, _, _ in _sources(neighbours, window, mapping):
            line = here.lines[axis]
            end = max(end, line.reach(line.length))
        found[axis] = max(found.get(axis, 0), end)
    for axis, end in found.items():
        shape[axis] = max(end, least[axis])
        if shape[axis] >= EXTENT_LIMIT:
            raise FormatError(f"the mappings reach up to element {shape[axis]}", structure="virtual dataset")
    if found:
        dataset.space = dataclasses.replace(space, shape=tuple(shape))


def _sources(
    neighbours: Neighbours, window: Window, mapping: Mapping
) -> Iterator[tuple[Picked, Picked, VirtualArray | None]]:
    """What is mapped whereto, with ends where the sources end."""
    here, there = mapping.target_selection, mapping.source_selection
    axis = here.endless_axis
    if axis is None:
        yield here, there, _source(neighbours, window, *mapping.names(0))
        return
    line = here.lines[axis]
    if mapping.numbered:
        if line.block is None:
            raise FormatError("sources are numbered, but the mapping has one block only", structure="virtual dataset")
        for number in range(BLOCKS_LIMIT):
            source = _source(neighbours, window, *mapping.names(number))
            if source is None:
                return
            block = Line(line.start + number * line.stride, line.block, 1, line.block)
            yield _along(here, axis, block), there, source
        raise UnsupportedError(
            f"a mapping with more than {BLOCKS_LIMIT} numbered sources is not supported", structure="virtual dataset"
        )
    of = there.endless_axis
    if of is None:
        raise FormatError("an unlimited mapping has a limited source selection", structure="virtual dataset")
    source = _source(neighbours, window, *mapping.names(0))
    if source is None:
        return
    if of >= source.ndim:
        raise FormatError("a selection has more axes than its source", structure="virtual dataset")
    count = there.lines[of].within(source.shape[of])
    yield _along(here, axis, line.clipped(count)), _along(there, of, there.lines[of].clipped(count)), source


def _along(picked: Picked, axis: int, line: Line) -> Picked:
    return Picked("lines", (*picked.lines[:axis], line, *picked.lines[axis + 1 :]))


def _source(neighbours: Neighbours, window: Window, name: str, path: str) -> VirtualArray | None:
    """The array of a source; None: it is missing."""
    key = ("source", window.url, name, path)
    if key not in neighbours.memory:
        there = window if name in (".", "") else neighbours.open_beside(window, name)
        found = None if there is None else open_at(neighbours, there, path)
        if found is None:
            neighbours.memory[key] = None
        else:
            opened, dataset, _ = found
            if not isinstance(dataset, Dataset):
                raise FormatError(f"the source {path!r} is not a dataset", structure="virtual dataset")
            neighbours.memory[key] = _nested(neighbours, opened, dataset)
    array: VirtualArray | None = neighbours.memory[key]
    return array


def _nested(neighbours: Neighbours, opened: Opened, dataset: Dataset) -> VirtualArray:
    """The array of a dataset that is a source, which may be virtual itself."""
    if dataset.problem is not None:
        raise dataset.problem
    above: list[tuple[str, int]] = neighbours.memory.setdefault("above", [])
    origin = (opened.window.url, dataset.address)
    if origin in above or len(above) > NESTED_LIMIT:
        raise FormatError("the virtual datasets are made of each other", structure="virtual dataset")
    above.append(origin)
    try:
        if isinstance(dataset.layout, VirtualLayout):
            settle(neighbours, opened.window, dataset)
        shape = dataset.space.shape
        dims = tuple(f"axis_{axis}" for axis in range(len(shape) + len(dataset.datatype.shape)))
        if dataset.space.null:
            raise FormatError("a source of the virtual dataset has a null dataspace", structure="virtual dataset")
        return array_of(neighbours, opened.window, opened.file, dataset, shape, dims, {})
    finally:
        above.pop()


def array_of(
    neighbours: Neighbours,
    window: Window,
    file: File,
    dataset: Dataset,
    shape: tuple[int, ...],
    dims: tuple[str, ...],
    attributes: dict[str, Any],
) -> VirtualArray:
    """Return the virtual array of any dataset; see `virtual_array`."""
    if dataset.segments and not dataset.space.null:
        return external_array(neighbours, window, file, dataset, shape, dims, attributes)
    if not isinstance(dataset.layout, VirtualLayout) or dataset.space.null:
        joined = as_joined_file(window.source)
        if joined is not None:
            return member_array(joined, file, dataset, shape, dims, attributes)
        return virtual_array(file, window.source.describe(), dataset, shape, dims, attributes)
    encoding = encoding_of(file, dataset)
    if dataset.fill.state == "per element":
        raise UnsupportedError(
            "a virtual dataset whose fill value differs from element to element is not supported",
            structure="fill value",
        )
    extra = dataset.datatype.shape
    whole = (*shape, *extra)
    fill = encoding.fill_value()
    pieces: list[Piece] = []
    missing: list[str] = []
    neighbours.prepare(window, [m.names(0)[0] for m in dataset.mappings if not m.numbered and m.file not in (".", "")])
    for mapping in dataset.mappings:
        for here, there, source in _sources(neighbours, window, mapping):
            if source is None:
                missing.append(":".join(mapping.names(0)))
                continue
            _check(source, dataset, encoding.dtype, fill)
            pieces += place(here, there, source, dataset.space.shape, len(extra))
    tiles, origins = assemble(pieces, len(whole))
    details = dataclasses.replace(details_of(dataset, shape), is_virtual=True, missing_sources=tuple(missing))
    return VirtualArray(whole, encoding.dtype, dims, tiles, origins, attributes, fill, details)


def _check(source: VirtualArray, dataset: Dataset, dtype: np.dtype[Any], fill: Any) -> None:
    """Raise where a source would read otherwise here than the library has it."""
    extra = dataset.datatype.shape
    if source.shape[source.ndim - len(extra) :] != extra or len(extra) >= source.ndim + 1:
        raise UnsupportedError(
            "a source has elements of another array shape, which is not supported", structure="virtual dataset"
        )
    own, want = source.dtype.newbyteorder("="), dtype.newbyteorder("=")
    if own != want and not (own.kind in "iufc" and want.kind in "iufc" and np.can_cast(own, want, "safe")):
        raise UnsupportedError(
            f"a source of dtype {own} in a virtual dataset of dtype {want} is not supported",
            structure="virtual dataset",
        )
    if source.details.is_virtual and sum(int(np.prod(tile.shape)) for tile in source.tiles) != source.size:
        other = source.fill_value
        if not _alike(other, fill):
            raise UnsupportedError(
                "a source that is virtual, has gaps and another fill value is not supported",
                structure="virtual dataset",
            )


def _alike(one: Any, other: Any) -> bool:
    """Whether two fill values are the same; NaN is itself, and empty sequences are."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one.item(), other.item())
    return bool(one == other or (one != one and other != other))
