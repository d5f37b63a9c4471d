"""Parser of serialised dataspace selections.

All, none, and hyperslabs of versions 1 to 3, regular and irregular: format specification 3.0, VII.C
("Dataspace selection"). A regular hyperslab is one `AxisHyperslab` per axis, an irregular one a
list of boxes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.hdf5.structures.dataspace import RANK_LIMIT
from insitu.formats.parsing.fields import check_length, take_uint

__all__ = ["RUNS_LIMIT", "AxisHyperslab", "Block", "StoredSelection", "parse_selection"]

RUNS_LIMIT = 1 << 16
"""Most pieces that one selection may fall into: more are damage, or want another way than one cell
each."""

Block = tuple[tuple[int, ...], tuple[int, ...]]
"""First element, and one behind the last."""


@dataclass(frozen=True, slots=True)
class AxisHyperslab:
    """A regular selection along one axis: `count` blocks, `stride` apart; None: without end."""

    start: int
    stride: int
    count: int | None
    block: int | None

    @property
    def is_endless(self) -> bool:
        """Whether it is unlimited."""
        return self.count is None or self.block is None

    @property
    def length(self) -> int:
        """Number of elements of a limited line."""
        assert self.count is not None
        assert self.block is not None
        return self.count * self.block

    def clip(self, elements: int) -> AxisHyperslab:
        """Return an unlimited line limited to some elements: whole blocks, or a part of one."""
        if self.block is None or self.block == self.stride:
            return AxisHyperslab(self.start, max(elements, 1), 1 if elements else 0, elements)
        whole, rest = divmod(elements, self.block)
        if rest and whole:
            raise UnsupportedError(
                "unlimited mappings that end within a block are not supported", structure="virtual dataset"
            )
        return (
            AxisHyperslab(self.start, self.stride, whole, self.block)
            if not rest
            else AxisHyperslab(self.start, rest, 1, rest)
        )

    def count_before(self, extent: int) -> int:
        """Return how many elements of an unlimited line lie before `extent`."""
        if extent <= self.start:
            return 0
        if self.block is None:
            return extent - self.start
        whole, rest = divmod(extent - self.start, self.stride)
        return whole * self.block + min(rest, self.block)

    def required_extent(self, elements: int) -> int:
        """Return the extent that so many elements need."""
        if not elements:
            return 0
        if self.block is None or self.block == self.stride:
            return self.start + elements
        whole, rest = divmod(elements, self.block)
        return self.start + (whole * self.stride + rest if rest else (whole - 1) * self.stride + self.block)

    def runs(self) -> list[tuple[int, int]]:
        """Return first element and length of each run of adjacent elements."""
        assert self.count is not None
        assert self.block is not None
        if self.block == self.stride or self.count <= 1:
            return [(self.start, self.length)] if self.length else []
        if self.count > RUNS_LIMIT:
            raise UnsupportedError(
                f"selections of {self.count} runs are not supported (at most {RUNS_LIMIT})", structure="selection"
            )
        return [(self.start + i * self.stride, self.block) for i in range(self.count)]

    def part(self, first: int, length: int) -> slice | npt.NDArray[np.int64]:
        """Return the index of `length` of its elements, from the `first` on."""
        assert self.block is not None
        if self.block == self.stride or first // self.block == (first + length - 1) // self.block:
            at = self.start + first // self.block * self.stride + first % self.block
            return slice(at, at + length)
        if self.block == 1:
            at = self.start + first * self.stride
            return slice(at, at + (length - 1) * self.stride + 1, self.stride)
        numbers = np.arange(first, first + length)
        places: npt.NDArray[np.int64] = self.start + numbers // self.block * self.stride + numbers % self.block
        return places


@dataclass(frozen=True, slots=True)
class StoredSelection:
    """A selection."""

    kind: str
    """all, none, lines (one for each axis) or boxes."""
    lines: tuple[AxisHyperslab, ...] = ()
    boxes: tuple[Block, ...] = ()

    @property
    def endless_axis(self) -> int | None:
        """The axis along which it is unlimited, if there is one."""
        return next((axis for axis, line in enumerate(self.lines) if line.is_endless), None)

    def with_lines(self, shape: tuple[int, ...]) -> StoredSelection:
        """Return the selection with lines, if it is "all" of a shape."""
        return (
            self
            if self.kind != "all"
            else StoredSelection("lines", tuple(AxisHyperslab(0, max(n, 1), 1, n) for n in shape))
        )

    def rows(self, rank: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the runs of adjacent elements along the last axis: corners (n, rank) and lengths.

        In the order of the elements.
        """
        if self.kind == "lines":
            parts = [[(at, at + length) for at, length in line.runs()] for line in self.lines]
            total = int(np.prod([len(part) for part in parts], dtype=object))
            if total > RUNS_LIMIT:
                raise UnsupportedError(
                    f"selections of {total} boxes are not supported (at most {RUNS_LIMIT})", structure="selection"
                )
            boxes = [(tuple(s for s, _ in box), tuple(e for _, e in box)) for box in itertools.product(*parts)]
        else:
            boxes = list(self.boxes)
        total = sum(int(np.prod([e - s for s, e in zip(a[:-1], b[:-1], strict=True)], dtype=object)) for a, b in boxes)
        if total > RUNS_LIMIT:
            raise UnsupportedError(
                f"selections of {total} rows are not supported (at most {RUNS_LIMIT})", structure="selection"
            )
        corners: list[npt.NDArray[np.int64]] = [np.zeros((0, rank), np.int64)]
        lengths: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
        for first, box_end in boxes:
            extent = [e - s for s, e in zip(first[:-1], box_end[:-1], strict=True)]
            leading = np.indices(extent, np.int64).reshape(rank - 1, -1) if rank > 1 else np.zeros((0, 1), np.int64)
            count = leading.shape[1]
            rows = np.concatenate([leading, np.zeros((1, count), np.int64)]).T + np.array(first, np.int64)
            corners.append(rows)
            lengths.append(np.full(count, box_end[-1] - first[-1], np.int64))
        places, sizes = np.concatenate(corners), np.concatenate(lengths)
        order = np.lexsort(places.T[::-1])
        return places[order], sizes[order]


