"""Renew references to stored values in place: the chunks of changed sources, where nothing but bytes and their whereabouts changed.

Nothing records how such references were made, so everything that a changed source could have changed elsewhere is compared first: variables, attributes, types, shapes, chunks, the order in
which its chunks lie in it. What differs is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.codecs import cf
from insitu.errors import StaleSourceError, VariableError
from insitu.model import INLINE, UNWRITTEN, Columns, Encoding, Packings, Source, Tile, VirtualArray, VirtualGroup
from insitu.model.chunks import COLUMN_NAMES
from insitu.reading import read_array

__all__ = ["ANEW", "renew_in_place"]

ANEW = "Combine the archive anew: insitu.open_mfdataset(...), then save"
Fresh = Mapping[Source, VirtualGroup]


def renew_in_place(group: VirtualGroup, fresh: Fresh, options: Mapping[str, Any] | None = None) -> VirtualGroup:
    """Return the tree with the chunks of changed sources as they are now.

    Parameters
    ----------
    group
        References to stored values.
    fresh
        The sources that changed, and what a scan finds in each now.
    options
        Storage options, for values that have to be read.

    Raises
    ------
    StaleSourceError
        If more changed than bytes and their whereabouts: what, and in which source.
    """
    _compare_trees(group, fresh)
    renewal = _Renewal(fresh, options)
    renewed = {path: renewal.array(path, array) for path, array in group.all_arrays()}
    renewal.compare_order()
    for path, array in group.all_arrays():
        if renewed[path] is array:
            renewal.compare_inline(path, array)
    return _placed(group, renewed)


def _placed(group: VirtualGroup, arrays: Mapping[str, VirtualArray], path: str = "") -> VirtualGroup:
    return replace(
        group,
        arrays={name: arrays[f"{path}{name}"] for name in group.arrays},
        groups={name: _placed(inner, arrays, f"{path}{name}/") for name, inner in group.groups.items()},
    )


def _compare_trees(group: VirtualGroup, fresh: Fresh) -> None:
    """Refuse a source that holds other variables or attributes of groups than what was saved of it."""
    if not group.details:
        return  # arrays that somebody put together: there is nothing to compare
    saved = dict(group.walk())
    for about, now in fresh.items():
        for path, node in now.walk():
            if path not in saved:
                raise _refused(about, f"it holds a group {path!r} now")
            extra = [name for name in node.arrays if name not in saved[path].arrays]
            if extra:
                raise _refused(about, f"it holds {', '.join(map(repr, extra))} now, which is not in what was saved")
            _compare_attributes(
                saved[path].attributes, node.attributes, f"group {path!r}" if path else "the file", about
            )


def _compare_attributes(saved: Mapping[str, Any], now: Mapping[str, Any], of: str, about: Source) -> None:
    one, other = _plain(dict(saved)), _plain(dict(now))
    for name in sorted({*one, *other}, key=str):
        if name in _WRITTEN:
            continue
        if name not in one or name not in other or not _alike(one[name], other[name]):
            raise _refused(about, f"attribute {name!r} of {of} was {one.get(name)!r} and is now {other.get(name)!r}")


_PACKING = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned", "dtype")
"""Attributes that say how values are packed: where meant values are compared, they say nothing more."""
_COUNTED = ("units", "calendar")
"""The same of times."""
_WRITTEN = ("_ARRAY_DIMENSIONS", "_insitu")
"""Attributes that forms of references add."""


def _plain(value: Any) -> Any:
    """Return a value as JSON holds it: attributes in kerchunk's formats have lost their types."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, list | tuple):
        items = [_plain(item) for item in value]
        return items[0] if len(items) == 1 else items
    return value


def _alike(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other) or repr(one) == repr(other))


def _refused(about: Source, why: str) -> StaleSourceError:
    return StaleSourceError(f"the source changed, and cannot be renewed in place: {why}", url=about.url, hint=ANEW)


