"""Scanning of many files in portions, on the workers of an engine.

A worker scans the files of a portion, and says what kinds of files they are (`portion`). When that
is known of all files, neighbours that agree are joined where they are (`join_pieces`): within each
portion, then in those of `FAN_IN` portions, until one is left.
"""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from queue import Empty, SimpleQueue
from typing import Any

from insitu.combining.files_table import FilesTable
from insitu.combining.join_pieces import Lines, Piece, join_pieces, make_pieces
from insitu.combining.portion import Header, files_of, header_of, pack_columns, pack_portion
from insitu.combining.scan_journal import Journal, identity_of
from insitu.combining.scan_progress import ScanProgress, open_progress
from insitu.combining.survey import Survey
from insitu.combining.type_check import TypeCheck
from insitu.engines.dask import worker_name
from insitu.engines.engine_protocol import Engine, is_lost_worker
from insitu.errors import InsituError, SourceError
from insitu.lru import LruCache
from insitu.scanning.decoding_cache import DecodingCache
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
"""Portions whose pieces are joined at once."""
REMOTE_THREADS = 16
"""Threads of a portion of remote files, which wait."""
ALIVE_SECONDS = 5.0
"""Seconds after which the engine is asked whether it is alive, if nothing has come."""


@dataclass(frozen=True, slots=True)
class PortionTask:
    """What a worker does with the files of a portion; travels there."""

    job: Job
    threads: int = 1
    name: str = ""
    """Names the scan: what was found out about one file helps with the next ones of the same scan."""

    def scan(self, urls: Sequence[Any]) -> bytes:
        """Return the packed portion of some files."""
        cache, identity = _caches.of_scan, identity_of(urls)
        if self.threads > 1 and len(urls) > 1:
            with ThreadPoolExecutor(min(self.threads, len(urls)), thread_name_prefix="insitu-scan") as pool:
                found = list(pool.map(lambda url: self.job.one(url, cache(self.name)), urls))
        else:
            found = [self.job.one(url, cache(self.name)) for url in urls]
        return pack_portion(found, worker_name(), identity)

    def join_files(self, portion: bytes, lines: Lines) -> bytes:
        """Return the packed pieces of a portion."""
        return pack_columns(make_pieces(files_of(portion), lines, self._load))

    def join_pieces(self, lines: Lines, *packed: bytes) -> bytes:
        """Return the packed pieces of several portions."""
        pieces: list[Piece] = [piece for portion in packed for piece in pickle.loads(portion)]
        return pack_columns(join_pieces(pieces, lines, self._load))

    @property
    def _load(self) -> Any:
        return make_loader(self.job.scan.storage_options)


class _ScanCaches(threading.local):
    """What a thread has found out about the files of a scan."""

    def __init__(self) -> None:
        self.by_scan: LruCache[str, DecodingCache] = LruCache(2)

    def of_scan(self, name: str) -> DecodingCache:
        """Return the cache of a scan."""
        cache = self.by_scan.get(name)
        if cache is None:
            cache = DecodingCache()
            self.by_scan.put(name, cache)
        return cache


_caches = _ScanCaches()


