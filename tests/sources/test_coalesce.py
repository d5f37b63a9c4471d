from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from insitu.sources.coalesce import frugal_gap, merge_ranges, split_answers, worthwhile_gap

DATA = bytes(range(256)) * 8

RANGES = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 300)), max_size=40)
GAPS = st.integers(0, 400)
LIMITS = st.none() | st.integers(1, 900)


def plan_of(ranges: list[tuple[int, int]], gap: int = 0, limit: int | None = None):
    return merge_ranges([offset for offset, _ in ranges], [length for _, length in ranges], gap, limit)


@settings(max_examples=50)
@given(RANGES, GAPS, LIMITS)
def test_every_range_lies_where_the_plan_says(ranges, gap, limit):
    plan = plan_of(ranges, gap, limit)
    fetched = [DATA[offset : offset + length] for offset, length in plan.ranges()]
    found = split_answers(plan, [length for _, length in ranges], fetched)
    assert found == [DATA[offset : offset + length] for offset, length in ranges]
    for (offset, length), piece, inner in zip(ranges, plan.index, plan.inner, strict=True):
        if length == 0:
            assert piece == -1
        else:
            assert plan.offset[piece] + inner == offset
            assert inner + length <= plan.length[piece]


@settings(max_examples=50)
@given(RANGES, GAPS)
def test_requests_are_further_apart_than_the_gap_and_begin_and_end_with_asked_bytes(ranges, gap):
    plan = plan_of(ranges, gap)
    ends = plan.offset + plan.length
    assert (plan.offset[1:] - ends[:-1] > gap).all()
    wanted = [(offset, offset + length) for offset, length in ranges if length]
    assert set(plan.offset.tolist()) <= {start for start, _ in wanted}
    assert set(ends.tolist()) <= {stop for _, stop in wanted}
    # No bytes that nobody asked for, except in gaps that are narrow enough.
    requested = np.zeros(4000, bool)
    for start, stop in wanted:
        requested[start:stop] = True
    for start, length in plan.ranges():
        holes = "".join("x" if there else " " for there in requested[start : start + length]).split("x")
        assert max(map(len, holes), default=0) <= gap


@settings(max_examples=50)
@given(RANGES, GAPS, st.integers(1, 900))
def test_a_limit_is_passed_only_by_a_range_that_is_longer_itself(ranges, gap, limit):
    plan = plan_of(ranges, gap, limit)
    for number, (start, length) in enumerate(plan.ranges()):
        if length > limit:
            assert any(
                piece == number and (offset, size) == (start, length)
                for (offset, size), piece in zip(ranges, plan.index, strict=True)
            )
    # Fewer bytes are never bought with more requests than ranges.
    assert len(plan.offset) <= len([1 for _, length in ranges if length])


def test_nested_ranges_are_free_with_a_limit():
    assert plan_of([(0, 1000), (10, 5), (500, 5), (990, 10)], 0, 100).ranges() == [(0, 1000)]


def test_no_ranges():
    plan = plan_of([])
    assert plan.ranges() == []
    assert plan.index.size == 0
    assert plan_of([(5, 0), (9, 0)]).ranges() == []


def test_duplicates_are_fetched_once():
    plan = plan_of([(10, 5), (10, 5), (10, 5)])
    assert plan.ranges() == [(10, 5)]
    assert plan.index.tolist() == [0, 0, 0]


def test_a_whole_request_is_handed_on_without_a_copy():
    data = b"abc"
    assert split_answers(plan_of([(7, 3)]), [3], [data])[0] is data


def test_the_cost_rule():
    assert worthwhile_gap(0.05, 100e6, 32) == 156_250
    assert worthwhile_gap(0.0, 3e9, 1) == 0
    assert worthwhile_gap(0.05, 100e6, 0) == 5_000_000


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=50), st.integers(0, 10**6))
def test_a_frugal_gap_at_most_doubles_the_bytes(lengths, gap):
    narrowed = frugal_gap(lengths, gap, floor=0)
    assert narrowed <= gap
    assert narrowed * (len(lengths) - 1) <= sum(lengths)


def test_scattered_nodes_are_not_dragged_together():
    generator = np.random.default_rng(1)
    offsets = generator.integers(0, 290_000_000, 800)
    lengths = np.full(800, 3000)
    plan = merge_ranges(offsets, lengths, frugal_gap(lengths, 156_250))
    assert plan.length.sum() < 4_000_000
    assert plan.length.sum() < 1.1 * lengths.sum()
