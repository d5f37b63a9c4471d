"""Are saved references still true, and how are they made true again?

`check` asks every source what it is now. `refresh` scans only those that changed, and puts their chunks where the old ones were; what does not fit in the old
place any more (another shape, other coordinates) is an error, because then the archive has to be combined anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.codecs import cf
from insitu.errors import FormatError, NotFoundError, StaleSourceError, VariableError
from insitu.model import INLINE, Columns, Encoding, Packings, Source, Tile, VirtualArray, VirtualGroup
from insitu.model.chunks import COLUMN_NAMES
from insitu.opening import scan
from insitu.reading import read_array
from insitu.references import Renaming, Report, format_of, open_references, renamed, save
from insitu.references import check as check_group
from insitu.sources.listing import local_path

__all__ = ["check", "convert", "refresh"]

Progress = Callable[[int, int], None]


def check(
    references: str | os.PathLike[str] | VirtualGroup,
    *,
    progress: Progress | None = None,
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Report:
    """Ask every source of a set of references whether it still is what was scanned, and look for sources that were added twice.

    Parameters
    ----------
    references
        Where they are, or what was opened.
    progress
        Called after each source with how many are done, and how many there are.
    allow_local, storage_options
        See `insitu.scan`.

    Examples
    --------
    >>> print(insitu.check("era5.insitu"))  # doctest: +SKIP
    120 sources: 119 ok, 1 changed
    changed: s3://bucket/2020-06.nc: its ETag was "a41…" and is now "0f2…"
    """
    group = _opened(references, allow_local, storage_options)
    return check_group(group, progress=progress, duplicates=True, storage_options=storage_options)


def refresh(
    references: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Report:
    """Scan again the sources that changed, and only those, and save the references in their place.

    Returns
    -------
    Report
        What was found before; nothing was written if all sources are what they were.

    Raises
    ------
    StaleSourceError
        If a source is gone, or does not fit in its old place.
    """
    url = os.fspath(references)
    group = _opened(url, allow_local, storage_options)
    report = check_group(group, progress=progress, storage_options=storage_options)
    if report.ok:
        return report
    for finding in report.stale:
        if finding.status != "changed":
            raise StaleSourceError(
                finding.reason, url=finding.source.url, hint="Take it out of the archive, or bring it back"
            )
    changed = [finding.source for finding in report.stale]
    fresh = {source: scan(source.url, storage_options=storage_options) for source in changed}
    save(_renewed(group, fresh, storage_options), url, format=format_of(url), storage_options=storage_options)
    return report


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    rename: Renaming | None = None,
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> VirtualGroup:
    """Save references in another form, or for another place.

    Parameters
    ----------
    source
        A saved set of references; also whatever else `insitu.scan` takes.
    target
        Where to: its name says the form.
    rename
        New URLs of the sources: a mapping of prefixes, a pair of regular expression and replacement, or a function.
    allow_local, storage_options
        See `insitu.scan`.
    options
        As for `insitu.references.save`.

    Returns
    -------
    VirtualGroup
        What was saved.
    """
    group = scan(source, allow_local=allow_local, storage_options=storage_options)
    group = group if rename is None else renamed(group, rename)
    save(group, target, storage_options=storage_options, **options)
    return group


def _opened(
    references: str | os.PathLike[str] | VirtualGroup, allow_local: bool, options: Mapping[str, Any] | None
) -> VirtualGroup:
    if isinstance(references, VirtualGroup):
        return references
    url = os.fspath(references)
    group = open_references(url, allow_local=allow_local, storage_options=options)
    if group is None:
        if (path := local_path(url)) is not None and not os.path.exists(path):
            raise NotFoundError("no such file or directory", url=url)
        raise FormatError("there are no references", url=url)
    return group


def _renewed(
    group: VirtualGroup, fresh: Mapping[Source, VirtualGroup], options: Mapping[str, Any] | None
) -> VirtualGroup:
    """The tree with the chunks of changed sources as they are now."""
    spans: dict[tuple[str, Source], tuple[int, int]] = {}
    renewed: dict[str, VirtualArray] = {}
    for path, array in group.all_arrays():
        tiles = [
            _renewed_tile(path, array, tile, origin, fresh, spans, options)
            for tile, origin in zip(array.tiles, array.origins.tolist(), strict=True)
        ]
        renewed[path] = replace(array, tiles=tuple(tiles))
    for path, array in group.all_arrays():
        if all(tile is old for tile, old in zip(renewed[path].tiles, array.tiles, strict=True)):
            _compared(path, array, fresh, spans, options)
    return _placed(group, renewed)


def _placed(group: VirtualGroup, arrays: Mapping[str, VirtualArray], path: str = "") -> VirtualGroup:
    return replace(
        group,
        arrays={name: arrays[f"{path}{name}"] for name in group.arrays},
        groups={name: _placed(inner, arrays, f"{path}{name}/") for name, inner in group.groups.items()},
    )


def _renewed_tile(
    path: str,
    array: VirtualArray,
    tile: Tile,
    origin: Sequence[int],
    fresh: Mapping[Source, VirtualGroup],
    spans: dict[tuple[str, Source], tuple[int, int]],
    options: Mapping[str, Any] | None,
) -> Tile:
    """A tile with the cells of changed sources located anew; the same tile if it has none."""
    table = _columns(tile)
    sources = list(table.sources)
    stale = [number for number, source in enumerate(sources) if source in fresh]
    if not stale:
        return tile
    source = np.broadcast_to(table.source, table.shape).copy()
    columns = {name: np.broadcast_to(getattr(table, name), table.shape).astype(np.int64) for name in COLUMN_NAMES}
    encodings, packings = list(tile.encodings), [tile.packings[row] for row in range(len(tile.packings))]
    for number in stale:
        about = sources[number]
        cells = np.nonzero(source == number)
        if not cells[0].size and table.shape:
            continue
        box = tuple(slice(int(axis.min()), int(axis.max()) + 1) for axis in cells)
        now = _found(fresh[about], path, about)
        part = now.tiles[0]
        _must_fit(tile, part, box, path, about)
        new = _columns(part)
        shape = tuple(s.stop - s.start for s in box)
        sources[number] = next(iter(new.sources), about)
        columns["source"][box] = np.where(new.source < 0, new.source, number).reshape(shape) if new.source.size > 1 else (
            int(new.source.flat[0]) if int(new.source.flat[0]) < 0 else number
        )  # fmt: skip
        for name in ("offset", "length", "filter_mask"):
            columns[name][box] = np.broadcast_to(getattr(new, name), new.shape).reshape(shape)
        columns["encoding"][box] = _number(encodings, part.encodings[0])
        if not tile.packings.identity:
            packing = _decoded(now, path, options).tiles[0].packings[0]
            columns["packing"][box] = _number(packings, packing)
        for dimension, axis in enumerate(tile.dimensions):
            reach = tile.axes[axis]
            begin = int(reach.begin(np.array([box[axis].start]))[0]) + origin[dimension]
            last = np.array([box[axis].stop - 1])
            end = int(reach.begin(last)[0] + reach.show(last).extent[0]) + origin[dimension]
            spans[array.dims[dimension], about] = (begin, end)
    chunks = Columns(table.shape, tuple(sources), **columns, inline=table.inline)
    return Tile(tile.axes, tuple(encodings), chunks, Packings.of(packings), tile.layout)


def _number(pool: list[Any], item: Encoding | Any) -> int:
    if item not in pool:
        pool.append(item)
    return pool.index(item)


def _columns(tile: Tile) -> Columns:
    """The whole table in memory, naming only the sources that it uses."""
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


def _found(group: VirtualGroup, path: str, about: Source) -> VirtualArray:
    try:
        array = group.array(path)
    except VariableError:
        raise StaleSourceError(f"it does not hold {path!r} any more", url=about.url, hint=_ANEW) from None
    if len(array.tiles) != 1:
        raise StaleSourceError(f"{path!r} is a mosaic now", url=about.url, hint=_ANEW)
    return array


def _must_fit(tile: Tile, part: Tile, box: tuple[slice, ...], path: str, about: Source) -> None:
    """Refuse chunks that do not fit in their old place."""
    for number, (axis, cells) in enumerate(zip(tile.axes, box, strict=True)):
        old = axis.show(np.arange(cells.start, cells.stop))
        if number >= len(part.axes):  # a dimension that the file does not have
            fits = cells.stop - cells.start == 1
        else:
            new = part.axes[number].show(np.arange(part.axes[number].count))
            fits = all(np.array_equal(one, other) for one, other in zip(old, new, strict=True))
        if not fits:
            raise StaleSourceError(
                f"{path!r} has another shape, or is chunked otherwise, than when it was scanned",
                url=about.url,
                hint=_ANEW,
            )
    if part.encodings[0].dtype not in {encoding.dtype for encoding in tile.encodings}:
        raise StaleSourceError(
            f"{path!r} has values of another type than when it was scanned", url=about.url, hint=_ANEW
        )


def _compared(
    path: str,
    array: VirtualArray,
    fresh: Mapping[Source, VirtualGroup],
    spans: Mapping[tuple[str, Source], tuple[int, int]],
    options: Mapping[str, Any] | None,
) -> None:
    """Values that are kept inline must be those that the changed files hold now."""
    if not any(bool((np.asarray(_columns(tile).source) == INLINE).any()) for tile in array.tiles):
        return
    for about, group in fresh.items():
        try:
            now = group.array(path)
        except VariableError:
            continue  # computed when the archive was made: no file holds it
        if len(now.dims) != array.ndim:
            continue
        key = tuple(
            slice(*spans[dim, about]) if (dim, about) in spans and length != now.shape[at] else slice(None)
            for at, (dim, length) in enumerate(zip(array.dims, array.shape, strict=True))
        )
        kept = read_array(array, key, storage_options=options)
        # What was saved from a dataset is decoded, what was saved from a scan is not.
        if not any(
            _equal(kept, read_array(one, storage_options=options)) for one in (now, _decoded(now, path, options))
        ):
            raise StaleSourceError(
                f"the values of {path!r} are others than when it was scanned", url=about.url, hint=_ANEW
            )


def _decoded(array: VirtualArray, path: str, options: Mapping[str, Any] | None) -> VirtualArray:
    """The array as xarray shows it."""
    return cf.decoded(array, name=path, values=lambda: read_array(array, storage_options=options)).array


def _equal(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    if one.shape != other.shape or (one.dtype.kind in "mM") != (other.dtype.kind in "mM"):
        return False
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fcmM" and other.dtype.kind in "fcmM"))


_ANEW = "Combine the archive anew: insitu.open_mfdataset(...), then save"
