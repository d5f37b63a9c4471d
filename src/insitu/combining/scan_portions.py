"""Scanning of many files in portions, on the workers of an engine.

A worker scans the files of a portion and joins their tables (`packed_portion`). Tables of
neighbouring portions are joined on workers, `FAN_IN` at a time, until one is left. Where they make
no table, the files that were scanned are fetched instead.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any

from insitu.combining.file_table import FileTable, JoinPlan
from insitu.combining.packed_portion import (
    Header,
    files_of,
    header_of,
    pack_files,
    pack_portion,
    pack_table,
    table_of,
    without_files,
    without_table,
)
from insitu.combining.scan_journal import Journal, identity_of
from insitu.combining.scan_progress import ScanProgress, open_progress
from insitu.engines.dask import worker_name
from insitu.engines.engine_protocol import Engine, is_lost_worker
from insitu.errors import InsituError, SourceError
from insitu.lru import LruCache
from insitu.scanning.decoding_memory import DecodingMemory
from insitu.scanning.member import Member
from insitu.scanning.scan_member import Failure, Job, make_loader
from insitu.sources.address import is_remote

__all__ = ["PortionScan", "PortionTask", "cut_into_portions"]

PORTIONS = 64
"""Portions that files are cut into, whatever the number of workers: a scan that is resumed on
another cluster finds the same ones.
"""
MAX_FILES = 512
"""Files of a portion: beyond that their tables take more memory than is gained in time."""
FAN_IN = 16
"""Tables that are joined at once."""
REMOTE_THREADS = 16
"""Threads of a portion of remote files, which wait."""
ALIVE_SECONDS = 5.0
"""Seconds after which the engine is asked whether it is alive, if nothing has come."""


@dataclass(frozen=True, slots=True)
class PortionTask:
    """What a worker does with the files of a portion; travels there."""

    job: Job
    plan: JoinPlan | None
    """How files are joined; None: they are returned as they are."""
    threads: int = 1
    name: str = ""
    """Names the scan: what was found out about one file helps with the next ones of the same scan."""

    def scan(self, urls: Sequence[Any]) -> bytes:
        """Return the packed portion of some files."""
        memory, identity = _memories.of_scan, identity_of(urls)
        if self.threads > 1 and len(urls) > 1:
            with ThreadPoolExecutor(min(self.threads, len(urls)), thread_name_prefix="insitu-scan") as pool:
                found = list(pool.map(lambda url: self.job.one(url, memory(self.name)), urls))
        else:
            found = [self.job.one(url, memory(self.name)) for url in urls]
        failed = sum(isinstance(item, Failure) for item in found)
        return self._pack(Header(len(urls), failed, worker_name(), identity), found)

    def tabulate(self, portion: bytes) -> bytes:
        """Return a portion that an earlier scan packed, with its table."""
        return self._pack(header_of(portion)._replace(worker=""), files_of(portion))

    def _pack(self, header: Header, found: Sequence[Member | Failure]) -> bytes:
        plan = self.plan
        if plan is None:
            return pack_files(header, found)
        return pack_portion(
            header, found, lambda: FileTable.of(found, plan, make_loader(self.job.scan.storage_options))
        )

    def join(self, *portions: bytes) -> bytes:
        """Return the packed table of several portions, without their files."""
        plan, headers = self.plan, [header_of(portion) for portion in portions]
        assert plan is not None
        for header, portion in zip(headers, portions, strict=True):
            if header.refused:
                return without_files(portion)
        header = Header(sum(h.files for h in headers), sum(h.failed for h in headers), worker_name())
        load = make_loader(self.job.scan.storage_options)
        return pack_table(header, lambda: FileTable.join([table_of(portion) for portion in portions], plan, load))


class _Memories(threading.local):
    """What a thread has found out about the files of a scan."""

    def __init__(self) -> None:
        self.by_scan: LruCache[str, DecodingMemory] = LruCache(2)

    def of_scan(self, name: str) -> DecodingMemory:
        """Return the memory of a scan."""
        memory = self.by_scan.get(name)
        if memory is None:
            memory = DecodingMemory()
            self.by_scan.put(name, memory)
        return memory


_memories = _Memories()


def cut_into_portions(urls: Sequence[Any], least: int = 1) -> list[Sequence[Any]]:
    """Return files in portions of neighbours, each of `least` files or more."""
    size = min(max(len(urls) // PORTIONS, least), MAX_FILES)
    return [urls[begin : begin + size] for begin in range(0, len(urls), size)]


class PortionScan:
    """One scan: submits portions and joins, and waits for them.

    Parameters
    ----------
    urls, job
        The files, and how they are scanned.
    plan
        How their tables are joined; None: they are not.
    engine
        Where.
    journal
        Keeps what was scanned until all is.
    progress
        See `open_progress`.
    """

    def __init__(
        self,
        urls: Sequence[Any],
        job: Job,
        plan: JoinPlan | None,
        engine: Engine,
        journal: Journal | None,
        progress: Any,
    ) -> None:
        if not urls:
            raise ValueError("there are no files to scan")
        waits = is_remote(str(urls[0])) and not _has_threads(engine)
        threads = REMOTE_THREADS if waits else 1
        self.portions = cut_into_portions(urls, threads)
        self.task = PortionTask(job, plan, threads, uuid.uuid4().hex)
        self.engine = engine
        self.journal = journal
        if journal is not None:
            journal.found = journal.kept = 0
        self.progress = progress
        self.state = ScanProgress(len(urls))
        self.refused = ""
        """Why the files are no table. What is scanned after that is not joined any more."""
        self._done: SimpleQueue[tuple[int, int, Any]] = SimpleQueue()
        """Calls that are done: level of the tree (-1, -2, …: header of a result of level 0, 1, …),
        number, future.
        """
        self._waiting: set[Any] = set()
        self._resumed: set[int] = set()
        """Portions that the journal had."""
        self._scanned: dict[int, Any] = {}
        """Each portion with its files, until it is known that they make a table."""
        self._tables: dict[tuple[int, int], Any] = {}
        """Level and number: the table, as an argument of further calls."""

    def run(self) -> FileTable | None:
        """Scan all files, and return their table; None: they are no table, or there is no plan.

        Raises
        ------
        CombineError
            As soon as some files are found whose types have nothing in common.
        """
        with open_progress(self.progress) as shown, self._cancelling():
            for number, urls in enumerate(self.portions):
                packed = None if self.journal is None else self.journal.load(urls)
                if packed is None:
                    self._submit(0, number, self.task.scan, urls)
                elif self.task.plan is None:
                    self._take_header(0, header_of(packed)._replace(worker=""))
                    self._scanned[number] = packed
                else:
                    self._resumed.add(number)
                    self._submit(0, number, self.task.tabulate, self.engine.put(packed))
                while not self._done.empty():  # so that an error ends the scan before all is submitted
                    self._handle_next(shown)
            shown.show(self.state)
            while self._waiting:
                self._handle_next(shown)
            if self.task.plan is None:
                return None
            ((_, root),) = self._tables.items()
            return table_of(self._bytes_of(root))

    def files(self) -> list[Member | Failure]:
        """Return what came of each file, in order: for files that must be combined at once."""
        with self._cancelling():
            return [
                item for number in range(len(self.portions)) for item in files_of(self._bytes_of(self._scanned[number]))
            ]

    def _submit(self, level: int, number: int, function: Callable[..., Any], *arguments: Any) -> None:
        what = "header" if level < 0 else "scan" if level == 0 else "join"
        name = f"insitu-{what}-{self.task.name}-{abs(level)}-{number}"
        future = self.engine.submit(name, function, *arguments)
        self._waiting.add(future)
        future.add_done_callback(lambda done: self._done.put((level, number, done)))

    def _handle_next(self, shown: Any) -> None:
        """Wait for a result, take it, and show the progress."""
        self.engine.flush()
        while True:
            try:
                level, number, future = self._done.get(timeout=ALIVE_SECONDS)
                break
            except Empty:
                if not self.engine.is_alive():
                    raise InsituError("the Dask client was closed while files were scanned") from None
        self._waiting.discard(future)
        self._handle(level, number, future)
        if level <= 0:
            shown.show(self.state)

    def _handle(self, level: int, number: int, future: Any) -> None:
        """Take a result: count it, keep it, and submit what it was waited for."""
        if level < 0:
            self._take_header(-1 - level, future.result())
            return
        if level > 0 and self.refused:  # begun before
            return
        if not self.engine.keeps_results:
            data = future.result()
            if level == 0:
                self._keep(number, data)
                self._scanned[number], data = without_table(data), without_files(data)
            self._take_header(level, header_of(data))
            self._add_table(level, number, data)
            return
        if future.status != "finished":
            future.result()  # raises
        self._submit(-1 - level, number, header_of, future)
        if level == 0:
            self._scanned[number] = future
            if self.journal is not None:
                self._keep(number, future.result())
        self._add_table(level, number, future)

    def _take_header(self, level: int, header: Header) -> None:
        if level == 0:
            self.state.add(header.files, header.failed, header.worker or None)
        if header.refused and not self.refused:
            self.refused = header.refused
            self.task = replace(self.task, plan=None)
            self._tables.clear()

    def _keep(self, number: int, data: bytes) -> None:
        if self.journal is not None and number not in self._resumed:
            self.journal.keep(self.portions[number], without_table(data), header_of(data).identity)

    def _add_table(self, level: int, number: int, result: Any) -> None:
        """Submit the join of a table with its neighbours, once all are there."""
        if self.task.plan is None:
            return
        self._tables[level, number] = result
        count = len(self.portions)
        for _ in range(level):
            count = -(-count // FAN_IN)
        if count == 1:
            return
        parent = number // FAN_IN
        children = [(level, child) for child in range(parent * FAN_IN, min((parent + 1) * FAN_IN, count))]
        if all(child in self._tables for child in children):
            self._submit(level + 1, parent, self.task.join, *(self._tables.pop(child) for child in children))

    def _bytes_of(self, result: Any) -> bytes:
        data: bytes = result if isinstance(result, bytes) else result.result()
        return data

    @contextmanager
    def _cancelling(self) -> Iterator[None]:
        """Cancel what is not done if something fails, and say how to go on."""
        try:
            yield
        except BaseException as error:
            for future in self._waiting:
                future.cancel()
            kept = 0 if self.journal is None or not self.journal.usable else self.journal.kept
            if is_lost_worker(error):
                raise InsituError(
                    f"workers were lost while files were scanned ({type(error).__name__}: {error})",
                    hint=_resume_hint(kept, self.state.total) or "Give the workers more memory, or scan again",
                ) from error
            if kept and isinstance(error, SourceError):
                error.hint = ". ".join(filter(None, [error.hint, _resume_hint(kept, self.state.total)]))
            raise


def _resume_hint(kept: int, total: int) -> str | None:
    if not kept:
        return None
    return f"{kept:,} of {total:,} files are scanned and kept: do the same again, and the scan goes on from there"


def _has_threads(engine: Engine) -> bool:
    return isinstance(getattr(engine, "executor", None), ThreadPoolExecutor)
