"""Every public attribute of NumPy's arrays: a virtual array has it, with the same result, or an
error explains why not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

import insitu
from insitu.lazy_array.methods import MEMORY_ONLY
from insitu.xarray_bridge import LazyArray

VALUES = np.array([[3, -1, 4, 1], [-5, 9, 2, 6], [5, 3, -5, 8]], "f8")

CALLS: dict[str, Callable[[Any], Any]] = {
    "T": lambda a: a.T,
    "all": lambda a: a.all(axis=0),
    "any": lambda a: a.any(axis=1),
    "argmax": lambda a: a.argmax(axis=1),
    "argmin": lambda a: a.argmin(),
    "argpartition": lambda a: a.argpartition(1, axis=1),
    "argsort": lambda a: a.argsort(axis=0, stable=True),
    "astype": lambda a: a.astype("i4"),
    "byteswap": lambda a: a.byteswap(),
    "choose": lambda a: a[:1, :1].astype("i8").choose([10, 20, 30, 40]),
    "clip": lambda a: a.clip(0, 5),
    "compress": lambda a: a.compress([True, False, True], axis=0),
    "conj": lambda a: a.conj(),
    "conjugate": lambda a: a.conjugate(),
    "copy": lambda a: a.copy(),
    "cumprod": lambda a: a.cumprod(axis=1),
    "cumsum": lambda a: a.cumsum(axis=0),
    "diagonal": lambda a: a.diagonal(1),
    "dot": lambda a: a.dot(np.arange(4.0)),
    "dtype": lambda a: a.dtype,
    "flatten": lambda a: a.flatten("F"),
    "imag": lambda a: a.imag,
    "item": lambda a: a.item(1, 2),
    "itemsize": lambda a: a.itemsize,
    "mT": lambda a: a.mT,
    "max": lambda a: a.max(axis=0, keepdims=True),
    "mean": lambda a: a.mean(axis=1),
    "min": lambda a: a.min(),
    "nbytes": lambda a: a.nbytes,
    "ndim": lambda a: a.ndim,
    "nonzero": lambda a: np.asarray(a.nonzero()),
    "prod": lambda a: a.prod(axis=0),
    "ravel": lambda a: a.ravel(),
    "real": lambda a: a.real,
    "repeat": lambda a: a.repeat(2, axis=1),
    "reshape": lambda a: a.reshape(4, 3),
    "round": lambda a: a.round(1),
    "searchsorted": lambda a: a[0].searchsorted([0, 2]),
    "shape": lambda a: a.shape,
    "size": lambda a: a.size,
    "squeeze": lambda a: a[:, :1].squeeze(axis=1),
    "std": lambda a: a.std(axis=0, ddof=1),
    "sum": lambda a: a.sum(axis=(0, 1)),
    "swapaxes": lambda a: a.swapaxes(0, -1),
    "take": lambda a: a.take([2, 0], axis=0),
    "tobytes": lambda a: a.tobytes(),
    "tolist": lambda a: a.tolist(),
    "trace": lambda a: a.trace(),
    "transpose": lambda a: a.transpose(1, 0),
    "var": lambda a: a.var(axis=1),
}


@pytest.fixture(scope="module")
def array(tmp_path_factory: pytest.TempPathFactory) -> LazyArray:
    path: Path = tmp_path_factory.mktemp("methods") / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("y", 3)
        file.createDimension("x", 4)
        file.createVariable("v", "f8", ("y", "x"), chunksizes=(2, 3))[:] = VALUES
    found: LazyArray = insitu.open_dataset(path).v.variable._data
    assert isinstance(found, LazyArray)
    return found


def test_every_attribute_is_decided_on() -> None:
    public = {name for name in dir(np.ndarray) if not name.startswith("_")}
    assert public == (CALLS.keys() | MEMORY_ONLY) & public
    assert not CALLS.keys() & MEMORY_ONLY


@pytest.mark.parametrize("name", CALLS)
def test_the_result_is_numpys(array: LazyArray, name: str) -> None:
    found, expected = CALLS[name](array), CALLS[name](VALUES)
    if isinstance(expected, (np.ndarray, np.generic)):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(found), expected)
    else:
        assert found == expected


@pytest.mark.parametrize("name", sorted(MEMORY_ONLY))
def test_what_belongs_to_memory_says_so(array: LazyArray, name: str) -> None:
    assert not hasattr(array, name)
    with pytest.raises(AttributeError, match=f"no attribute '{name}'.*memory.*load"):
        getattr(array, name)


def test_unknown_names_are_plainly_unknown(array: LazyArray) -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'levels'$"):
        array.levels  # noqa: B018


@pytest.mark.parametrize(
    "name", ["T", "mT", "real", "conj", "copy", "swapaxes", "take", "repeat", "squeeze", "astype", "round"]
)
def test_what_changes_no_values_stays_virtual(array: LazyArray, name: str) -> None:
    assert isinstance(CALLS[name](array), LazyArray)


def test_iterating(array: LazyArray) -> None:
    rows = list(array)
    assert all(isinstance(row, LazyArray) for row in rows)
    np.testing.assert_array_equal(np.asarray(rows[1]), VALUES[1])
    assert [type(value) for value in array[0]] == [np.float64] * 4
    assert list(array[0]) == VALUES[0].tolist()
    with pytest.raises(TypeError, match="0-d"):
        iter(array[0, 0])
    assert 9.0 in array
    assert 7.0 not in array


def test_numbers(array: LazyArray) -> None:
    assert complex(array[0, 0]) == 3 + 0j
    assert [10, 20, 30, 40][array[0, 3].astype("i8")] == 20
    with pytest.raises(TypeError):
        array[0, 3].__index__()


def test_casting_is_checked(array: LazyArray) -> None:
    with pytest.raises(TypeError, match="Cannot cast"):
        array.astype("i4", casting="safe")
    assert array.astype("c16", "K", "safe").dtype == np.dtype("c16")
