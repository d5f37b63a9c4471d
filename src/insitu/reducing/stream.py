"""Streaming reduction: reduce an array chunk by chunk on threads, in bounded memory.

The plan is that of the reader, so every chunk is fetched and decoded once. A slab of chunks is one
task on a thread; its result is one partial for each place of the result that it touches. Partials
are merged in the order of the plan, whichever thread finishes first, so that the result is always
the same to the last bit. Only a few slabs are processed at a time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cancellation import cap_threads, carry_deadline, check_deadline
from insitu.model import INLINE, Selection, VirtualArray
from insitu.model.gaps import fill_gaps_with_absent
from insitu.reading import ReadContext, ReadPlan, ReadStatistics, plan_read
from insitu.reading.fetch_and_decode import PlanExecution
from insitu.reading.request_cost import NEAR_REQUEST, has_remote_sources
from insitu.reading.scatter import put
from insitu.reading.thread_pools import REMOTE_WORKERS, count_cores, get_worker_pool
from insitu.reading.tile_plan import Position
from insitu.reducing.empty_cells import add_constants
from insitu.reducing.known_values import KnownExecution, KnownValues
from insitu.reducing.partial_fields import Partial
from insitu.reducing.reduce_chunks import BatchReducer, PartialsByPlace, PartialStack, reduce_one_chunk
from insitu.reducing.reductions import Reduction
from insitu.reducing.result_layout import TileProjection, get_region
from insitu.reducing.slabs import cut_slabs

__all__ = ["fold_chunks"]

BATCHES_PER_THREAD = 3
"""Batches per thread that are submitted at once: enough that no thread waits for the merging."""


def fold_chunks(
    array: VirtualArray,
    axes: Sequence[int],
    reduction: Reduction,
    context: ReadContext,
    known: npt.NDArray[Any] | None = None,
) -> Partial:
    """Return the partial of an array, of its shape with length 1 for each reduced axis.

    Parameters
    ----------
    array
        The array, cut out of what lies beside: which chunks are reduced together must not depend on that.
    axes
        Axes to reduce, in the order in which they count for positions.
    reduction
        The statistics.
    context
        Open sources and counters.
    known
        The values, if they were kept from an earlier use: then nothing is fetched and decoded, and
        the result is the same to the last bit.
    """
    at_once = None if known is None else reduce_one_chunk(array, known, tuple(axes), reduction)
    if at_once is not None:
        return at_once
    everything = Selection.of(..., array.shape)
    answer = _PartialResult(everything, axes, reduction)
    if 0 in array.shape:
        return answer.partial
    # Planned as if it were near: what is fetched in one request is decided later.
    planned = plan_read(fill_gaps_with_absent(array), everything, request_bytes=NEAR_REQUEST)
    answer.project_onto(planned)
    at_hand = None if known is None else KnownValues.of(known, answer.projections)
    job = _StreamingPass(answer.without_constants(planned), answer.projections, reduction, context, at_hand)
    total: PartialsByPlace = {}
    with closing(job.run()) as results:
        for found in results:
            check_deadline()
            for stack in found.stacks:
                answer.put_stack(stack)
            for place, partial in found.found.items():
                projection = answer.projections[place[0]]
                if projection.has_unique_places or projection.is_listed:  # no other cell has this key
                    answer.put(place, partial)
                    continue
                before = total.get(place)
                total[place] = partial if before is None else reduction.merge(before, partial, reuse=True)
    while total:
        answer.put(*total.popitem())
    return answer.partial


class _PartialResult:
    """The partial of the whole selection, as it grows."""

    def __init__(self, selection: Selection, axes: Sequence[int], reduction: Reduction) -> None:
        self.selection = selection
        self.axes = axes
        self.reduction = reduction
        self.partial = reduction.empty_partial(selection.result_shape, axes)
        self.projections: list[TileProjection] = []
        self.windows: list[Partial] = []
        self.untouched = False
        """Whether every place is written once: then nothing has to be merged."""

    def project_onto(self, plan: ReadPlan) -> None:
        """Make the projections of the tiles of a plan."""
        self.projections = [TileProjection(touched, self.selection, self.axes) for touched in plan.tiles]
        self.windows = [projection.windows(self.partial) for projection in self.projections]
        self.untouched = len(plan.tiles) == 1 and not len(plan.without_bytes[0]) and not self.projections[0].is_listed

    def without_constants(self, plan: ReadPlan) -> ReadPlan:
        """Add the cells without stored bytes, and return the plan without them."""
        inline = []
        for projection, window, located, rows in zip(
            self.projections, self.windows, plan.locations, plan.without_bytes, strict=True
        ):
            check_deadline()
            if projection.is_listed:  # cell by cell, as those with bytes
                inline.append(rows)
                continue
            add_constants(plan.array, projection, located, rows, self.reduction, window)
            inline.append(rows[np.asarray(located.source)[rows] == INLINE])
        return replace(plan, without_bytes=tuple(inline))

    def put(self, place: tuple[int, Position], partial: Partial) -> None:
        """Merge a partial into its place."""
        number, key = place
        region, windows = self.projections[number].region(key), self.windows[number]
        if not self.untouched:
            before = {field: get_region(window, region) for field, window in windows.items()}
            partial = self.reduction.merge(before, partial)
        for field, found in partial.items():
            put(windows[field], region, found)

    def put_stack(self, stack: PartialStack) -> None:
        """Merge partials of many small places into them."""
        windows = self.windows[stack.grid]
        extent = next(iter(stack.partial.values())).shape[1:]
        index = []
        for axis, length in enumerate(extent):
            along = [1] * (len(extent) + 1)
            along[axis + 1] = length
            begins = stack.corners[:, axis].reshape(-1, *[1] * len(extent))
            index.append(begins + np.arange(length).reshape(along))
        where = tuple(index)
        partial = stack.partial
        if not (self.untouched and self.projections[stack.grid].has_unique_places):
            self.untouched = False
            before = {field: window[where] for field, window in windows.items()}
            partial = self.reduction.merge(before, partial)
        for field, found in partial.items():
            windows[field][where] = found


class _StreamingPass:
    """One pass over a plan."""

    def __init__(
        self,
        plan: ReadPlan,
        projections: Sequence[TileProjection],
        reduction: Reduction,
        context: ReadContext,
        known: KnownValues | None,
    ) -> None:
        self.plan = plan
        self.grids = plan.tile_plans
        self.projections = projections
        self.reduction = reduction
        self.context = context
        self.known = known
        self.tally = ReadStatistics() if context.tally is None else context.tally
        self.stopped = threading.Event()

    def run(self) -> Generator[BatchReducer, None, None]:
        """Yield the partials of the batches, in the order of the plan."""
        if any(len(rows) for rows in self.plan.without_bytes):
            measuring = BatchReducer(self.grids, self.projections, self.reduction, self.known)
            self._runner(measuring).run_without_bytes()
            measuring.flush()
            yield measuring
        tasks = list(cut_slabs(self.plan))
        if len(tasks) <= 1 or cap_threads(2) == 1:
            yield from (self.reduce_batch(*task) for task in tasks)
            return
        is_remote = has_remote_sources(self.plan.sources)
        pool = get_worker_pool(is_remote)
        threads = REMOTE_WORKERS if is_remote else count_cores() + 1
        capped = cap_threads(threads)
        most = capped if capped < threads else BATCHES_PER_THREAD * threads
        carried = carry_deadline(self.reduce_batch)
        pending: deque[Future[BatchReducer]] = deque()
        try:
            for task in tasks:
                if len(pending) >= most:
                    yield pending.popleft().result()
                pending.append(pool.submit(carried, *task))
            while pending:
                yield pending.popleft().result()
        finally:  # after an error or an interrupt no task goes on
            self.stopped.set()
            for future in pending:
                future.cancel()
            wait(pending)

    def reduce_batch(self, begin: int, end: int) -> BatchReducer:
        """Return the partials of some rows of the plan."""
        measuring = BatchReducer(self.grids, self.projections, self.reduction, self.known)
        self._runner(measuring).run_batch(begin, end)
        measuring.flush()
        measuring.block = None  # what waits to be merged holds no values
        return measuring

    def _runner(self, measuring: BatchReducer) -> PlanExecution:
        kind = PlanExecution if self.known is None else KnownExecution
        run = kind(self.plan, measuring, self.context.pool, self.context.name, self.tally)
        run.stopped = self.stopped
        return run