class _Renewal:
    """One renewal of a tree."""

    def __init__(self, fresh: Fresh, options: Mapping[str, Any] | None) -> None:
        self.fresh, self.options = fresh, options
        self.spans: dict[tuple[str, Source], tuple[int, int]] = {}
        """Where along a dimension a source lies."""
        self.offsets: dict[Source, list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]] = {}
        """Offsets of a source's chunks, before and now."""

    def array(self, path: str, array: VirtualArray) -> VirtualArray:
        """Return an array with the cells of changed sources located anew; the same array if it has none."""
        origins = array.origins.tolist()
        tiles = [self._tile(path, array, tile, origin) for tile, origin in zip(array.tiles, origins, strict=True)]
        if all(tile is old for tile, old in zip(tiles, array.tiles, strict=True)):
            return array
        return replace(array, tiles=tuple(tiles))

    def _tile(self, path: str, array: VirtualArray, tile: Tile, origin: Sequence[int]) -> Tile:
        table = _columns(tile)
        stale = [number for number, source in enumerate(table.sources) if source in self.fresh]
        if not stale:
            return tile
        old = np.broadcast_to(table.source, table.shape)
        columns = {name: np.broadcast_to(getattr(table, name), table.shape).astype(np.int64) for name in COLUMN_NAMES}
        sources, encodings = list(table.sources), list(tile.encodings)
        packings = [tile.packings[row] for row in range(len(tile.packings))]
        inline = bytearray(table.inline)
        for number in stale:
            about = table.sources[number]
            cells = np.nonzero(old == number)
            box = tuple(slice(int(axis.min()), int(axis.max()) + 1) for axis in cells)
            now = self._found(path, array, about)
            part = now.tiles[0]
            _must_fit(array, tile, part, box, path, about)
            new = _columns(part)
            old_encodings, unwritten = np.unique(columns["encoding"][cells]), bool((new.source == UNWRITTEN).any())
            renewed = _with_old_fill(tile, part, old_encodings, unwritten, path, about)
            shape = tuple(s.stop - s.start for s in box)
            found = {name: np.broadcast_to(getattr(new, name), new.shape).astype(np.int64) for name in COLUMN_NAMES}
            self._remember(about, columns["offset"][box], found, shape, columns["source"][box] == number)
            numbers = np.array([_number(sources, source) for source in new.sources], np.int64)
            stored = found["source"] >= 0
            found["source"][stored] = numbers[found["source"][stored]]
            found["offset"][found["source"] == INLINE] += len(inline)
            inline += new.inline
            found["encoding"] = np.array([_number(encodings, item) for item in renewed])[found["encoding"]]
            rows = [part.packings[row] for row in range(len(part.packings))]
            found["packing"] = np.array([_packing_number(packings, row) for row in rows])[found["packing"]]
            for name in COLUMN_NAMES:
                columns[name][box] = found[name].reshape(shape)
            self._span(array, tile, origin, box, about)
        used = np.unique(columns["source"][columns["source"] >= 0])
        kept = columns["source"] >= 0
        columns["source"][kept] = np.searchsorted(used, columns["source"][kept])
        chunks = Columns(table.shape, tuple(sources[n] for n in used.tolist()), **columns, inline=bytes(inline))
        return Tile(tile.axes, tuple(encodings), chunks, Packings.of(packings), tile.layout)

    def _found(self, path: str, array: VirtualArray, about: Source) -> VirtualArray:
        try:
            now = self.fresh[about].array(path)
        except VariableError:
            raise _refused(about, f"it does not hold {path!r} any more") from None
        if len(now.tiles) != 1:
            raise _refused(about, f"{path!r} is a mosaic now")
        if len(now.dims) == array.ndim and now.dims != array.dims:
            raise _refused(about, f"{path!r} had the dimensions {array.dims} and has {now.dims} now")
        _compare_attributes(array.attributes, now.attributes, repr(path), about)
        return now

    def _remember(
        self,
        about: Source,
        before: npt.NDArray[Any],
        found: Mapping[str, npt.NDArray[Any]],
        shape: tuple[int, ...],
        known: npt.NDArray[np.bool_],
    ) -> None:
        both = known & (found["source"].reshape(shape) >= 0)
        pair = (before[both], found["offset"].reshape(shape)[both])
        self.offsets.setdefault(about, []).append(pair)

    def compare_order(self) -> None:
        """Refuse a source whose chunks lie in another order: it may be shown in another order than it is stored in, or under other names."""
        for about, pairs in self.offsets.items():
            before, now = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
            _, one = np.unique(before, return_inverse=True)
            _, other = np.unique(now, return_inverse=True)
            if not np.array_equal(one, other):
                raise _refused(about, "its chunks lie in another order than before")

    def _span(
        self, array: VirtualArray, tile: Tile, origin: Sequence[int], box: tuple[slice, ...], about: Source
    ) -> None:
        for dimension, axis in enumerate(tile.dimensions):
            reach = tile.axes[axis]
            last = np.array([box[axis].stop - 1])
            begin = int(reach.begin(np.array([box[axis].start]))[0]) + origin[dimension]
            end = int(reach.begin(last)[0] + reach.show(last).extent[0]) + origin[dimension]
            self.spans[array.dims[dimension], about] = (begin, end)

    def compare_inline(self, path: str, array: VirtualArray) -> None:
        """Refuse values that are kept inline and are not those that the changed files hold now."""
        if not any(bool((np.asarray(_columns(tile).source) == INLINE).any()) for tile in array.tiles):
            return
        for about, group in self.fresh.items():
            try:
                now = group.array(path)
            except VariableError:
                raise _refused(about, f"it does not hold {path!r}, whose values are kept") from None
            if now.dims != array.dims:
                raise _refused(about, f"{path!r} had the dimensions {array.dims} and has {now.dims} now")
            kept, meant = self._meant(array, path), self._meant(now, path)
            # What was saved from a dataset was decoded and encoded again: packed otherwise, or counted from another day.
            packing = {*_PACKING, *(_COUNTED if kept.dtype.kind in "mMO" else ())}
            one, other = (
                {name: value for name, value in item.attributes.items() if name not in packing} for item in (array, now)
            )
            _compare_attributes(one, other, repr(path), about)
            key = tuple(
                slice(*self.spans[dim, about])
                if (dim, about) in self.spans and length != now.shape[at]
                else slice(None)
                for at, (dim, length) in enumerate(zip(array.dims, array.shape, strict=True))
            )
            if not _equal(kept[key], meant):
                raise _refused(about, f"the values of {path!r} are others than when it was scanned")

    def _meant(self, array: VirtualArray, path: str) -> npt.NDArray[Any]:
        """Return the values as xarray shows them."""
        return self._read(cf.decoded(array, name=path, values=partial(self._read, array)).array)

    def _read(self, array: VirtualArray) -> npt.NDArray[Any]:
        return read_array(array, storage_options=self.options)


