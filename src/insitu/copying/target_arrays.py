"""The arrays of a target: chunks, codecs and the boxes in which they are copied, checked before anything is written."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.copying.choose_chunks import check_chunks, choose_chunks, choose_shards
from insitu.copying.choose_codecs import choose_codecs
from insitu.copying.copy_options import CopyOptions
from insitu.copying.encode import ObjectEncoder
from insitu.copying.stored_forms import StoredForm
from insitu.copying.sweeps import Passes, SourceGrid, plan_passes
from insitu.errors import SelectionSizeError, UnsupportedError
from insitu.expressions.boxes import Box, is_uncompressed
from insitu.expressions.chunk_grid import chunk_borders, chunk_sizes, read_itemsize
from insitu.expressions.evaluate import read_all
from insitu.expressions.moves import select_box
from insitu.expressions.nodes import Expression, stored_arrays
from insitu.model import Axis, Columns, Encoding, Tile, VirtualArray
from insitu.model.description import format_bytes
from insitu.reading.thread_pools import count_cores
from insitu.reading.zarr_store.stored_chunks import StoredChunks, find_stored_chunks
from insitu.zarr_metadata.keys import ChunkKeys
from insitu.zarr_metadata.to_documents import array_documents
from insitu.zarr_metadata.to_zarr import to_zarr_spec
from insitu.zarr_metadata.typed_attributes import without_hints

__all__ = ["Extension", "TargetArray", "boxes_memory", "find_time", "make_target_arrays", "passes_within"]

PROCESS_BYTES = 160 << 20
"""What the interpreter and its libraries take, and the buffers of threads; of small budgets half is counted."""
ENCODED_COPIES = 3
"""Times the bytes of an object that a thread holds while it encodes one."""
KEPT = "source"
"""The codec that means: those of the source, also where only readers of Python know them."""
DEFAULT_CODECS = {"zarr": "zstd:3", "icechunk": "zstd:3", "netcdf": "zlib:4"}


@dataclass(frozen=True, slots=True, eq=False)
class Extension:
    """Where an array continues one that is in the target already, along one axis."""

    axis: int
    first: int
    """Number of its first object along the axis, in the grid of the whole array."""
    length: int
    """Elements of the whole array along the axis, once it is extended."""
    front: Expression | None = None
    """The stored values of the target that share the first object, and stay; None: there are none."""

    @property
    def front_length(self) -> int:
        """Elements of them along the axis."""
        return 0 if self.front is None else self.front.shape[self.axis]

    def complete(self, values: npt.NDArray[Any], box: Box) -> npt.NDArray[Any]:
        """Return the values of an object, those of the target that stay in front of the new ones."""
        if self.front is None:
            return values
        place = tuple(slice(0, self.front_length) if axis == self.axis else part for axis, part in enumerate(box))
        (before,) = read_all([select_box(self.front, place)])
        return np.concatenate([before.astype(values.dtype, copy=False), values], axis=self.axis)


@dataclass(frozen=True, slots=True, eq=False)
class TargetArray:
    """An array of a target, and how it is copied."""

    form: StoredForm
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None
    encoding: Encoding
    passes: Passes
    keys: ChunkKeys
    through: StoredChunks | None = None
    """The stored chunks, if they pass through unchanged."""
    order: int = 0
    """Number of the array in the target and its journal."""
    extension: Extension | None = None
    """If the array is a part that is added to one in the target: where."""

    @property
    def path(self) -> str:
        """Where the array is in the target."""
        return self.form.path

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""
        return self.form.shape

    @property
    def objects(self) -> tuple[int, ...]:
        """Lengths of an object: a shard, or a chunk."""
        return self.shards or self.chunks

    @property
    def grid(self) -> tuple[int, ...]:
        """Objects along each dimension."""
        return tuple(-(-length // size) for length, size in zip(self.shape, self.objects, strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of the values that are copied."""
        return math.prod(self.shape) * self.itemsize

    @property
    def padded_bytes(self) -> int:
        """Bytes of all chunks, with what fills up those at the end of the array."""
        sizes = zip(self.shape, self.chunks, strict=True)
        return math.prod(-(-length // size) * size for length, size in sizes) * self.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of a value, about 16 of a text."""
        return 16 if self.form.dtype.hasobject else self.form.dtype.itemsize

    @property
    def encoder(self) -> ObjectEncoder:
        """What makes the bytes of an object."""
        return ObjectEncoder(self.encoding, self.chunks, self.shards)

    def key(self, cell: Sequence[int]) -> str:
        """Return the key of an object."""
        if self.extension is not None:
            axis = self.extension.axis
            cell = (*cell[:axis], cell[axis] + self.extension.first, *cell[axis + 1 :])
        return f"{self.path}/{self.keys.key(cell)}"

    def object_shape(self, cell: Sequence[int]) -> tuple[int, ...]:
        """Return the elements of an object along each axis, without what fills it up at the end of the array."""
        shown = [min(n - at * size, size) for at, size, n in zip(cell, self.objects, self.shape, strict=True)]
        if self.extension is not None:
            shown[self.extension.axis] += self.extension.front_length
        return tuple(shown)

    def number(self, cell: Sequence[int]) -> int:
        """Return the number of an object in C order of the grid."""
        found = 0
        for at, count in zip(cell, self.grid, strict=True):
            found = found * count + at
        return found

    def objects_in(self, box: Box) -> Iterator[tuple[tuple[int, ...], Box]]:
        """Yield the objects of a box: place in the grid, and box of elements."""
        ranges = [
            range(part.start // size, -(-part.stop // size)) for part, size in zip(box, self.objects, strict=True)
        ]
        for cell in itertools.product(*ranges):
            yield (
                cell,
                tuple(
                    slice(at * size, min((at + 1) * size, length))
                    for at, size, length in zip(cell, self.objects, self.shape, strict=True)
                ),
            )

    def documents(self, zarr_format: int) -> dict[str, dict[str, Any]]:
        """Return the metadata documents of the array in Zarr, by name.

        They have no attributes but those of the source: what needs types that JSON has not is stored unpacked.
        """
        documents = zarr_documents(self, zarr_format) if self.through is None else dict(self.through.documents)
        name = "zarr.json" if "zarr.json" in documents else ".zattrs"
        attributes = documents[name].get("attributes", {}) if name == "zarr.json" else documents[name]
        kept = without_hints(attributes)
        return {**documents, name: {**documents[name], "attributes": kept} if name == "zarr.json" else kept}


def boxes_memory(options: CopyOptions) -> int:
    """Return the bytes that boxes and kept chunks may take together."""
    whole = options.memory_bytes()
    return max(whole - min(PROCESS_BYTES, whole // 2), 1)


def make_target_arrays(forms: Sequence[StoredForm], options: CopyOptions, kind: str) -> list[TargetArray]:
    """Return the arrays of a target.

    Parameters
    ----------
    forms
        What is stored of the variables.
    options
        Chunks, codecs, memory.
    kind
        `zarr`, `icechunk` or `netcdf`.

    Raises
    ------
    UnsupportedError, SelectionError, SelectionSizeError
        If something of it is not possible: the error names the variable.
    """
    sizes = {dim: length for form in forms for dim, length in zip(form.dims, form.shape, strict=True)}
    check_chunks(options.chunks, sizes)
    check_chunks(options.shards, sizes, "shards")
    if options.zarr_format not in (2, 3):
        raise UnsupportedError(f"Zarr has no format {options.zarr_format}", hint="Give 2 or 3")
    if options.shards and (kind == "netcdf" or (kind == "zarr" and options.zarr_format == 2)):
        raise UnsupportedError("only Zarr V3 has shards", hint="Leave shards out, or copy to .zarr with zarr_format=3")
    if options.commit_every is not None and kind != "icechunk":
        raise UnsupportedError("only Icechunk has commits", hint="Leave commit_every out, or copy to .icechunk")
    if options.memory is not None and options.memory <= 0:
        raise SelectionSizeError(f"a copy cannot be made with {options.memory} bytes of memory", hint="Give e.g. 512MB")
    time = find_time(forms)
    return [replace(_make_array(form, options, kind, time), order=number) for number, form in enumerate(forms)]


def find_time(forms: Sequence[StoredForm]) -> str | None:
    """Return the dimension that is labelled by times; else one that is called so."""
    for form in forms:
        shown = form.source
        is_time = shown.dtype.kind == "M" or (shown.dtype.kind == "O" and "calendar" in shown.encoding)
        if is_time and form.dims == (form.path.rpartition("/")[2],):
            return form.dims[0]
    dims = {dim for form in forms for dim in form.dims}
    return next((name for name in ("time", "valid_time", "t") if name in dims), None)


def _make_array(form: StoredForm, options: CopyOptions, kind: str, time: str | None) -> TargetArray:
    node = form.node
    stored = stored_chunks_worth_keeping(node)
    itemsize = form.dtype.itemsize if not form.dtype.hasobject else 16
    chunks = choose_chunks(options.chunks, form.dims, form.shape, itemsize, stored, time)
    shards = choose_shards(options.shards, form.dims, form.shape, chunks)
    zarr_format = 3 if kind != "zarr" else options.zarr_format
    naming = "netcdf" if kind == "netcdf" else f"zarr{zarr_format}"
    is_given = options.codec not in (None, KEPT)
    wanted = options.codec if options.codec is not None and is_given else DEFAULT_CODECS[kind]
    codecs = choose_codecs(wanted, form.dtype, naming)
    fill = fill_bytes(form)
    encoding = Encoding(form.dtype, codecs, None, fill)
    keys = ChunkKeys(".") if zarr_format == 2 else ChunkKeys("/", "c")
    through = None
    if form.stored is not None and shards is None and kind == "netcdf":
        through = _find_filtered(form, chunks, codecs if is_given else None)
    elif form.stored is not None and shards is None:
        through = _find_unchanged(form.stored, zarr_format, chunks, codecs if is_given else None, options.codec == KEPT)
    passes = passes_within(form, shards or chunks, options, "shard" if shards else "chunk", check=through is None)
    return TargetArray(form, chunks, shards, encoding, passes, keys, through)


def passes_within(
    form: StoredForm, objects: Sequence[int], options: CopyOptions, what: str, *, check: bool = True
) -> Passes:
    """Return how an array is copied within the memory.

    Parameters
    ----------
    form
        The array.
    objects
        Lengths of an object of the target.
    options
        Of the copy.
    what
        What an object is, for messages.
    check
        Whether an object has to fit.

    Raises
    ------
    SelectionSizeError
        If it does not.
    """
    node = form.node
    itemsize = form.dtype.itemsize if not form.dtype.hasobject else 16
    room = boxes_memory(options)
    largest = math.prod(objects) * max(itemsize, read_itemsize(node))
    if largest > room and check:
        raise SelectionSizeError(
            f"one {what} of the target has {format_bytes(largest)}, and "
            f"{format_bytes(room)} of the memory are left for it",
            variable=form.path,
            hint="Give more memory, or smaller chunks",
        )
    encoding_bytes = ENCODED_COPIES * count_cores() * math.prod(objects) * itemsize
    room -= min(encoding_bytes, room // 2)
    return plan_passes(form.shape, itemsize, source_grid(node), objects, room, read_itemsize(node))


def stored_chunks_worth_keeping(node: Expression) -> list[int] | None:
    """Return the lengths of the stored chunks; None if the values lie in one block, or in memory."""
    if not stored_arrays(node):
        return None
    sizes = chunk_sizes(node)
    whole = all(size >= length for size, length in zip(sizes, node.shape, strict=True))
    return None if whole and is_uncompressed(node) else sizes


def source_grid(node: Expression) -> SourceGrid:
    """Return where the chunks of an expression end."""
    if not node.shape:
        return SourceGrid(())
    if is_uncompressed(node):  # rows are read as they are needed
        return SourceGrid((*(1 for _ in node.shape[1:]), max(min(chunk_sizes(node)[-1], node.shape[-1]), 1)))
    sizes, borders, regular = [], [], True
    for axis in range(node.ndim):
        ends = chunk_borders(node, axis)
        lengths = np.diff(ends)
        size = max(int(lengths.max(initial=1)), 1)
        sizes.append(size)
        borders.append(ends)
        regular = regular and bool((lengths[:-1] == size).all())
    return SourceGrid(tuple(sizes), None if regular else tuple(borders))


def fill_bytes(form: StoredForm) -> bytes | None:
    """Return the value of what is never written: the one that means missing, NaN, or zero."""
    dtype = form.dtype
    if dtype.hasobject:
        return None
    value = form.attributes.get("_FillValue", np.nan if dtype.kind in "fc" else None)
    if value is None:
        return None
    try:
        with np.errstate(all="ignore"):
            return np.asarray(value).reshape(-1)[:1].astype(dtype).tobytes() or None
    except (TypeError, ValueError, OverflowError):  # an attribute of another kind
        return None


def _find_unchanged(
    array: VirtualArray, zarr_format: int, chunks: Sequence[int], codecs: Any, any_reader: bool
) -> StoredChunks | None:
    """Return the stored chunks of an array, if they can lie in the target as they are.

    Zarr V3 specifies few codecs: with others, only readers of Python could read the target.
    """
    found = find_stored_chunks(array, zarr_format, portable=zarr_format == 3 and not any_reader)
    if found is None or found.array.chunks != tuple(chunks) or found.array.absent:
        return None
    if found.array.encoding.dtype.newbyteorder("=") != array.dtype.newbyteorder("="):  # of a part without chunks
        return None
    if codecs is not None and found.array.encoding.codecs != codecs:
        return None
    return found


def _find_filtered(form: StoredForm, chunks: Sequence[int], codecs: Any) -> StoredChunks | None:
    """Return the stored chunks of an array, if they can lie in a file of HDF5 as they are."""
    assert form.stored is not None
    if form.dtype.hasobject or form.dtype.kind not in "iuf" or not chunks or 0 in form.shape:
        return None
    found = _find_unchanged(form.stored, 2, chunks, codecs, True)
    if found is None or found.array.encoding.order is not None or found.array.unwritten:
        return None
    # Objects that may be missing: what is not written in HDF5 has another value.
    if any(source.optional for source in found.array.tile.chunks.sources[:1]):
        return None
    if any(size > length for size, length in zip(chunks, form.shape, strict=True)):
        return None
    names = [codec.name for codec in found.array.encoding.codecs]
    return found if names in _FILTERS else None


_FILTERS: tuple[list[str], ...] = ([], ["shuffle"], ["zlib"], ["shuffle", "zlib"], ["zstd"], ["shuffle", "zstd"])
"""Filters of HDF5 that targets have, in this order."""


def zarr_documents(array: TargetArray, zarr_format: int) -> dict[str, dict[str, Any]]:
    """Return the documents of an array whose chunks are encoded by us."""
    form = array.form
    axes = tuple(Axis.regular(n, size) for n, size in zip(form.shape, array.chunks, strict=True))
    tile = Tile(axes, (array.encoding,), Columns.of_unwritten([axis.count for axis in axes]))
    details = replace(form.source.details, chunks=array.chunks)
    shown = VirtualArray.of(tile, dims=form.dims, attributes=form.attributes, details=details)
    documents = array_documents(to_zarr_spec(shown), zarr_format)
    if array.shards is not None:
        document = documents["zarr.json"]
        document["chunk_grid"]["configuration"]["chunk_shape"] = list(array.shards)
        document["codecs"] = [
            {
                "name": "sharding_indexed",
                "configuration": {
                    "chunk_shape": list(array.chunks),
                    "codecs": document["codecs"],
                    "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
                    "index_location": "end",
                },
            }
        ]
    return documents
