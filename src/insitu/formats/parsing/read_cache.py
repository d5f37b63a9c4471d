"""Cache of the byte ranges of a file that were read while it is scanned.

The first request reads the head of the file, where metadata usually lies. Later requests for
headers and heaps are rounded out, and more so the more often they miss, because metadata is written
in runs. Nodes of chunk indexes lie scattered among the data, so `ExactRanges` requests fetch
exactly what they name and are not cached.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

from insitu.cancellation import check_deadline
from insitu.errors import FormatError, TruncatedError
from insitu.formats.parsing.scheduler import ExactRanges, Ranges
from insitu.model import Source
from insitu.sources.address import is_remote
from insitu.sources.protocol import ByteSource

__all__ = ["ReadCache"]

# First read and first rounding in bytes. A local read costs microseconds, so little is read ahead;
# a remote one costs as much as some hundred KiB.
LOCAL_HEAD, REMOTE_HEAD = 256 << 10, 128 << 10
LOCAL_ROUND, REMOTE_ROUND = 8 << 10, 128 << 10
ROUND_LIMIT = 1 << 20
"""Each batch from a remote file is rounded out twice as far as the one before, up to so many bytes: a file that has
taken several round trips has its structures scattered.
"""
ROUND_TOTAL = 8 << 20
"""Bytes that may be read ahead in all: past them, only what is asked for is fetched."""


class ReadCache:
    """Cache of the byte ranges of one file that were fetched.

    Parameters
    ----------
    source
        The file.
    remote
        Whether a request costs a round trip; found from the URL if not given.
    storage_options
        With which the file was opened, for others that it names.
    """

    __slots__ = (
        "_described",
        "_ends",
        "_head",
        "_patches",
        "_remote",
        "_round",
        "_rounded",
        "_spans",
        "_starts",
        "batches",
        "fetched",
        "size",
        "source",
        "storage_options",
        "url",
    )

    def __init__(
        self,
        source: ByteSource,
        *,
        remote: bool | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        self.source = source
        self._described: Source | None = None
        self.storage_options = storage_options
        self.url = source.url
        self._remote = is_remote(source.url) if remote is None else remote
        # The size of a remote file comes with its first bytes.
        head_size = REMOTE_HEAD if self._remote else min(LOCAL_HEAD, source.size())
        self._head = source.read(0, head_size)
        self.size = source.size()
        if len(self._head) < min(head_size, self.size):
            raise TruncatedError(
                f"the object has {self.size} bytes, but only {len(self._head)} of its first "
                f"{min(head_size, self.size)} arrived",
                url=self.url,
                hint="It was truncated while it was read, or the server reports a wrong size. Try again",
            )
        self._round = REMOTE_ROUND if self._remote else LOCAL_ROUND
        self._rounded = 0
        self._patches: list[tuple[int, bytes]] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._spans: list[bytes] = []
        self.batches = 1
        self.fetched = len(self._head)

    def describe(self) -> Source:
        """Return the URL and the identity of the file; the same object every time."""
        if self._described is None:
            self._described = self.source.describe()
        return self._described

    @property
    def local(self) -> bool:
        """Whether a request costs no round trip."""
        return not self._remote

    @property
    def head(self) -> bytes:
        """The first bytes of the file."""
        return self._head

    @property
    def remote(self) -> bool:
        """Whether a request costs a round trip."""
        return self._remote

    def peek(self, offset: int, length: int) -> bytes | None:
        """Return the bytes of a range if they are in memory, else None."""
        end = offset + length
        if end <= len(self._head):
            return self._head[offset:end]
        at = bisect_right(self._starts, offset) - 1
        if at < 0 or end > self._ends[at]:
            return None
        start = self._starts[at]
        return self._spans[at][offset - start : end - start]

    def peek_many(self, ranges: Ranges) -> list[bytes] | None:
        """Return the bytes of the ranges if all of them are in memory, else None."""
        head, known = self._head, len(self._head)
        out = []
        for offset, length in ranges:
            end = offset + length
            if end <= known:
                out.append(head[offset:end])
                continue
            at = bisect_right(self._starts, offset) - 1
            if at < 0 or end > self._ends[at]:
                return None
            start = self._starts[at]
            out.append(self._spans[at][offset - start : end - start])
        return out

    def fetch(self, requests: list[Ranges]) -> list[list[bytes]]:
        """Return the bytes of all ranges of all requests, read in one batch."""
        check_deadline()
        cacheable = sorted({r for request in requests if not isinstance(request, ExactRanges) for r in request})
        spans = self._round_out([r for r in cacheable if self.peek_many([r]) is None])
        exact = [r for request in requests if isinstance(request, ExactRanges) for r in request]
        missing = [(start, end - start) for start, end in spans] + exact
        blocks = self.source.read_many(missing)
        self.batches += 1
        for (offset, length), block in zip(missing, blocks, strict=True):
            self.fetched += len(block)
            if len(block) != length:
                raise FormatError(
                    f"the file ends {length - len(block)} bytes too early: it is truncated", url=self.url, offset=offset
                )
        if self._patches:
            blocks = [self._apply_patches(offset, block) for (offset, _), block in zip(missing, blocks, strict=True)]
        self._keep(spans, blocks[: len(spans)])
        rest = iter(blocks[len(spans) :])
        out = []
        for request in requests:
            if isinstance(request, ExactRanges):
                out.append([next(rest) for _ in request])
            else:
                served = self.peek_many(request)
                if served is None:  # cannot be: all missing ranges were fetched
                    raise FormatError("bytes that were fetched are missing from the cache", url=self.url)
                out.append(served)
        return out

    def overlay(self, patches: list[tuple[int, bytes]]) -> None:
        """Replace the bytes of the file at some offsets."""
        if self._patches:
            return  # they lie there already: the file was begun before
        self._patches = patches
        self._head = self._apply_patches(0, self._head)
        self._spans = [
            self._apply_patches(start, block) for start, block in zip(self._starts, self._spans, strict=True)
        ]

    def _apply_patches(self, offset: int, block: bytes) -> bytes:
        """A block of the file with what is laid over it."""
        changed = bytearray(block)
        for place, data in self._patches:
            begin, end = max(place, offset), min(place + len(data), offset + len(block))
            if begin < end:
                changed[begin - offset : end - offset] = data[begin - place : end - place]
        return bytes(changed)

    def _round_out(self, missing: Ranges) -> list[tuple[int, int]]:
        """Return sorted, disjoint spans (start, end) that cover the missing ranges, rounded out."""
        if not missing:
            return []
        allowed = min(self._round, max(0, ROUND_TOTAL - self._rounded) // len(missing))
        spans: list[tuple[int, int]] = []
        for offset, length in missing:
            end = min(offset + length + allowed, self.size)
            if spans and offset <= spans[-1][1] + allowed:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((offset, end))
        self._rounded += sum(end - start for start, end in spans) - sum(length for _, length in missing)
        self._round = min(self._round * 2, ROUND_LIMIT) if self._remote else self._round
        return spans

    def _keep(self, spans: list[tuple[int, int]], blocks: list[bytes]) -> None:
        for (start, end), block in zip(spans, blocks, strict=True):
            at = bisect_left(self._starts, start)
            # Spans never begin inside a newer one, so the last start before a range is the one to
            # look at.
            while at < len(self._starts) and self._starts[at] < end:
                old_end, old = self._ends.pop(at), self._spans.pop(at)
                old_start = self._starts.pop(at)
                if old_end > end:
                    # One span, not two: a range that was in memory may reach over the border.
                    block, end = block + old[end - old_start :], old_end
                    break
            self._starts.insert(at, start)
            self._ends.insert(at, end)
            self._spans.insert(at, block)
