"""Formulas compared with xarray, which computes the same text as Python does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

from insitu.errors import ModelError
from insitu.expressions.build_formula import NamedExpression, build_formula, python_of_formula
from insitu.expressions.evaluate import read_all
from insitu.expressions.nodes import Constant
from insitu.expressions.parse_formula import parse_formula

RANDOM = np.random.default_rng(8)


def _gaps(shape: tuple[int, ...]) -> Any:
    values = RANDOM.normal(280, 10, shape).astype("f4")
    return np.where(RANDOM.random(shape) < 0.1, np.float32("nan"), values)


DATA = {
    "tas": xr.DataArray(_gaps((3, 4, 5)), dims=("time", "lat", "lon")),
    "pr": xr.DataArray(RANDOM.random((5, 4, 3)), dims=("lon", "lat", "time")),
    "count": xr.DataArray(RANDOM.integers(-9, 9, (4, 5), dtype="i2"), dims=("lat", "lon")),
    "lat": xr.DataArray(np.linspace(-60, 60, 4), dims="lat"),
    "level": xr.DataArray(np.array([1000.0, 500.0], "f4"), dims="level"),
    "day": xr.DataArray(np.array(["2001-01-01", "2001-01-05", "NaT"], "M8[ns]"), dims="time"),
    "one": xr.DataArray(np.float32(2)),
}
FUNCTIONS = {
    name: getattr(np, name)
    for name in ("sqrt", "hypot", "arctan2", "cos", "radians", "exp", "log10", "fmin", "sign", "floor")
} | {"abs": np.abs, "min": np.minimum, "max": np.maximum, "where": xr.where, "round": np.round, "pi": np.pi,
     "nan": np.nan, "fillna": lambda of, value: of.fillna(value), "isnull": lambda of: of.isnull(),
     "clip": lambda of, low, high: of.clip(low, high)}  # fmt: skip

TEXTS = [
    "tas - 273.15",
    "tas",
    "-tas ** 2 ** -1 / 3 - 1",
    "2 * 3 + 4 - tas % 7 // 2",
    "tas - pr",
    "pr - tas",
    "level + lat * tas",
    "(tas > 280) & (pr < 0.5) | ~(count >= 0)",
    "tas + 1 > pr * 300",
    "count * 2",
    "count / 2",
    "count == 3",
    "count != lat",
    "sqrt(tas ** 2 + pr ** 2) - hypot(tas, pr)",
    "where(count > 0, tas, nan)",
    "where(tas > 280, 1, 0)",
    "fillna(tas, 0) + isnull(tas)",
    "clip(tas, 270, 285)",
    "cos(radians(lat)) * tas",
    "arctan2(tas, lat) * 180 / pi",
    "day - day",
    "day > day",
    "one * one + one",
    "min(tas, 280) - max(count, 0) + abs(count)",
    "round(tas, 1)",
    "+tas - -tas",
]


def _find(name: str) -> NamedExpression | None:
    found = DATA.get(name)
    return None if found is None else NamedExpression(tuple(map(str, found.dims)), Constant(found.values))


def _build(text: str) -> NamedExpression:
    with np.errstate(all="ignore"):
        return build_formula(parse_formula(text), _find)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
def test_a_formula_is_what_xarray_computes(text: str) -> None:
    expected = eval(text, {**FUNCTIONS, **DATA})  # the same text, computed by xarray
    found = _build(text)
    assert found.dims == expected.dims
    for _ in range(2):
        (values,) = read_all([found.expression])
        assert values.dtype == expected.dtype
        np.testing.assert_array_equal(values, expected.values)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
def test_the_python_code_of_a_formula(text: str) -> None:
    code = python_of_formula(
        parse_formula(text), lambda name: f"ds[{name!r}]" if name in DATA else {"nan": "np.nan", "pi": "np.pi"}[name]
    )
    found = eval(code, {"ds": DATA, "np": np, "xr": xr})
    xr.testing.assert_identical(found, eval(text, {**FUNCTIONS, **DATA}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 + 2", "no variable in it"),
        ("tas + snow", "no variable 'snow' \\(character 7"),
        ("day * 2", "at character 5"),
        ("count * 9000000000000000000", "multiply, at character 7"),
        ("tas + 1 / 0", "no finite number"),
        ("tas + 10 ** 400", "no finite number"),
        ("9000000000000000000 * 9 + tas", "no finite number"),
        ("~tas", "invert, at character 1"),
        ("isnull(3)", "done to a variable"),
    ],
)
def test_what_cannot_be_computed(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        _build(text)


def test_variables_of_different_lengths_are_refused_by_name() -> None:
    short = NamedExpression(("time",), Constant(np.zeros(7)))
    with pytest.raises(ModelError, match="'time' has the lengths 3 and 7"):
        build_formula(parse_formula("tas - short"), lambda name: short if name == "short" else _find(name))


def test_a_dimension_twice_is_refused() -> None:
    square = NamedExpression(("n", "n"), Constant(np.zeros((2, 2))))
    with pytest.raises(ModelError, match="'square' has a dimension twice"):
        build_formula(parse_formula("square + 1"), lambda name: square)


def test_a_variable_goes_before_a_number_of_the_same_name() -> None:
    here = NamedExpression((), Constant(np.float64(4)[...]))
    (value,) = read_all([build_formula(parse_formula("pi * 2"), lambda name: here).expression])
    assert value == 8
