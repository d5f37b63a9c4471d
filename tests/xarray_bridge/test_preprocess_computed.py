"""A preprocess that computes must not read an archive whole: what it makes of large variables waits
for Dask.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from insitu import trace
from insitu.errors import CombineError
from insitu.formats import InsituWarning
from insitu.lazy_array import LazyArray
from insitu.xarray_bridge import open_many, open_mfdataset

pytest.importorskip("dask.array")
WHAT: dict[str, Callable[[xr.Dataset], xr.Dataset]] = {
    "arithmetic": lambda ds: ds.assign(t=ds.t - 273.15),
    "where": lambda ds: ds.where(ds.t > 0),
    "masked": lambda ds: ds.assign(t=ds.t.where(ds.y > 1)),
    "new": lambda ds: ds.assign(warm=ds.t > 10, twice=ds.t * 2),
    "chunked": lambda ds: ds.chunk(x=2),
}


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(open_many, "COMPUTED_LIMIT", 4 * 100)
    rng = np.random.default_rng(3)
    paths = []
    for number in range(4):
        values = (20 * rng.standard_normal((3, 4, 5))).astype("float32")
        labels = {"time": np.arange(3) + 3 * number, "y": np.arange(4), "x": np.arange(5.0)}
        ds = xr.Dataset({"t": (("time", "y", "x"), values), "k": ("y", np.arange(4))}, labels, {"title": "a"})
        paths.append(str(tmp_path / f"r{number // 2}_{number}.nc"))
        ds.to_netcdf(paths[-1], engine="netcdf4")
    return paths


def open_with_xarray(paths: Any, **options: Any) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with xr.open_mfdataset(paths, engine="netcdf4", **options) as dataset:
            return dataset.load()


@pytest.mark.parametrize("what", WHAT)
def test_by_labels(archive: list[str], what: str) -> None:
    found = open_mfdataset(archive, preprocess=WHAT[what])
    assert not isinstance(found.t.variable._data, np.ndarray)
    xr.testing.assert_identical(found.load(), open_with_xarray(archive, preprocess=WHAT[what]))


@pytest.mark.parametrize("what", ["arithmetic", "where"])
def test_in_lists(archive: list[str], what: str) -> None:
    one: dict[str, Any] = {"combine": "nested", "concat_dim": "time", "preprocess": WHAT[what]}
    xr.testing.assert_identical(open_mfdataset(archive, **one).load(), open_with_xarray(archive, **one))
    square = [archive[:2], archive[2:]]
    two: dict[str, Any] = {
        "combine": "nested",
        "concat_dim": ["run", "time"],
        "preprocess": WHAT[what],
        "join": "outer",
    }
    xr.testing.assert_identical(open_mfdataset(square, **two).load(), open_with_xarray(square, **two))


def test_by_names(archive: list[str]) -> None:
    found = open_mfdataset(archive, concat_dim={"run": r"r(\d)_"}, preprocess=WHAT["arithmetic"], join="outer")
    plain = open_mfdataset(archive, concat_dim={"run": r"r(\d)_"}, join="outer")
    assert isinstance(found.t.variable._data, LazyArray)
    xr.testing.assert_equal(found.load(), plain.assign(t=plain.t - 273.15).load())


def test_a_file_that_cannot_be_taken(archive: list[str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.nc"
    bad.write_bytes(b"no file of any format")
    with pytest.warns(InsituWarning, match="left out.*bad.nc"):
        found = open_mfdataset([*archive, str(bad)], preprocess=WHAT["arithmetic"], errors="warn")
    xr.testing.assert_identical(found.load(), open_with_xarray(archive, preprocess=WHAT["arithmetic"]))
    assert list(found.insitu.report().left_out) == [str(bad)]
    square = [archive[:2], [archive[2], str(bad)]]
    with pytest.raises(CombineError, match=r"no file at position \(1, 1\)"):
        open_mfdataset(
            square, combine="nested", concat_dim=["run", "time"], preprocess=WHAT["arithmetic"], errors="skip"
        )


@pytest.mark.parametrize("what", ["arithmetic", "where", "masked", "new"])
@pytest.mark.parametrize("limit", [100, 1 << 20])
def test_arithmetic_stays_virtual(archive: list[str], monkeypatch: pytest.MonkeyPatch, what: str, limit: int) -> None:
    monkeypatch.setattr(open_many, "COMPUTED_LIMIT", limit)
    with trace() as opening:
        plain = open_mfdataset(archive)
    with trace() as cost:
        found = open_mfdataset(archive, preprocess=WHAT[what])
        assert isinstance(found.t.variable._data, LazyArray)
        assert isinstance((found.t * 2).isel(time=3).variable._data, LazyArray)
    assert cost.bytes <= opening.bytes
    assert found.t.variable._data.context.read_limit is None  # that was for the preprocess
    assert set(found.insitu.sources) == set(plain.insitu.sources)
    xr.testing.assert_identical(found.load(), open_with_xarray(archive, preprocess=WHAT[what]))


def test_formulas_that_differ_from_file_to_file(archive: list[str]) -> None:
    """They do not join to one formula: values, or Dask arrays, as for anything else that is computed."""

    def preprocess(ds: xr.Dataset) -> xr.Dataset:
        return ds.assign(t=ds.t - 273.15 if ds.time[0] > 3 else ds.t * 2)

    xr.testing.assert_identical(
        open_mfdataset(archive, preprocess=preprocess).load(), open_with_xarray(archive, preprocess=preprocess)
    )


def test_little_is_computed_at_once(archive: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_many, "COMPUTED_LIMIT", 1 << 20)
    found = open_mfdataset(archive, preprocess=lambda ds: ds.cumsum("time"))
    assert isinstance(found.t.variable._data, np.ndarray)
    xr.testing.assert_identical(found, open_with_xarray(archive, preprocess=lambda ds: ds.cumsum("time")))
