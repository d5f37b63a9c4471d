"""Expressions are frozen nodes: moved, joined, evaluated in boxes, pickled and sent as tables they have the values
that NumPy gives.

Modules: active/wire_expression.py, expressions/boxes.py, expressions/build_expression.py,
expressions/element_operations.py, expressions/evaluate.py, expressions/formula_text.py,
expressions/join_expressions.py, expressions/moves.py, expressions/node_table.py, expressions/window_reach.py,
expressions/window_statistics.py, expressions/windows.py, scanning/member.py
"""

from __future__ import annotations

import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from insitu.active.wire_array import array_from_wire
from insitu.active.wire_expression import expression_from_wire, expression_to_wire
from insitu.expressions import evaluate
from insitu.expressions.boxes import BoxMemory
from insitu.expressions.build_expression import build_expression
from insitu.expressions.element_operations import cast, combine, fill_null, find_filled, mask
from insitu.expressions.evaluate import evaluate_boxes, read_all, read_and_keep
from insitu.expressions.formula_text import formula
from insitu.expressions.join_expressions import join_expressions
from insitu.expressions.moves import AddDimension, DropDimension, SelectEach, Transpose, broadcast
from insitu.expressions.nodes import (
    Broadcast,
    Expression,
    Moved,
    Operation,
    Stored,
    WindowsOf,
    iterate_nodes,
    stored_arrays,
)
from insitu.expressions.window_statistics import Window
from insitu.expressions.windows import KEPT
from insitu.reading import ReadContext
from insitu.reading.value_cache import Owner, ValueCache
from insitu.scanning.member import in_memory

SHAPE = (6, 5, 4)
SMALL = (3, 2, 4)
"""Of random expressions, which are evaluated in boxes of one element, too."""
Pair = tuple[Expression, np.ndarray[Any, Any]]


def stored(values: np.ndarray[Any, Any], context: ReadContext | None = None) -> Stored:
    """Values as a stored array, in chunks that do not end with those of others."""
    array = in_memory(values)
    assert array is not None
    return Stored(array, context or ReadContext(name="x"))


def leaf(number: int, context: ReadContext | None = None, shape: tuple[int, ...] = SHAPE) -> Pair:
    values = np.random.default_rng(number).normal(size=shape).round(2)
    values[np.random.default_rng(number + 1).random(shape) < 0.2] = np.nan
    return stored(values, context), values


@st.composite
def expressions(draw: Any, depth: int = 3) -> Pair:
    """An expression and its values."""
    if not depth or draw(st.integers(0, 4)) == 0:
        expression, values = leaf(draw(st.integers(0, 3)), shape=SMALL)
        axis = draw(st.sampled_from([None, 0, 2]))
        if axis is not None:  # broadcast beside the others
            keys = tuple(slice(0, 1) if n == axis else slice(None) for n in range(3))
            return SelectEach(SMALL, keys).apply(expression), values[keys]
        return expression, values
    one, values = draw(expressions(depth - 1))
    kind = draw(st.sampled_from(["add", "multiply", "where", "cast", "fill", "mask", "same", "array"]))
    if kind in ("add", "multiply"):
        other, others = draw(expressions(depth - 1))
        return _made(combine(kind, one, other)), getattr(np, kind)(values, others)
    if kind == "same":
        return _made(combine("add", one, one)), values + values
    if kind == "where":
        other, others = draw(expressions(depth - 1))
        test = _made(combine("greater", one, 0.0))
        return _made(combine("where", test, other, 1.5)), np.where(values > 0, others, 1.5)
    if kind == "cast":
        return cast(one, np.dtype("f4")), values.astype("f4")
    if kind == "fill":
        return fill_null(one, 2, values.dtype), np.where(np.isnan(values), values.dtype.type(2), values)
    row = np.arange(4.0) - 1
    if kind == "mask":
        return mask(one, row > 0, -1, values.dtype), np.where(row > 0, values, values.dtype.type(-1))
    return _made(combine("subtract", one, row)), values - row


def _made(expression: Expression | None) -> Expression:
    assert expression is not None
    return expression


