"""Scheduler of byte range requests: many objects of one file are parsed in few round trips.

Each structure is parsed by a generator, called a *walk*: it yields the byte ranges that it needs
next and is sent their bytes. `run` drives all walks concurrently, in one thread. When none of them
can continue without new bytes, the ranges of all of them are fetched in one batch. So the depth of
the file, not the number of its objects, sets the number of round trips, and nothing needs a lock.

A walk yields one of

- `[(offset, length), ...]`: absolute ranges whose neighbours are likely to be needed next (headers,
  heaps);
- `ExactRanges([(offset, length), ...])`: ranges to be fetched as they are (nodes of chunk indexes,
  which are scattered in the data);
- `Parallel([walk, ...])`: other walks, to run concurrently; it is sent the list of their results;
- `Shared(key, make)`: a walk whose result several others need (a heap, a committed type); it runs
  once per file;
- `Overlay([(offset, data), ...])`: bytes that replace those of the file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable
from typing import Any, Protocol, TypeVar

from insitu.cancellation import check_deadline
from insitu.errors import FormatError, InsituError, SourceError

__all__ = [
    "ExactRanges",
    "Overlay",
    "Parallel",
    "RangeReader",
    "Ranges",
    "Shared",
    "Walk",
    "run",
    "to_format_error",
]

T = TypeVar("T")
Ranges = list[tuple[int, int]]
Walk = Generator[Any, Any, T]


def to_format_error(problem: InsituError, **place: Any) -> InsituError:
    """Return a problem of a structure; a `FormatError` gets its context."""
    return problem.with_context(**place) if isinstance(problem, FormatError) else problem


BATCH_LIMIT = 64 << 20
"""Bytes fetched at once; the nodes of all indexes of a file can be far more than that."""


class ExactRanges(list[tuple[int, int]]):
    """Ranges that are fetched as they are, without their neighbourhood, and not kept."""


class Parallel:
    """Walks to run concurrently.

    With `keep`, the result of a walk that fails is its error.
    """

    __slots__ = ("first_offset", "keep", "walks")

    def __init__(self, walks: Iterable[Walk[Any] | Shared], keep: bool = False) -> None:
        self.walks = list(walks)
        self.keep = keep


class Shared:
    """A walk shared by all that name the same key."""

    __slots__ = ("first_offset", "key", "make")

    def __init__(self, key: Hashable, make: Callable[[], Walk[Any]]) -> None:
        self.key = key
        self.make = make


class Overlay:
    """Bytes that are to be seen instead of those of the file, from now on."""

    __slots__ = (
        "first_offset",
        "patches",
    )

    def __init__(self, patches: list[tuple[int, bytes]]) -> None:
        self.patches = patches


class RangeReader(Protocol):
    """What `run` needs of the bytes: serve what is at hand, fetch the rest in one batch."""

    @property
    def url(self) -> str:
        """The file, for messages."""

    def peek_many(self, ranges: Ranges) -> list[bytes] | None:
        """Return the bytes of the ranges if all of them are in memory, else None."""

    def fetch(self, requests: list[Ranges]) -> list[list[bytes]]:
        """Return the bytes of all ranges of all requests, read in one batch."""

    def overlay(self, patches: list[tuple[int, bytes]]) -> None:
        """Replace the bytes of the file at some offsets."""


class _Task:
    __slots__ = ("done", "error", "first_offset", "keep", "pending", "request", "result", "results", "waiting", "walk")

    results: list[Any]
    pending: int
    keep: bool
    result: Any
    error: InsituError | None

    def __init__(self, walk: Walk[Any]) -> None:
        # What is not set here is set when it is needed: a file has a hundred walks, most of them
        # short.
        self.walk = walk
        self.waiting: list[tuple[_Task, int]] = []
        self.done = False
        self.first_offset = 0
        self.request: Any = None
        """What it waits for, if that was not started yet."""


def run(walk: Walk[T], reads: RangeReader) -> T:
    """Run a walk, and all that it starts, and return its result.

    Parsers check all bounds themselves (see `fields`): any exception of a walk but ours is a defect
    of the parser, and is raised as it is.

    Parameters
    ----------
    walk
        The first walk.
    reads
        Where the bytes come from.
    """
    root = _Task(walk)
    driver = _Driver(reads)
    driver.ready.append((root, None, None))
    while True:
        driver.drain()
        if not driver.waiting_for_bytes:
            break
        batch, driver.waiting_for_bytes = _split_by_size(driver.waiting_for_bytes)
        fetched = reads.fetch([ranges for _, ranges in batch])
        driver.ready.extend((task, blocks, None) for (task, _), blocks in zip(batch, fetched, strict=True))
    if not root.done:
        raise FormatError(
            "the file is damaged: its structures wait for each other (they refer to each other in a cycle)",
            url=reads.url,
            structure="object graph",
        )
    if root.error is not None:
        raise to_format_error(root.error, offset=root.first_offset, structure="file")
    result: T = root.result
    return result


def _split_by_size(
    waiting_for_bytes: list[tuple[_Task, Ranges]],
) -> tuple[list[tuple[_Task, Ranges]], list[tuple[_Task, Ranges]]]:
    """Split requests into those that fit into one batch (at least one), and the rest."""
    total = 0
    for number, (_, ranges) in enumerate(waiting_for_bytes):
        total += sum([length for _, length in ranges])
        if total > BATCH_LIMIT and number:
            return waiting_for_bytes[:number], waiting_for_bytes[number:]
    return waiting_for_bytes, []


class _Driver:
    """Runs walks and collects the ranges that they wait for."""

    __slots__ = ("first_offset", "reads", "ready", "shared", "waiting_for_bytes")

    def __init__(self, reads: RangeReader) -> None:
        self.reads = reads
        self.ready: deque[tuple[_Task, Any, InsituError | None]] = deque()
        self.waiting_for_bytes: list[tuple[_Task, Ranges]] = []
        self.shared: dict[Hashable, _Task] = {}

    def drain(self) -> None:
        """Run all walks that can continue without new bytes."""
        ready = self.ready
        while ready:
            check_deadline()
            task, value, error = ready.popleft()
            request, task.request = task.request, None
            if request is None:
                request = self._step(task, value, error)
            if request is not None:
                self._wait(task, request)

    def _step(self, task: _Task, value: Any, error: InsituError | None) -> Any:
        """Let one walk go on until it ends (None) or has to wait: for what."""
        walk, reads = task.walk, self.reads
        while True:
            try:
                request = walk.throw(error) if error is not None else walk.send(value)
            except StopIteration as stop:
                return self._finish(task, stop.value, None)
            except SourceError:
                raise
            except InsituError as problem:
                if isinstance(problem, FormatError) and task.first_offset:
                    problem.with_context(
                        offset=task.first_offset
                    )  # what was read last, where the parser does not know its place
                return self._finish(task, None, problem.with_context(url=reads.url))
            error = None
            if not isinstance(request, list):
                return request
            if request:
                task.first_offset = request[0][0]
            value = reads.peek_many(request)
            if value is None:
                return request

    def _wait(self, task: _Task, request: Any) -> None:
        """Start what a walk waits for.

        What ends at once, as most walks do whose bytes are in memory, takes no turn of its own.
        """
        if isinstance(request, list):
            self.waiting_for_bytes.append((task, request))
            return
        if isinstance(request, Overlay):
            self.reads.overlay(request.patches)
            self.ready.append((task, None, None))
            return
        is_shared = isinstance(request, Shared)
        items = [request] if is_shared else request.walks
        task.keep = False if is_shared else request.keep
        results = task.results = [None] * len(items)
        task.pending = len(items)
        for slot, item in enumerate(items):
            child = self._start(item)
            if child.done:
                results[slot] = child.result if child.error is None else child.error
                task.pending -= 1
            else:
                child.waiting.append((task, -1 if is_shared else slot))
        if not task.pending:
            self._resume(task, is_shared)

    def _start(self, item: Walk[Any] | Shared) -> _Task:
        """The task of a walk, which has gone as far as it can; it ended, or waits for its turn."""
        if isinstance(item, Shared):
            child = self.shared.get(item.key)
            if child is not None:
                return child
            child = self.shared[item.key] = _Task(item.make())
        else:
            child = _Task(item)
        request = self._step(child, None, None)
        if isinstance(request, list):
            self.waiting_for_bytes.append((child, request))
        elif request is not None:
            # In its own turn: here it would be one call deeper for each group in a group.
            child.request = request
            self.ready.append((child, None, None))
        return child

    def _finish(self, task: _Task, result: Any, error: InsituError | None) -> None:
        """Note the result of a walk, and hand it to those that wait for it."""
        task.done, task.result, task.error = True, result, error
        for parent, slot in task.waiting:
            parent.results[max(slot, 0)] = result if error is None else error
            parent.pending -= 1
            if not parent.pending:
                self._resume(parent, slot < 0)
        task.waiting = []

    def _resume(self, task: _Task, is_shared: bool) -> None:
        """All that a walk waited for is there."""
        results, task.results = task.results, []
        failed = None if task.keep else next((r for r in results if isinstance(r, InsituError)), None)
        self.ready.append((task, results[0] if is_shared else results, failed))
