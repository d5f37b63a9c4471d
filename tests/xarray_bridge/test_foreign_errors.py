"""Errors of other libraries become errors of insitu that name the file, or do not occur."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.errors import CodecError, FormatError, UnsupportedError
from insitu.formats import InsituWarning
from insitu.xarray_bridge.engine import XARRAY_INDEXES


def test_opaque_values_with_an_opaque_fill_value(tmp_path: Path) -> None:
    values = np.array([b"abc", b"def"], "V3")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["opaque"] = values
        file["opaque"].attrs["_FillValue"] = np.void(b"abc")
        file["record"] = np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")])
        file["record"].attrs["_FillValue"] = np.array((1, 2.0), file["record"].dtype)
        file["record"].attrs["scale_factor"] = 2.0
        file["n"] = np.arange(3)
    ds = insitu.open_dataset(tmp_path / "a.h5").load()
    assert ds.opaque.values.tobytes() == values.tobytes()
    assert ds.record.values.tolist() == [(1, 2.0)]
    assert ds.n.values.tolist() == [0, 1, 2]


@pytest.mark.parametrize("key", ["_FillValue", "missing_value"])
def test_numbers_with_an_opaque_fill_value(tmp_path: Path, key: str) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["n"] = np.arange(3)
        file["n"].attrs[key] = np.void(b"abc")
    with pytest.raises(FormatError, match=key):
        insitu.open_dataset(tmp_path / "a.h5")
    assert insitu.open_dataset(tmp_path / "a.h5", mask_and_scale=False).n.values.tolist() == [0, 1, 2]


def test_texts_with_a_scale(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("s", data=np.array(["a", "b"], object), dtype=h5py.string_dtype())
        file["s"].attrs["scale_factor"] = 2.0
        file["s"].attrs["_FillValue"] = 3.0
    with pytest.raises(CodecError, match="mask_and_scale=False"):
        insitu.open_dataset(tmp_path / "a.h5").load()


class TestScaleOfAnotherLength:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["x"] = np.arange(5.0)
            file["x"].make_scale("x")
            file.create_dataset("short", data=np.arange(3.0) + 1, fillvalue=-7.0)
            file.create_dataset("chunked", data=np.arange(3.0) + 1, chunks=(2,), fillvalue=-7.0)
            file["right"] = np.arange(5.0)
            for name in ("short", "chunked", "right"):
                file[name].dims[0].attach_scale(file["x"])
        return tmp_path / "a.h5"

    def test_what_is_too_short_is_filled_up(self, path: Path) -> None:
        found = insitu.open_dataset(path).load()
        with xr.open_dataset(path, engine="h5netcdf") as expected:
            xr.testing.assert_identical(found, expected.load())
        assert found.short.values.tolist() == [1, 2, 3, -7, -7]
        assert float(insitu.open_dataset(path).short.sum()) == -8

    def test_what_is_too_long_is_cut(self, path: Path) -> None:
        with h5py.File(path, "a") as file:
            del file["short"], file["chunked"]
            file["long"] = np.arange(14.0).reshape(7, 2)
            file["y"] = np.arange(2.0)
            file["y"].make_scale("y")
            for axis, scale in enumerate("xy"):
                file["long"].dims[axis].attach_scale(file[scale])
        with pytest.warns(InsituWarning, match="'long' is longer than its dimension x"):
            found = insitu.open_dataset(path).load()
        with xr.open_dataset(path, engine="netcdf4") as expected:
            xr.testing.assert_identical(found, expected.load())


def kerchunk(path: Path, arrays: dict[str, tuple[list[int], list[int], list[str]]]) -> str:
    """References without a single chunk."""
    refs: dict[str, Any] = {".zgroup": '{"zarr_format": 2}'}
    for name, (shape, chunks, dims) in arrays.items():
        about = {"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": "<f4", "fill_value": 3.0, "order": "C"}
        refs[f"{name}/.zarray"] = json.dumps({**about, "compressor": None, "filters": None})
        refs[f"{name}/.zattrs"] = json.dumps({"_ARRAY_DIMENSIONS": dims})
    path.write_text(json.dumps({"version": 1, "refs": refs}))
    return str(path)


@pytest.mark.parametrize("chunk", [1, 10, 1 << 40])
def test_references_to_no_chunk_of_a_large_array(tmp_path: Path, chunk: int) -> None:
    path = kerchunk(tmp_path / "k.json", {"v": ([1 << 40], [chunk], ["x"])})
    ds = insitu.open_dataset(path, mask_and_scale=False)
    assert ds.sizes == {"x": 1 << 40}
    assert ds.v[:2].values.tolist() == ds.v[-2:].values.tolist() == [3.0, 3.0]


class TestConflictingLengths:
    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        return kerchunk(tmp_path / "k.json", {"a": ([3], [3], ["x"]), "b": ([5], [5], ["x"]), "x": ([3], [3], ["x"])})

    def test_refused_by_name(self, path: str) -> None:
        with pytest.raises(FormatError, match=r"conflicting sizes.*k\.json"):
            insitu.open_dataset(path)
        with pytest.raises(FormatError, match="conflicting sizes"):
            insitu.open_datatree(path)

    def test_left_out(self, path: str) -> None:
        with pytest.warns(InsituWarning, match="left out: variable 'b'"):
            assert set(insitu.open_dataset(path, errors="warn").variables) == {"a", "x"}
        with pytest.warns(InsituWarning, match="left out: variable 'b'"):
            assert set(insitu.open_datatree(path, errors="warn").variables) == {"a", "x"}


def test_engine_says_which_groups_make_no_tree(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    xr.Dataset(coords={"x": [1.0, 2.0]}).to_netcdf(path, engine="netcdf4")
    xr.Dataset(coords={"x": [3.0, 4.0]}).to_netcdf(path, engine="netcdf4", group="g", mode="a")
    # An xarray that makes the indexes of what an engine opened finds out by itself, behind the
    # engine's back.
    error, text = (ValueError, "not aligned") if XARRAY_INDEXES else (UnsupportedError, "do not make a tree")
    with pytest.raises(error, match=text):
        xr.open_datatree(path, engine="insitu")