def _number(pool: list[Any], item: Any) -> int:
    if item not in pool:
        pool.append(item)
    return pool.index(item)


def _packing_number(pool: list[Any], packing: Any) -> int:
    keys = [item.key for item in pool]
    if packing.key not in keys:
        pool.append(packing)
        return len(pool) - 1
    return keys.index(packing.key)


def _columns(tile: Tile) -> Columns:
    """Return the whole table in memory, naming only the sources that it uses."""
    table = tile.chunks
    shape = tuple(table.shape)
    total = int(np.prod(shape, dtype=object))
    rows = table.locate(list(np.unravel_index(np.arange(total), shape)) if shape else [])
    source = np.array(rows.source, np.int64)
    used = np.unique(source[source >= 0])
    local = np.where(source >= 0, np.searchsorted(used, source) if len(used) else 0, source)
    columns = {name: np.asarray(getattr(rows, name)).reshape(shape) for name in COLUMN_NAMES[1:]}
    sources = tuple(table.sources[int(number)] for number in used)
    return Columns(shape, sources, local.reshape(shape), **columns, inline=rows.inline)


def _must_fit(array: VirtualArray, tile: Tile, part: Tile, box: tuple[slice, ...], path: str, about: Source) -> None:
    """Refuse chunks that do not fit in their old place."""
    fits = len(part.axes) <= len(tile.axes) and tile.dimensions == tuple(range(array.ndim))
    fits = fits and part.dimensions == tuple(range(len(part.axes)))
    for number, (axis, cells) in enumerate(zip(tile.axes, box, strict=True)):
        old = axis.show(np.arange(cells.start, cells.stop))
        if number >= len(part.axes):  # a dimension that the file does not have
            fits = fits and cells.stop - cells.start == 1
        else:
            new = part.axes[number].show(np.arange(part.axes[number].count))
            fits = fits and all(np.array_equal(one, other) for one, other in zip(old, new, strict=True))
    if not fits:
        raise _refused(about, f"{path!r} has another shape, or is chunked otherwise, than when it was scanned")


def _with_old_fill(
    tile: Tile, part: Tile, encodings: npt.NDArray[np.int64], unwritten: bool, path: str, about: Source
) -> list[Encoding]:
    """Return the encodings of a source's chunks now. Values of another type are refused, and never-written chunks of another value: an array says both once, for all files."""
    before = [tile.encodings[number] for number in encodings.tolist()]
    if {encoding.dtype for encoding in part.encodings} - {encoding.dtype for encoding in before}:
        raise _refused(about, f"{path!r} has values of another type than when it was scanned")
    fills = {encoding.fill for encoding in before}
    if {encoding.fill for encoding in part.encodings} <= fills:
        return list(part.encodings)
    if unwritten or len(fills) > 1:
        raise _refused(about, f"{path!r} has another fill value than when it was scanned")
    return [replace(encoding, fill=next(iter(fills))) for encoding in part.encodings]


def _equal(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    if one.shape != other.shape or (one.dtype.kind in "mM") != (other.dtype.kind in "mM"):
        return False
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fcmM" and other.dtype.kind in "fcmM"))