def move(pair: Pair, draw: Any) -> Pair:
    """A random structural operation."""
    expression, values = pair
    kind = draw(st.sampled_from(["select", "index", "transpose", "add", "drop", "broadcast"]))
    if kind == "select" and values.ndim:
        keys = tuple(draw(st.sampled_from([slice(None), slice(1, None), slice(None, None, -2)])) for _ in values.shape)
        return SelectEach(values.shape, keys).apply(expression), values[keys]
    if kind == "index" and 0 not in values.shape:
        index = tuple(np.array(draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=4))) for n in values.shape)
        return SelectEach(values.shape, index).apply(expression), values[np.ix_(*index)] if index else values
    if kind == "transpose":
        order = tuple(draw(st.permutations(range(values.ndim))))
        return Transpose(order).apply(expression), values.transpose(order)
    if kind == "add":
        return AddDimension(0).apply(expression), values[None]
    if kind == "drop" and 1 in values.shape:
        axis = values.shape.index(1)
        return DropDimension(axis).apply(expression), values.squeeze(axis)
    shape = (2, *values.shape)
    return broadcast(expression, shape), np.broadcast_to(values, shape)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_moved_in_boxes_pickled_and_sent_they_have_the_same_values(data: st.DataObject) -> None:
    pair = data.draw(expressions())
    for _ in range(data.draw(st.integers(0, 3))):
        pair = move(pair, data.draw)
    expression, values = pair
    assert (expression.shape, expression.dtype) == (values.shape, values.dtype)
    np.testing.assert_array_equal(read_all([expression])[0], values)
    again = pickle.loads(pickle.dumps(expression))
    np.testing.assert_array_equal(read_all([again])[0], values)
    found = np.empty(values.shape, values.dtype)
    memory = BoxMemory(data.draw(st.sampled_from([8, 100, 1000])))
    for _ in evaluate_boxes(expression, memory, lambda box, part: found.__setitem__(box, part)):
        pass
    np.testing.assert_array_equal(found, values)
    table = expression_from_wire(expression_to_wire(expression))
    leaves = [Stored(array_from_wire(entry["array"]), expression.context) for entry in table.arrays]
    built = build_expression(table, leaves, lambda _, given: given)
    np.testing.assert_array_equal(read_all([built])[0], values)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_formulas_of_several_arrays_join(data: st.DataObject) -> None:
    formula_of = data.draw(
        st.sampled_from(
            [
                lambda x: combine("multiply", x, 2.0),
                lambda x: fill_null(combine("add", x, np.arange(4.0)), 0, x.dtype),
                lambda x: combine("subtract", x, leaf(9, shape=(6, 1, 4))[0]),
                lambda x: combine("add", x, x),
            ]
        )
    )
    leaves = [leaf(number) for number in range(3)]
    joined = join_expressions([_made(formula_of(expression)) for expression, _ in leaves], 1)
    assert joined is not None
    parts = [read_all([_made(formula_of(expression))])[0] for expression, _ in leaves]
    np.testing.assert_array_equal(read_all([joined])[0], np.concatenate(parts, 1))
    assert join_expressions([leaves[0][0], _made(combine("negative", leaves[1][0]))], 1) is None


def test_what_has_length_1_is_joined_and_not_broadcast() -> None:
    expression, values = leaf(0, shape=(1, 4))
    doubled = _made(combine("add", expression, 1.0))
    joined = join_expressions([doubled, doubled], 0)
    assert joined is not None
    np.testing.assert_array_equal(read_all([joined])[0], np.concatenate([values + 1, values + 1]))


def test_hundreds_of_operations_within_each_other() -> None:
    """No function of ours calls itself for each of them, and neither does pickle."""
    expression, values = leaf(1)
    made, expected = expression, values
    for number in range(190):
        made, expected = _made(combine("add", made, float(number))), expected + number
    again = pickle.loads(pickle.dumps(SelectEach(SHAPE, (slice(2), 0, slice(None))).apply(made)))
    np.testing.assert_array_equal(read_all([again])[0], expected[:2, 0])
    assert len(formula(made)) < 1000


