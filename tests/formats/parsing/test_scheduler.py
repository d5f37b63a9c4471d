"""Walks run concurrently, in as few batches of reads as their depth."""

from __future__ import annotations

from typing import Any

import pytest

from insitu.errors import FormatError
from insitu.formats.parsing.scheduler import ExactRanges, Parallel, Ranges, Shared, Walk, run


class Memory:
    """Bytes whose value is their offset; counts batches."""

    url = "memory"

    def __init__(self) -> None:
        self.batches: list[int] = []

    def peek_many(self, ranges: Ranges) -> list[bytes] | None:
        return None

    def fetch(self, requests: list[Ranges]) -> list[list[bytes]]:
        self.batches.append(sum(len(request) for request in requests))
        return [[bytes([offset]) * length for offset, length in request] for request in requests]


def _steps(start: int, count: int) -> Walk[int]:
    total = 0
    for step in range(count):
        (data,) = yield [(start + step, 2)]
        total += data[0]
    return total


def test_depth_sets_the_number_of_batches() -> None:
    def walk() -> Walk[list[int]]:
        return (yield Parallel([_steps(number, 3) for number in range(20)]))

    memory = Memory()
    assert run(walk(), memory) == [3 * number + 3 for number in range(20)]
    assert memory.batches == [20, 20, 20]


def test_a_shared_walk_runs_once() -> None:
    made: list[int] = []

    def make() -> Walk[int]:
        made.append(1)
        return _steps(5, 1)

    def asks() -> Walk[int]:
        return (yield Shared("key", make))

    def walk() -> Walk[Any]:
        first = yield Parallel([asks() for _ in range(4)])
        return first + (yield Parallel([Shared("key", make)]))

    assert run(walk(), Memory()) == [5] * 5
    assert len(made) == 1


def test_errors_go_to_who_waits() -> None:
    def fails() -> Walk[int]:
        yield ExactRanges([(0, 1)])
        raise FormatError("no")

    def index() -> Walk[int]:
        (data,) = yield [(0, 1)]
        return data[99]  # type: ignore[no-any-return]

    def keeps() -> Walk[Any]:
        return (yield Parallel([fails(), _steps(7, 1)], keep=True))

    first, second = run(keeps(), Memory())
    assert isinstance(first, FormatError)
    assert second == 7
    with pytest.raises(IndexError):  # a defect of a parser is raised as it is
        run(index(), Memory())

    def catches() -> Walk[str]:
        try:
            yield Parallel([fails()])
        except FormatError:
            return "caught"
        return "not"

    assert run(catches(), Memory()) == "caught"
    with pytest.raises(FormatError, match="no"):
        run(fails(), Memory())


def test_walks_that_wait_for_each_other_do_not_hang() -> None:
    def one() -> Walk[Any]:
        return (yield Shared("two", two))

    def two() -> Walk[Any]:
        return (yield Shared("one", one))

    with pytest.raises(FormatError, match="wait"):
        run(one(), Memory())


def test_nothing_to_wait_for() -> None:
    def walk() -> Walk[Any]:
        return (yield Parallel([]))

    assert run(walk(), Memory()) == []


def test_a_batch_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("insitu.formats.parsing.scheduler.BATCH_LIMIT", 10)

    def walk() -> Walk[list[int]]:
        return (yield Parallel([_steps(number, 1) for number in range(12)]))

    memory = Memory()
    assert run(walk(), memory) == list(range(12))
    assert memory.batches == [5, 5, 2]


def test_a_defect_of_a_parser_is_not_reported_as_a_damaged_file() -> None:
    def walk() -> Walk[Any]:
        (data,) = yield [(0, 1)]
        return data[1]

    with pytest.raises(IndexError):
        run(walk(), Memory())
