"""Scanning of many files, in order, on the threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from insitu.combining.scan_progress import ScanProgress, open_progress
from insitu.scanning.decoding_cache import DecodingCache
from insitu.scanning.member import Member
from insitu.scanning.scan_member import Failure, Job
from insitu.sources.address import is_remote

__all__ = ["scan_many", "thread_count"]

BATCH_FILES = 16


def scan_many(
    urls: Sequence[Any],
    job: Job,
    *,
    parallel: Any = None,
    progress: Any = None,
    look: Callable[[Sequence[Member | Failure]], None] | None = None,
) -> list[Member | Failure]:
    """Scan many files, in order.

    Parameters
    ----------
    urls
        The files.
    job
        What to do with each.
    parallel
        None: threads, as many as help; a number: so many threads.
    progress
        See `open_progress`.
    look
        Called with files as soon as they are scanned, in order.
    """
    state = ScanProgress(len(urls))
    results: list[Member | Failure] = []
    with open_progress(progress) as shown:
        for done in _run_batches(job, _make_batches(urls, parallel), parallel):
            if look is not None:
                look(done)
            results += done
            state.add(len(done), sum(isinstance(item, Failure) for item in done), "this process")
            shown.show(state)
    return results


def _make_batches(urls: Sequence[Any], parallel: Any) -> list[Sequence[Any]]:
    """Return files in batches: a thread remembers from file to file what they have in common."""
    size = max(min(BATCH_FILES, len(urls) // (4 * thread_count(urls, parallel))), 1)
    return [urls[begin : begin + size] for begin in range(0, len(urls), size)]


def thread_count(urls: Sequence[Any], parallel: Any) -> int:
    """Return on how many threads files are scanned."""
    if isinstance(parallel, int) and not isinstance(parallel, bool):
        return max(parallel, 1)
    # A local scan is bound by the interpreter; a remote one waits.
    return 64 if any(is_remote(str(url)) for url in urls[:1]) else 1


def _run_batches(job: Job, batches: list[Sequence[Any]], parallel: Any) -> Iterator[list[Member | Failure]]:
    count = (
        1 if parallel is False else thread_count(batches[0] if batches else [], None if parallel is True else parallel)
    )
    cache = _ThreadCache()
    if count == 1 or len(batches) <= 1:
        for batch in batches:
            yield [job.one(url, cache.of_thread()) for url in batch]
        return
    with ThreadPoolExecutor(count, thread_name_prefix="insitu-scan") as pool:
        futures = [pool.submit(lambda b: [job.one(url, cache.of_thread()) for url in b], batch) for batch in batches]
        try:
            for future in futures:
                yield future.result()
        except BaseException:
            for future in futures:
                future.cancel()
            raise


class _ThreadCache(threading.local):
    """A cache for each thread."""

    def __init__(self) -> None:
        self.cache = DecodingCache()

    def of_thread(self) -> DecodingCache:
        return self.cache
