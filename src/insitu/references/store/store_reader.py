"""Open an insitu store: the root first, rows and sources when they are needed.

Opening reads the root and the small tables of irregular axes and packings: at most three requests,
however many chunks there are. Rows are fetched when a cell is located, sources when one is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError, InsituError, ModelError, NotFoundError, error_context
from insitu.model import (
    ABSENT,
    IDENTITY,
    UNWRITTEN,
    ArrayDetails,
    Axis,
    ChunkTable,
    Columns,
    Encoding,
    GroupDetails,
    Packings,
    Tile,
    VirtualArray,
    VirtualGroup,
)
from insitu.model.axis import Indices
from insitu.model.overlay import overlay
from insitu.references.store import root
from insitu.references.store.json_values import dtype_from_json, unpack
from insitu.references.store.row_file import RowFile
from insitu.references.store.row_tables import GridRows, SparseRows, StackedTables
from insitu.references.store.small_tables import read_axes, read_packings
from insitu.references.store.stored_rows import PageCache, StoredRows, new_page_cache
from insitu.references.store.stored_sources import StoredSources
from insitu.references.store.validation import (
    RowRanges,
    check_boxes,
    check_constants,
    check_fields,
    check_layout,
    check_starts,
)
from insitu.references.urls import UrlResolver, with_other_files
from insitu.sources import open_source, read_all
from insitu.sources.listing import local_path
from insitu.zarr_metadata.json_fields import integer_field, list_field, object_field, text_field
from insitu.zarr_metadata.json_fields import integers_field as numbers_of
from insitu.zarr_metadata.json_fields import required_field as needed

__all__ = ["OpenStore", "open_store", "read_document", "saved_recipe"]

NAME_LISTS = ("coordinates", "unindexed", "unlimited")


@dataclass(slots=True, eq=False)
class OpenStore:
    """A store whose root was read and checked."""

    url: str
    document: dict[str, Any]
    data: bytes
    """The bytes of the root."""
    sources: StoredSources
    chunks: tuple[RowFile, ...]
    encodings: tuple[Encoding, ...]
    packings: Packings
    axes: Mapping[str, npt.NDArray[np.int64]]
    pages: PageCache = field(default_factory=new_page_cache)
    used: RowRanges = field(default_factory=RowRanges, repr=False)
    """The rows of chunks and axes that the tree uses so far."""

    def recipe(self) -> dict[str, Any] | None:
        """Return how the files were combined; None if that was not saved."""
        return saved_recipe(self.document, self.url)

    def group(self) -> VirtualGroup:
        """Return the tree, with what is pinned laid over what lies in the files."""
        files, pinned = self.layers()
        return lay_over(files, pinned)

    def layers(self) -> tuple[VirtualGroup, VirtualGroup]:
        """Return the tree as the files hold it, and the pinned parts: arrays of the same paths and shapes whose
        tiles lie inside the store, with gaps between them.
        """
        self.used = RowRanges()
        try:
            tree = self._group(object_field(needed(self.document, "tree"), "tree"), "")
            pinned = VirtualGroup({})
            if "pinned" in self.document:
                pinned = self._group(object_field(self.document["pinned"], "pinned"), "")
                _check_pinned(tree, pinned)
            self.used.check({_AXIS_ROWS: len(self.axes["extent"])})
            return tree, pinned
        except ModelError as problem:
            raise FormatError(f"the tree is damaged: {problem}", url=self.url, structure=root.NAME) from None
        except InsituError as problem:
            raise problem.with_context(url=self.url, structure=root.NAME) from None

    def _group(self, row: Mapping[str, Any], path: str) -> VirtualGroup:
        check_fields(row, _GROUP_FIELDS, "a group")
        arrays = {}
        for name, array in object_field(row["arrays"], "arrays").items():
            with error_context(variable=f"{path}/{name}".lstrip("/")):
                arrays[name] = self._array(object_field(array, name))
        groups = object_field(row["groups"], "groups")
        return VirtualGroup(
            arrays,
            {name: self._group(object_field(group, name), f"{path}/{name}") for name, group in groups.items()},
            _unpack_mapping(row["attributes"], "attributes"),
            GroupDetails.from_document(_unpack_mapping(row["details"], "details")),
            {
                name: text_field(reason, "problems")
                for name, reason in object_field(row["problems"], "problems").items()
            },
            **{key: tuple(text_field(name, key) for name in list_field(row[key], key)) for key in NAME_LISTS},
        )

    def _array(self, row: Mapping[str, Any]) -> VirtualArray:
        check_fields(row, _ARRAY_FIELDS, "an array")
        shape = numbers_of(row["shape"], "shape")
        tiles = [object_field(tile, "tile") for tile in list_field(row["tiles"], "tiles")]
        layouts = {len(numbers_of(needed(tile, "layout"), "layout")) for tile in tiles}
        if layouts - {len(shape)}:
            raise FormatError(f"an array of {len(shape)} dimensions has a tile of {max(layouts)} dimensions")
        origins = np.array([numbers_of(needed(tile, "origin"), "origin", count=len(shape)) for tile in tiles], np.int64)
        dtype = dtype_from_json(row["dtype"])
        parsed = tuple(self._tile(tile) for tile in tiles)
        origins = origins.reshape(len(tiles), len(shape))
        check_boxes(shape, origins, np.array([tile.shape for tile in parsed], np.int64).reshape(origins.shape))
        for tile in parsed:
            if tile.packings.identity and any(_is_incompatible(encoding.dtype, dtype) for encoding in tile.encodings):
                raise FormatError(f"the array has type {dtype}, but its values are stored as {tile.encodings[0].dtype}")
        return VirtualArray(
            shape=shape,
            dtype=dtype,
            dims=tuple(text_field(dim, "dims") for dim in list_field(row["dims"], "dims")),
            tiles=parsed,
            origins=origins,
            attributes=_unpack_mapping(row["attributes"], "attributes"),
            fill_value=unpack(row["fill_value"]),
            details=ArrayDetails.from_document(_unpack_mapping(row["details"], "details")),
            encoding=_unpack_mapping(row["encoding"], "encoding"),
        )

    def _tile(self, row: Mapping[str, Any]) -> Tile:
        check_fields(row, _TILE_FIELDS, "a tile")
        encoding_numbers = [integer_field(number, "encodings") for number in list_field(row["encodings"], "encodings")]
        encoding_map = _inverse_map(encoding_numbers, len(self.encodings), "encodings")
        packing = _packing_numbers(row["packings"])
        packing_map = _inverse_map(packing, len(self.packings), "packings")
        packings = (
            IDENTITY
            if len(packing) == 1 and self.packings[packing[0]].identity
            else _select_packings(self.packings, packing)
        )
        axes = tuple(self._axis(object_field(axis, "axis")) for axis in list_field(row["axes"], "axes"))
        layout = numbers_of(row["layout"], "layout")
        check_layout(layout, [axis.length for axis in axes])
        encodings = tuple(self.encodings[number] for number in encoding_numbers)
        if any(len(encoding.order or ()) > len(axes) for encoding in encodings):
            raise FormatError(f"an encoding orders more axes than the {len(axes)} of its tile")
        return Tile(
            axes=axes,
            encodings=encodings,
            chunks=self._table(object_field(row["chunks"], "chunks"), encoding_map, packing_map),
            packings=packings,
            layout=layout,
        )

    def _axis(self, row: Mapping[str, Any]) -> Axis:
        if "rows" not in row:
            check_fields(row, ("length", "size", "padded"), "an axis")
            if not isinstance(row["padded"], bool):
                raise FormatError("'padded' must be true or false")
            return Axis.regular(
                integer_field(row["length"], "length"), integer_field(row["size"], "size", least=1), row["padded"]
            )
        check_fields(row, ("rows",), "an axis")
        first, count = numbers_of(row["rows"], "rows", count=2)
        self.used.add(_AXIS_ROWS, first, count)
        if first + count > len(self.axes["extent"]):
            raise FormatError(f"an axis uses rows {first} to {first + count} of a table of {len(self.axes['extent'])}")
        columns = [self.axes[name][first : first + count] for name in ("extent", "skip", "step", "stored")]
        return Axis.irregular(*columns)

    def _table(self, row: Mapping[str, Any], encoding_map: Indices, packing_map: Indices) -> ChunkTable:
        kind = needed(row, "kind")
        check_fields(row, _TABLE_FIELDS.get(kind if isinstance(kind, str) else "", ()), f"a table of kind {kind!r}")
        if kind == "joined":
            rows = [object_field(item, "table") for item in list_field(row["tables"], "tables")]
            tables = [self._table(item, encoding_map, packing_map) for item in rows]
            axis = integer_field(row["axis"], "axis")
            others = {(*table.shape[:axis], *table.shape[axis + 1 :]) for table in tables}
            if len(others) != 1 or axis >= len(tables[0].shape):
                raise FormatError(
                    f"tables of the shapes {[table.shape for table in tables]} cannot be joined along axis {axis}"
                )
            starts = np.concatenate([[0], np.cumsum([table.shape[axis] for table in tables])]).astype(np.int64)
            return StackedTables(tuple(tables), axis, starts, self.sources)
        shape = numbers_of(row["shape"], "shape")
        if kind == "constant":
            state = row["source"]
            if state not in (ABSENT, UNWRITTEN):
                raise FormatError(f"unknown state of cells {state!r}")
            return Columns.of_absent(shape) if state == ABSENT else Columns.of_unwritten(shape)
        number = integer_field(row["part"], "part")
        if number >= len(self.chunks):
            raise FormatError(f"a table uses file {number}, but the root lists {len(self.chunks)}")
        part = self.chunks[number]
        first, count = integer_field(row["row"], "row"), integer_field(row["count"], "count")
        if first + count > part.rows:
            raise FormatError(f"a table uses rows {first} to {first + count} of a file of {part.rows}")
        self.used.add(part.url, first, count)
        constant = {
            name: _require_int64(value, name) for name, value in object_field(row["constant"], "constant").items()
        }
        check_constants(constant, len(self.sources))
        stored = StoredRows(part, number, first, count, constant, self.pages, encoding_map, packing_map, self.sources)
        cells = int(np.prod(shape, dtype=object))
        if kind == "sparse":
            starts = np.array(
                [integer_field(start, "starts") for start in list_field(row["starts"], "starts")], np.int64
            )
            check_starts(starts, first, count, cells)
            return SparseRows(shape, self.sources, stored, starts)
        if count != cells:
            raise FormatError(f"a table of kind {kind!r} has {count} rows for a grid of {shape}")
        return GridRows(shape, self.sources, stored)


def lay_over(files: VirtualGroup, pinned: VirtualGroup) -> VirtualGroup:
    """Return a tree with pinned parts laid over its arrays."""
    if not pinned.arrays and not pinned.groups:
        return files
    arrays = {
        name: overlay(array, pinned.arrays[name]) if name in pinned.arrays else array
        for name, array in files.arrays.items()
    }
    groups = {
        name: lay_over(group, pinned.groups[name]) if name in pinned.groups else group
        for name, group in files.groups.items()
    }
    return replace(files, arrays=arrays, groups=groups)


def _check_pinned(files: VirtualGroup, pinned: VirtualGroup) -> None:
    """Raise `FormatError` if what is pinned does not fit the arrays of the files."""
    for path, array in pinned.all_arrays():
        below = files.array(path)
        if (below.shape, below.dims, below.dtype) != (array.shape, array.dims, array.dtype):
            raise FormatError(f"the pinned parts of {path!r} do not have its dimensions and type")


_AXIS_ROWS = "axes"
_GROUP_FIELDS = ("attributes", "details", "problems", "arrays", "groups", *NAME_LISTS)
_ARRAY_FIELDS = ("shape", "dtype", "dims", "attributes", "encoding", "fill_value", "details", "tiles")
_TILE_FIELDS = ("origin", "layout", "axes", "encodings", "packings", "chunks")
_ROW_FIELDS = ("kind", "shape", "part", "row", "count", "constant")
_TABLE_FIELDS = {
    "joined": ("kind", "axis", "tables"),
    "constant": ("kind", "shape", "source"),
    "rows": _ROW_FIELDS,
    "sparse": (*_ROW_FIELDS, "starts"),
}


def _unpack_mapping(value: Any, name: str) -> dict[str, Any]:
    """Return attributes or details, unpacked."""
    found = unpack(object_field(value, name))
    if not isinstance(found, dict):
        raise FormatError(f"{name!r} must be an object")
    return found


def _is_incompatible(stored: np.dtype[Any], meant: np.dtype[Any]) -> bool:
    """Return whether stored values cannot have the array's type: text and records are not numbers."""
    return (stored.kind in "SUV") != (meant.kind in "SUV") and not (stored.hasobject or meant.hasobject)