def test_what_is_used_several_times_is_read_and_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    expression, values = leaf(2)
    part = _made(combine("multiply", expression, 3.0))
    whole = _made(combine("add", _made(combine("square", part)), _made(combine("add", part, part))))
    requests: list[int] = []
    original = evaluate.read_arrays

    def watch(requested: Any, **how: Any) -> Any:
        requests.append(len(requested))
        return original(requested, **how)

    monkeypatch.setattr(evaluate, "read_arrays", watch)
    np.testing.assert_array_equal(read_all([whole])[0], np.square(values * 3) + 2 * (values * 3))
    assert requests == [1]
    assert sum(isinstance(node, Operation) for node in iterate_nodes([whole])) == 4


def test_values_that_somebody_else_needs_are_not_written_over() -> None:
    expression, values = leaf(3)
    part = _made(combine("add", expression, 1.0))
    shown = cast(part, np.dtype("f8"))  # the memory of the part itself
    both = _made(combine("multiply", _made(combine("negative", part)), shown))
    np.testing.assert_array_equal(read_all([both])[0], -(values + 1) * (values + 1))
    one, other = read_all([expression, expression])
    one[...] = 0
    np.testing.assert_array_equal(other, values)


def test_parts_of_what_was_kept_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ValueCache(1 << 20)
    expression, values = leaf(4, ReadContext(name="x", values=cache, owner=Owner()))
    np.testing.assert_array_equal(read_and_keep(expression), values)
    monkeypatch.setattr(evaluate, "read_arrays", lambda *args, **kwargs: pytest.fail("it is read"))
    part = SelectEach(SHAPE, (slice(None), 2, slice(None))).apply(expression)
    assert isinstance(part, Moved)
    made = _made(combine("add", Transpose((1, 0)).apply(part), 1.0))
    np.testing.assert_array_equal(read_all([made])[0], values[:, 2].T + 1)
    assert not isinstance(pickle.loads(pickle.dumps(part)), Moved)  # elsewhere nothing is kept


def test_broadcasts_of_formulas_are_computed_once() -> None:
    expression, values = leaf(5)
    made = broadcast(_made(combine("add", expression, 1.0)), (3, *SHAPE))
    assert isinstance(made, Broadcast)
    assert [node.shape for node in iterate_nodes([made]) if isinstance(node, Operation)] == [(1, *SHAPE)]
    np.testing.assert_array_equal(read_all([made])[0][2], values + 1)


def test_filled_values_are_recognised() -> None:
    expression, _ = leaf(6)
    filled = fill_null(expression, 0, expression.dtype)
    assert find_filled(filled) == (expression, 0)
    assert formula(filled) == "fillna(x, 0.0)"
    assert find_filled(_made(combine("add", expression, 0.0))) is None
    assert [node.array for node in stored_arrays(filled)] == []  # it carries its values


def test_nodes_are_gone_with_the_last_reference() -> None:
    """Without waiting for the garbage collector: values that were kept for them, and large constants, go at once."""
    cache = ValueCache(1 << 20)
    expression, _ = leaf(7, ReadContext(name="x", values=cache, owner=Owner()))
    formula_of = _made(combine("multiply", _made(combine("add", expression, np.ones(SHAPE))), 2.0))
    index = (np.arange(5), slice(None), slice(1, 3))
    part = SelectEach(SHAPE, index).apply(SelectEach(SHAPE, (slice(None), slice(0, 5), slice(None))).apply(formula_of))
    gone = [weakref.ref(node) for node in iterate_nodes([part])]
    gc.disable()
    try:
        del expression, formula_of, part
        assert [found() for found in gone if found() is not None] == []
    finally:
        gc.enable()


def test_windows_do_not_join() -> None:
    """What lies in windows has other lengths than they have."""
    expression, _ = leaf(8)
    masked = mask(expression, np.arange(6).reshape(6, 1, 1) > 1, 0, expression.dtype)
    along = {0: Window(np.arange(4), np.arange(3))}
    shown = WindowsOf(masked, along, ((KEPT, 0), (KEPT, 1), (KEPT, 2)), masked.dtype, "max")
    part = SelectEach(shown.shape, (slice(0, 1), slice(None), slice(None))).apply(shown)
    assert join_expressions([part, part], 0) is None
