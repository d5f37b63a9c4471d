"""Virtual arrays of HDF5 virtual datasets (VDS).

Sources are opened relative to the file, each with its own encoding. A missing source leaves the
fill value. Unlimited mappings, and those with one numbered source per block, decide how long the
dataset is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.hdf5.datasets.arrays import array_details, dataset_encoding, virtual_array
from insitu.formats.hdf5.datasets.object_at_path import ParsedFile, open_object
from insitu.formats.hdf5.datasets.objects import Dataset
from insitu.formats.hdf5.structures.file import FileContext
from insitu.formats.hdf5.structures.layout import VirtualLayout
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.parsing.sibling_files import SiblingFiles
from insitu.model import VirtualArray

if TYPE_CHECKING:
    from insitu.formats.hdf5.datasets.virtual_mapping import SourceMapping
    from insitu.formats.hdf5.structures.stored_selection import AxisHyperslab, StoredSelection

__all__ = ["dataset_array", "resolve_extent"]

NESTED_LIMIT = 16
BLOCKS_LIMIT = 1 << 16
EXTENT_LIMIT = 1 << 62


def resolve_extent(siblings: SiblingFiles, window: ReadCache, dataset: Dataset) -> None:
    """Set the shape of an unlimited virtual dataset from the current shapes of its sources."""
    space = dataset.space
    shape = list(space.shape)
    found: dict[int, int] = {}
    least = [0] * len(shape)
    for mapping in dataset.mappings:
        axis = mapping.target_selection.endless_axis
        for number, line in enumerate(mapping.target_selection.lines[: len(shape)]):
            if not line.is_endless:
                least[number] = max(least[number], line.required_extent(line.length))
        for _, box_end in mapping.target_selection.boxes:
            least = [max(a, b) for a, b in zip(least, box_end, strict=True)]
        if axis is None:
            continue
        if axis >= len(shape):
            raise FormatError("a selection has more axes than the virtual dataset", structure="virtual dataset")
        end = 0
        for target_selection, _, _ in _iterate_sources(siblings, window, mapping):
            line = target_selection.lines[axis]
            end = max(end, line.required_extent(line.length))
        found[axis] = max(found.get(axis, 0), end)
    for axis, end in found.items():
        shape[axis] = max(end, least[axis])
        if shape[axis] >= EXTENT_LIMIT:
            raise FormatError(f"the mappings reach up to element {shape[axis]}", structure="virtual dataset")
    if found:
        dataset.space = dataclasses.replace(space, shape=tuple(shape))


def _iterate_sources(
    siblings: SiblingFiles, window: ReadCache, mapping: SourceMapping
) -> Iterator[tuple[StoredSelection, StoredSelection, VirtualArray | None]]:
    """What is mapped whereto, with ends where the sources end."""
    from insitu.formats.hdf5.structures.stored_selection import AxisHyperslab

    target_selection, source_selection = mapping.target_selection, mapping.source_selection
    axis = target_selection.endless_axis
    if axis is None:
        yield target_selection, source_selection, _open_source_array(siblings, window, *mapping.names(0))
        return
    line = target_selection.lines[axis]
    if mapping.is_numbered:
        if line.block is None:
            raise FormatError("sources are numbered, but the mapping has one block only", structure="virtual dataset")
        for number in range(BLOCKS_LIMIT):
            source = _open_source_array(siblings, window, *mapping.names(number))
            if source is None:
                return
            block = AxisHyperslab(line.start + number * line.stride, line.block, 1, line.block)
            yield _replace_line(target_selection, axis, block), source_selection, source
        raise UnsupportedError(
            f"a mapping with more than {BLOCKS_LIMIT} numbered sources is not supported", structure="virtual dataset"
        )
    of = source_selection.endless_axis
    if of is None:
        raise FormatError("an unlimited mapping has a limited source selection", structure="virtual dataset")
    source = _open_source_array(siblings, window, *mapping.names(0))
    if source is None:
        return
    if of >= source.ndim:
        raise FormatError("a selection has more axes than its source", structure="virtual dataset")
    count = source_selection.lines[of].count_before(source.shape[of])
    yield (
        _replace_line(target_selection, axis, line.clip(count)),
        _replace_line(source_selection, of, source_selection.lines[of].clip(count)),
        source,
    )


def _replace_line(selection: StoredSelection, axis: int, line: AxisHyperslab) -> StoredSelection:
    from insitu.formats.hdf5.structures.stored_selection import StoredSelection

    return StoredSelection("lines", (*selection.lines[:axis], line, *selection.lines[axis + 1 :]))


def _open_source_array(siblings: SiblingFiles, window: ReadCache, name: str, path: str) -> VirtualArray | None:
    """The array of a source; None: it is missing."""
    key = ("source", window.url, name, path)
    if key not in siblings.memory:
        source_window = window if name in (".", "") else siblings.open_sibling(window, name)
        found = None if source_window is None else open_object(siblings, source_window, path)
        if found is None:
            siblings.memory[key] = None
        else:
            opened, dataset, _ = found
            if not isinstance(dataset, Dataset):
                raise FormatError(f"the source {path!r} is not a dataset", structure="virtual dataset")
            siblings.memory[key] = _source_array(siblings, opened, dataset)
    array: VirtualArray | None = siblings.memory[key]
    return array


def _source_array(siblings: SiblingFiles, opened: ParsedFile, dataset: Dataset) -> VirtualArray:
    """The array of a dataset that is a source, which may be virtual itself."""
    if dataset.problem is not None:
        raise dataset.problem
    chain: list[tuple[str, int]] = siblings.memory.setdefault("above", [])
    origin = (opened.window.url, dataset.address)
    if origin in chain or len(chain) > NESTED_LIMIT:
        raise FormatError("the virtual datasets are made of each other", structure="virtual dataset")
    chain.append(origin)
    try:
        if isinstance(dataset.layout, VirtualLayout):
            resolve_extent(siblings, opened.window, dataset)
        shape = dataset.space.shape
        dims = tuple(f"axis_{axis}" for axis in range(len(shape) + len(dataset.datatype.shape)))
        if dataset.space.null:
            raise FormatError("a source of the virtual dataset has a null dataspace", structure="virtual dataset")
        return dataset_array(siblings, opened.window, opened.file, dataset, shape, dims, {})
    finally:
        chain.pop()


def dataset_array(
    siblings: SiblingFiles,
    window: ReadCache,
    file: FileContext,
    dataset: Dataset,
    shape: tuple[int, ...],
    dims: tuple[str, ...],
    attributes: dict[str, Any],
) -> VirtualArray:
    """Return the virtual array of any dataset; see `virtual_array`."""
    if dataset.segments and not dataset.space.null:
        from insitu.formats.hdf5.datasets.external_data import external_array

        return external_array(siblings, window, file, dataset, shape, dims, attributes)
    if not isinstance(dataset.layout, VirtualLayout) or dataset.space.null:
        return virtual_array(file, window.describe(), dataset, shape, dims, attributes)
    encoding = dataset_encoding(file, dataset)
    if dataset.fill.state == "per element":
        raise UnsupportedError(
            "a virtual dataset whose fill value differs from element to element is not supported",
            structure="fill value",
        )
    extra = dataset.datatype.shape
    whole = (*shape, *extra)
    fill = encoding.fill_value()
    from insitu.formats.hdf5.datasets.virtual_sources import PlacedArray, assemble, place_mapping

    pieces: list[PlacedArray] = []
    missing: list[str] = []
    siblings.prepare(window, [m.names(0)[0] for m in dataset.mappings if not m.is_numbered and m.file not in (".", "")])
    for mapping in dataset.mappings:
        for target_selection, source_selection, source in _iterate_sources(siblings, window, mapping):
            if source is None:
                missing.append(":".join(mapping.names(0)))
                continue
            _check_source(source, dataset, encoding.dtype, fill)
            pieces += place_mapping(target_selection, source_selection, source, dataset.space.shape, len(extra))
    tiles, origins = assemble(pieces, len(whole))
    details = dataclasses.replace(array_details(dataset, shape), is_virtual=True, missing_sources=tuple(missing))
    return VirtualArray(whole, encoding.dtype, dims, tiles, origins, attributes, fill, details)


def _check_source(source: VirtualArray, dataset: Dataset, dtype: np.dtype[Any], fill: Any) -> None:
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
        if not _is_same_fill(other, fill):
            raise UnsupportedError(
                "a source that is virtual, has gaps and another fill value is not supported",
                structure="virtual dataset",
            )


def _is_same_fill(one: Any, other: Any) -> bool:
    """Whether two fill values are the same; NaN is itself, and empty sequences are."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one.item(), other.item())
    return bool(one == other or (one != one and other != other))
