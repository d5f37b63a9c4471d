"""Random steps at NumPy's level that compute, join, order or write values."""

from __future__ import annotations

from random import Random
from typing import Any

from random_programs.dice import axis_text, chance, index_text, number_text, slice_text
from random_programs.numpy_grammar import GRAMMAR, other_operand
from random_programs.programs import Step

__all__: list[str] = []

production = GRAMMAR.production
ELEMENTARY = ("exp", "log", "sin", "cos", "tan", "exp2", "expm1", "arcsinh", "log2", "cbrt", "tanh")
ROUNDED = (
    "sqrt",
    "square",
    "floor",
    "ceil",
    "rint",
    "absolute",
    "negative",
    "isnan",
    "isfinite",
    "isinf",
    "sign",
    "reciprocal",
    "signbit",
    "spacing",
    "logical_not",
    "invert",
    "positive",
    "fabs",
    "isneginf",
    "isreal",
    "conj",
    "real",
    "imag",
    "angle",
    "nan_to_num",
    "trunc",
    "fix",
    "around",
    "isnat",
    "iscomplex",
    "radians",
    "deg2rad",
    "modf",
    "frexp",
)
BINARY = (
    "add",
    "subtract",
    "multiply",
    "divide",
    "floor_divide",
    "remainder",
    "fmod",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "greater",
    "less_equal",
    "equal",
    "not_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "copysign",
    "nextafter",
    "bitwise_and",
    "left_shift",
    "divmod",
    "heaviside",
    "ldexp",
    "gcd",
)
OPERATORS = ("+", "-", "*", "/", "//", "%", "<", ">=", "==", "!=", "&", "|", "^", "<<", "@")


@production(5)
def _elements(dice: Random, x: Any, names: Any) -> Step | None:
    axis = axis_text(dice, x.ndim, several=False)
    length = x.shape[int(axis)] if x.ndim and -x.ndim <= int(axis) < x.ndim else 3
    index = index_text(dice, length)
    if index.startswith("slice"):
        index = "[0]"
    several = axis_text(dice, x.ndim)
    shift = dice.choice((str(dice.randint(-5, 5)), "(1, 2)"))
    pads = [(dice.randint(0, 3), dice.randint(0, 3)) for _ in x.shape]
    mode = dice.choice(("constant", "edge", "wrap", "reflect", "symmetric", "maximum", "linear_ramp", "mean", "empty_"))
    more = ", reflect_type='odd'" if mode in ("reflect", "symmetric") and chance(dice, 0.3) else ""
    more += f", constant_values={number_text(dice, x.dtype.kind)}" if mode == "constant" and chance(dice, 0.5) else ""
    choices = [
        f"np.take(x, {index}, axis={axis})",
        f"np.take(x, [[0, 1]], axis={axis}, mode='wrap')",
        "np.take(x, [0, -1])",
        f"np.roll(x, {shift}, axis={several})",
        f"np.roll(x, {dice.randint(-30, 30)})",
        f"np.repeat(x, 2, axis={axis})",
        f"np.repeat(x, {dice.choice(([1, 2], 3, [0]))})",
        f"np.delete(x, 0, axis={axis})",
        f"np.diff(x, axis={axis})",
        f"np.diff(x, n={dice.randint(0, 3)}, axis={axis})",
        f"np.insert(x, 0, 1, axis={axis})",
        f"np.tile(x, {dice.choice((2, (2, 1), (1, 1, 2)))})",
        f"np.pad(x, {pads}, mode={mode!r}{more})",
        f"np.pad(x, 1, mode={mode!r}{more})",
        f"np.compress([True, False], x, axis={axis})",
        f"np.take_along_axis(x, np.zeros({tuple(1 for _ in x.shape)}, int), axis={axis})",
        "np.diagonal(x)",
        "np.trim_zeros(x.ravel())",
        f"np.array_split(x, 2, axis={axis})",
        f"np.split(x, [1], axis={axis})",
        "np.append(x, x)",
        f"np.unstack(x, axis={axis})",
        "np.trace(x)",
        "np.tril(x)",
        "np.extract(x > 1, x)" if x.dtype.kind in "fiu" else "x",
    ]
    text = dice.choice(choices)
    return Step(f"x = {text}", "composed" if "'mean'" in text or "trace" in text else "exact")