def _require_int64(value: Any, name: str) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise FormatError(f"{name!r} must be a 64-bit integer, not {str(value)[:60]}")
    return value


def _inverse_map(numbers: Sequence[int], count: int, name: str) -> Indices:
    """Return the position of each number of the store's pool in the tile's list; -1: not in it."""
    if not numbers or max(numbers) >= count:
        raise FormatError(f"{name!r} is empty, or has a number beyond the {count} of the store")
    inverse = np.full(count, -1, np.int64)
    inverse[np.asarray(numbers)] = np.arange(len(numbers))
    return inverse


def _packing_numbers(value: Any) -> list[int]:
    """Return numbers that are given as a list, or as a range: `{"first": 0, "count": 3}`."""
    if isinstance(value, Mapping):
        first = integer_field(needed(value, "first"), "first")
        count = integer_field(needed(value, "count"), "count")
        if count > 1 << 28:
            raise FormatError(f"a tile claims {count} packings")
        return list(range(first, first + count))
    return [integer_field(number, "packings") for number in list_field(value, "packings")]


def _select_packings(packings: Packings, rows: Sequence[int]) -> Packings:
    """Return some rows of a table of packings."""
    columns = {}
    for column in fields(Packings):
        value = getattr(packings, column.name)
        columns[column.name] = value[np.asarray(rows)] if isinstance(value, np.ndarray) else value
    return Packings(**columns)


