"""Opening gives what xarray gives: by our functions, the engine, trees, Dask, and written again.

Modules: lazy_array/representation.py, xarray_bridge/accessor.py, xarray_bridge/write_in_pieces.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr
from xarray.backends import plugins

from insitu.errors import UnsupportedError
from insitu.lazy_array.load_values import TooLargeError
from insitu.sources import trace
from insitu.xarray_bridge import LazyArray, open_dataset, open_datatree, options
from insitu.xarray_bridge.engine import InsituBackendEntrypoint


def expected(path: Path, **decode: Any) -> xr.Dataset:
    with xr.open_dataset(path, engine="netcdf4", **decode) as ds:
        return ds.load()


DECODING: list[dict[str, Any]] = [
    {},
    {"decode_cf": False},
    {"mask_and_scale": False},
    {"decode_times": False},
    {"decode_coords": False},
    {"decode_coords": "all"},
    {"concat_characters": False},
    {"drop_variables": ["tas", "lat"]},
    {"decode_times": xr.coders.CFDatetimeCoder(use_cftime=True)},
    {"decode_times": xr.coders.CFDatetimeCoder(time_unit="s")},
    {"mask_and_scale": {"packed": False}, "decode_times": {"time": True}},
]


@pytest.mark.parametrize("decode", DECODING, ids=range(len(DECODING)))
def test_the_same_as_xarray(varied: Path, decode: dict[str, Any]) -> None:
    ds = open_dataset(varied, **decode)
    wanted = expected(varied, **decode)
    assert set(ds.indexes) == set(wanted.indexes)
    for name, variable in wanted.variables.items():
        assert ds[name].dtype == variable.dtype, name
    xr.testing.assert_identical(ds.load(), wanted)


def test_encoding_is_kept(varied: Path) -> None:
    ds, wanted = open_dataset(varied), expected(varied)
    assert ds.encoding == wanted.encoding
    for name, variable in wanted.variables.items():
        actual = ds[name].encoding
        for key, value in variable.encoding.items():
            if key in ("dtype", "char_dim_name") and variable.dtype.kind in "SUO":
                continue
            assert repr(actual.get(key)) == repr(value), (name, key)


def test_one_variable(varied: Path) -> None:
    ds = open_dataset(varied, variables="tas")
    assert set(ds.variables) == {"tas", "time", "lat", "lon", "height", "scalar"}


class TestEngine:
    def test_ordinary_lazy_arrays(self, varied: Path) -> None:
        ds = xr.open_dataset(varied, engine=InsituBackendEntrypoint)
        assert not isinstance(ds.tas.variable._data, LazyArray)
        assert not ds.tas._in_memory
        xr.testing.assert_identical(
            ds.isel(time=[1, 3], lat=slice(None, None, 2)).load(),
            expected(varied).isel(time=[1, 3], lat=slice(None, None, 2)),
        )
        xr.testing.assert_identical(ds.load(), expected(varied))

    def test_dask(self, varied: Path) -> None:
        dask_array = pytest.importorskip("dask.array")
        ds = xr.open_dataset(varied, engine=InsituBackendEntrypoint, chunks={})
        assert isinstance(ds.tas.data, dask_array.Array)
        assert ds.tas.chunks == ((3, 3, 3, 1), (4, 2), (5, 3))
        xr.testing.assert_identical(ds.load(), expected(varied))

    def test_options(self, varied: Path) -> None:
        ds = xr.open_dataset(varied, engine=InsituBackendEntrypoint, decode_times=False, drop_variables="packed")
        xr.testing.assert_identical(ds.load(), expected(varied, decode_times=False, drop_variables="packed"))

    def test_guess(self, varied: Path, tmp_path: Path) -> None:
        other = tmp_path / "other.nc"
        other.write_bytes(b"no HDF5")
        engine = InsituBackendEntrypoint()
        # What other engines open, they open as before: insitu is asked for by name.
        assert not engine.guess_can_open(varied)
        assert not engine.guess_can_open(other)
        assert not engine.guess_can_open(str(tmp_path / "absent.nc"))
        assert not engine.guess_can_open(3)

    def test_entry_point_if_installed(self, varied: Path) -> None:
        if "insitu" not in plugins.list_engines():
            pytest.skip("the package is not installed")
        xr.testing.assert_identical(xr.open_dataset(varied, engine="insitu").load(), expected(varied))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 3)
        file.createVariable("x", "f8", ("x",))[:] = [1, 2, 3]
        file.title = "root"
        group = file.createGroup("a")
        group.createVariable("v", "i4", ("x",))[:] = [4, 5, 6]
        deeper = group.createGroup("b")
        deeper.createDimension("y", 2)
        deeper.createVariable("w", "f4", ("y", "x"), fill_value=0.0)[:] = np.arange(6).reshape(2, 3)
        deeper.note = "deep"
    return path


def test_tree(tree: Path) -> None:
    actual = open_datatree(tree)
    with xr.open_datatree(tree, engine="netcdf4") as expected:
        xr.testing.assert_identical(actual.load(), expected.load())


def test_groups_that_make_no_tree(tmp_path: Path) -> None:
    """An image and its overview: xarray wants the labels of a group to be those of its parents."""
    path = tmp_path / "image.nc"
    with netCDF4.Dataset(path, "w") as file:
        for group, length in ((file, 4), (file.createGroup("overview"), 2)):
            group.createDimension("x", length)
            group.createVariable("x", "f8", ("x",))[:] = np.arange(length)
            group.createVariable("v", "i4", ("x",))[:] = np.arange(length)
    with pytest.raises(UnsupportedError, match="open_groups"):
        open_datatree(path)
    found = xr.open_groups(path, engine=InsituBackendEntrypoint)
    assert found["/overview"].sizes == {"x": 2}


def test_group(tree: Path) -> None:
    for group in ("a", "a/b", "/a/b"):
        xr.testing.assert_identical(open_dataset(tree, group=group).load(), expected(tree, group=group))


class TestWriting:
    def test_netcdf(self, varied: Path, tmp_path: Path) -> None:
        ds = open_dataset(varied)
        ds.to_netcdf(tmp_path / "copy.nc", engine="netcdf4")
        xr.testing.assert_identical(expected(tmp_path / "copy.nc"), expected(varied))

    def test_zarr(self, varied: Path, tmp_path: Path) -> None:
        pytest.importorskip("zarr")
        ds = open_dataset(varied)[["tas", "packed", "number", "height"]].drop_encoding()
        ds.to_zarr(tmp_path / "copy.zarr", zarr_format=2, consolidated=False)
        copy = xr.open_dataset(tmp_path / "copy.zarr", engine="zarr", consolidated=False).load()
        xr.testing.assert_equal(copy, ds.load())

    def test_memory_is_bounded(self, varied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import insitu.expressions.evaluate as values

        largest = []
        original = values.read_arrays

        def watched(requests: Any, **how: Any) -> Any:
            found = original(requests, **how)
            largest.append(max(part.nbytes for part in found))
            return found

        monkeypatch.setattr(values, "read_arrays", watched)
        monkeypatch.setattr(options, "block_bytes", 256)
        ds = open_dataset(varied)[["tas", "packed"]]
        ds.to_netcdf(tmp_path / "copy.nc", engine="netcdf4")
        monkeypatch.undo()
        assert max(largest) < ds.packed.nbytes
        xr.testing.assert_identical(expected(tmp_path / "copy.nc"), expected(varied)[["tas", "packed"]])


class TestReadLimit:
    def test_above_it_what_does_not_stream_is_dask(self, varied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        dask_array = pytest.importorskip("dask.array")
        loaded = open_dataset(varied).load()
        monkeypatch.setattr(options, "read_limit", 100)
        tas = open_dataset(varied).tas
        result = (tas * 2 + 1).cumsum("time")
        assert isinstance(result.data, dask_array.Array)
        xr.testing.assert_allclose(result.load(), (loaded.tas * 2 + 1).cumsum("time"))
        assert isinstance(tas.mean("time").data, np.ndarray)

    def test_without_dask_an_error_says_what_to_do(self, varied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import insitu.lazy_array.load_values as values

        monkeypatch.setattr(options, "read_limit", 100)
        monkeypatch.setattr(values, "find_spec", lambda name: None)
        with pytest.raises(TooLargeError, match="read_limit"):
            open_dataset(varied).tas.cumsum("time")


def test_ds_chunk_gives_dask(varied: Path) -> None:
    dask_array = pytest.importorskip("dask.array")
    ds = open_dataset(varied)[["tas", "packed"]].chunk(time=5)
    assert isinstance(ds.tas.data, dask_array.Array)
    xr.testing.assert_identical(ds.load(), expected(varied)[["tas", "packed"]])


class TestShowing:
    def test_text(self, varied: Path) -> None:
        ds = open_dataset(varied)
        assert "virtual" in repr(ds)
        assert "stored" in repr(ds.tas)
        assert "isnull(tas)" in repr(ds.tas.isnull())
        assert "virtual" in ds._repr_html_()
        assert "<svg" in ds.tas._repr_html_()
        assert "in 1 file" in repr(ds.insitu)

    def test_a_look_reads_nothing(self, varied: Path, tmp_path: Path) -> None:
        """Tables that are paged in, or computed, are not counted for it."""
        ds = open_dataset(varied)[["tas", "packed"]]
        ds.insitu.save(tmp_path / "refs.insitu")
        ds.load().drop_encoding().to_zarr(tmp_path / "copy.zarr", zarr_format=2, consolidated=False)
        for name in ("refs.insitu", "copy.zarr"):
            found = open_dataset(tmp_path / name)
            with trace() as cost:
                shown = repr(found) + repr(found.tas) + found._repr_html_() + found.tas._repr_html_()
            assert cost.bytes == 0
            assert "virtual" in shown
            assert "object" in shown or "file" in shown

    def test_what_is_behind(self, varied: Path) -> None:
        ds = open_dataset(varied)
        assert ds.insitu.sources == [str(varied)]
        assert ds.insitu.nbytes_stored > 0
        assert ds.insitu.nbytes_virtual == sum(ds[name].nbytes for name in ds.insitu.virtual)
        found = ds.insitu.references("tas")["tas"]
        assert len(found["offset"]) == 16
        assert ds.insitu.group().arrays["tas"].dims == ("time", "lat", "lon")
        with pytest.raises(ValueError, match="open_mfdataset"):
            ds.insitu.report()

    def test_statistics_in_one_pass(self, varied: Path) -> None:
        ds, loaded = open_dataset(varied), open_dataset(varied).load()
        found = ds[["tas", "number"]].insitu.stats(["mean", "max", "count"], dim="time")
        xr.testing.assert_allclose(found.tas_mean, loaded.tas.mean("time"))
        xr.testing.assert_allclose(found.number_max, loaded.number.max("time"))