def parse_selection(data: bytes, at: int) -> tuple[StoredSelection, int]:
    """Parse a selection; return it and the offset behind it."""
    kind, version = _uint(data, at, 4), _uint(data, at + 4, 4)
    if kind in (0, 3):
        return StoredSelection("all" if kind == 3 else "none"), at + 16
    if kind != 2:
        raise UnsupportedError("selections of points are not supported here", structure="selection")
    at += 8
    check_length(data, at + 2, "selection")
    regular, width = False, 4
    if version == 1:
        at += 8
    elif version == 2:
        regular, width, at = bool(data[at] & 1), 8, at + 5
    elif version == 3:
        regular, width, at = bool(data[at] & 1), data[at + 1], at + 2
    else:
        raise FormatError(f"the hyperslab selection has the unknown version {version}", structure="selection")
    if width not in (2, 4, 8):
        raise FormatError(
            f"the hyperslab selection has numbers of {width} bytes, only 2, 4 and 8 are possible", structure="selection"
        )
    rank = _uint(data, at, 4)
    at += 4
    if not 1 <= rank <= RANK_LIMIT:
        raise FormatError(f"the selection has {rank} axes, at most {RANK_LIMIT} are possible", structure="selection")
    if regular:
        numbers = _numbers(data, at, 4 * rank, width)
        lines = tuple(_line(numbers[4 * axis : 4 * axis + 4], (1 << 8 * width) - 1) for axis in range(rank))
        if sum(line.is_endless for line in lines) > 1:
            raise FormatError("the selection is unlimited along two axes, only one is possible", structure="selection")
        return StoredSelection("lines", lines), at + 4 * rank * width
    count = _uint(data, at, width)
    at += width
    numbers = _numbers(data, at, 2 * rank * count, width)
    boxes = []
    for box in range(count):
        first = tuple(numbers[2 * rank * box : 2 * rank * box + rank])
        box_end = tuple(n + 1 for n in numbers[2 * rank * box + rank : 2 * rank * (box + 1)])
        if any(a >= b for a, b in zip(first, box_end, strict=True)):
            raise FormatError("the selection ends before it begins", structure="selection")
        boxes.append((first, box_end))
    end = at + 2 * rank * count * width
    if count == 1:
        first, box_end = boxes[0]
        return StoredSelection(
            "lines", tuple(AxisHyperslab(a, b - a, 1, b - a) for a, b in zip(first, box_end, strict=True))
        ), end
    return (StoredSelection("boxes", (), tuple(boxes)) if count else StoredSelection("none")), end


def _line(numbers: list[int], endless: int) -> AxisHyperslab:
    start, stride, count, block = numbers
    if not stride or (count > 1 and block > stride and block != endless) or start == endless:
        raise FormatError(
            f"the selection has {count} blocks of {block} elements with a stride of {stride}, which is impossible",
            structure="selection",
        )
    return AxisHyperslab(start, stride, None if count == endless else count, None if block == endless else block)


def _uint(data: bytes, at: int, width: int) -> int:
    return take_uint(data, at, width, "selection")


def _numbers(data: bytes, at: int, count: int, width: int) -> list[int]:
    check_length(data, at + count * width, "selection")
    found: list[Any] = np.frombuffer(data, f"<u{width}", count, at).tolist()
    return found