def open_store(
    url: str, *, allow_local: bool = False, storage_options: Mapping[str, Any] | None = None, data: bytes | None = None
) -> OpenStore:
    """Read the root of a store.

    Parameters
    ----------
    url
        The directory.
    allow_local
        Whether a remote store may name local files.
    storage_options
        See `insitu.sources.open_source`.
    data
        The bytes of the root, if it was read already.
    """
    url = (local_path(url) or url).rstrip("/")
    if data is not None:
        return _parse_store(data, url, allow_local, storage_options)
    data = _read_root(url, storage_options)
    while True:
        try:
            return _parse_store(data, url, allow_local, storage_options)
        except NotFoundError:
            # A writer may have replaced the root in between, and removed files that only the old
            # one names.
            before, data = data, _read_root(url, storage_options)
            if data == before:
                raise


def read_document(url: str, *, storage_options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the document of the root of a store, without opening the store."""
    url = (local_path(url) or url).rstrip("/")
    return root.parse_root(_read_root(url, storage_options), url)


def saved_recipe(document: Mapping[str, Any], url: str) -> dict[str, Any] | None:
    """Return the recipe of a root, with the URLs of its files resolved; None if there is none."""
    # Names only: whatever is opened by them is checked then.
    return with_other_files(document.get("recipe"), UrlResolver(url, allow_local=True).resolve)


def _read_root(url: str, storage_options: Mapping[str, Any] | None) -> bytes:
    with error_context(structure=root.NAME), open_source(f"{url}/{root.NAME}", storage_options) as source:
        return read_all(source)


def _parse_store(data: bytes, url: str, allow_local: bool, storage_options: Mapping[str, Any] | None) -> OpenStore:
    document = root.parse_root(data, url)
    try:
        sources = [
            root.row_file_from_json(row, url, storage_options) for row in list_field(document["sources"], "sources")
        ]
        chunks = [
            root.row_file_from_json(row, url, storage_options) for row in list_field(document["chunks"], "chunks")
        ]
        return OpenStore(
            url,
            document,
            data,
            StoredSources.of(sources, UrlResolver(url, allow_local)),
            tuple(chunks),
            tuple(root.encoding_from_json(row) for row in list_field(document["encodings"], "encodings")),
            read_packings(object_field(document["packings"], "packings"), url, storage_options),
            read_axes(document["axes"], url, storage_options),
        )
    except ModelError as problem:
        raise FormatError(f"the root is damaged: {problem}", url=url, structure=root.NAME) from None
    except InsituError as problem:
        raise problem.with_context(url=url, structure=root.NAME) from None
