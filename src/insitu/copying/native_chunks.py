"""Native chunks of parts of an archive: copied into a folder beside references, and shown as virtual arrays.

The folder has no metadata: whoever calls this says in references of its own what lies where, and does so in one step
when all chunks are there (`NativePlan.execute`). Until then nothing refers to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from insitu.copying.copy_options import CopyOptions
from insitu.copying.copy_plan import CopyPlan
from insitu.copying.copy_tree import CopyReport, digest_of, execute_copy
from insitu.copying.encode import read_shard_index, shard_index_bytes
from insitu.copying.journal import Journal
from insitu.copying.object_writers import FolderWriter, PrefixWriter
from insitu.copying.stored_forms import StoredForm, stored_forms
from insitu.copying.target_arrays import KEPT, TargetArray, make_target_arrays
from insitu.copying.targets import Target
from insitu.errors import UnsupportedError
from insitu.expressions.nodes import Stored
from insitu.model import (
    IDENTITY,
    UNWRITTEN,
    Axis,
    Codec,
    Columns,
    Packings,
    Source,
    Tile,
    VirtualArray,
    VirtualGroup,
    count_cells,
)
from insitu.reading import ReadContext
from insitu.references.chunk_places import iter_blocks
from insitu.scanning.scan_member import make_loader
from insitu.scanning.stored_view import stored_view
from insitu.sources import open_source

__all__ = ["KINDS", "NativePlan", "native_form", "plan_native_chunks", "plan_zarr_chunks"]

KINDS = "biufcmM"
"""Kinds of types whose values native chunks hold."""


@dataclass(frozen=True, slots=True, eq=False)
class NativePlan:
    """Native chunks that were planned: nothing is written yet."""

    copy: CopyPlan
    packings: tuple[Packings, ...]
    """How the stored values of each array are decoded."""
    shows_stored: bool = False
    """Whether the arrays show stored values, with attributes that decode them."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the arrays."""
        return tuple(array.path for array in self.copy.arrays)

    def execute(self, publish: Callable[[Sequence[VirtualArray]], None]) -> CopyReport:
        """Write the chunks, and call `publish` with the arrays that they make once all are durable."""
        target = self.copy.target
        assert isinstance(target, _NativeTarget)
        target.announce = lambda arrays, journal: publish(
            [
                _virtual_array(array, packings, target, journal, self.shows_stored)
                for array, packings in zip(arrays, self.packings, strict=True)
            ]
        )
        return execute_copy(self.copy)

    def has_chunks_of(self, number: int, tile: Tile) -> bool:
        """Return whether a tile of native chunks is what would be written for an array."""
        array = self.copy.arrays[number]
        sizes = tuple(axis.size for axis in tile.axes) if tile.is_regular else None
        return (
            sizes == array.chunks
            and tile.shape == array.shape
            and tile.encodings == (array.encoding,)
            and tile.packings == self.packings[number]
            and _has_objects_of(array, tile)
        )


