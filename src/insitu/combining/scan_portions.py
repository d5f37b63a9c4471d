"""Scanning of many files in portions, on the workers of an engine.

A worker scans the files of a portion and joins their tables. What comes out are bytes: a header
(files, failures, worker) and a pickled `FileTable`, or the members where files must be combined at
once. Tables of neighbouring portions are joined on workers, `FAN_IN` at a time, until one is left.
"""

from __future__ import annotations

import io
import pickle
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from insitu.combining.file_table import FileTable, JoinPlan, NotOneTableError
from insitu.combining.scan_journal import Journal, identity_of
from insitu.combining.scan_progress import ScanProgress, open_progress
from insitu.engines.dask import worker_name
from insitu.engines.engine_protocol import Engine, is_lost_worker
from insitu.errors import InsituError, SourceError
from insitu.lru import LruCache
from insitu.model import Columns, Source
from insitu.scanning.decoding_memory import DecodingMemory
from insitu.scanning.member import Member
from insitu.scanning.scan_member import Failure, Job, make_loader
from insitu.sources.address import is_remote

__all__ = ["PortionTask", "cut_into_portions", "scan_members", "scan_table"]

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


class Header(NamedTuple):
    """What is said of a portion without unpickling it."""

    files: int
    failed: int
    worker: str
    identity: bytes = b""
    """Of the files, before they were scanned. A client that looked at a million files itself would
    be the slowest part of a cluster.
    """
    refused: str = ""
    """Why the files are no table, if they are none. It is no error, and workers log it as none."""


@dataclass(frozen=True, slots=True)
class PortionTask:
    """What a worker does with the files of a portion; travels there."""

    job: Job
    plan: JoinPlan | None
    """How files are joined; None: they are returned as they are."""
    threads: int = 1
    name: str = ""
    """Names the scan: what was found out about one file helps with the next ones of the same scan."""

    @property
    def kind(self) -> str:
        """What is made of the files."""
        return f"table of {self.plan!r}" if self.plan is not None else "members"

    def scan(self, urls: Sequence[Any]) -> bytes:
        """Return the packed result of some files."""
        memory, identity = _memories.of_scan, identity_of(urls)
        if self.threads > 1 and len(urls) > 1:
            with ThreadPoolExecutor(min(self.threads, len(urls)), thread_name_prefix="insitu-scan") as pool:
                found = list(pool.map(lambda url: self.job.one(url, memory(self.name)), urls))
        else:
            found = [self.job.one(url, memory(self.name)) for url in urls]
        header = Header(len(urls), sum(isinstance(item, Failure) for item in found), worker_name(), identity)
        plan = self.plan
        if plan is None:
            return _pack(header, found)
        return _pack_table(header, lambda: FileTable.of(found, plan, make_loader(self.job.scan.storage_options)))

    def join(self, *portions: bytes) -> bytes:
        """Return the packed table of several portions."""
        plan, headers = self.plan, [read_header(portion) for portion in portions]
        assert plan is not None
        for header, portion in zip(headers, portions, strict=True):
            if header.refused:
                return portion
        header = Header(sum(h.files for h in headers), sum(h.failed for h in headers), worker_name())
        load = make_loader(self.job.scan.storage_options)
        return _pack_table(header, lambda: FileTable.join([_unpack(portion) for portion in portions], plan, load))


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


def scan_table(
    urls: Sequence[Any], job: Job, plan: JoinPlan, engine: Engine, journal: Journal | None, progress: Any
) -> FileTable:
    """Return the table of all files. It is joined on the workers.

    Raises
    ------
    NotOneTableError
        As soon as some files are found that cannot be joined part by part.
    CombineError
        As soon as some files are found whose types have nothing in common.
    """
    if not urls:
        raise ValueError("there are no files to scan")
    (root,) = _PortionScan(urls, job, plan, engine, journal, progress).run()
    table: FileTable = _unpack(root)
    return table


def scan_members(
    urls: Sequence[Any], job: Job, engine: Engine, journal: Journal | None, progress: Any
) -> list[Member | Failure]:
    """Return what came of each file, in order: for files that must be combined at once."""
    found: list[Member | Failure] = []
    for packed in _PortionScan(urls, job, None, engine, journal, progress).run():
        found += _unpack(packed)
    return found


