"""Scanning of many files, in order: on threads, an executor or a Dask cluster."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

from insitu.combining.decoding_memory import DecodingMemory
from insitu.combining.member import Member
from insitu.combining.scan_member import Failure, Job
from insitu.errors import UnsupportedError
from insitu.sources.address import is_remote

__all__ = ["scan_many"]


def scan_many(
    urls: Sequence[Any], job: Job, *, parallel: Any = None, progress: bool | Callable[[int, int], None] | None = None
) -> list[Member | Failure]:
    """Scan many files, in order.

    Parameters
    ----------
    urls
        The files.
    job
        What to do with each.
    parallel
        None: threads, as many as help; a number: so many threads; any
        `concurrent.futures.Executor`; `"dask"` or a Dask client.
    progress
        True: a bar; or a function of how many are done, and of how many.
    """
    batches = _make_batches(urls, parallel)
    results: list[Member | Failure] = []
    with _progress_context(progress, len(urls)) as tell:
        for done in _run_batches(job, batches, parallel):
            results += done
            tell(len(results), len(urls))
    return results


def _make_batches(urls: Sequence[Any], parallel: Any) -> list[Sequence[Any]]:
    """Return files in batches: a worker remembers from file to file what they have in common."""
    size = 16 if parallel is None or isinstance(parallel, int) else 64
    size = max(min(size, len(urls) // (4 * _thread_count(urls, parallel))), 1)
    return [urls[begin : begin + size] for begin in range(0, len(urls), size)]


def _thread_count(urls: Sequence[Any], parallel: Any) -> int:
    if isinstance(parallel, int) and not isinstance(parallel, bool):
        return max(parallel, 1)
    # A local scan is bound by the interpreter; a remote one waits.
    return 64 if any(is_remote(str(url)) for url in urls[:1]) else 1


def _run_batches(job: Job, batches: list[Sequence[Any]], parallel: Any) -> Iterator[list[Member | Failure]]:
    if parallel == "dask" or hasattr(parallel, "scheduler_info"):
        yield from _run_on_dask(job, batches, parallel)
        return
    if isinstance(parallel, Executor):
        yield from parallel.map(job, batches)
        return
    if parallel not in (None, True, False) and not isinstance(parallel, int):
        raise TypeError(f"parallel must be None, a number, an Executor, 'dask' or a Dask client, not {parallel!r}")
    count = (
        1 if parallel is False else _thread_count(batches[0] if batches else [], None if parallel is True else parallel)
    )
    memory = _ThreadMemory()
    if count == 1 or len(batches) <= 1:
        for batch in batches:
            yield [job.one(url, memory.here()) for url in batch]
        return
    with ThreadPoolExecutor(count, thread_name_prefix="insitu-scan") as pool:
        futures = [pool.submit(lambda b: [job.one(url, memory.here()) for url in b], batch) for batch in batches]
        try:
            for future in futures:
                yield future.result()
        except BaseException:
            for future in futures:
                future.cancel()
            raise


class _ThreadMemory(threading.local):
    """A memory for each thread."""

    def __init__(self) -> None:
        self.memory = DecodingMemory()

    def here(self) -> DecodingMemory:
        return self.memory


def _run_on_dask(job: Job, batches: list[Sequence[Any]], client: Any) -> Iterator[list[Member | Failure]]:
    if client == "dask":
        try:
            dask: Any = import_module("dask")
        except ImportError:
            raise UnsupportedError(
                "parallel='dask' needs Dask, which is not installed", hint="pip install 'insitu[dask]'"
            ) from None
        yield from dask.compute(*(dask.delayed(job, pure=False)(batch) for batch in batches))
        return
    futures = client.map(job, batches, pure=False)
    for future in futures:
        yield future.result()


ReportProgress = Callable[[int, int], None]


def _progress_context(progress: bool | ReportProgress | None, total: int) -> AbstractContextManager[ReportProgress]:
    if not progress:
        return nullcontext(lambda done, of: None)
    if callable(progress):
        return nullcontext(progress)
    return _ProgressBar(total)


class _ProgressBar:
    """A progress bar on standard error."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._progress = Progress(console=Console(file=sys.stderr), transient=True)
        self._task = self._progress.add_task("scanning", total=total)

    def __enter__(self) -> ReportProgress:
        self._progress.start()
        return lambda done, of: self._progress.update(self._task, completed=done)

    def __exit__(self, *exc: object) -> None:
        self._progress.stop()
