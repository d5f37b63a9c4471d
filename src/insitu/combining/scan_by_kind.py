"""Scan files of one kind as one: a year of hourly forecast runs by the indexes of its GRIB files.

A format may say at a glance what tells a file from others of its kind (`FileOutline`): the run, and
where its fields lie. One file of each kind is scanned like any other. The others become rows of its
chunk tables, so that nothing is made for each of 166,440 files but its name, its size and its time:
a kind, 8,760 runs of one lead time, is one `Member`, as if one file held it.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.combining.align import take_steps
from insitu.combining.arrange import Merged
from insitu.combining.arrange_forecasts import arrange_forecasts
from insitu.combining.files_table import FilesTable
from insitu.combining.label_boxes import LabelBoxes
from insitu.combining.scan_progress import ScanProgress, open_progress
from insitu.errors import InsituError
from insitu.formats.containers import open_location
from insitu.formats.detect import find_format
from insitu.formats.file_outline import FileOutline
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.registry import Format
from insitu.model import Axis, Columns, Source, Tile, VirtualArray
from insitu.open_options import CombineOptions
from insitu.scanning.forecast_axes import RUN, ForecastAxes
from insitu.scanning.member import Member
from insitu.scanning.scan_member import Failure, Job
from insitu.sources.address import is_remote
from insitu.sources.threads import gather

__all__ = ["ScannedKinds", "order_as_given", "scan_by_kind"]

LEAST = 3
"""Files of a kind from which on they are scanned as one."""
BATCH = 1024
"""Files whose outlines are asked for at once."""
_Row = tuple[int, FileOutline]
"""The number of a file, and what tells it from others of its kind."""


@dataclass(frozen=True, slots=True)
class ScannedKinds:
    """What came of files of the same kinds, and which files are left to be scanned."""

    members: list[Member]
    failures: list[Failure]
    rest: list[Any]


def scan_by_kind(urls: Sequence[Any], job: Job, axes: ForecastAxes, progress: Any = None) -> ScannedKinds:
    """Return files of forecasts, those of one kind as one member.

    Parameters
    ----------
    urls, job
        The files, and how each is scanned.
    axes
        The axes of forecasts.
    progress
        See `open_progress`.
    """
    found = ScannedKinds([], [], [])
    format_ = None if job.finish or job.labels or axes.rules else _format_of(urls, job)
    if format_ is None:  # what else tells files apart is known of each file only
        found.rest.extend(urls)
        return found
    kinds: dict[Hashable, list[_Row]] = {}
    state = ScanProgress(len(urls))
    with open_progress(progress) as shown:
        for begin, outlines in _iter_outlines(urls, job, format_):
            failed = 0
            for number, outline in enumerate(outlines, begin):
                if isinstance(outline, Failure):
                    found.failures.append(outline)
                    failed += 1
                elif outline is None:
                    found.rest.append(urls[number])
                else:
                    kinds.setdefault(outline.kind, []).append((number, outline))
            state.add(len(outlines), failed, "this process")
            shown.show(state)
    by_run = {kind: _once_each(group) for kind, group in kinds.items()}
    # One object for all tables, which need not be merged then.
    sources = tuple(outline.source for rows in by_run.values() for _, outline in rows)
    first = 0
    for kind, group in kinds.items():
        rows = by_run[kind]
        member = _member_of_kind(urls, rows, first, sources, job, axes) if len(rows) >= LEAST else None
        first += len(rows)
        if member is not None:
            found.members.append(member)
        taken = {number for number, _ in rows} if member is not None else ()
        found.rest.extend(urls[number] for number, _ in group if number not in taken)
    return found


def order_as_given(
    urls: Sequence[Any],
    kinds: ScannedKinds,
    single: Sequence[Member | Failure],
    axes: ForecastAxes,
    options: CombineOptions,
) -> list[Member | Failure]:
    """Return what came of all files; where the order of files counts, in that order.

    A member of many files has no place among others: those of its files that have labels in common with
    other files become members of their own.

    Parameters
    ----------
    urls
        The files, as they were given.
    kinds, single
        What came of those of one kind, and of those that were scanned one by one.
    axes, options
        How they are combined.
    """
    found: list[Member | Failure] = [*kinds.failures, *kinds.members, *single]
    if not kinds.members or not options.may_shadow:
        return found
    table = FilesTable.of(found)
    arrangement = arrange_forecasts(table, axes, replace(options, overlap="last", expect=None))
    shared: dict[int, npt.NDArray[np.bool_]] = {}
    for boxes in arrangement.grids if isinstance(arrangement, Merged) else ():
        if isinstance(boxes, LabelBoxes) and boxes.has_overlaps:
            for box, runs in enumerate(_shared_labels(boxes)):
                number = boxes.numbers[box]
                shared[number] = shared[number] | runs if number in shared else runs
    if not shared:
        return found
    position = {url: number for number, url in reversed(list(enumerate(urls)))}
    placed: list[tuple[int, Member | Failure]] = [(-1, item) for item in kinds.failures]
    placed += [(position[url], item) for url, item in zip(kinds.rest, single, strict=True)]
    for number, member in enumerate(kinds.members, len(kinds.failures)):
        runs = shared.get(number, np.zeros(len(member.sources), bool))
        alone = np.flatnonzero(~runs)
        if len(alone):
            own = tuple(member.sources[at] for at in alone.tolist())
            placed.append((position[own[0]], replace(take_steps(member, axes.name(RUN), alone), sources=own)))
        for at in np.flatnonzero(runs).tolist():
            one = replace(take_steps(member, axes.name(RUN), np.array([at])), source=member.sources[at], sources=())
            placed.append((position[member.sources[at]], one))
    return [item for _, item in sorted(placed, key=itemgetter(0))]


def _shared_labels(boxes: LabelBoxes) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield for each box which of its labels along the first dimension have a cell that another box has, too."""
    count = np.zeros(boxes.owner.shape, np.int32)
    cells = [np.ix_(*(places[box] for places in boxes.places)) for box in range(len(boxes.numbers))]
    for own in cells:
        count[own] += 1
    for own in cells:
        yield np.asarray((count[own] > 1).any(axis=tuple(range(1, count.ndim))), bool)