class _PortionScan:
    """One scan: submits portions and joins, and waits for them."""

    def __init__(
        self,
        urls: Sequence[Any],
        job: Job,
        plan: JoinPlan | None,
        engine: Engine,
        journal: Journal | None,
        progress: Any,
    ) -> None:
        waits = bool(urls) and is_remote(str(urls[0])) and not _has_threads(engine)
        threads = REMOTE_THREADS if waits else 1
        self.portions = cut_into_portions(urls, threads)
        self.task = PortionTask(job, plan, threads, uuid.uuid4().hex)
        self.engine = engine
        self.journal = journal
        if journal is not None:
            journal.found = journal.kept = 0
        self.progress = progress
        self.state = ScanProgress(len(urls))
        self._done: SimpleQueue[tuple[int, int, Any]] = SimpleQueue()
        """Calls that are done: level of the tree (-1, -2, …: header of a result of level 0, 1, …),
        number, future.
        """
        self._waiting: set[Any] = set()
        self._ready: dict[tuple[int, int], Any] = {}
        """Level and number: the result, as an argument of further calls."""

    def run(self) -> list[bytes]:
        """Return the packed results: one table, or the members of each portion."""
        with open_progress(self.progress) as shown, self._cancelling():
            for number, urls in enumerate(self.portions):
                known = None if self.journal is None else self.journal.load(self.task.kind, urls)
                if known is not None:
                    header = read_header(known)
                    self._take_header(0, header._replace(worker=""))
                    self._add_result(0, number, self.engine.put(known))
                else:
                    self._submit(0, number, self.task.scan, urls)
                while not self._done.empty():  # so that an error ends the scan before all is submitted
                    self._handle_next(shown)
            shown.show(self.state)
            while self._waiting:
                self._handle_next(shown)
        if self.task.plan is not None:
            ((_, root),) = self._ready.items()
            return [self._bytes_of(root)]
        return [self._bytes_of(self._ready[0, number]) for number in range(len(self.portions))]

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
        if not self.engine.keeps_results:
            data = future.result()
            if level == 0:
                self._keep(number, data)
            self._take_header(level, read_header(data))
            self._add_result(level, number, data)
            return
        if future.status != "finished":
            future.result()  # raises
        self._submit(-1 - level, number, read_header, future)
        if level == 0 and self.journal is not None:
            self._keep(number, future.result())
        self._add_result(level, number, future)

    def _take_header(self, level: int, header: Header) -> None:
        if level == 0:
            self.state.add(header.files, header.failed, header.worker or None)
        if header.refused:
            raise NotOneTableError(header.refused)

    def _keep(self, number: int, data: bytes) -> None:
        if self.journal is not None:
            self.journal.keep(self.task.kind, self.portions[number], data, read_header(data).identity)

    def _add_result(self, level: int, number: int, result: Any) -> None:
        """Submit the join of a result with its neighbours, once all are there."""
        self._ready[level, number] = result
        if self.task.plan is None:
            return
        count = len(self.portions)
        for _ in range(level):
            count = -(-count // FAN_IN)
        if count == 1:
            return
        parent = number // FAN_IN
        children = [(level, child) for child in range(parent * FAN_IN, min((parent + 1) * FAN_IN, count))]
        if all(child in self._ready for child in children):
            self._submit(level + 1, parent, self.task.join, *(self._ready.pop(child) for child in children))

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


# -- packed results


def read_header(portion: bytes) -> Header:
    """Return what is said of a packed portion."""
    header: Header = pickle.loads(portion)
    return header


def _pack_table(header: Header, make: Callable[[], FileTable]) -> bytes:
    try:
        return _pack(header, make())
    except NotOneTableError as refused:
        return _pack(header._replace(refused=str(refused)), None)


def _pack(header: Header, content: Any) -> bytes:
    file = io.BytesIO()
    pickle.dump(header, file, pickle.HIGHEST_PROTOCOL)
    _TablePickler(file, pickle.HIGHEST_PROTOCOL).dump(content)
    return file.getvalue()


def _unpack(portion: bytes) -> Any:
    file = io.BytesIO(portion)
    pickle.load(file)
    return pickle.load(file)


class _TablePickler(pickle.Pickler):
    """Pickles the sources of chunk tables as columns, once for all variables that have the same."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._packed: dict[tuple[int, ...], tuple[Any, _PackedSources]] = {}
        """Identities of sources: the sources, which keep them taken, and their columns."""

    def reducer_override(self, value: Any) -> Any:
        """Return how a chunk table is pickled; everything else as usual."""
        if type(value) is not Columns or not isinstance(value.sources, tuple):
            return NotImplemented
        sources = value.sources
        key = tuple(map(id, sources))
        if key not in self._packed:
            self._packed[key] = sources, _PackedSources.of(sources)
        make, (shape, _, columns, inline) = value.__reduce__()
        return _rebuild_columns, (make, shape, self._packed[key][1], columns, inline)


class _PackedSources:
    """Sources as columns."""

    __slots__ = ("columns", "sources")

    def __init__(self, *columns: list[Any]) -> None:
        self.columns = columns
        self.sources = tuple(map(Source, *columns))

    @classmethod
    def of(cls, sources: tuple[Source, ...]) -> _PackedSources:
        """Return sources as columns."""
        names = ("url", "size", "etag", "modified", "optional")
        return cls(*([getattr(source, name) for source in sources] for name in names))

    def __reduce__(self) -> tuple[Any, ...]:
        return _PackedSources, self.columns


def _rebuild_columns(
    make: Callable[..., Columns], shape: tuple[int, ...], packed: _PackedSources, columns: dict[str, Any], inline: bytes
) -> Columns:
    return make(shape, packed.sources, columns, inline)