def _has_objects_of(array: TargetArray, tile: Tile) -> bool:
    """Return whether the chunks of a tile lie in the objects in which those of an array would: the same shards."""
    inner = [whole // size for whole, size in zip(array.objects, array.chunks, strict=True)]
    found: set[tuple[int, ...]] = set()
    for cells, rows in iter_blocks(tile.chunks):
        places = [cell // count for cell, count in zip(cells, inner, strict=True)]
        found.update(zip(np.asarray(rows.source).tolist(), *places, strict=True))
    urls = tile.chunks.sources
    return all(source < 0 or urls[source].url.endswith(f"/{array.key(cell)}") for source, *cell in found)


def plan_native_chunks(
    arrays: Mapping[str, VirtualArray],
    folder: str,
    options: CopyOptions,
    context: ReadContext,
    *,
    mark: str = "",
) -> NativePlan:
    """Return the plan of native chunks of arrays: everything is checked, and nothing is written.

    Parameters
    ----------
    arrays
        What is copied, by path: parts of an archive as they are meant.
    folder
        The chunks get a folder of their own in it.
    options
        Chunks, codec, memory, storage options of the target.
    context
        How values are read.
    mark
        Told apart from other copies of the same arrays by it.
    """
    forms, packings = [], []
    for path, array in arrays.items():
        form, packing = native_form(path, array, context.of_variable(path))
        forms.append(form)
        packings.append(packing)
    options = replace(options, codec=KEPT if options.codec is None else options.codec, zarr_format=3)
    made = [_with_checksum(array) for array in make_target_arrays(forms, options, "zarr")]
    return _plan(made, packings, folder, options, context, mark)


def plan_zarr_chunks(
    tree: VirtualGroup, folder: str, options: CopyOptions, context: ReadContext, *, mark: str = ""
) -> NativePlan:
    """Return the plan of native chunks of variables as Zarr arrays have them, with attributes that decode them.

    The parameters are those of `plan_native_chunks`; `options.zarr_format` says which codecs there are.
    """
    load = make_loader(context.storage_options)
    forms, _ = stored_forms(tree, {}, context, load, typed_attributes=False)
    made = [replace(array, through=None) for array in make_target_arrays(forms, options, "zarr")]
    plan = _plan(made, [IDENTITY] * len(made), folder, options, context, mark)
    return replace(plan, shows_stored=True)


def _plan(
    arrays: Sequence[TargetArray],
    packings: Sequence[Packings],
    folder: str,
    options: CopyOptions,
    context: ReadContext,
    mark: str,
) -> NativePlan:
    plan = CopyPlan(_NativeTarget(folder, options), tuple(arrays), {"": {"mark": mark}}, options, context)
    target = _NativeTarget(f"{folder}/{digest_of(plan).hex()[:20]}", options)
    return NativePlan(replace(plan, target=target), tuple(packings))


def native_form(path: str, array: VirtualArray, context: ReadContext) -> tuple[StoredForm, Packings]:
    """Return what is stored of an array, and how that is decoded: the stored values of its files if all are stored
    and packed alike, else the values as they are meant.

    Raises
    ------
    UnsupportedError
        If its values have no fixed size, or are no numbers and times.
    """
    stored = _stored_alike(array, path)
    if stored is not None:
        used = array.tiles[0]
        packing = Packings.of([used.packings[_first_packing(used)]])
        fill = {} if stored.fill_value is None else {"_FillValue": stored.fill_value}
        form = StoredForm(
            path, array.dims, Stored(stored, context), stored.dtype.newbyteorder("<"), fill, array, stored
        )
        return form, packing
    if array.dtype.kind not in KINDS:
        raise UnsupportedError(
            f"values of type {array.dtype} cannot be stored as native chunks", variable=path, hint="Leave it out"
        )
    node = Stored(array, context)
    return StoredForm(path, array.dims, node, array.dtype.newbyteorder("<"), {}, array), IDENTITY


def _stored_alike(array: VirtualArray, path: str) -> VirtualArray | None:
    """Return the stored values of an array; None if they differ in type or packing, or some places are absent."""
    dtypes = {encoding.dtype.newbyteorder("=") for tile in array.tiles for encoding in tile.encodings}
    if len(dtypes) != 1 or next(iter(dtypes)).kind not in KINDS or not array.tiles:
        return None
    covered = sum(math.prod(map(int, tile.shape)) for tile in array.tiles)
    if covered < array.size or count_cells(array).absent:
        return None
    try:
        stored = stored_view(array, path)
    except UnsupportedError:  # packed differently
        return None
    return stored if stored.dtype in dtypes else None


def _first_packing(tile: Tile) -> int:
    """Return a row of the table of packings that cells of a tile have."""
    if len(tile.packings) == 1 or 0 in tile.chunks.shape:
        return 0
    return int(tile.chunks.locate([np.zeros(1, np.int64)] * len(tile.chunks.shape)).packing[0])


def _with_checksum(array: TargetArray) -> TargetArray:
    """Return an array whose chunks end in a checksum, which every read compares; those that pass through stay."""
    if array.through is not None:
        return replace(array, encoding=array.through.array.encoding)
    encoding = replace(array.encoding, codecs=(*array.encoding.codecs, Codec("crc32c")))
    return replace(array, encoding=encoding)


def _virtual_array(
    array: TargetArray, packings: Packings, target: _NativeTarget, journal: Journal, shows_stored: bool
) -> VirtualArray:
    """Return the array that finished chunks make."""
    finished = journal.of_array(array.order)
    numbers = sorted(finished)
    places = np.unravel_index(numbers, array.grid) if array.grid else ()
    cells = list(zip(*(place.tolist() for place in places), strict=True)) if array.grid else [()] * len(numbers)
    sources = tuple(
        Source(f"{target.url}/{array.key(cell)}", finished[number].nbytes)
        for number, cell in zip(numbers, cells, strict=True)
    )
    # A cell for each chunk; the shards at the end of the array have more of them than the array.
    inner = [whole // size for whole, size in zip(array.objects, array.chunks, strict=True)]
    shape = [count * within for count, within in zip(array.grid, inner, strict=True)]
    which, offsets, lengths = np.full(shape, UNWRITTEN, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for number, (cell, source) in enumerate(zip(cells, sources, strict=True)):
        box = tuple(slice(at * within, (at + 1) * within) for at, within in zip(cell, inner, strict=True))
        if array.shards is None:
            which[box], lengths[box] = number, source.size or 0
            continue
        index = read_shard_index(target.read_end(source, shard_index_bytes(inner)), inner)
        is_there = index[..., 0] >= 0
        which[box] = np.where(is_there, number, UNWRITTEN)
        offsets[box], lengths[box] = np.where(is_there[..., None], index, 0).transpose(-1, *range(len(inner)))
    chunks = tuple(slice(-(-length // size)) for length, size in zip(array.shape, array.chunks, strict=True))
    grid = tuple(part.stop for part in chunks)
    table = Columns(grid, sources, which[chunks], offsets[chunks], lengths[chunks])
    axes = tuple(Axis.regular(n, size) for n, size in zip(array.shape, array.chunks, strict=True))
    tile = Tile(axes, (array.encoding,), table, packings)
    form = array.form
    origins = np.zeros((1, len(grid)), np.int64)
    if shows_stored:
        return VirtualArray(form.shape, form.dtype, form.dims, (tile,), origins, form.attributes)
    shown = form.source
    return VirtualArray(shown.shape, shown.dtype, shown.dims, (tile,), origins, fill_value=shown.fill_value)


class _NativeTarget(Target):
    """A folder of native chunks: they are written to their places, since nothing names them before all are there."""

    kind = "zarr"

    def __init__(self, url: str, options: CopyOptions) -> None:
        super().__init__(url, options)
        if self.path is None:
            self.writer = PrefixWriter(self.url, options.storage_options)
        else:
            self.url = self.path
            self.writer = FolderWriter(self.path)
        self.announce: Callable[[Sequence[TargetArray], Journal], None] | None = None
        self._complete: tuple[Sequence[TargetArray], Journal] | None = None

    def read_end(self, source: Source, nbytes: int) -> bytes:
        """Return the last bytes of an object that was written."""
        assert source.size is not None
        with open_source(source.url, self.options.storage_options) as opened:
            return opened.read(source.size - nbytes, nbytes)

    def begin(self) -> None:
        """Remove what another run has left in the folder."""
        super().begin()
        self.writer.clear()

    def complete(
        self, arrays: Sequence[TargetArray], groups: Mapping[str, Mapping[str, Any]], journal: Journal
    ) -> None:
        """Take what is published."""
        self._complete = arrays, journal

    def publish(self) -> None:
        """Wait for the disk, then say where the chunks lie."""
        assert self._complete is not None
        assert self.announce is not None
        self.writer.sync()
        self.announce(*self._complete)
