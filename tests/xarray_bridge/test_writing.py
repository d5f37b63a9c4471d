"""Writing to virtual arrays: what reaches the array that is meant works, what would vanish raises."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.lazy_array import LazyArray
from xarray_bridge.raw_zarr import make_values, name_of, virtual, write


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("numpy") / "a.zarr")


VIEWS: dict[str, Callable[[Any], Any]] = {
    "row": lambda a: a[0],
    "slice": lambda a: a[1:],
    "all": lambda a: a[...],
    "new dimension": lambda a: a[None],
    "transposed": lambda a: a.T,
    "swapped": lambda a: np.swapaxes(a, 0, 1),
    "expanded": lambda a: np.expand_dims(a, 0),
    "squeezed": lambda a: a[:, :1].squeeze(),
    "flipped": lambda a: np.flip(a, 0),
    "broadcast": lambda a: np.broadcast_to(a, (2, *a.shape)),
    "reshaped": lambda a: a.reshape(1, *a.shape),
    "split": lambda a: a.reshape(2, 2, *a.shape[1:]),
    "windows": lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, axis=0),
    "iterated": lambda a: next(iter(a)),
    "real part": lambda a: a.astype("c8").real,
    "imaginary part": lambda a: a.astype("c8").imag,
}
COPIES: dict[str, Callable[[Any], Any]] = {
    "copy of a row": lambda a: a[0].copy(),
    "deep copy": lambda a: copy.deepcopy(a[0]),
    "pickled": lambda a: pickle.loads(pickle.dumps(a[0])),
    "index array": lambda a: a[[0, 1]],
    "mask": lambda a: a[np.arange(4) > 1],
    "points": lambda a: a[[0, 1], :, [1, 2]],
    "taken": lambda a: np.take(a, 0, axis=0),
    "rolled": lambda a: np.roll(a, 1, axis=0),
    "computed": lambda a: a[0] + 1,
    "cast": lambda a: a[0].astype("f8"),
    "same type": lambda a: a[0].astype(a.dtype),
    "padded": lambda a: np.pad(a[0], 1),
    "chosen": lambda a: np.where(np.ones((2, 1, 1, 1), bool), a, 0),
    "joined": lambda a: np.concatenate([a, a]),
}


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("name", [*VIEWS, *COPIES])
def test_what_is_a_view_in_numpy_is_read_only(path: Path, name: str, cache: bool) -> None:
    shape, before = (4, 4, 4), make_values("f4", (4, 4, 4))
    array = insitu.open_dataset(path, cache=cache)[name_of("f4", shape)].variable._data
    for _ in range(2):
        part = (VIEWS | COPIES)[name](array)
        assert isinstance(part, LazyArray)
        if name in VIEWS:
            with pytest.raises(ValueError, match=r"read-only.*\.copy\(\).*np\.asarray"):
                part[...] = 5
            part = part.copy()
        part[...] = 5
        assert (np.asarray(part) == 5).all()
        np.testing.assert_array_equal(array, before)


OUTPUTS: dict[str, Callable[[Any], Any]] = {
    "add": lambda a: np.add(a, 1, out=a),
    "add by place": lambda a: np.add(a, 1, a),
    "add where": lambda a: np.add(a, 1, out=a, where=np.ones(a.shape, bool)),
    "divmod": lambda a: np.divmod(np.ones(a.shape, "f4"), 2, out=(np.empty(a.shape, "f4"), a)),
    "at": lambda a: np.add.at(a, 0, 1),
    "reduce": lambda a: np.add.reduce(a, axis=None, out=a[0, 0, 0]),
    "accumulate": lambda a: np.add.accumulate(a, out=a),
    "sum": lambda a: np.sum(a, axis=0, out=a[0]),
    "sum by place": lambda a: np.sum(a, 0, None, a[0]),
    "clip": lambda a: np.clip(a, 0, 1, out=a),
    "clip by place": lambda a: np.clip(np.asarray(a), 0, 1, a),
    "round": lambda a: a.round(1, out=a),
    "take": lambda a: np.take(a, [0, 1, 2, 3], axis=0, out=a),
    "concatenate": lambda a: np.concatenate([a[:1], a[1:]], out=a),
    "cumsum": lambda a: np.cumsum(a, axis=0, out=a),
    "copyto": lambda a: np.copyto(a, 1),
    "place": lambda a: np.place(a, np.ones(a.shape, bool), [1]),
    "put": lambda a: np.put(a, [0], [1]),
    "putmask": lambda a: np.putmask(a, np.ones(a.shape, bool), 1),
    "put along": lambda a: np.put_along_axis(a, np.zeros((1, 4, 4), int), 1, 0),
    "diagonal": lambda a: np.fill_diagonal(a, 1),
    "median": lambda a: np.median(a, axis=0, out=a[0]),
}


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("name", OUTPUTS)
def test_functions_do_not_write_to_virtual_arrays(path: Path, name: str, cache: bool) -> None:
    array = insitu.open_dataset(path, cache=cache)[name_of("f4", (4, 4, 4))].variable._data
    for _ in range(2):
        with pytest.raises(ValueError, match=r"read-only.*\.copy\(\).*np\.asarray"):
            OUTPUTS[name](array)
        np.testing.assert_array_equal(array, make_values("f4", (4, 4, 4)))


def test_operators_that_assign(path: Path) -> None:
    values = make_values("f4", (3, 4, 5))
    array = alias = virtual(insitu.open_dataset(path))
    array += 1
    array *= np.float32(2)
    array -= alias
    assert isinstance(array, LazyArray)
    np.testing.assert_array_equal(array, (values + 1) * 2 - values)
    np.testing.assert_array_equal(alias, values)
    alias[0] += 5  # reads a row, and writes it
    values[0] += 5
    np.testing.assert_array_equal(alias, values)


CHAINED: dict[str, Callable[[xr.DataArray], None]] = {
    "rows": lambda d: d[0].__setitem__(0, 2),
    "isel": lambda d: d.isel(x=0).__setitem__(0, 2),
    "loc": lambda d: d.loc[0].loc.__setitem__(0, 2),
    "transposed": lambda d: d.T.__setitem__(0, 2),
    "through a dataset": lambda d: d.to_dataset(name="v").isel(x=0)["v"].__setitem__(0, 2),
}
DIRECT: dict[str, Callable[[xr.DataArray], None]] = {
    "rows": lambda d: d.__setitem__(0, 2),
    "dictionary": lambda d: d.__setitem__({"x": 0, "y": [1, 2]}, 5),
    "loc": lambda d: d.loc.__setitem__({"x": 1}, 5),
    "points": lambda d: d.__setitem__({"x": xr.DataArray([0, 1], dims="p"), "y": xr.DataArray([1, 2], dims="p")}, 7),
    "virtual value": lambda d: d.__setitem__(0, d[1]),
    "through a dataset": lambda d: d.to_dataset(name="v")["v"].__setitem__(0, 2),
    "a row in place": lambda d: d.__setitem__(0, operator.iadd(d[0], 2)),
    "mask": lambda d: d.__setitem__({"x": d[:, 0].values > 0}, 9),
}


def data_array(path: Path) -> xr.DataArray:
    return xr.DataArray(
        virtual(insitu.open_dataset(path), "f4", (4, 4)), dims=("x", "y"), coords={"x": range(4), "y": range(4)}
    )


@pytest.mark.parametrize("name", CHAINED)
def test_writes_through_a_selection_raise(path: Path, name: str) -> None:
    found = data_array(path)
    with pytest.raises(ValueError, match=r"read-only.*da\[0, 1\] = value"):
        CHAINED[name](found)
    np.testing.assert_array_equal(found, make_values("f4", (4, 4)))


@pytest.mark.parametrize("name", DIRECT)
def test_writes_to_a_variable(path: Path, name: str) -> None:
    found, expected = data_array(path), data_array(path).load()
    for each in (found, expected):
        DIRECT[name](each)
    assert isinstance(found.variable._data, LazyArray)
    xr.testing.assert_identical(found.compute(), expected)


def test_a_selection_can_be_changed_after_copying_or_loading(path: Path) -> None:
    found = data_array(path)
    for part in (found[0].copy(), found[0].load(), found.isel(x=[0, 1]), found[0] * 1, found[0].where(found[0] > 0)):
        part[{"y": 0}] = 99
        assert (part.isel(y=0) == 99).all()
    np.testing.assert_array_equal(found, make_values("f4", (4, 4)))


def test_in_place_arithmetic_of_xarray_stays_virtual(path: Path) -> None:
    found, values = data_array(path), make_values("f4", (4, 4))
    ds = found.to_dataset(name="v")
    found += 1
    found[0] *= 2
    ds["v"] *= 2
    values = values + 1
    values[0] *= 2
    assert isinstance(ds["v"].variable._data, LazyArray)
    assert isinstance(found.variable._data, LazyArray)
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(ds["v"], make_values("f4", (4, 4)) * 2)


def test_selections_are_encoded_and_written(path: Path, tmp_path: Path) -> None:
    part = data_array(path).isel(x=slice(1, 3)).T.to_dataset(name="v")
    part["v"].encoding = {"dtype": "i2", "scale_factor": 0.5, "add_offset": 3.0, "_FillValue": -9}
    for number, ds in enumerate([part, part.compute()]):
        ds.to_netcdf(tmp_path / f"{number}.nc")
        ds.to_zarr(tmp_path / f"{number}.zarr", consolidated=False)
    xr.testing.assert_identical(xr.load_dataset(tmp_path / "0.nc"), xr.load_dataset(tmp_path / "1.nc"))
    stores = [xr.open_zarr(tmp_path / f"{number}.zarr", consolidated=False).load() for number in range(2)]
    xr.testing.assert_identical(*stores)
