"""Tables of the files behind an archive: size, time, range of labels, and how much of each is shadowed by others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas

from insitu.combining.file_ranges import FileLayout, Span
from insitu.combining.file_times import MODIFIED
from insitu.combining.recipe import Recipe
from insitu.model import Source, VirtualGroup, count_written
from insitu.references.store.native_names import native_url, store_of_chunk
from insitu.scanning.forecast_axes import LEAD, MEMBER, RUN, VALID, ForecastAxes

__all__ = ["list_files", "list_missing"]

Labels = npt.NDArray[Any]
FindLabels = Callable[[str], Labels | None]
"""Gives the labels along a dimension of the archive; None: it has none."""


def list_files(group: VirtualGroup, labels: FindLabels, recipe: Recipe | None = None) -> pandas.DataFrame:
    """Return a table of the files of an archive, a row for each.

    Columns are `url`, `size` (bytes), `time` (`attrs["time"]` says which: an attribute of the files, or
    `"modified"`), the first and last label along each dimension that files are joined along
    (`time_first`, `time_last`), `labels` (how many the file has; along several dimensions their
    combinations), and `shadowed`: how many of these other files give. What is pinned inside a store is one row.

    Parameters
    ----------
    group, labels
        The archive.
    recipe
        How it was made. If it has no places of files, these are where their chunks are, and none is
        shadowed; where files may overlap (forecasts), both counts are missing.
    """
    if recipe is not None and recipe.placed is not None:
        placed = recipe.placed
        has_times = placed.times and placed.times != MODIFIED
        counts, shown = placed.count_cells(recipe.options.combine.overlap)
        places: Mapping[str, Sequence[npt.NDArray[np.int64]]] = placed.places
        urls: Sequence[str] = recipe.files
        sizes = [None if size < 0 else size for size in placed.size.tolist()]
        times = (placed.time if has_times else placed.modified).tolist()
        basis = placed.times or MODIFIED
    else:
        layout = _join_native_chunks(FileLayout.of(group))
        urls, basis = list(layout.spans), MODIFIED
        sources = [layout.sources[url] for url in urls]
        sizes, times = [source.size for source in sources], [source.modified for source in sources]
        dims = [
            dim
            for dim, length in layout.sizes.items()
            if any(spans.get(dim, (0, length)) != (0, length) for spans in layout.spans.values())
        ]
        whole = {
            dim: (0, layout.sizes[dim]) for dim in dims or [dim for dim in layout.sizes if labels(dim) is not None][:1]
        }
        places = {dim: [np.arange(*layout.spans[url].get(dim, span)) for url in urls] for dim, span in whole.items()}
        counts = np.prod([[len(own) for own in column] for column in places.values()], axis=0, dtype=np.int64)
        shown = counts = np.broadcast_to(counts, (len(urls),))
        if recipe is not None and recipe.options.combine.overlap not in (None, "error"):
            shown = counts = pandas.array([None] * len(urls), dtype="Int64")
    columns: dict[str, Any] = {
        "url": list(urls),
        "size": pandas.array(sizes, dtype="Int64"),
        "time": pandas.to_datetime(pandas.Series(times, dtype="float64"), unit="s", utc=True),
    }
    for dim, column in places.items():
        index = labels(dim)
        for name, choose in (("first", min), ("last", max)):
            at = [int(choose(own)) if len(own) else None for own in column]
            columns[f"{dim}_{name}"] = [None if n is None else n if index is None else index[n] for n in at]
    table = pandas.DataFrame({**columns, "labels": counts, "shadowed": counts - shown})
    table.attrs["time"] = basis
    return table


def _join_native_chunks(layout: FileLayout) -> FileLayout:
    """Return a layout in which all native chunks of a store, its pinned parts, are one file: its folder of them."""
    names = {url: native_url(store) for url in layout.spans if (store := store_of_chunk(url)) is not None}
    spans: dict[str, dict[str, Span]] = {}
    sources: dict[str, Source] = {}
    for url, own in layout.spans.items():
        name, source = names.get(url, url), layout.sources[url]
        known = spans.setdefault(name, {})
        for dim, (low, high) in own.items():
            old = known.get(dim, (low, high))
            known[dim] = (min(low, old[0]), max(high, old[1]))
        if url in names:
            source = Source(name, (source.size or 0) + (sources[name].size or 0 if name in sources else 0))
        sources[name] = source
    return FileLayout(spans, layout.sizes, sources)


def list_missing(group: VirtualGroup, labels: FindLabels, recipe: Recipe | None) -> dict[Any, Any]:
    """Return the labels along each dimension that no file has, though they are expected.

    Of forecasts also, by the names of their axes (`("time", "step")`), which of their labels no file
    has together: the lead times that a run lacks, as a `pandas.MultiIndex`.
    """
    if recipe is None:
        return {}
    if recipe.options.combine.forecasts:
        return _missing_forecasts(group, labels, recipe)
    if recipe.placed is None or recipe.options.combine.expect is None:
        return {}
    found: dict[Any, Any] = {}
    for dim, column in recipe.placed.places.items():
        index = labels(dim)
        if index is None:
            continue
        has = np.zeros(len(index), bool)
        has[np.concatenate(list(column))] = True
        if not has.all():
            found[dim] = index[~has]
    return found


def _missing_forecasts(group: VirtualGroup, labels: FindLabels, recipe: Recipe) -> dict[Any, Any]:
    """Return the labels of forecasts, and the combinations of them, that no variable has values of."""
    axes = ForecastAxes.of(recipe.options.combine)
    assert axes is not None
    names = [name for role in (MEMBER, RUN, LEAD) if labels(name := axes.name(role)) is not None]
    own = [array for name, array in group.arrays.items() if name != VALID and set(names) <= set(array.dims)]
    indexes = {name: index for name in names if (index := labels(name)) is not None}
    has = np.zeros([len(index) for index in indexes.values()], bool)
    if not own or not has.size:
        return {}
    for array in own:
        has |= count_written(array, [array.dims.index(name) for name in names]) > 0
    found: dict[Any, Any] = {}
    for axis, (name, index) in enumerate(indexes.items()):
        others = tuple(other for other in range(has.ndim) if other != axis)
        is_there = has.any(axis=others)
        if not is_there.all():
            found[name] = index[~is_there]
            has = has | ~np.expand_dims(is_there, others)
    if not has.all() and len(names) > 1:
        cells = np.nonzero(~has)
        columns = [index[at] for index, at in zip(indexes.values(), cells, strict=True)]
        found[tuple(names)] = pandas.MultiIndex.from_arrays(columns, names=names)
    return found
