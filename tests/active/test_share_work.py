"""Pieces of work shared by workers that fail, and arrays split by who has their bytes.

Modules: active/placement.py, cancellation.py, reducing/merged_partial.py, reducing/split_by_owner.py
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from insitu.active.placement import place_servers, servers_of
from insitu.active.share_work import SharedWork, Worker, WorkerLostError
from insitu.cancellation import Deadline, LateError, deadline_scope
from insitu.errors import SourceError
from insitu.expressions.nodes import Constant
from insitu.model import Axis, Columns, Encoding, Selection, Source, Tile, VirtualArray
from insitu.model.selection import Stride
from insitu.reducing.expression_values import ExpressionValues
from insitu.reducing.fold_portions import PlainFolding
from insitu.reducing.merged_partial import MergedPartial
from insitu.reducing.query import ReductionQuery
from insitu.reducing.split_by_owner import OwnedArray, most_bytes, split_by_owner
from waiting import LONG

LOST = WorkerLostError(SourceError("gone"))


def run(kinds: list[Any], workers: list[Worker[Any]], **more: Any) -> list[Any]:
    return list(SharedWork(kinds, workers, lambda number: ("here", number), window=4, **more).run())


def test_answers_come_in_order_whoever_is_faster() -> None:
    later = threading.Event()

    def slow(number: int) -> tuple[str, int]:
        later.wait(LONG)
        return "slow", number

    def fast(number: int) -> tuple[str, int]:
        if number == 3:  # the window is full: nothing more is given out before the slow one is done
            later.set()
        return "fast", number

    found = run([0] * 9, [Worker(0, slow, "slow"), Worker(0, fast, "fast")])
    assert [number for _, number in found] == list(range(9))
    assert {"slow", "fast"} == {name for name, _ in found}


def test_few_answers_wait() -> None:
    given_out: list[int] = []
    first = threading.Event()

    def work(number: int) -> int:
        given_out.append(number)
        if number == 0:
            first.wait(LONG)
        elif number == 3:
            first.set()
        return number

    shared = SharedWork([0] * 50, [Worker(0, work, threads=3)], lambda number: number, window=4)
    answers = shared.run()
    assert next(answers) == 0
    assert max(given_out) <= 4
    assert list(answers) == list(range(1, 50))


def test_a_lost_helper_is_replaced_by_another_of_its_kind() -> None:
    def fail(number: int) -> Any:
        raise LOST

    unserved: list[Any] = []
    kinds = ["a", "b", "a", "b", "c"]
    workers = [
        Worker("a", fail, "first"),
        Worker("a", lambda number: ("second", number), "second"),
        Worker("b", fail, "third", threads=2),
    ]
    shared = SharedWork(
        kinds,
        workers,
        lambda number: ("here", number),
        window=4,
        on_unserved=lambda *unserved_items: unserved.append(unserved_items),
    )
    assert list(shared.run()) == [("second", 0), ("here", 1), ("second", 2), ("here", 3), ("here", 4)]
    assert unserved == [("b", [1, 3], LOST.reason), ("c", [4], None)]
    assert "third" in shared.lost
    assert set(shared.lost) <= {"first", "third"}


def test_an_unexpected_error_is_raised_and_ends_the_work() -> None:
    def fail(number: int) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run([0] * 3, [Worker(0, fail)])


def test_a_deadline_ends_the_waiting() -> None:
    never = threading.Event()
    with deadline_scope(Deadline.after(0.1)), pytest.raises(LateError):
        run([0], [Worker(0, lambda number: never.wait(20))])
    never.set()


def mosaic(owners: np.ndarray[Any, Any], cells: list[list[int]], tiled: bool) -> VirtualArray:
    """An array of chunks in sources that are named by their owners; one tile, or one for each row of chunks."""
    shape = tuple(map(sum, cells))
    sources = tuple(Source(f"{number}") for number in range(int(owners.max(initial=0)) + 1))

    def tile(part: slice) -> Tile:
        lengths = [cells[0][part], *cells[1:]]
        axes = [Axis.irregular(along, stored=along) for along in lengths]
        grid = owners[part]
        zero = np.zeros(grid.shape, np.int64)
        table = Columns(grid.shape, sources, grid.astype(np.int64), zero, zero + 8, zero, zero, zero)
        return Tile(tuple(axes), (Encoding(np.dtype("i1")),), table)

    parts = [slice(i, i + 1) for i in range(len(cells[0]))] if tiled else [slice(None)]
    origins = np.zeros((len(parts), len(shape)), np.int64)
    origins[:, 0] = [sum(cells[0][: part.start or 0]) for part in parts]
    return VirtualArray(
        shape, np.dtype("i1"), tuple("xyz"[: len(shape)]), tuple(tile(part) for part in parts), origins, fill_value=0
    )


def owner_of(source: Source) -> int:
    return int(source.url)


@settings(max_examples=60)
@given(data=st.data())
def test_parts_cover_everything_once_and_have_one_owner(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 3))
    cells = [data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)) for _ in range(ndim)]
    grid = tuple(map(len, cells))
    number = st.integers(-2, 2)
    owners = np.array(data.draw(st.lists(number, min_size=int(np.prod(grid)), max_size=int(np.prod(grid))))).reshape(
        grid
    )
    array = mosaic(owners, cells, data.draw(st.booleans()))
    whole = owners
    for axis, lengths in enumerate(cells):
        whole = np.repeat(whole, lengths, axis=axis)
    seen = np.zeros(array.shape, int)
    for part, mask in split_by_owner(array.shape, [OwnedArray(array, owner_of)]):
        where = np.ix_(*(_positions(selector) for selector in part.selectors))
        seen[where] += 1
        found = set(np.unique(whole[where]).tolist()) - {-1, -2}
        assert found == {bit for bit in range(3) if mask >> bit & 1}
        assert len(found) <= 1
    assert (seen == 1).all()


def _positions(selector: Any) -> np.ndarray[Any, Any]:
    return np.arange(selector.start, selector.start + selector.length) if isinstance(selector, Stride) else selector


def test_files_that_alternate_are_one_part_for_each_owner() -> None:
    owners = np.arange(1000).reshape(-1, 1) % 2
    array = mosaic(owners, [[2] * 1000, [4]], tiled=False)
    parts = split_by_owner(array.shape, [OwnedArray(array, owner_of)])
    assert [mask for _, mask in parts] == [1, 2]
    assert [part.result_shape for part, _ in parts] == [(1000, 4), (1000, 4)]


def test_arrays_of_an_expression_are_split_together() -> None:
    one = mosaic(np.array([[0], [0], [1]]), [[3, 3, 3], [4]], tiled=False)
    other = mosaic(np.array([[0], [1]]), [[6, 3], [4]], tiled=True)
    mask = mosaic(np.array([[0, 0]]), [[1], [2, 2]], tiled=False)
    elsewhere = mosaic(np.array([[2], [2]]), [[5, 4], [4]], tiled=False)
    owned = [OwnedArray(array, owner_of) for array in (one, other)]
    assert [owners for _, owners in split_by_owner((9, 4), owned)] == [1, 2]
    # What is broadcast does not separate, and belongs to every part.
    assert {owners for _, owners in split_by_owner((9, 4), [*owned, OwnedArray(mask, owner_of)])} <= {1, 2, 3}
    both = split_by_owner((9, 4), [*owned, OwnedArray(elsewhere, owner_of)])
    assert [owners for _, owners in both] == [0b101, 0b110]
    assert most_bytes([OwnedArray(one, owner_of)]) == 0
    assert most_bytes([OwnedArray(one, owner_of), OwnedArray(elsewhere, owner_of)]) == 0
    assert most_bytes([OwnedArray(other, owner_of), OwnedArray(elsewhere, owner_of)]) == 2


METHODS = ("sum", "mean", "min", "max", "std", "count", "argmin", "argmax", "any", "prod")


@settings(max_examples=30)
@given(data=st.data())
def test_merged_pieces_equal_the_whole(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    values = np.array(
        data.draw(st.lists(st.integers(-3, 3), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    )
    values = values.reshape(shape).astype("f8")
    axes = data.draw(st.permutations(range(len(shape))).map(lambda order: tuple(order[: len(shape)])))
    axes = axes[: data.draw(st.integers(1, len(shape)))]
    whole = PlainFolding(ExpressionValues(Constant(values)), ReductionQuery.of(METHODS, axes))
    cut = data.draw(st.integers(0, len(shape) - 1))
    owners = np.array(data.draw(st.lists(st.integers(0, 2), min_size=shape[cut], max_size=shape[cut])))
    merged: MergedPartial = whole.begin()
    for owner in np.unique(owners):
        key: Any = np.flatnonzero(owners == owner)
        piece = Selection.of((slice(None),) * cut + (key,), shape)
        part = values[(slice(None),) * cut + (key,)]
        strides = [int(np.prod([part.shape[later] for later in axes[n + 1 :]])) for n in range(len(axes))]
        positions = [np.arange(part.shape[axis]) * stride for axis, stride in zip(axes, strides, strict=True)]
        merged.add(piece, whole.place(piece), whole.reduction.step(part, axes, positions))
    found = whole.finalise(merged.partial)
    flat = values.transpose([*(a for a in range(len(shape)) if a not in axes), *axes])
    flat = flat.reshape(*flat.shape[: len(shape) - len(axes)], -1)
    for name in METHODS:
        expected = np.count_nonzero(flat == flat, axis=-1) if name == "count" else getattr(np, name)(flat, axis=-1)
        np.testing.assert_allclose(found[name], expected, rtol=1e-12, atol=1e-12, err_msg=name)


def test_prefixes() -> None:
    placed = place_servers(
        {"s3://a": "http://1", "s3://a/b/": ["http://2", "http://2", "http://3"], "data/": "http://4"}
    )
    assert servers_of(placed, "s3://a/b/c.nc") == ("http://2", "http://3")
    assert servers_of(placed, "s3://a/c.nc") == ("http://1",)
    assert servers_of(placed, "s3://ab/c.nc") == ()
    assert servers_of(placed, "data/x.nc") == servers_of(placed, "./data/../data/x.nc") == ("http://4",)
    assert servers_of(placed, "data-of-others/x.nc") == ()
    assert servers_of(place_servers("http://1"), "anything") == ("http://1",)