def cut_into_portions(urls: Sequence[Any], least: int = 1) -> list[Sequence[Any]]:
    """Return files in portions of neighbours, each of `least` files or more."""
    size = min(max(len(urls) // PORTIONS, least), MAX_FILES)
    return [urls[begin : begin + size] for begin in range(0, len(urls), size)]


class PortionScan:
    """One scan: submits portions and joins, and waits for them. `run` comes first.

    Parameters
    ----------
    urls, job
        The files, and how they are scanned.
    engine
        Where.
    journal
        Keeps what was scanned until all is.
    progress
        See `open_progress`.
    check
        Checks the types of files as soon as they are scanned.
    """

    files: FilesTable
    """What is known of all files."""
    survey: Survey
    """How they differ."""

    def __init__(
        self,
        urls: Sequence[Any],
        job: Job,
        engine: Engine,
        journal: Journal | None,
        progress: Any,
        check: TypeCheck | None = None,
    ) -> None:
        if not urls:
            raise ValueError("there are no files to scan")
        waits = is_remote(str(urls[0])) and not _has_threads(engine)
        threads = REMOTE_THREADS if waits else 1
        self.portions = cut_into_portions(urls, threads)
        self.task = PortionTask(job, threads, uuid.uuid4().hex)
        self.engine = engine
        self.journal = journal
        if journal is not None:
            journal.found = journal.saved = 0
        self.progress = progress
        self.check = check
        self.state = ScanProgress(len(urls))
        self._done: SimpleQueue[tuple[Callable[[int, Any], None], int, Any]] = SimpleQueue()
        """Calls that are done: what takes the result, number, future."""
        self._waiting: set[Any] = set()
        self._scanned: dict[int, Any] = {}
        """Each portion, or its future where results stay on the workers."""
        self._headers: dict[int, Header] = {}

    def run(self) -> None:
        """Scan all files.

        Raises
        ------
        CombineError
            As soon as some files are found whose types have nothing in common.
        """
        with open_progress(self.progress) as shown, self._cancelling():
            for number, urls in enumerate(self.portions):
                packed = None if self.journal is None else self.journal.load(urls)
                if packed is None:
                    self._submit("scan", number, self._take_portion, self.task.scan, urls)
                else:
                    self._scanned[number] = self.engine.put(packed)
                    self._add_header(number, header_of(packed)._replace(worker=""))
                while not self._done.empty():  # so that an error ends the scan before all is submitted
                    self._handle_next(shown)
            shown.show(self.state)
            while self._waiting:
                self._handle_next(shown)
            headers = [self._headers.pop(number) for number in range(len(self.portions))]
            self.files = FilesTable.join([header.files for header in headers])
            self.survey = Survey.join([header.survey for header in headers])

    def members(self) -> list[Member | Failure]:
        """Return what came of each file, in order."""
        with self._cancelling():
            return [item for number in range(len(self.portions)) for item in self._members_of(number)]

    def _members_of(self, number: int) -> list[Member | Failure]:
        scanned = self._scanned[number]
        return files_of(scanned if isinstance(scanned, bytes) else scanned.result())

    def pieces(self, lines: Lines | None) -> Mapping[int, Member]:
        """Return what files make that are joined early, by the number of the first; without lines,
        the files.
        """
        if lines is None:
            return {number: item for number, item in enumerate(self.members()) if isinstance(item, Member)}
        with self._cancelling(), open_progress(None) as shown:
            tree = _JoinTree(self.task, list(map(len, self.portions)), lines, self._submit)
            tree.begin(self._scanned)
            while self._waiting:
                self._handle_next(shown)
            return {piece.first: piece.member for piece in tree.result()}

    def _submit(
        self, what: str, number: int, take: Callable[[int, Any], None], function: Callable[..., Any], *arguments: Any
    ) -> None:
        future = self.engine.submit(f"insitu-{what}-{self.task.name}-{number}", function, *arguments)
        self._waiting.add(future)
        future.add_done_callback(lambda done: self._done.put((take, number, done)))

    def _handle_next(self, shown: Any) -> None:
        """Wait for a result, take it, and show the progress."""
        self.engine.flush()
        while True:
            try:
                take, number, future = self._done.get(timeout=ALIVE_SECONDS)
                break
            except Empty:
                if not self.engine.is_alive():
                    raise InsituError("the Dask client was closed while files were scanned") from None
        self._waiting.discard(future)
        if not self.engine.keeps_results:
            take(number, future.result())
        else:
            if future.status != "finished":  # failed, or lost with its worker and computed again
                future.result()
            take(number, future)
        shown.show(self.state)

    def _take_portion(self, number: int, result: Any) -> None:
        """Take a portion: count it, and keep it."""
        self._scanned[number] = result
        if not isinstance(result, bytes):
            self._submit("header", number, lambda at, done: self._take_header(at, done.result()), header_of, result)
            return
        self._take_header(number, header_of(result))

    def _take_header(self, number: int, header: Header) -> None:
        if self.journal is not None:  # before the check: types that do not fit are no reason to scan again
            scanned = self._scanned[number]
            data = scanned if isinstance(scanned, bytes) else scanned.result()
            self.journal.keep(self.portions[number], data, header.identity)
        self._add_header(number, header)

    def _add_header(self, number: int, header: Header) -> None:
        self._headers[number] = header
        self.state.add(len(header.files), len(header.files.failures), header.worker or None)
        if self.check is not None:
            self.check.add(header.files)

    @contextmanager
    def _cancelling(self) -> Iterator[None]:
        """Cancel what is not done if something fails, and say how to go on."""
        try:
            yield
        except BaseException as error:
            for future in self._waiting:
                future.cancel()
            resumable = 0 if self.journal is None or not self.journal.usable else self.journal.saved
            if is_lost_worker(error):
                raise InsituError(
                    f"workers were lost while files were scanned ({type(error).__name__}: {error})",
                    hint=_resume_hint(resumable, self.state.total) or "Give the workers more memory, or scan again",
                ) from error
            if resumable and isinstance(error, SourceError):
                error.hint = ". ".join(filter(None, [error.hint, _resume_hint(resumable, self.state.total)]))
            raise


class _JoinTree:
    """Joins the pieces of all portions, `FAN_IN` neighbours at a time.

    Parameters
    ----------
    task, sizes
        The scan, and the number of files of each portion.
    lines
        What may be joined.
    submit
        Has a call done: what it is, its number, what takes the result, the function, the arguments.
    """

    def __init__(self, task: PortionTask, sizes: Sequence[int], lines: Lines, submit: Callable[..., None]) -> None:
        self.task = task
        self.lines = lines
        self.submit = submit
        self.starts = [0, *accumulate(sizes)]
        self.counts = [len(sizes)]
        """Results of each level."""
        while self.counts[-1] > 1:
            self.counts.append(-(-self.counts[-1] // FAN_IN))
        self._there: dict[tuple[int, int], Any] = {}
        """Level and number: the packed pieces, as an argument of further calls."""

    def begin(self, portions: dict[int, Any]) -> None:
        """Submit the joins of each portion, which the others follow. Portions are given away, so that
        workers need not hold them longer than their pieces.
        """
        for number in range(self.counts[0]):
            first, count = self.starts[number], self.starts[number + 1] - self.starts[number]
            self._submit(0, number, self.task.join_files, portions.pop(number), self.lines.of_files(first, count))

    def result(self) -> list[Piece]:
        """Return the pieces of all files."""
        (((_, _), root),) = self._there.items()
        pieces: list[Piece] = pickle.loads(root if isinstance(root, bytes) else root.result())
        return pieces

    def _submit(self, level: int, number: int, function: Callable[..., Any], *arguments: Any) -> None:
        self.submit(f"join-{level}", number, lambda at, done: self._take(level, at, done), function, *arguments)

    def _take(self, level: int, number: int, packed: Any) -> None:
        """Keep the pieces of some portions, and submit the join with those of the neighbours, once all are there."""
        self._there[level, number] = packed
        if level + 1 == len(self.counts):
            return
        parent = number // FAN_IN
        children = [(level, child) for child in range(parent * FAN_IN, min((parent + 1) * FAN_IN, self.counts[level]))]
        if all(child in self._there for child in children):
            parts = [self._there.pop(child) for child in children]
            width = FAN_IN ** (level + 1)
            first, last = self.starts[parent * width], self.starts[min((parent + 1) * width, self.counts[0])]
            lines = self.lines.of_files(first, last - first).without_places()
            self._submit(level + 1, parent, self.task.join_pieces, lines, *parts)


def _resume_hint(resumable: int, total: int) -> str | None:
    if not resumable:
        return None
    return f"{resumable:,} of {total:,} files are scanned and kept: do the same again, and the scan goes on from there"


def _has_threads(engine: Engine) -> bool:
    return isinstance(getattr(engine, "executor", None), ThreadPoolExecutor)
