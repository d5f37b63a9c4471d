"""How do a few large reads serve many small ones?

A source around a slow source that keeps what it read. Its first read takes the head of the object along, where formats
keep their metadata; after that, reads are either rounded out to blocks (neighbours come for free: good for a walk
through nearby structures) or left exact (nothing is over-read: good for thousands of nodes scattered over the object).
Whatever is missing for a batch is asked for in one inner batch.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from insitu.model import Source
from insitu.sources import tracing
from insitu.sources.coalesce import Merged, merge, split
from insitu.sources.protocol import ByteSource, Range, read_tail
from insitu.sources.ranges import clip_all
from insitu.sources.threads import renew_after_fork

__all__ = ["Blocks", "Rounding"]

Rounding = Literal["block", "exact"]


class Blocks:
    """A source that remembers what it read from another.

    Parameters
    ----------
    source
        The source to read from.
    block
        Bytes of a block, with `rounding="block"`.
    head
        Bytes from the start of the object that the very first read takes along.
    readahead
        Bytes read beyond what was asked for when a read goes on where the last one ended.
    capacity
        The most bytes kept; what was not used for longest goes first. A range longer than a quarter of it is
        read past the cache.
    rounding
        `"block"` rounds every read out to whole blocks, `"exact"` reads what was asked for.

    Examples
    --------
    >>> from insitu.sources import Counted, MemorySource
    >>> inner = Counted(MemorySource(bytes(1000)))
    >>> source = Blocks(inner, block=100, head=200)
    >>> _ = source.read(0, 8), source.read(150, 50), source.read_many([(720, 4), (310, 4), (330, 4)])
    >>> inner.ranges
    [(0, 200), (300, 100), (700, 100)]
    """

    def __init__(
        self,
        source: ByteSource,
        *,
        block: int = 64 << 10,
        head: int = 128 << 10,
        readahead: int = 0,
        capacity: int = 64 << 20,
        rounding: Rounding = "block",
    ) -> None:
        if block < 1 or min(head, readahead, capacity) < 0:
            raise ValueError("block must be positive; head, readahead and capacity not negative")
        self.source = source
        self._settings: dict[str, Any] = {
            "block": block, "head": head, "readahead": readahead, "capacity": capacity, "rounding": rounding
        }  # fmt: skip
        self._head, self._readahead, self._longest = head, readahead, capacity // 4
        self._kept: _Kept = _Grid(block, capacity) if rounding == "block" else _Extents(capacity)
        self._begun = False
        self._next = -1
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """New locks in a forked child."""
        self._lock, self._first = threading.Lock(), threading.Lock()

    @property
    def url(self) -> str:
        """The inner source's."""
        return self.source.url

    def size(self) -> int:
        """The inner source's; if nothing was read yet, the head is read first, which teaches it."""
        self._begin()
        return self.source.size()

    def describe(self) -> Source:
        """The inner source's; if nothing was read yet, the head is read first, which teaches it."""
        self._begin()
        return self.source.describe()

    def read(self, offset: int, length: int) -> bytes:
        """One range."""
        return self.read_many(((offset, length),))[0]

    def read_many(self, ranges: Sequence[Range]) -> list[bytes]:
        """Many ranges; what is not kept comes in one inner `read_many`."""
        if not ranges:
            return []
        if not self._begun:
            # Others wait here: they too want the head, and it shall be fetched once.
            with self._first:
                if not self._begun:
                    found = self._serve(clip_all(self.url, ranges), self._head)
                    self._begun = True
                    return found
        # Asked of `describe`, not of `size`: a server may never tell the size, and that need not hurt.
        return self._serve(clip_all(self.url, ranges, self.source.describe().size), 0)

    def tail(self, length: int) -> bytes:
        """The last bytes; if nothing was read yet, straight from the inner source, which may need no second request."""
        if not self._begun:
            return read_tail(self.source, length)
        size = self.source.size()
        return self.read(max(size - length, 0), min(length, size))

    def close(self) -> None:
        """Forget everything and close the inner source."""
        with self._lock:
            self._kept.clear()
        self.source.close()

    def _begin(self) -> None:
        if not self._begun and self._head:
            self.read_many([(0, 0)])

    def _serve(self, ranges: list[Range], head: int) -> list[bytes]:
        longest = self._longest
        small = [item for item in ranges if item[1] <= longest]
        large = [item for item in ranges if item[1] > longest]
        with self._lock:
            plan = self._kept.plan(small, head)
            if len(plan.wanted) == 1 and plan.wanted[0][0] == self._next:
                offset, length = plan.wanted[0]
                plan.wanted[0] = offset, length + self._kept.rounded(self._readahead)
        if tracing.listening():
            self._tell(plan, small)
        fetched = self.source.read_many([*plan.wanted, *large]) if plan.wanted or large else []
        with self._lock:
            if plan.wanted:
                self._next = sum(plan.wanted[-1])
            found = iter(self._kept.settle(plan, small, fetched[: len(plan.wanted)]))
        if not large:
            return list(found)
        past = iter(fetched[len(plan.wanted) :])
        return [next(past) if length > longest else next(found) for _, length in ranges]

    def _tell(self, plan: _Plan, ranges: list[Range]) -> None:
        """What was kept already counts as hits, for whoever listens."""
        missing = [(begin, begin + length) for begin, length in plan.wanted]
        cold = [any(b < offset + n and offset < e for b, e in missing) for offset, n in ranges if n]
        given = sum(n for (_, n), fetch in zip([item for item in ranges if item[1]], cold, strict=True) if not fetch)
        if given:
            tracing.hit(cold.count(False), given)
        if any(cold):
            tracing.missed(cold.count(True))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[partial[Blocks], tuple[ByteSource]]:
        return partial(Blocks, **self._settings), (self.source,)

    def __repr__(self) -> str:
        return f"Blocks({self.source!r}, rounding={self._settings['rounding']!r})"