def _format_of(urls: Sequence[Any], job: Job) -> Format | None:
    """Return the format of the first file, if it knows outlines."""
    if len(urls) < LEAST or not all(isinstance(url, str) for url in urls):
        return None
    try:
        with open_location(urls[0], job.scan.storage_options) as source:
            found = find_format(ReadCache(source, storage_options=job.scan.storage_options), job.scan.format)
    except (InsituError, OSError):  # said where the file is scanned
        return None
    return found if getattr(found, "outline", None) is not None else None


def _iter_outlines(
    urls: Sequence[str], job: Job, format_: Format
) -> Iterator[tuple[int, list[FileOutline | Failure | None]]]:
    """Yield the outlines of files in batches, with the number of the first."""
    options, outline_of = job.scan.storage_options, format_.outline
    assert outline_of is not None

    def ask(url: str, _: threading.Event) -> FileOutline | Failure | None:
        try:
            found = outline_of(url, options)
        except (InsituError, OSError) as error:
            return job.failure(url, error)
        # Lists of numbers take ten times the memory.
        return found and found._replace(offsets=array("q", found.offsets), lengths=array("q", found.lengths))

    names, begin = iter(urls), 0
    while batch := list(islice(names, BATCH)):
        # A thread for each of many local files takes longer than to read them.
        width = 64 if is_remote(batch[0]) else 1
        yield begin, gather(ask, batch, width=width)
        begin += len(batch)


def _once_each(group: Sequence[_Row]) -> list[_Row]:
    """Return the files whose run no other file of the kind has, by run: which of several counts is decided later."""
    count = Counter(outline.run for _, outline in group)
    return sorted((row for row in group if count[row[1].run] == 1), key=lambda row: row[1].run)


