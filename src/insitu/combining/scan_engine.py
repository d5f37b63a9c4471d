"""Where portions of a scan run: a Dask client, an executor, or this process.

The engine distributes and retries: Dask gives the tasks of a worker that died to other workers.
Here is only what the engines do differently.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Protocol

from insitu.reducing.engines import import_dask, is_dask_client

__all__ = ["Engine", "engine_for", "worker_name"]


class Engine(Protocol):
    """Runs functions elsewhere."""

    is_dask: bool
    """Whether results stay on the workers until they are asked for."""

    def submit(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return a future of a call; `name` is what a dashboard shows."""

    def flush(self) -> None:
        """Run what was submitted, if that has not begun."""

    def put(self, data: bytes) -> Any:
        """Return bytes of this process as an argument of calls."""

    def is_alive(self) -> bool:
        """Return whether results can still be expected."""


def engine_for(parallel: Any) -> Engine | None:
    """Return the engine that `parallel=` names; None: threads of this process.

    Raises
    ------
    TypeError
        If it names none.
    """
    if parallel == "dask":
        client = _running_client()
        return LocalDask() if client is None else DaskEngine(client)
    if is_dask_client(parallel):
        return DaskEngine(parallel)
    if isinstance(parallel, Executor):
        return ExecutorEngine(parallel)
    if parallel is None or isinstance(parallel, int):
        return None
    raise TypeError(f"parallel must be None, a number, an Executor, 'dask' or a Dask client, not {parallel!r}")


def _running_client() -> Any:
    """Return the Dask client of this process; None if there is none."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


class ThisThread(Executor):
    """Runs each call when it is submitted, in the calling thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call and return its future, which is done."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class ExecutorEngine:
    """Any `concurrent.futures.Executor`: results travel to this process and from it."""

    is_dask = False

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def submit(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return a future of a call."""
        return self.executor.submit(function, *arguments)

    def flush(self) -> None:
        """Do nothing: calls begin when they are submitted."""

    def put(self, data: bytes) -> Any:
        """Return the bytes."""
        return data

    def is_alive(self) -> bool:
        """Return whether results can still be expected: a broken executor fails its futures."""
        return True


class LocalDask(ExecutorEngine):
    """Dask's scheduler of this process, where no client was made: it runs all calls at once."""

    def __init__(self) -> None:
        super().__init__(ThisThread())
        self._dask: Any = import_dask("dask", 'parallel="dask"')
        self._calls: list[tuple[Future[Any], Any]] = []

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

    is_dask = True

    def __init__(self, client: Any) -> None:
        self.client = client

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


def worker_name() -> str:
    """Return the name of the worker that this code runs on."""
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        try:
            return str(distributed.get_worker().name)
        except (ValueError, AttributeError):  # not on a worker
            pass
    return f"{socket.gethostname()}:{os.getpid()}"
