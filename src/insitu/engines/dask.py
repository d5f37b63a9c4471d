"""Dask as an engine: a client of a cluster, and the scheduler of this process.

The folds and merges of a reduction are one graph: merging runs on the cluster as well.
"""

from __future__ import annotations

import os
import socket
import sys
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from insitu.engines.engine_protocol import FAN_IN, PortionJob, report_lost_workers
from insitu.engines.executor import ExecutorEngine, ThisThread
from insitu.errors import UnsupportedError

__all__ = ["DaskEngine", "LocalDask", "find_client", "import_dask", "make_graph", "worker_name"]

CLUSTER_SCHEDULERS = (None, "dask.distributed", "distributed")
"""Values of Dask's setting `scheduler` with which a client is used, if there is one."""
SHOWN = 80
"""Characters of a formula in the names of tasks."""


def import_dask(module: str, purpose: str) -> Any:
    """Return a module of Dask, or raise an error that names what needs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as problem:
        raise UnsupportedError(
            f"{purpose} needs Dask, which is not installed", hint="pip install 'insitu[dask]'"
        ) from problem


def find_client() -> Any:
    """Return the Dask client of this process; None if there is none, or Dask's settings name another scheduler."""
    distributed = sys.modules.get("distributed")
    if distributed is None or sys.modules["dask"].config.get("scheduler", None) not in CLUSTER_SCHEDULERS:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


def worker_name() -> str:
    """Return the name of the worker that this code runs on."""
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        try:
            return str(distributed.get_worker().name)
        except (ValueError, AttributeError):  # not on a worker
            pass
    return f"{socket.gethostname()}:{os.getpid()}"


class LocalDask(ExecutorEngine):
    """Dask's scheduler of this process, where no client was made: it runs all calls at once.

    Parameters
    ----------
    purpose
        What asked for it, for the error if Dask is not installed.
    """

    def __init__(self, purpose: str) -> None:
        super().__init__(ThisThread())
        self._dask: Any = import_dask("dask", purpose)
        self._calls: list[tuple[Future[Any], Any]] = []

    def fold_portions(self, job: PortionJob, groups: Sequence[Sequence[Any]]) -> Iterator[Any]:
        """Yield the merged states of groups of portions."""
        graph, wanted = make_graph(job.for_workers(), groups, uuid.uuid4().hex)
        get = self._dask.base.get_scheduler() or import_module("dask.threaded").get
        with report_lost_workers(job):  # of a scheduler of processes
            yield from get(graph, wanted)

    def submit(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return a future of a call, which runs with the next `flush`."""
        future: Future[Any] = Future()
        self._calls.append((future, self._dask.delayed(function, pure=False)(*arguments)))
        return future

    def flush(self) -> None:
        """Run the calls."""
        calls, self._calls = self._calls, []
        try:
            results = self._dask.compute(*(call for _, call in calls))
        except Exception as error:
            for future, _ in calls:
                future.set_exception(error)
        else:
            for (future, _), result in zip(calls, results, strict=True):
                future.set_result(result)


class DaskEngine:
    """A Dask client: results stay on the workers, and are joined there."""

    keeps_results = True

    def __init__(self, client: Any) -> None:
        self.client = client

    def fold_portions(self, job: PortionJob, groups: Sequence[Sequence[Any]]) -> Iterator[Any]:
        """Yield the merged states of groups of portions."""
        graph, wanted = make_graph(job.for_workers(), groups, uuid.uuid4().hex)
        with report_lost_workers(job):
            with warnings.catch_warnings():
                # The table of chunks is a part of the graph, once: if it were scattered, it would be lost with a
                # worker.
                warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
                futures = deque(self.client.get(graph, wanted, sync=False))
            del graph
            try:
                while futures:
                    yield futures.popleft().result()
            finally:
                if futures:
                    self.client.cancel(list(futures))

    def submit(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return a future of a call; futures among the arguments are replaced by their results."""
        return self.client.submit(function, *arguments, key=name, pure=False)

    def flush(self) -> None:
        """Do nothing: calls begin when they are submitted."""

    def put(self, data: bytes) -> Any:
        """Return a future of bytes that lie on a worker."""
        return self.client.scatter(data, hash=False)

    def is_alive(self) -> bool:
        """Return whether the client is connected, or about to be again."""
        return self.client.status not in ("closed", "closing")


def make_graph(job: PortionJob, groups: Sequence[Sequence[Any]], token: str) -> tuple[dict[str, Any], list[str]]:
    """Return a Dask graph of folds, and of merges of `FAN_IN` states; and the keys of the groups.

    The names are what Dask's dashboard shows: all before the first dash.
    """
    name = job.name[:SHOWN].replace("-", "_")
    table = f"table({name})-{token}"
    graph: dict[str, Any] = {table: _SharedJob(job, [portion for group in groups for portion in group], token)}
    wanted, number = [], 0
    for group in groups:
        keys = []
        for _ in group:
            keys.append(f"{name}-{token}-{len(graph)}")
            graph[keys[-1]] = (_fold_portion, table, number)
            number += 1
        while len(keys) > 1:
            branches = [keys[begin : begin + FAN_IN] for begin in range(0, len(keys), FAN_IN)]
            keys = []
            for branch in branches:
                if len(branch) == 1:
                    keys += branch
                    continue
                keys.append(f"merge({name})-{token}-{len(graph)}")
                graph[keys[-1]] = (_merge, table, branch)
        wanted += keys
    return graph, wanted


@dataclass(frozen=True, slots=True)
class _SharedJob:
    """A job in a graph and its portions, under a name of its own: Dask would hash the table of chunks to find one."""

    job: PortionJob
    portions: list[Any]
    token: str

    def __dask_tokenize__(self) -> str:
        return self.token


def _fold_portion(shared: _SharedJob, number: int) -> Any:
    return shared.job.fold_portion(shared.portions[number])


def _merge(shared: _SharedJob, states: Sequence[Any]) -> Any:
    return shared.job.merge(states)