@production(5)
def _join(dice: Random, x: Any, names: Any) -> Step | None:
    axis, other = axis_text(dice, x.ndim, several=False), other_operand(dice, x, names["ds"])
    choices = [
        f"np.concatenate([x, x[{slice_text(dice, x.shape[0] if x.ndim else 1)}]], axis={axis})",
        f"np.concatenate([x, {other}], axis={axis})",
        f"np.stack([x, x], axis={axis})",
        f"np.stack([x, {other}], axis={axis})",
        "np.vstack([x, x])",
        "np.hstack([x, x])",
        "np.dstack([x, x])",
        "np.concatenate([x, x], axis=None)",
        f"np.concatenate([x, np.zeros({x.shape}, 'i2')], axis={axis})",
        f"np.append(x, x, axis={axis})",
        "np.column_stack([x, x])",
        f"np.concatenate([x, x], axis={axis}, dtype='f8')",
        "np.block([[x, x]])",
    ]
    return Step(f"x = {dice.choice(choices)}")


@production(8)
def _each(dice: Random, x: Any, names: Any) -> Step | None:
    other = other_operand(dice, x, names["ds"])
    more = f", dtype={dice.choice(('f4', 'f8', 'i4'))!r}" if chance(dice, 0.05) else ""
    low = number_text(dice, x.dtype.kind)
    types = ("f4", "f8", "i4", "bool", "i8", "c8", ">f4", "u1", "f2", "str", "S4", "O", "M8[s]")
    choices = [
        f"np.{dice.choice(ROUNDED)}(x)",
        f"np.{dice.choice(ROUNDED)}(x)",
        f"np.{dice.choice(BINARY)}(x, {other}{more})",
        f"np.{dice.choice(BINARY)}({other}, x{more})",
        f"x {dice.choice(OPERATORS)} {other}",
        f"{other} {dice.choice(OPERATORS)} x",
        f"np.where(x > {low}, x, {other})" if x.dtype.kind in "fiub" else "np.where(x == x, x, x)",
        f"np.where(True, x, {other})",
        f"np.where(np.ones({x.shape[-1:]}, bool), x, {other})",
        f"np.clip(x, {low}, 300)",
        f"x.clip(max={low})",
        f"np.clip(x, 0, {other})",
        f"np.round(x, {dice.choice((0, 1, -1))})",
        "x.round()",
        f"x.astype({dice.choice(types)!r})",
        f"np.isin(x, [1, 2.5, {low}])",
        f"x.astype({dice.choice(types)!r}, casting={dice.choice(('safe', 'same_kind', 'unsafe'))!r})",
        "-x",
        "~x",
        "abs(x)",
        "divmod(x, 2)",
        f"np.{dice.choice(('zeros', 'ones'))}_like(x)",
        f"np.full_like(x, {low})",
        "np.copy(x)",
        f"np.nan_to_num(x, nan={low})",
        f"np.isclose(x, {other})",
        "x ** 2",
        "x ** 1",
        "np.zeros_like(x, dtype='i2')",
        "np.zeros_like(x, shape=(2,))",
        f"np.select([x == x], [x], {low})",
        "np.interp(x, [0, 300], [0, 1])",
        "np.digitize(x, [0, 100, 200])",
        "np.heaviside(x, 0.5)",
        f"np.add(x, {low}, where=x == x, out=np.zeros({x.shape}))",
        "np.result_type(x)",
        "np.ndim(x)",
        "np.shape(x)",
        "np.size(x)",
        "np.lib.stride_tricks.sliding_window_view(x, 2, axis=0)",
        "np.unwrap(x)",
        "np.ediff1d(x)",
    ]
    text = dice.choice(choices)
    return Step(
        f"x = {text}", "elementary" if any(word in text for word in ("interp(", "unwrap", "angle")) else "exact"
    )


@production(2)
def _elementary(dice: Random, x: Any, names: Any) -> Step | None:
    other = other_operand(dice, x, names["ds"])
    text = dice.choice(
        (
            f"np.{dice.choice(ELEMENTARY)}(x)",
            f"np.hypot(x, {other})",
            f"np.power(x, {other})",
            f"x ** {other}",
            f"np.arctan2(x, {other})",
            f"np.logaddexp(x, {other})",
            "np.sinc(x)",
            "np.float_power(x, 2)",
        )
    )
    return Step(f"x = {text}", "elementary")


