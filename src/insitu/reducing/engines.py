"""Engines that run the portions of a large reduction: this process, a Dask cluster, an executor.

`insitu.options(engine=...)` chooses one. All of them merge partial states in the same tree, whose
branches are given by the portions alone, so that they give the same bits. On Dask the merging runs
on the cluster as well; what is lost with a worker is computed again by Dask.
"""

from __future__ import annotations

import math
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from insitu.cancellation import Deadline, cap_to_deadline, check_deadline, deadline_scope
from insitu.errors import InsituError, UnsupportedError
from insitu.reducing.foldable_values import Box, Foldable
from insitu.reducing.portions import Region

__all__ = ["PortionJob", "check_engine", "import_dask", "is_dask_client", "is_lost_worker", "run_portions", "settings"]

FAN_IN = 8
"""Partial states that are merged at a time. A change changes the last bits of sums."""
SUBMITTED = 64
"""Portions that an executor has at a time."""
OVERLAPPED = 2
"""Portions that are computed at a time in this process, where storage is far."""

SHOWN = 80
"""Characters of a formula in the names of tasks."""


@dataclass(slots=True)
class EngineSettings:
    """The engine of this process: see `insitu.options`."""

    engine: Any = None


settings = EngineSettings()


class PortionJob(Protocol):
    """A reduction as two functions: of a box, and of the states of some boxes in order.

    It is pickled for other processes. Neither function changes its arguments.
    """

    @property
    def name(self) -> str:
        """What is computed, for the names of tasks."""

    def fold_portion(self, box: Box) -> Any:
        """Return the state of a box."""

    def merge(self, states: Sequence[Any]) -> Any:
        """Return the state of several boxes together: the first merged with the second, and so on."""

    def for_workers(self) -> PortionJob:
        """Return the job without what cannot leave this process."""


