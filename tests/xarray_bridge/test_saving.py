"""A saved dataset opens as the one that was saved, in every format that can hold it, and can be
appended to.

Modules: scanning/saved_members.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from fixtures.make_archive import Part, write_all
from insitu import trace
from insitu.errors import UnsupportedError
from insitu.xarray_bridge import open_dataset, open_mfdataset

EVERY = ("refs.json", "refs.json.zst", "refs.parq", "refs.insitu")


def assert_identical_dataset(found: xr.Dataset, wanted: xr.Dataset) -> None:
    xr.testing.assert_identical(found, wanted)
    assert set(found.indexes) == set(wanted.indexes)
    for name, variable in wanted.variables.items():
        if variable.dtype.kind not in "OU":  # how texts are held is no part of what they say
            assert found[name].dtype == variable.dtype, name


def regular(folder: Path, **how: Any) -> list[str]:
    """Files whose last chunk is a whole one, cut, encoded and packed alike."""
    return write_all(folder, [Part(first=2 * i, stored="i2", chunks=(2, 3, 4), **how) for i in range(3)])


@pytest.mark.parametrize("target", EVERY)
def test_one_file(varied: Path, tmp_path: Path, target: str) -> None:
    ds = open_dataset(varied)
    ds.insitu.save(tmp_path / target)
    found = open_dataset(tmp_path / target)
    assert set(found.insitu.virtual) >= {"tas", "packed", "number", "empty"}
    assert_identical_dataset(found.load(), ds.load())


@pytest.mark.parametrize("target", EVERY)
@pytest.mark.parametrize("part", [{"packing": 3}, {"packing": 2}, {"packing": 0, "calendar": "360_day"}], ids=str)
def test_many_files_alike(tmp_path: Path, target: str, part: dict[str, Any]) -> None:
    ds = open_mfdataset(regular(tmp_path, level=2.0, **part))
    ds.insitu.save(tmp_path / target)
    found = open_dataset(tmp_path / target)
    assert "tas" in found.insitu.virtual
    assert_identical_dataset(found.load(), ds.load())


def test_xarray_reads_what_kerchunk_holds(tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    fsspec = pytest.importorskip("fsspec")
    ds = open_mfdataset(regular(tmp_path, packing=3))
    ds.insitu.save(tmp_path / "refs.json")
    store = fsspec.get_mapper("reference://", fo=str(tmp_path / "refs.json"), remote_protocol="file")
    with xr.open_dataset(store, engine="zarr", consolidated=False) as found:
        xr.testing.assert_identical(found.load(), ds.load())


@pytest.fixture
def mosaic(tmp_path: Path) -> xr.Dataset:
    """Files that differ in packing, cuts across the join, and time units."""
    kinds = [(2, 3), (3, 1), (4, 2)]
    return open_mfdataset(
        write_all(
            tmp_path,
            [
                Part(first=2 * i, stored="i2", packing=p, chunks=(2, c, 4), units=i, level=1.0)
                for i, (p, c) in enumerate(kinds)
            ],
        )
    )


def test_a_mosaic(mosaic: xr.Dataset, tmp_path: Path) -> None:
    assert mosaic.insitu.tiles()["tas"] == 3
    mosaic.insitu.save(tmp_path / "refs.insitu")
    found = open_dataset(tmp_path / "refs.insitu")
    assert found.insitu.tiles()["tas"] == 3
    assert_identical_dataset(
        found.isel(time=slice(1, 5), lat=[2, 0]).load(), mosaic.isel(time=slice(1, 5), lat=[2, 0]).load()
    )
    xr.testing.assert_allclose(found.tas.mean("time"), mosaic.tas.mean("time"), rtol=0)
    assert_identical_dataset(found.load(), mosaic.load())


@pytest.mark.parametrize("target", ["refs.json", "refs.parq"])
def test_a_mosaic_is_more_than_kerchunk_can_hold(mosaic: xr.Dataset, tmp_path: Path, target: str) -> None:
    with pytest.raises(UnsupportedError) as refused:
        mosaic.insitu.save(tmp_path / target)
    message = str(refused.value)
    assert "tas" in message
    assert "part_001.nc" in message
    assert "cut differently" in message
    assert ".insitu" in message
    assert not (tmp_path / target).exists()


@pytest.mark.parametrize("target", ["refs.json", "refs.parq"])
def test_what_is_small_may_be_kept_as_values(mosaic: xr.Dataset, tmp_path: Path, target: str) -> None:
    with pytest.raises(UnsupportedError, match="inline_threshold"):
        mosaic.insitu.save(tmp_path / target)
    mosaic.insitu.save(tmp_path / target, inline_threshold=1 << 20)
    assert_identical_dataset(open_dataset(tmp_path / target).load(), mosaic.load())


@pytest.mark.parametrize("target", EVERY)
def test_spans_of_time(tmp_path: Path, target: str) -> None:
    lead = np.arange(6).astype("m8[h]").astype("m8[ns]")
    xr.Dataset({"lead": ("x", lead)}).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    ds = open_dataset(tmp_path / "a.nc")
    assert ds.lead.dtype.kind == "m"
    ds.insitu.save(tmp_path / target)
    assert_identical_dataset(open_dataset(tmp_path / target).load(), ds.load())


def test_what_was_selected_and_computed(varied: Path, tmp_path: Path) -> None:
    ds = open_dataset(varied)[["tas", "packed", "flag", "name"]]
    changed = ds.isel(time=slice(None, None, -2), lat=[4, 1]).assign(
        half=(ds.tas.isel(lon=0, drop=True) / 2).load(), gone=ds.tas.where(ds.lat + ds.lon > 100).load()
    )
    changed = changed.assign_coords(step=("time", np.arange(5)), when=ds.time[0].drop_vars("time")).assign_attrs(note=1)
    changed.insitu.save(tmp_path / "refs.insitu")
    found = open_dataset(tmp_path / "refs.insitu")
    assert "tas" in found.insitu.virtual
    assert_identical_dataset(found.load(), changed.load())


@pytest.mark.parametrize("made", ["arithmetic", "mask", "window"])
def test_formulas_are_refused(varied: Path, tmp_path: Path, made: str) -> None:
    ds = open_dataset(varied)[["tas", "packed"]]
    formulas = {
        "arithmetic": ds.tas - ds.packed,
        "mask": ds.tas.where(ds.lat + ds.lon > 100),
        "window": ds.tas.rolling(time=2).mean(),
    }
    with trace() as cost, pytest.raises(UnsupportedError, match=r"variable 'made' is computed.*to_zarr\(\)") as refused:
        ds.assign(made=formulas[made]).insitu.save(tmp_path / "refs.insitu")
    assert "drop_vars('made')" in str(refused.value)
    assert cost.bytes == 0
    assert not (tmp_path / "refs.insitu").exists()
    ds.assign(made=formulas[made]).drop_vars("made").insitu.save(tmp_path / "refs.insitu")
    open_dataset(tmp_path / "refs.insitu")


def test_labels_without_an_index(varied: Path, tmp_path: Path) -> None:
    ds = open_dataset(varied)[["tas"]].drop_indexes("lon")
    ds.insitu.save(tmp_path / "refs.insitu")
    assert_identical_dataset(open_dataset(tmp_path / "refs.insitu").load(), ds.load())


def test_encoding_comes_back(varied: Path, tmp_path: Path) -> None:
    ds = open_dataset(varied)
    ds.insitu.save(tmp_path / "refs.insitu")
    found = open_dataset(tmp_path / "refs.insitu")
    for key in ("scale_factor", "add_offset", "_FillValue", "chunksizes", "zlib", "dtype"):
        assert found.packed.encoding[key] == ds.packed.encoding[key]
    found.to_netcdf(tmp_path / "copy.nc", engine="netcdf4")
    with xr.open_dataset(tmp_path / "copy.nc", engine="netcdf4") as copy:
        xr.testing.assert_identical(copy.load(), ds.load())


@pytest.mark.parametrize(
    "how",
    [{"mask_and_scale": False}, {"decode_times": False}, {"decode_cf": False}, {"mask_and_scale": {"tas": False}}],
)
def test_saved_datasets_take_the_keywords_of_decoding(varied: Path, tmp_path: Path, how: dict[str, Any]) -> None:
    open_dataset(varied).insitu.save(tmp_path / "refs.insitu")
    assert_identical_dataset(open_dataset(tmp_path / "refs.insitu", **how).load(), open_dataset(varied, **how).load())


def test_files_that_are_packed_differently_have_no_stored_values(mosaic: xr.Dataset, tmp_path: Path) -> None:
    mosaic.insitu.save(tmp_path / "refs.insitu")
    with pytest.raises(UnsupportedError, match="packed differently"):
        open_dataset(tmp_path / "refs.insitu", mask_and_scale=False)


class TestAppend:
    @pytest.mark.parametrize("calendar", ["standard", "noleap"])
    def test_it_grows(self, tmp_path: Path, calendar: str) -> None:
        how: dict[str, Any] = {"calendar": calendar, "stored": "i2"}
        units = (0, 0, 0, 0) if calendar != "standard" else (0, 1, 2, 1)
        paths = write_all(
            tmp_path,
            [Part(first=2 * i, packing=i % 3 + 2, units=units[i], chunks=(1, i % 3 + 1, 2), **how) for i in range(4)],
        )
        options: dict[str, Any] = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
        open_mfdataset(paths[:2], **options).insitu.save(tmp_path / "refs.insitu")
        for path in paths[2:]:
            open_mfdataset([path], **options).insitu.append(tmp_path / "refs.insitu", "time")
        assert_identical_dataset(open_dataset(tmp_path / "refs.insitu").load(), open_mfdataset(paths, **options).load())

    def test_kerchunk_cannot(self, tmp_path: Path) -> None:
        paths = regular(tmp_path, packing=3)
        open_mfdataset(paths[:2]).insitu.save(tmp_path / "refs.json")
        with pytest.raises(UnsupportedError, match="insitu"):
            open_mfdataset(paths[2:]).insitu.append(tmp_path / "refs.json", "time")

    def test_the_scan_of_one_file_grows(self, tmp_path: Path) -> None:
        from insitu import references

        paths = regular(tmp_path, packing=3)
        references.save(insitu.scan(paths[0]), tmp_path / "refs.insitu")
        open_mfdataset(paths[1:]).insitu.append(tmp_path / "refs.insitu", "time")
        assert_identical_dataset(open_dataset(tmp_path / "refs.insitu").load(), open_mfdataset(paths).load())


def test_nothing_is_replaced_unasked(varied: Path, tmp_path: Path) -> None:
    ds = open_dataset(varied)[["tas"]]
    ds.insitu.save(tmp_path / "refs.insitu")
    with pytest.raises(insitu.errors.InsituError, match="already"):
        ds.insitu.save(tmp_path / "refs.insitu", mode="x")
    ds.insitu.save(tmp_path / "refs.other", format="insitu")
    assert_identical_dataset(open_dataset(tmp_path / "refs.other").load(), ds.load())