@production(3)
def _along(dice: Random, x: Any, names: Any) -> Step | None:
    axis, several = axis_text(dice, x.ndim, several=False), axis_text(dice, x.ndim)
    exact = [
        f"np.cumsum(x, axis={axis})",
        "np.cumsum(x)",
        f"np.cumprod(x, axis={axis})",
        f"np.nancumsum(x, axis={axis})",
        f"np.sort(x, axis={axis})",
        f"np.argsort(x, axis={axis}, kind='stable')",
        f"x.cumsum({axis})",
        "np.argwhere(x)",
        "np.nonzero(x)",
        "np.unique(x)",
        "np.flatnonzero(x)",
        f"np.partition(x, 0, axis={axis}).shape",
        f"np.gradient(x, axis={axis})",
        "np.packbits(x)",
        "np.array_equal(x, x)",
        "np.allclose(x, x)",
        "np.array_equiv(x, x)",
        "np.searchsorted(np.sort(x.ravel()), [1, 2])",
        "x.item(0)",
        "x.tolist()",
        "len(x)",
        "list(x)",
        "x.nonzero()",
        "x.dtype",
        "x.shape",
        "x.size",
        "x.ndim",
        "x.nbytes",
        "x.itemsize",
        "bool(x)",
        "float(x)",
        "int(x)",
        "x.tobytes()",
        "np.bincount(x.ravel())",
        f"np.apply_along_axis(lambda v: v[::-1], {axis}, x)",
        "next(iter(x))",
        "3 in x",
    ]
    sums = [
        f"np.median(x, axis={several})",
        f"np.nanmedian(x, axis={several})",
        f"np.quantile(x, [0.1, 0.5], axis={several})",
        f"np.percentile(x, 30, axis={several})",
        f"np.nanquantile(x, 0.7, axis={several}, keepdims=True)",
        "np.histogram(x, [0, 100, 300])[0]",
        f"np.quantile(x, 0.5, axis={several}, method='nearest')",
    ]
    is_exact = chance(dice, 0.7)
    return Step(f"x = {dice.choice(exact if is_exact else sums)}", "exact" if is_exact else "selected")


@production(2)
def _products(dice: Random, x: Any, names: Any) -> Step | None:
    if x.dtype.kind not in "fiu" or not x.size:
        return None
    axis = axis_text(dice, x.ndim, several=False)
    letters = "ijk"[: x.ndim]
    left = "".join(letter for letter in letters if chance(dice, 0.5))
    choices = [
        f"np.einsum('{letters},{letters}->{left}', x, x)",
        f"np.einsum('{letters}->{left}', x)",
        "np.dot(x, x.T)",
        "np.matmul(x, x.T)",
        "np.vdot(x, x)",
        "np.inner(x, x)",
        f"np.tensordot(x, x, axes={x.ndim})",
        f"np.average(x, axis={axis}, weights=np.arange(len(x)))",
        "np.outer(x, x[0])",
        "np.kron(x, [1, 2])",
        f"np.linalg.norm(x, axis={axis})",
        f"np.trapezoid(x, axis={axis})",
        "np.cov(x)",
        "np.linalg.vecdot(x, x)",
        f"np.prod(x[:1], axis={axis})",
    ]
    return Step(f"x = {dice.choice(choices)}", "composed", 2)


@production(2)
def _in_place(dice: Random, x: Any, names: Any) -> Step | None:
    if not x.ndim or x.dtype.kind not in "fiub":
        return None
    sign, low = dice.choice(("+=", "*=", "-=", "/=", "//=")), number_text(dice, x.dtype.kind)
    key = index_text(dice, x.shape[0])
    choices = [
        f"x {sign} {low}",
        f"x {sign} x[0]",
        f"x {sign} np.ones({x.shape[-1:]}, 'f4')",
        f"x[{key}] = {low}",
        f"x[...] = {low}",
        f"x[x > 1] = {low}",
        "x[0] = x[-1]",
        f"x[..., 0] = {low}",
        f"x {sign} np.ones({(2, *x.shape)})",
    ]
    return Step(f"x = x.copy(); {dice.choice(choices)}")