def import_dask(module: str, purpose: str) -> Any:
    """Return a module of Dask, or raise an error that names what needs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as problem:
        raise UnsupportedError(
            f"{purpose} needs Dask, which is not installed", hint="pip install 'insitu[dask]'"
        ) from problem


def is_dask_client(engine: Any) -> bool:
    """Return whether an object is a client of a Dask cluster; Dask need not be installed."""
    return hasattr(engine, "scheduler_info") and hasattr(engine, "get")


def check_engine(engine: Any) -> Any:
    """Return an engine that portions can run on, as it is.

    Raises
    ------
    TypeError
        If it is none.
    """
    if engine is None or isinstance(engine, Executor) or is_dask_client(engine):
        return engine
    if isinstance(engine, str) and engine == "dask":
        return engine
    raise TypeError(f"engine must be a Dask client, 'dask', an Executor of concurrent.futures, or None, not {engine!r}")


def run_portions(job: PortionJob, regions: Sequence[Region], values: Foldable) -> Iterator[tuple[Region, Any]]:
    """Yield the regions of a result and their states, in order.

    Parameters
    ----------
    job
        What to compute.
    regions
        Of which portions.
    values
        What is reduced: its engine runs the portions. A single portion is always computed here: to send
        it would take longer.
    """
    engine = values.engine
    if sum(len(region.boxes) for region in regions) <= 1 or (engine is None and not values.is_far):
        for region in regions:
            yield region, merge_in_tree(job, map(job.fold_portion, region.boxes))
    elif engine is None:
        yield from _run_overlapped(job, regions)
    elif isinstance(engine, Executor):
        there = job.for_workers()
        try:
            yield from _fold_and_merge(job, regions, lambda box: engine.submit(there.fold_portion, box), SUBMITTED)
        except Exception as problem:
            if is_lost_worker(problem):
                raise _lost_workers(job, problem) from problem
            raise
    else:
        yield from zip(regions, _run_on_dask(job.for_workers(), regions, engine), strict=True)


def merge_in_tree(job: PortionJob, states: Iterable[Any]) -> Any:
    """Return the merged state of some states, `FAN_IN` at a time, and so on.

    Only one state of each level is held, however many there are.
    """
    levels: list[tuple[int, Any]] = []
    for state in states:
        level, carried = 0, state
        while True:
            if level == len(levels):
                levels.append((0, None))
            count, before = levels[level]
            carried = carried if not count else job.merge([before, carried])
            if count + 1 < FAN_IN:
                levels[level] = count + 1, carried
                break
            levels[level] = 0, None
            level += 1
    result: Any = None
    for count, before in levels:
        if count:
            result = before if result is None else job.merge([before, result])
    return result


def _run_overlapped(job: PortionJob, regions: Sequence[Region]) -> Iterator[tuple[Region, Any]]:
    """Yield the states of regions, computed here, where storage is far: requests of the next portion do
    not wait for the end of one.
    """
    deadline = Deadline(cap_to_deadline(math.inf))

    def fold_within_deadline(box: Box) -> Any:
        with deadline_scope(deadline):
            return job.fold_portion(box)

    with ThreadPoolExecutor(OVERLAPPED, "insitu-portion") as pool:
        try:
            yield from _fold_and_merge(job, regions, lambda box: pool.submit(fold_within_deadline, box), OVERLAPPED)
        finally:  # after an error or an interrupt nothing goes on
            deadline.cancelled = True


def _fold_and_merge(
    job: PortionJob, regions: Sequence[Region], submit: Callable[[Box], Future[Any]], at_once: int
) -> Iterator[tuple[Region, Any]]:
    """Yield the states of regions: portions are folded elsewhere, and merged here, in order."""
    boxes = iter([box for region in regions for box in region.boxes])
    pending: deque[Future[Any]] = deque()

    def states(count: int) -> Iterator[Any]:
        for _ in range(count):
            check_deadline()
            while len(pending) < at_once and (box := next(boxes, None)) is not None:
                pending.append(submit(box))
            yield pending.popleft().result()

    try:
        for region in regions:
            yield region, merge_in_tree(job, states(len(region.boxes)))
    finally:
        for future in pending:
            future.cancel()


def _run_on_dask(job: PortionJob, regions: Sequence[Region], client: Any) -> Iterator[Any]:
    """Yield the states of regions, computed by one graph: folds, and merges of `FAN_IN` of them."""
    graph, wanted = _make_graph(job, regions, uuid.uuid4().hex)
    try:
        if client == "dask":
            dask = import_dask("dask", 'engine="dask"')
            get = dask.base.get_scheduler() or import_module("dask.threaded").get
            yield from get(graph, wanted)
            return
        with warnings.catch_warnings():
            # The table of chunks is a part of the graph, once: if it were scattered, it would be lost with a worker.
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            futures = deque(client.get(graph, wanted, sync=False))
        del graph
        try:
            while futures:
                yield futures.popleft().result()
        finally:
            if futures:
                client.cancel(list(futures))
    except Exception as problem:
        if is_lost_worker(problem):
            raise _lost_workers(job, problem) from problem
        raise


def _make_graph(job: PortionJob, regions: Sequence[Region], token: str) -> tuple[dict[str, Any], list[str]]:
    """Return a Dask graph, and the keys of the regions.

    The names are what Dask's dashboard shows: all before the first dash.
    """
    name = job.name[:SHOWN].replace("-", "_")
    table = f"table({name})-{token}"
    graph: dict[str, Any] = {table: _SharedJob(job, token)}
    wanted = []
    for region in regions:
        keys = []
        for box in region.boxes:
            keys.append(f"{name}-{token}-{len(graph)}")
            graph[keys[-1]] = (_fold_portion, table, [(part.start, part.stop) for part in box])
        while len(keys) > 1:
            groups = [keys[begin : begin + FAN_IN] for begin in range(0, len(keys), FAN_IN)]
            keys = []
            for group in groups:
                if len(group) == 1:
                    keys += group
                    continue
                keys.append(f"merge({name})-{token}-{len(graph)}")
                graph[keys[-1]] = (_merge, table, group)
        wanted += keys
    return graph, wanted


@dataclass(frozen=True, slots=True)
class _SharedJob:
    """A job in a graph, under a name of its own: Dask would hash the table of chunks to find one."""

    job: PortionJob
    token: str

    def __dask_tokenize__(self) -> str:
        return self.token


def _fold_portion(shared: _SharedJob, box: Sequence[tuple[int, int]]) -> Any:
    return shared.job.fold_portion(tuple(slice(begin, end) for begin, end in box))


def _merge(shared: _SharedJob, states: Sequence[Any]) -> Any:
    return shared.job.merge(states)


def is_lost_worker(error: BaseException) -> bool:
    """Return whether a call failed because its worker is gone, and the engine gave up."""
    return isinstance(error, (BrokenExecutor, CancelledError)) or type(error).__name__ in (
        "KilledWorker",
        "FutureCancelledError",
    )


def _lost_workers(job: PortionJob, problem: BaseException) -> InsituError:
    return InsituError(
        f"the workers that computed {job.name} are gone: {type(problem).__name__}: {problem}",
        hint="Often they ran out of memory: give each worker more of it, or fewer threads, and start again",
    )
