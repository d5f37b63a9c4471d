"""How are many objects of one file read in few round trips?

Each structure is parsed by a generator, a *walk*: it yields the byte ranges it needs next and is sent their bytes.
`run` drives all walks side by side. Whenever none of them can go on without new bytes, the ranges of all of them are
fetched in one batch. So the depth of the file, not the number of its objects, sets the number of round trips, and
nothing needs a lock.

A walk yields one of

- `[(offset, length), ...]`: absolute ranges whose neighbours are likely wanted next (headers, heaps);
- `Exact([(offset, length), ...])`: ranges to be fetched as they are (nodes of chunk indexes, scattered in the data);
- `Side([walk, ...])`: other walks, to run beside each other; it is sent the list of their results;
- `Once(key, make)`: a walk that several others want (a heap, a committed type); it runs once per file;
- `Overlay([(offset, data), ...])`: bytes to be seen instead of those of the file.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable
from types import GeneratorType
from typing import Any, Protocol, TypeVar, cast

from insitu.errors import FormatError, InsituError, SourceError

__all__ = ["DAMAGE", "Exact", "Once", "Overlay", "Ranges", "Reads", "Side", "Walk", "damaged", "run"]

T = TypeVar("T")
Ranges = list[tuple[int, int]]
Walk = Generator[Any, Any, T]


DAMAGE = (struct.error, IndexError, OverflowError, ValueError, TypeError, UnicodeDecodeError)
"""What parsing raises when a field points past its structure, or holds a number that nothing can be."""


def damaged(problem: Exception, **place: Any) -> InsituError:
    """The error of ours for a structure that could not be parsed."""
    if isinstance(problem, InsituError):
        return problem
    told = FormatError(f"a structure of the file is damaged: {problem}", **place)
    told.__cause__ = problem
    return told


BATCH_LIMIT = 64 << 20
"""Bytes fetched at once; the nodes of all indexes of a file can be far more than that."""


class Exact(list[tuple[int, int]]):
    """Ranges that are fetched as they are, without their neighbourhood, and not kept."""


class Side:
    """Walks to run beside each other; with `keep`, a walk that fails gives its error as its result."""

    __slots__ = ("keep", "walks")

    def __init__(self, walks: Iterable[Walk[Any] | Once], keep: bool = False) -> None:
        self.walks = list(walks)
        self.keep = keep


class Once:
    """A walk shared by all that name the same key."""

    __slots__ = ("key", "make")

    def __init__(self, key: Hashable, make: Callable[[], Walk[Any]]) -> None:
        self.key = key
        self.make = make


class Overlay:
    """Bytes that are to be seen instead of those of the file, from now on."""

    __slots__ = ("patches",)

    def __init__(self, patches: list[tuple[int, bytes]]) -> None:
        self.patches = patches


class Reads(Protocol):
    """What `run` needs of the bytes: serve what is at hand, fetch the rest in one batch."""

    @property
    def url(self) -> str:
        """The file, for messages."""

    def at_hand(self, ranges: Ranges) -> list[bytes] | None:
        """The bytes of the ranges if all of them are in memory."""

    def fetch(self, requests: list[Ranges]) -> list[list[bytes]]:
        """The bytes of all ranges of all requests, in one batch."""

    def overlay(self, patches: list[tuple[int, bytes]]) -> None:
        """Show these bytes at their offsets instead of the file's."""


class _Task:
    __slots__ = ("asked", "done", "error", "keep", "pending", "result", "results", "waiting", "walk")

    results: list[Any]
    pending: int
    keep: bool
    result: Any
    error: InsituError | None

    def __init__(self, walk: Walk[Any]) -> None:
        # What is not set here is set when it is needed: a file has a hundred walks, most of them short.
        self.walk = walk
        self.waiting: list[tuple[_Task, int]] = []
        self.done = False
        self.asked = 0


