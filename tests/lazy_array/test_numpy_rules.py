"""NumPy's functions and indexing on virtual arrays: the values, types, shapes and errors of NumPy.

Everything is asked twice, with the default options: the second answer may come from kept values.
"""

from __future__ import annotations

import operator
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.lazy_array import LazyArray
from insitu.model import VirtualArray
from xarray_bridge.raw_zarr import SHAPES, TYPES, make_values, virtual, write


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("numpy") / "a.zarr")


def ask(call: Callable[[Any], Any], array: Any) -> Any:
    """Return the result of a call, or the error that it ends with."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = call(array)
            return [np.asarray(one) for one in result] if isinstance(result, (tuple, list)) else np.asarray(result)
    except Exception as problem:  # whatever NumPy raises
        return problem


def assert_as_numpy(call: Callable[[Any], Any], array: Any, values: np.ndarray[Any, Any], about: str = "") -> None:
    """Compare the results of a call on a virtual array, twice, with that on its values."""
    expected = ask(call, values.copy())
    for _ in range(2):
        found = ask(call, array)
        if isinstance(expected, Exception):
            assert isinstance(found, kind_of(expected)), f"{about}: {found!r} instead of {expected!r}"
            continue
        assert not isinstance(found, Exception), f"{about}: {found!r} instead of {expected!r}"
        pairs = zip(found, expected, strict=True) if isinstance(expected, list) else [(found, expected)]
        for one, other in pairs:
            assert one.shape == other.shape, f"{about}: {one.shape} instead of {other.shape}"
            if other.shape or other.dtype.kind != "U":  # one text as a scalar has forgotten its width
                assert one.dtype == other.dtype, f"{about}: {one.dtype} instead of {other.dtype}"
            if other.dtype == object:
                one, other = one.astype(str), other.astype(str)  # NaN is no other NaN
            np.testing.assert_array_equal(one, other, about)


def kind_of(problem: Exception) -> type[Exception]:
    """Return the class of an error that programs catch: the public ones of NumPy and Python."""
    return next(cls for cls in type(problem).__mro__ if not cls.__name__.startswith("_"))


CALLS: dict[str, Callable[[Any], Any]] = {
    **{f"{name}({axis})": lambda a, name=name, axis=axis: getattr(np, name)(a, axis=axis)
       for name in ("sum", "mean", "min", "max", "prod", "any", "argmax", "nansum", "nanmean", "nanmax", "nanprod",
                    "median", "cumsum", "squeeze", "flip", "expand_dims", "sort", "count_nonzero")
       for axis in (0, -1, 2, 3, -4, (), (0, 0), (0, -1), (0, 7), None, 1.0, [0])},
    **{f"{name}({axis})": lambda a, f=function, axis=axis: f(a, axis)
       for name, function in {
           "concatenate": lambda a, axis: np.concatenate([a, a], axis),
           "stack": lambda a, axis: np.stack([a, a], axis),
           "take": lambda a, axis: np.take(a, [1, 0, -1], axis),
           "take one": lambda a, axis: np.take(a, 1, axis),
           "repeat": lambda a, axis: np.repeat(a, 2, axis),
           "roll": lambda a, axis: np.roll(a, 1, axis),
           "swapaxes": lambda a, axis: np.swapaxes(a, axis, 0),
           "moveaxis": lambda a, axis: np.moveaxis(a, axis, 0),
           "size": np.size,
           "diff": lambda a, axis: np.diff(a, axis=axis),
           "split": lambda a, axis: np.array_split(a, 2, axis),
           "windows": lambda a, axis: np.lib.stride_tricks.sliding_window_view(a, 2, axis),
       }.items()
       for axis in (0, 1, -1, 3, 4, -4, -5, 1.0)},
    **{f"transpose{axes}": lambda a, axes=axes: np.transpose(a, axes)
       for axes in (None, (1, 0), (0, 1), (2, 0, 1), (-1, 0, 1), (0, 0, 1), (0, 1, 3), (0,), ())},
    **{f"method transpose{axes}": lambda a, axes=axes: a.transpose(*axes)
       for axes in ((), (1, 0), (2, 0, 1), (-1, 0, 1), (0, 0, 1), (0, 1, 3), (0,))},
    "moveaxis two": lambda a: np.moveaxis(a, (0, 1), (-1, 0)),
    "moveaxis twice": lambda a: np.moveaxis(a, (0, 0), (1, 2)),
    "moveaxis uneven": lambda a: np.moveaxis(a, (0, 1), 0),
    "expand two": lambda a: np.expand_dims(a, (0, -1)),
    "expand far": lambda a: np.expand_dims(a, (0, 9)),
    # Choosing and broadcasting.
    "where larger": lambda a: np.where(a == a, a, np.broadcast_to(np.zeros((), a.dtype), (2, *a.shape))),
    "where larger mask": lambda a: np.where(np.ones((2, *a.shape), bool), a, np.zeros((), a.dtype)),
    "where mask and larger": lambda a: np.where(
        np.ones(a.shape, bool), a, np.broadcast_to(np.zeros((), a.dtype), (2, *a.shape))),
    "where larger first": lambda a: np.where(
        np.zeros(a.shape, bool), np.broadcast_to(np.zeros((), a.dtype), (2, *a.shape)), a),
    "where null larger": lambda a: np.where(np.isnan(a), np.broadcast_to(np.ones((), a.dtype), (2, *a.shape)), a),
    "where not null larger": lambda a: np.where(~np.isnan(a), a, np.broadcast_to(np.ones((), a.dtype), (2, *a.shape))),
    "where values larger": lambda a: np.where(a == a, a, np.arange(2).reshape((2,) + (1,) * a.ndim)),
    "where numbers": lambda a: np.where(np.arange(a.shape[-1]) % 2, a, 1),
    "where no broadcast": lambda a: np.where(np.ones(17, bool), a, 1),
    "take booleans": lambda a: np.take(a, [True, False, True], axis=0),
    "take floats": lambda a: np.take(a, [1.0], axis=0),
    "take nothing": lambda a: np.take(a, [], axis=0),
    "take far": lambda a: np.take(a, [99], axis=0),
    "take table": lambda a: np.take(a, [[0, 1], [1, 0]], axis=0),
    "take flat": lambda a: np.take(a, [0, 1]),
    "take clip": lambda a: np.take(a, [0, 99], axis=0, mode="clip"),
    "broadcast": lambda a: np.broadcast_to(a, (2, *a.shape)),
    "broadcast wrong": lambda a: np.broadcast_to(a, (2, 2)),
    "broadcast number": lambda a: np.broadcast_to(a, 6),
    "broadcast arrays": lambda a: np.broadcast_arrays(a, np.zeros((2, *a.shape))),
    **{f"pad {mode} {kind}": lambda a, mode=mode, kind=kind: np.pad(a, 1, mode, reflect_type=kind)
       for mode in ("reflect", "symmetric", "edge") for kind in ("even", "odd")},
    **{f"pad {mode}": lambda a, mode=mode: np.pad(a, 1, mode)
       for mode in ("constant", "edge", "wrap", "reflect", "symmetric", "mean", "empty?")},
    "pad float": lambda a: np.pad(a, 1.5),
    "pad negative": lambda a: np.pad(a, -1),
    "pad three": lambda a: np.pad(a, (1, 2, 3)),
    "pad far": lambda a: np.pad(a, [(2, 5)] * a.ndim, "wrap"),
    "pad values": lambda a: np.pad(a, 1, constant_values=2),
    "roll flat": lambda a: np.roll(a, 2),
    "roll twice": lambda a: np.roll(a, (1, 2), axis=(0, 0)),
    "roll all": lambda a: np.roll(a, 1, axis=(0, 1)),
    "roll each": lambda a: np.roll(a, (1, -7), axis=(0, -1)),
    "roll uneven": lambda a: np.roll(a, (1, 2, 3), axis=(0, 1)),
    "roll float": lambda a: np.roll(a, 1.5, axis=0),
    "repeat each": lambda a: np.repeat(a, np.arange(a.shape[0]), axis=0),
    "repeat wrong": lambda a: np.repeat(a, [1, 2], axis=0),
    "flip all": np.flip,
    "rot90": np.rot90,
    "ravel": np.ravel,
    "reshape flat": lambda a: a.reshape(-1),
    "reshape wrong": lambda a: a.reshape(7, -1),
    "reshape ones": lambda a: a.reshape(1, *a.shape, 1),
    "squeeze": np.squeeze,
    "atleast": lambda a: np.atleast_2d(a),
    "windows large": lambda a: np.lib.stride_tricks.sliding_window_view(a, 99, axis=0),
    "windows none": lambda a: np.lib.stride_tricks.sliding_window_view(a, 0, axis=0),
    "windows two": lambda a: np.lib.stride_tricks.sliding_window_view(a, (2, 2), axis=(0, 0)),
    "concatenate types": lambda a: np.concatenate([a, np.ones(a.shape, "f8")]),
    "concatenate shapes": lambda a: np.concatenate([a, a[..., :1]]),
    "concatenate a number far": lambda a: np.concatenate([a, 0.5], axis=5),
    "take of several axes": lambda a: np.take(a, 0, axis=(0, 1)),
    "concatenate flat": lambda a: np.concatenate([a, a], axis=None),
    "vstack": lambda a: np.vstack([a, a]),
    "tile": lambda a: np.tile(a, 2),
    # Made like it, types.
    **{f"{name} {dtype}": lambda a, name=name, dtype=dtype: getattr(np, name)(a, dtype=dtype)
       for name in ("zeros_like", "ones_like") for dtype in (None, "f8", "U4", str)},
    "full_like": lambda a: np.full_like(a, 1),
    "full_like row": lambda a: np.full_like(a, a[0]),
    **{f"astype {dtype}": lambda a, dtype=dtype: a.astype(dtype)
       for dtype in ("f8", "i8", "?", str, bytes, "S2", "U9", "M8[s]", "M8", "c16", object)},
    "astype text and back": lambda a: a.astype(str).astype(a.dtype),
    "astype safe": lambda a: a.astype("i1", casting="safe"),
    "astype order": lambda a: np.isfortran(np.asarray(a.astype("f8", order="F"))),
    "astype order C": lambda a: np.asarray(a.T.astype("f8", order="C")).flags.c_contiguous,
    "copy order": lambda a: np.isfortran(np.asarray(a.copy("F"))),
    "isnat": np.isnat,
    "isnan": np.isnan,
    "isfinite": np.isfinite,
    "isin numbers": lambda a: np.isin(a, [1, 2, 3]),
    "isin none": lambda a: np.isin(a, []),
    "isin dates": lambda a: np.isin(a, np.array([1, 2], "M8[ns]")),
    "isin other": lambda a: np.isin(a, [1, 2], invert=True),
    "isin texts": lambda a: np.isin(a, ["1", "2"]),
    "isin one": lambda a: np.isin(a, 1),
    "real": np.real,
    "imag": np.imag,
    "round": lambda a: np.round(a, 1),
    "clip": lambda a: np.clip(a, 0, 3),
    "logical_not": np.logical_not,
    "invert": np.invert,
    "negative": np.negative,
    "square": lambda a: a**2,
    "to the power of -1": lambda a: (a + np.ones((), a.dtype)) ** -1,
    "mean of durations": lambda a: np.mean((a * 3).astype("m8[h]"), axis=0),
    "mean of durations that are there": lambda a: np.nanmean((a * 3).astype("m8[h]"), axis=0),
    # Products. Those of small integers and booleans have their type.
    **{f"einsum {labels} with {dtype}": lambda a, labels=labels, dtype=dtype: np.einsum(
           labels, np.nan_to_num(a), np.arange(4 if a.ndim and a.shape[-1] == 4 else a.shape[-1]).astype(dtype))
       for labels in ("...i,i->...", "...i,i->...i", "...i,j->...", "...i,j->...ij", "...i,i->i...")
       for dtype in ("i1", "?", "f4")},
    "einsum with a number": lambda a: np.einsum("..., ijk->...", np.nan_to_num(a), np.ones((2, 3, 2), "i1")),
    "einsum of a broadcast": lambda a: np.einsum("...i,i->...", np.nan_to_num(a), np.ones(1, "i2")),
    "einsum with itself": lambda a: np.einsum("i...,i...->...", np.nan_to_num(a), np.nan_to_num(a)),
    "einsum of three": lambda a: np.einsum(
        "...i,...i,i->...", np.nan_to_num(a), a == a, np.arange(a.shape[-1], dtype="i1")),
    "einsum as a matrix": lambda a: np.einsum("ij,jk->ik", np.nan_to_num(a), np.nan_to_num(a)[:, :2]),
    "einsum turned": lambda a: np.einsum("ij->ji", a),
    "einsum of a diagonal": lambda a: np.einsum("ii->i", a[:, : len(a)] if a.ndim else a),
    "einsum of nothing": lambda a: np.einsum("ij->k", a),
    # In place.
    "in place add number": lambda a: operator.iadd(a.copy(), 1),
    "in place add fraction": lambda a: operator.iadd(a.copy(), 1.5),
    "in place add array": lambda a: operator.iadd(a.copy(), np.ones(a.shape, "f8")),
    "in place add larger": lambda a: operator.iadd(a.copy(), np.ones((2, *a.shape), a.dtype)),
    "in place add itself": lambda a: operator.iadd(a.copy(), a),
    "in place divide": lambda a: operator.itruediv(a.copy(), 2),
    "in place power": lambda a: operator.ipow(a.copy(), 2),
    "in place root": lambda a: operator.ipow(a.copy(), 0.5),
    "in place remainder": lambda a: operator.imod(a.copy(), 2),
    "in place or": lambda a: operator.ior(a.copy(), 1),
    "in place add complex": lambda a: operator.iadd(a.copy(), 1j),
    "in place product": lambda a: operator.imatmul(a.copy(), np.ones((4, 4), "f4")),
}  # fmt: skip


def random_part(choose: random.Random, length: int) -> Any:
    """Return an index of one dimension: mostly one that fits."""
    number = choose.randint(-length - 1, length) if choose.random() < 0.1 else choose.randint(-length, length - 1)
    kind = choose.choice(["int", "int", "slice", "slice", "slice", "list", "array", "mask", "table", "odd"])
    if kind == "int":
        return choose.choice([number, np.int16(number), np.array(number)])
    if kind == "slice":
        bounds = [choose.choice([None, choose.randint(-length - 2, length + 2)]) for _ in range(2)]
        return slice(*bounds, choose.choice([None, None, 1, 2, -1, -2, 7]))
    if kind == "list":
        return [choose.randint(-length, length - 1) for _ in range(choose.choice([0, 1, 2, 2, 3]))]
    if kind == "array":
        return np.array([choose.randint(0, length - 1) for _ in range(2)], choose.choice(["u1", "i4", "i8"]))
    if kind == "mask":
        mask = [choose.random() < 0.5 for _ in range(length)]
        return mask if choose.random() < 0.5 else np.array(mask)
    if kind == "table":
        return np.array([[choose.randint(-length, length - 1) for _ in range(2)] for _ in range(choose.choice([1, 2]))])
    return choose.choice(
        [
            True,
            False,
            np.True_,
            np.array(False),
            1.0,
            [0.5],
            "x",
            slice(None, None, 0),
            slice(0.0, 2),
            [True],
            99,
            [[99]],
        ]
    )


def random_key(choose: random.Random, shape: tuple[int, ...]) -> Any:
    """Return a key for an array: mostly one that fits."""
    if choose.random() < 0.05:
        return np.array([choose.random() < 0.5 for _ in range(int(np.prod(shape)))]).reshape(shape)
    count = min(choose.randint(0, len(shape)), choose.randint(0, len(shape) + 1))
    parts = [random_part(choose, max(length, 1)) for length in (*shape, 3)[:count]]
    if choose.random() < 0.05:
        parts.append(0)
    for extra in (None, None, Ellipsis, Ellipsis):
        if choose.random() < 0.25 and (
            extra is None or Ellipsis not in [p for p in parts if p is Ellipsis] or choose.random() < 0.1
        ):
            parts.insert(choose.randint(0, len(parts)), extra)
    return parts[0] if len(parts) == 1 and choose.random() < 0.5 else tuple(parts)


BEFORE: dict[str, Callable[[Any], Any]] = {
    "itself": lambda a: a,
    "expression": lambda a: a == a,
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1] if a.ndim else a,
    "text": lambda a: a.astype("U40"),
}
"""What is indexed: made of an array."""


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_indexing(path: Path, shape: tuple[int, ...]) -> None:
    choose = random.Random(str(shape))
    ds = insitu.open_dataset(path)
    for number in range(150):
        dtype, before = TYPES[number % len(TYPES)], choose.choice([*BEFORE])
        values = make_values(dtype, shape)
        key = random_key(choose, BEFORE[before](values).shape)
        assert_as_numpy(
            lambda a, key=key, make=BEFORE[before]: make(a)[key], virtual(ds, dtype, shape), values, f"{before} {key!r}"
        )


def test_indexing_stays_virtual(path: Path) -> None:
    array = virtual(insitu.open_dataset(path), "f4", (4, 4, 4))
    lazy = array[1, 1, 1].astype("i8")
    for key in [
        np.s_[0, :, [0, 1]], np.s_[[0, 1], :, [1, 2]], np.s_[:, [[0, 1], [2, 3]]], True, False, np.s_[..., None, [0]],
        np.s_[lazy * 0 + 1], np.s_[array[0, 0] == array[0, 0]],
    ]:  # fmt: skip
        found = array[key]
        assert isinstance(found, LazyArray)
        np.testing.assert_array_equal(
            found, make_values("f4", (4, 4, 4))[np.asarray(key) if isinstance(key, LazyArray) else key]
        )


def test_xarrays_own_ways_of_indexing(path: Path) -> None:
    array, values = virtual(insitu.open_dataset(path), "i2", (4, 4)), make_values("i2", (4, 4))
    np.testing.assert_array_equal(array.oindex[[0, 1], [1, 2]], values[np.ix_([0, 1], [1, 2])])
    np.testing.assert_array_equal(array.vindex[np.array([0, 1]), np.array([1, 2])], values[[0, 1], [1, 2]])
    with pytest.raises(IndexError, match="too many indices: 3 for an array of 2 dimensions"):
        array.oindex[0, 0, 0]
    array.oindex[[0, 1], [1, 2]] = 7
    array.vindex[np.array([2, 3]), np.array([0, 1])] = np.array([8, 8])
    values[np.ix_([0, 1], [1, 2])] = 7
    values[[2, 3], [0, 1]] = 8
    np.testing.assert_array_equal(array, values)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("f4", shape) for shape in SHAPES] + [(dtype, shape) for dtype in TYPES[1:] for shape in ((4, 4), (), (0, 3))],
    ids=str,
)
def test_functions(path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    ds = insitu.open_dataset(path)
    wrong = []
    for name, call in CALLS.items():
        try:
            assert_as_numpy(call, virtual(ds, dtype, shape), make_values(dtype, shape), name)
        except AssertionError as problem:
            wrong.append(f"{name}: {str(problem).strip().splitlines()[0]}")
    assert not wrong, "\n".join(wrong)


def test_integers_are_multiplied_exactly() -> None:
    values = np.random.default_rng(2).integers(-(2**62), 2**62, (40, 6))
    array = LazyArray(VirtualArray.from_values(values))
    for weights in (np.arange(6), np.arange(6, dtype="i1")):
        assert_as_numpy(lambda a: np.einsum("ti,i->t", a, weights), array, values)  # noqa: B023


def some_value(array: xr.DataArray) -> Any:
    return np.datetime64("2000", "ns") if array.dtype.kind == "M" else array.dtype.type(1)


EDGES: dict[str, Callable[[xr.DataArray], xr.DataArray]] = {
    "shift": lambda d: d.shift(x=1),
    "shift far": lambda d: d.shift(x=99),
    "shift far back": lambda d: d.shift(x=-99),
    "shift far, a value": lambda d: d.shift(x=99, fill_value=some_value(d)),
    "shift of an expression": lambda d: (d == d).shift(x=99),
    "shift of an expression, a value": lambda d: (d == d).shift(x=-99, fill_value=False),
    "empty: shift": lambda d: d[:0].shift(x=1),
    "empty: shift, a value": lambda d: d[:0].shift(x=1, fill_value=some_value(d)),
    "empty: shift of an expression": lambda d: (d[:0] == d[:0]).shift(x=1, fill_value=False),
    "empty: pad": lambda d: d[:0].pad(x=1),
    "empty: pad, a value": lambda d: d[:0].pad(x=(1, 2), constant_values=some_value(d)),
    "empty: pad of an expression": lambda d: (d[:0] == d[:0]).pad(x=1),
    "empty: reindex": lambda d: d[:0].assign_coords(x=[]).reindex(x=[1, 2]),
    "empty: rolling": lambda d: d[:0].rolling(x=2).max(),
    "empty: rolling, count": lambda d: d[:0].rolling(x=2, min_periods=1).count(),
    "empty: construct": lambda d: d[:0].rolling(x=2).construct("w"),
    "empty: concat": lambda d: xr.concat([d[:0], d], "x"),
    "empty: diff": lambda d: d[:0].diff("x"),
    "empty: where": lambda d: d[:0].where(d[:0] == d[:0]),
    "empty: max of no rows": lambda d: d[:0].max("x"),
    "isin": lambda d: d.isin([1, 2]),
    "pad, odd": lambda d: d.pad(x=2, mode="reflect", reflect_type="odd"),
    "pad, symmetric and odd": lambda d: d.pad(x=2, mode="symmetric", reflect_type="odd"),
    "as a dictionary": lambda d: xr.DataArray.from_dict(d.to_dict(data="array")),
    "where, larger": lambda d: d.where(d == d, d.expand_dims(new=2)),
    "zeros": xr.zeros_like,
}


@pytest.mark.parametrize("dtype", TYPES)
def test_edges_of_xarrays_operations(path: Path, dtype: str) -> None:
    wrong = []
    with xr.set_options(use_bottleneck=False, use_numbagg=False):
        for name, operation in EDGES.items():
            found = xr.DataArray(virtual(insitu.open_dataset(path), dtype, (4, 4)), dims=("x", "y"))
            try:
                assert_as_numpy(operation, found, found.copy(data=make_values(dtype, (4, 4))), name)
            except AssertionError as problem:
                wrong.append(f"{name}: {str(problem).strip().splitlines()[0]}")
    assert not wrong, "\n".join(wrong)