def _member_of_kind(
    urls: Sequence[str],
    rows: Sequence[_Row],
    first: int,
    sources: tuple[Source, ...],
    job: Job,
    axes: ForecastAxes,
) -> Member | None:
    """Return files of one kind as one member; None if what is found in one does not count for all.

    Parameters
    ----------
    urls, rows
        The files, and which of them are of the kind.
    first, sources
        The sources of all kinds, and the number of the first one of this.
    job, axes
        How one of them is scanned.
    """
    number, outline = rows[0]
    template = job.one(urls[number])
    if isinstance(template, Failure):
        return None
    run = axes.name("time")
    label = template.index(run)
    if label is None or label.dtype.kind != "M" or len(label) != 1:
        return None
    if label.astype("datetime64[s]").astype(np.int64)[0] != outline.run:
        return None
    places = _Places(
        outline.source,
        np.array(outline.offsets, np.int64),
        np.array([each.offsets for _, each in rows], np.int64),
        np.array([each.lengths for _, each in rows], np.int64),
        first,
        sources,
    )
    variables = dict(template.variables)
    for name, variable in template.variables.items():
        if name == run:
            runs = np.array([each.run for _, each in rows], "datetime64[s]").astype(label.dtype)
            variables[name] = variable.with_data(runs)
        elif run in variable.dims:
            data = variable.data
            repeated = places.repeat(data, variable.dims.index(run)) if isinstance(data, VirtualArray) else None
            if repeated is None:
                return None
            variables[name] = variable.with_data(repeated)
    return replace(template, variables=variables, source=None, sources=tuple(urls[number] for number, _ in rows))


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """Where the fields of files of one kind lie."""

    source: Source
    """The file that was scanned,"""
    known: npt.NDArray[np.int64]
    """and where its fields lie."""
    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    """(files, fields)"""
    first: int
    sources: tuple[Source, ...]
    """Of all kinds; this one's begin with the first."""

    def repeat(self, one: VirtualArray, dimension: int) -> VirtualArray | None:
        """Return the array of one file as that of all, along a dimension; None if a part lies elsewhere."""
        count = len(self.offset)
        tiles = []
        for tile in one.tiles:
            whole = self._repeat_tile(tile, tile.dimensions[dimension])
            if whole is None:
                return None
            tiles.append(whole)
        shape = (*one.shape[:dimension], count, *one.shape[dimension + 1 :])
        return replace(one, shape=shape, tiles=tuple(tiles))

    def _repeat_tile(self, tile: Tile, number: int) -> Tile | None:
        count, grid = len(self.offset), tuple(tile.chunks.shape)
        if grid[number] != 1:
            return None
        cells = np.unravel_index(np.arange(int(np.prod(grid))), grid)
        rows = tile.chunks.locate(list(cells))
        size = len(cells[0])
        source, offset = (np.broadcast_to(column, (size,)).astype(np.int64) for column in (rows.source, rows.offset))
        stored = source >= 0
        line = np.minimum(np.searchsorted(self.known, offset), len(self.known) - 1)
        if any(tile.chunks.sources[at] != self.source for at in np.unique(source[stored])):
            return None
        if rows.inline or (self.known[line] != offset)[stored].any():
            return None

        def spread(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            """Move the files, which come first, to their axis."""
            return np.moveaxis(values.reshape(count, *grid[:number], *grid[number + 1 :]), 0, number)

        files = np.arange(self.first, self.first + count)[:, None]
        same = {
            name: spread(np.broadcast_to(np.asarray(getattr(rows, name)), (count, size)))
            for name in ("filter_mask", "encoding", "packing")
        }
        table = Columns(
            (*grid[:number], count, *grid[number + 1 :]),
            self.sources,
            spread(np.where(stored, files, source)),
            spread(np.where(stored, self.offset[:, line], 0)),
            spread(np.where(stored, self.length[:, line], 0)),
            filter_mask=same["filter_mask"],
            encoding=same["encoding"],
            packing=same["packing"],
        )
        shown = tile.axes[number].show(np.zeros(1, np.int64))
        axis = Axis.irregular(np.ones(count, np.int64), shown.skip, shown.step, shown.stored)
        return replace(tile, axes=(*tile.axes[:number], axis, *tile.axes[number + 1 :]), chunks=table)