@dataclass(slots=True)
class _Plan:
    """What a call has to fetch, and what it may use of what is kept, evicted meanwhile or not."""

    wanted: list[Range]
    """To be fetched; disjoint, ascending."""
    held: dict[int, bytes]
    """What was kept, by number of the block, or of the range."""
    where: Merged | None = None
    """Which fetched piece has each of the other ranges (exact rounding)."""


class _Kept(Protocol):
    """A policy: what to fetch for some ranges, and what to keep of it."""

    def plan(self, ranges: Sequence[Range], head: int) -> _Plan: ...

    def settle(self, plan: _Plan, ranges: Sequence[Range], fetched: Sequence[bytes]) -> list[bytes]: ...

    def rounded(self, length: int) -> int: ...

    def clear(self) -> None: ...


class _Grid:
    """Whole blocks, by number."""

    def __init__(self, block: int, capacity: int) -> None:
        self._block = block
        self._most = capacity // block
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def plan(self, ranges: Sequence[Range], head: int) -> _Plan:
        block = self._block
        needed = set(range(-(-head // block)))
        for offset, length in ranges:
            if length:
                needed.update(range(offset // block, (offset + length - 1) // block + 1))
        held = {}
        for number in needed:
            data = self._blocks.get(number)
            if data is not None:
                self._blocks.move_to_end(number)
                held[number] = data
        missing = [number * block for number in needed if number not in held]
        return _Plan(merge(missing, [block] * len(missing)).ranges(), held)

    def settle(self, plan: _Plan, ranges: Sequence[Range], fetched: Sequence[bytes]) -> list[bytes]:
        block, held = self._block, plan.held
        for (offset, length), data in zip(plan.wanted, fetched, strict=True):
            for inner in range(0, length, block):
                number = (offset + inner) // block
                held[number] = self._blocks[number] = data[inner : inner + block]
        while len(self._blocks) > self._most:
            self._blocks.popitem(last=False)
        return [self._assemble(held, offset, length) for offset, length in ranges]

    def rounded(self, length: int) -> int:
        return -(-length // self._block) * self._block

    def clear(self) -> None:
        self._blocks.clear()

    def _assemble(self, held: dict[int, bytes], offset: int, length: int) -> bytes:
        if not length:
            return b""
        block, end = self._block, offset + length
        first, last = offset // block, (end - 1) // block
        if first == last:
            return held[first][offset - first * block : end - first * block]
        parts = []
        for number in range(first, last + 1):
            data = held[number]
            parts.append(data[max(offset - number * block, 0) : end - number * block])
            if len(data) < block:
                # The object ends here; bytes after a hole would be bytes at the wrong place.
                break
        return b"".join(parts)


class _Extents:
    """What was read, as it was read; found again when a range lies within one of them."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._longest = max(capacity // 4, 1)
        self._extents: OrderedDict[int, bytes] = OrderedDict()
        self._starts: list[int] = []
        self._bytes = 0

    def plan(self, ranges: Sequence[Range], head: int) -> _Plan:
        held = {}
        missing: list[Range] = []
        for at, (offset, length) in enumerate(ranges):
            data = self._find(offset, length)
            if data is None:
                missing.append((offset, length))
            else:
                held[at] = data
        offsets, lengths = zip(*missing, (0, head), strict=True)
        where = merge(offsets, lengths)
        return _Plan(where.ranges(), held, where)

    def settle(self, plan: _Plan, ranges: Sequence[Range], fetched: Sequence[bytes]) -> list[bytes]:
        assert plan.where is not None
        self._keep(plan.wanted, fetched)
        lengths = [length for at, (_, length) in enumerate(ranges) if at not in plan.held]
        # The last one is the head, which nobody asked for.
        fresh = iter(split(plan.where, [*lengths, 0], fetched))
        return [plan.held[at] if at in plan.held else next(fresh) for at in range(len(ranges))]

    def rounded(self, length: int) -> int:
        return length

    def clear(self) -> None:
        self._extents.clear()
        self._starts, self._bytes = [], 0

    def _find(self, offset: int, length: int) -> bytes | None:
        at = bisect_right(self._starts, offset) - 1
        if at < 0:
            return None
        start = self._starts[at]
        data = self._extents[start]
        if offset + length > start + len(data):
            return None
        self._extents.move_to_end(start)
        return data[offset - start : offset - start + length]

    def _keep(self, ranges: Sequence[Range], fetched: Sequence[bytes]) -> None:
        if not fetched:
            return
        for (start, _), data in zip(ranges, fetched, strict=True):
            old = self._extents.get(start, b"")
            if len(old) < len(data) <= self._longest:
                self._extents[start] = data
                self._extents.move_to_end(start)
                self._bytes += len(data) - len(old)
        while self._bytes > self._capacity:
            self._bytes -= len(self._extents.popitem(last=False)[1])
        self._starts = sorted(self._extents)