def run(walk: Walk[T], reads: Reads) -> T:
    """Run a walk, and all that it starts, to its end.

    Parameters
    ----------
    walk
        The first walk.
    reads
        Where the bytes come from.
    """
    root = _Task(walk)
    shared: dict[Hashable, _Task] = {}
    ready: deque[tuple[_Task, Any, InsituError | None]] = deque([(root, None, None)])
    hungry: list[tuple[_Task, Ranges]] = []
    while True:
        while ready:
            _advance(*ready.popleft(), ready, hungry, shared, reads)
        if not hungry:
            break
        wanted, hungry = _affordable(hungry)
        fetched = reads.fetch([ranges for _, ranges in wanted])
        ready.extend((task, blocks, None) for (task, _), blocks in zip(wanted, fetched, strict=True))
    if not root.done:
        raise FormatError("structures of the file wait for each other", url=reads.url, structure="object graph")
    if root.error is not None:
        raise root.error
    result: T = root.result
    return result


def _affordable(
    hungry: list[tuple[_Task, Ranges]],
) -> tuple[list[tuple[_Task, Ranges]], list[tuple[_Task, Ranges]]]:
    """As many requests as may be in memory at once (at least one), and the rest."""
    total = 0
    for number, (_, ranges) in enumerate(hungry):
        total += sum([length for _, length in ranges])
        if total > BATCH_LIMIT and number:
            return hungry[:number], hungry[number:]
    return hungry, []


def _advance(
    task: _Task,
    value: Any,
    error: InsituError | None,
    ready: deque[tuple[_Task, Any, InsituError | None]],
    hungry: list[tuple[_Task, Ranges]],
    shared: dict[Hashable, _Task],
    reads: Reads,
) -> None:
    """Let one walk go on until it ends or has to wait."""
    walk = task.walk
    while True:
        try:
            request = walk.throw(error) if error is not None else walk.send(value)
        except StopIteration as stop:
            return _finish(task, stop.value, None, ready)
        except SourceError:
            raise
        except InsituError as problem:
            problem.located(url=reads.url)
            return _finish(task, None, problem, ready)
        except DAMAGE as problem:
            name = cast("GeneratorType[Any, Any, Any]", walk).gi_code.co_name.strip("_").replace("_", " ")
            return _finish(task, None, damaged(problem, url=reads.url, offset=task.asked, structure=name), ready)
        error = None
        if isinstance(request, list):
            if request:
                task.asked = request[0][0]
            blocks = reads.at_hand(request)
            if blocks is None:
                hungry.append((task, request))
                return None
            value = blocks
            continue
        if isinstance(request, Overlay):
            reads.overlay(request.patches)
            value = None
            continue
        alone = isinstance(request, Once)
        items = [request] if alone else request.walks
        task.keep = False if alone else request.keep
        task.results = [None] * len(items)
        task.pending = len(items)
        if not items:
            value = []
            continue
        for slot, item in enumerate(items):
            if isinstance(item, Once):
                child = shared.get(item.key)
                if child is None:
                    child = shared[item.key] = _Task(item.make())
                    ready.append((child, None, None))
            else:
                child = _Task(item)
                ready.append((child, None, None))
            child.waiting.append((task, slot if not alone else -1))
            if child.done:
                _tell(child, ready)
        return None


def _finish(
    task: _Task, result: Any, error: InsituError | None, ready: deque[tuple[_Task, Any, InsituError | None]]
) -> None:
    task.done, task.result, task.error = True, result, error
    _tell(task, ready)


def _tell(task: _Task, ready: deque[tuple[_Task, Any, InsituError | None]]) -> None:
    """Hand the result of a finished walk to those that wait for it."""
    waiting, task.waiting = task.waiting, []
    for parent, slot in waiting:
        parent.results[max(slot, 0)] = task.error if task.error is not None else task.result
        parent.pending -= 1
        if parent.pending:
            continue
        results, parent.results = parent.results, []
        failed = None if parent.keep else next((r for r in results if isinstance(r, InsituError)), None)
        ready.append((parent, results if slot >= 0 else results[0], failed))
