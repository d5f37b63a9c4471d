"""Options of `open_mfdataset` beyond xarray's: bad files, new dimensions, chosen variables,
executors, the report.

Modules: model/join_similar.py, scanning/promotion.py, xarray_bridge/dataset.py, xarray_bridge/origin.py,
xarray_bridge/template_dataset.py
"""

from __future__ import annotations

import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import xarray as xr

import insitu
from fixtures.make_archive import Part, write, write_all
from insitu.errors import CombineError
from insitu.formats import InsituWarning
from insitu.xarray_bridge import LazyArray, open_mfdataset


def expected(paths: Any, **options: Any) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with xr.open_mfdataset(paths, engine="netcdf4", **options) as ds:
            return ds.load()


@pytest.fixture
def archive(tmp_path: Path) -> list[str]:
    return write_all(tmp_path, [Part(first=3 * i, days=3) for i in range(4)])


def is_virtual(ds: xr.Dataset, name: str) -> bool:
    return isinstance(ds[name].variable._data, LazyArray)


def test_pattern_path_and_list(archive: list[str]) -> None:
    folder = Path(archive[0]).parent
    ds = open_mfdataset(str(folder / "*.nc"))
    xr.testing.assert_identical(ds.load(), open_mfdataset([Path(path) for path in archive]).load())
    with pytest.raises(OSError, match="no file matches"):
        open_mfdataset(str(folder / "*.none"))
    with pytest.raises(OSError, match="no files"):
        open_mfdataset([])


def test_prefix_braces_and_a_file_that_lists_names(archive: list[str]) -> None:
    folder = Path(archive[0]).parent
    wanted = open_mfdataset(archive).load()
    (folder / "names.txt").write_text("# all of them\n" + "\n".join(Path(path).name for path in archive))
    for paths in (f"{folder}/", str(folder / "part_00{0,1,2,3}.nc"), f"@{folder}/names.txt", [f"{folder}/part_*"]):
        xr.testing.assert_identical(open_mfdataset(paths).load(), wanted)
    nested = open_mfdataset(
        [[f"{folder}/part_00[01].nc"], [f"{folder}/part_00[23].nc"]], combine="nested", concat_dim=["half", "time"]
    )
    assert nested.sizes["half"] == 2


class TestPeersReadWrong:
    """What kerchunk and VirtualiZarr read wrong in silence, or refuse."""

    def test_every_file_has_its_own_scale(self, tmp_path: Path) -> None:
        paths = write_all(tmp_path, [Part(first=2 * i, stored="i2", packing=p) for i, p in enumerate((2, 3, 4, 5))])
        ds = open_mfdataset(paths)
        assert ds.insitu.tiles()["tas"] == 1
        assert "scale_factor" not in ds.tas.encoding
        xr.testing.assert_identical(ds.load(), expected(paths))

    def test_every_file_has_its_own_fill_value(self, tmp_path: Path) -> None:
        paths = write_all(tmp_path, [Part(first=2 * i, stored="i4", packing=p) for i, p in enumerate((0, 1, 5))])
        xr.testing.assert_identical(open_mfdataset(paths).load(), expected(paths))

    def test_time_units_differ(self, tmp_path: Path) -> None:
        paths = write_all(tmp_path, [Part(first=2 * i, units=i) for i in range(3)])
        ds = open_mfdataset(paths)
        assert is_virtual(ds, "time_bnds")
        xr.testing.assert_identical(ds.load(), expected(paths))

    def test_partial_chunks_in_the_middle(self, tmp_path: Path) -> None:
        paths = write_all(
            tmp_path, [Part(first=4 * i, days=3 + i % 2, chunks=(2, 3, 4), storage=i % 4) for i in range(5)]
        )
        ds = open_mfdataset(paths)
        assert ds.insitu.tiles()["tas"] == 1
        xr.testing.assert_identical(ds.load(), expected(paths))

    def test_cut_differently_across_the_join(self, tmp_path: Path) -> None:
        paths = write_all(tmp_path, [Part(first=2 * i, chunks=(1, 1 + i % 2, 4)) for i in range(4)])
        ds = open_mfdataset(paths)
        assert ds.insitu.tiles()["tas"] == 4
        assert "tas" in ds.insitu.report().tiles
        xr.testing.assert_identical(ds.load(), expected(paths))

    def test_missing_variable_becomes_nan(self, tmp_path: Path) -> None:
        paths = write_all(tmp_path, [Part(first=2 * i, has_wind=i != 1) for i in range(3)])
        ds = open_mfdataset(paths, combine="nested", concat_dim="time")
        assert is_virtual(ds, "wind")
        xr.testing.assert_identical(ds.load(), expected(paths, combine="nested", concat_dim="time"))

    def test_unwritten_is_not_absent(self, tmp_path: Path) -> None:
        import netCDF4

        for number in range(2):
            with netCDF4.Dataset(tmp_path / f"{number}.nc", "w") as file:
                file.createDimension("x", 4)
                file.createVariable("x", "f8", ("x",))[:] = np.arange(4) + 4 * number
                variable = file.createVariable("v", "i4", ("x",), chunksizes=(2,), fill_value=7 + number)
                variable.set_auto_mask(False)
                variable[:2] = 1
                variable.delncattr("_FillValue") if number > 5 else None
        paths = [str(tmp_path / "0.nc"), str(tmp_path / "1.nc")]
        for options in ({}, {"mask_and_scale": False}):
            xr.testing.assert_identical(open_mfdataset(paths, **options).load(), expected(paths, **options))


class TestBadFiles:
    def test_raise_names_the_file(self, archive: list[str]) -> None:
        Path(archive[1]).write_bytes(b"nonsense")
        with pytest.raises(ValueError) as caught:
            open_mfdataset(archive)
        assert archive[1] in str(caught.value) + "".join(caught.value.__notes__)

    def test_skipped_in_a_list(self, archive: list[str]) -> None:
        Path(archive[1]).write_bytes(b"nonsense")
        good = [path for path in archive if path != archive[1]]
        ds = open_mfdataset(archive, errors="skip")
        assert list(ds.insitu.report().left_out) == [archive[1]]
        assert archive[1] in str(ds.insitu.report())
        xr.testing.assert_identical(ds.load(), expected(good))
        with pytest.warns(InsituWarning, match="part_001"):
            nested = open_mfdataset(archive, errors="warn", combine="nested", concat_dim="time")
        xr.testing.assert_identical(nested.load(), expected(good, combine="nested", concat_dim="time"))

    def test_labels_of_a_new_dimension_go_with_the_file(self, archive: list[str]) -> None:
        Path(archive[1]).unlink()
        ds = open_mfdataset(
            archive, errors="skip", combine="nested", concat_dim=xr.Variable("member", [1, 2, 3, 4]), join="override"
        )
        assert ds.member.values.tolist() == [1, 3, 4]

    def test_a_cell_of_a_grid_becomes_absent(self, tmp_path: Path) -> None:
        paths = write_all(
            tmp_path, [Part(first=2 * i, lon_first=4 * j, stored="i4") for i in range(2) for j in range(2)]
        )
        whole = open_mfdataset(paths).load()
        Path(paths[3]).write_bytes(b"nonsense")
        for nested in (False, True):
            if nested:
                ds = open_mfdataset([paths[:2], paths[2:]], combine="nested", concat_dim=["time", "lon"], errors="skip")
            else:
                ds = open_mfdataset(paths, errors="skip")
            assert is_virtual(ds, "tas")
            ds = ds.load()
            np.testing.assert_array_equal(ds.time, whole.time)
            np.testing.assert_array_equal(ds.lon, whole.lon)
            there = np.ones(ds.tas.shape, bool)
            there[2:, :, 4:] = False
            assert np.isnan(ds.tas.values[~there]).all()
            np.testing.assert_array_equal(ds.tas.values[there], whole.tas.values[there])

    def test_a_cell_of_a_grid_without_labels(self, tmp_path: Path) -> None:
        """Nothing but its neighbours says how large the missing cell is."""
        grid: list[list[str]] = []
        for row, days in enumerate((2, 3, 1)):
            grid.append([])
            for column, cells in enumerate((3, 2)):
                values = np.arange(days * cells, dtype="i2").reshape(days, cells) + 100 * row + 10 * column
                grid[row].append(str(tmp_path / f"{row}{column}.nc"))
                xr.Dataset({"v": (("t", "x"), values)}).to_netcdf(grid[row][column], engine="h5netcdf")
        how: dict[str, Any] = {"combine": "nested", "concat_dim": ["t", "x"]}
        whole = open_mfdataset(grid, **how).load()
        Path(grid[1][0]).write_bytes(b"nonsense")
        with pytest.warns(InsituWarning, match="10.nc"):
            found = open_mfdataset(grid, errors="warn", **how)
        assert list(found.insitu.report().left_out) == [grid[1][0]]
        found = found.load()
        assert found.sizes == whole.sizes
        gone = np.zeros(whole.v.shape, bool)
        gone[2:5, :3] = True
        assert np.isnan(found.v.values[gone]).all()
        np.testing.assert_array_equal(found.v.values[~gone], whole.v.values[~gone])
        Path(grid[1][1]).unlink()
        with pytest.raises(CombineError, match="no file at position 1"):
            open_mfdataset(grid, errors="skip", **how)

    def test_a_place_that_the_names_leave_out(self, tmp_path: Path) -> None:
        for member, model in ((1, "a"), (1, "b"), (2, "a")):
            write(tmp_path / f"tas_{model}_r{member}.nc", Part(stored="i4"))
        ds = open_mfdataset(str(tmp_path / "*.nc"), concat_dim={"model": r"_([ab])_", "member": r"_r(\d+)"})
        assert ds.tas.dims[:2] == ("model", "member")
        assert np.isnan(ds.tas.sel(model="b", member=2).values).all()
        assert not np.isnan(ds.tas.sel(model="a").values).any()

    def test_what_the_neighbours_know(self, tmp_path: Path) -> None:
        """Bounds of time are those of the row; a scalar that differs from file to file is known to
        nobody.
        """
        parts = [
            Part(first=2 * i, lon_first=4 * j, stored="i4", level=float(i + j)) for i in range(2) for j in range(2)
        ]
        paths = write_all(tmp_path, parts)
        how: dict[str, Any] = {
            "combine": "nested",
            "concat_dim": ["time", "lon"],
            "coords": "different",
            "join": "outer",
        }
        how |= {"compat": "equals", "data_vars": "minimal"}
        whole = open_mfdataset([paths[:2], paths[2:]], **how).load()
        Path(paths[0]).write_bytes(b"nonsense")
        found = open_mfdataset([paths[:2], paths[2:]], errors="skip", **how).load()
        xr.testing.assert_identical(found.time_bnds.variable, whole.time_bnds.variable)
        assert found.level.dims == whole.level.dims
        gone = np.zeros(whole.tas.shape, bool)
        gone[:2, :, :4] = True
        for name in ("tas", "level"):
            hole = gone if name == "tas" else gone.any(axis=1)
            hole = hole if hole.shape == found[name].shape else hole.T
            assert np.isnan(found[name].values[hole]).all(), name
            np.testing.assert_array_equal(found[name].values[~hole], whole[name].values[~hole])

    def test_nothing_left(self, archive: list[str]) -> None:
        with pytest.raises(CombineError, match="none of the 2 files"):
            open_mfdataset([f"{path}.none" for path in archive[:2]], errors="skip")


class TestFromNames:
    def test_pattern(self, tmp_path: Path) -> None:
        for member in (1, 2, 10):
            for first in (0, 2):
                write(tmp_path / f"tas_r{member}i1_{first}.nc", Part(first=first, title=f"m{member}"))
        ds = open_mfdataset(str(tmp_path / "*.nc"), concat_dim={"member": r"_r(\d+)i1"})
        assert sorted(ds.member.values.tolist()) == [1, 2, 10]
        assert ds.tas.dims == ("member", "time", "lat", "lon")
        one = expected(str(tmp_path / "tas_r10i1_*.nc"))
        np.testing.assert_array_equal(ds.tas.sel(member=10).values, one.tas.values)

    def test_function_and_list(self, archive: list[str]) -> None:
        by_function = open_mfdataset(archive, concat_dim={"run": lambda path: Path(path).stem[-1]}, join="override")
        assert by_function.run.values.tolist() == ["0", "1", "2", "3"]
        by_list = open_mfdataset(archive, concat_dim={"run": [5, 6, 7, 8]}, join="override")
        assert by_list.run.values.tolist() == [5, 6, 7, 8]
        wanted = expected(
            archive, combine="nested", concat_dim=[pandas.Index([5, 6, 7, 8], name="run")], join="override"
        )
        xr.testing.assert_identical(by_list.load(), wanted)

    def test_a_name_that_does_not_fit(self, archive: list[str]) -> None:
        with pytest.raises(CombineError, match="does not match"):
            open_mfdataset(archive, concat_dim={"member": r"_(r\d+)"})


def test_preprocess_stays_virtual(archive: list[str]) -> None:
    def half(ds: xr.Dataset) -> xr.Dataset:
        return ds.isel(lat=slice(0, 2)).rename(tas="t").drop_vars("height")

    ds = open_mfdataset(archive, preprocess=half)
    assert is_virtual(ds, "t")
    xr.testing.assert_identical(ds.load(), expected(archive, preprocess=half))


def test_preprocess_that_computes(archive: list[str]) -> None:
    def shifted(ds: xr.Dataset) -> xr.Dataset:
        return ds.assign(tas=ds.tas + 1, label=("lat", ["a", "b", "c"])).assign_coords(run=len(ds.time))

    xr.testing.assert_identical(
        open_mfdataset(archive, preprocess=shifted).load(), expected(archive, preprocess=shifted)
    )


def test_only_some_variables(archive: list[str]) -> None:
    ds = open_mfdataset(archive, variables=["tas"])
    whole = expected(archive)
    assert set(ds.variables) == {"tas", "time", "time_bnds", "lat", "lon", "height"}
    xr.testing.assert_identical(ds.load(), whole[list(ds.data_vars)])


def test_attributes_of_another_file(tmp_path: Path) -> None:
    paths = write_all(tmp_path, [Part(first=0), Part(first=2, title="second")])
    assert open_mfdataset(paths, attrs_file=paths[1]).attrs["title"] == "second"


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)  # Dask's sockets
def test_dask_client(archive: list[str]) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0", protocol="inproc://"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        ds = open_mfdataset(archive, parallel=client)
        assert is_virtual(ds, "tas")
    xr.testing.assert_identical(ds.load(), expected(archive))


@pytest.mark.parametrize("kind", ["threads", "number", "processes", "dask", False])
def test_executors_agree(archive: list[str], kind: Any) -> None:
    if kind == "processes":
        with ProcessPoolExecutor(1) as pool:
            ds = open_mfdataset(archive, parallel=pool)
    elif kind == "threads":
        with ThreadPoolExecutor(2) as pool:
            ds = open_mfdataset(archive, parallel=pool)
    elif kind == "dask":
        pytest.importorskip("dask")
        ds = open_mfdataset(archive, parallel="dask")
    else:
        ds = open_mfdataset(archive, parallel=3 if kind == "number" else kind)
    xr.testing.assert_identical(ds.load(), expected(archive))


def test_progress(archive: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[int, int]] = []
    open_mfdataset(archive, progress=lambda done, of: seen.append((done, of)))
    assert seen[-1] == (4, 4)
    open_mfdataset(archive, progress=True)


def test_report_tells_what_differs(tmp_path: Path) -> None:
    archive = [Part(first=2 * i) for i in range(5)]
    archive[3] = Part(first=6, stored="i2", packing=3, storage=1, units=1, chunks=(2, 3, 4), has_wind=False)
    paths = write_all(tmp_path, archive)
    report = open_mfdataset(paths, combine="nested", concat_dim="time").insitu.report()
    differences = {difference.what for difference in report.differences}
    assert {
        "tas: stored dtype",
        "tas: packing",
        "tas: codecs",
        "tas: chunks",
        "time: time units",
        "wind: presence",
    } <= differences
    for difference in report.differences:
        for files in difference.others.values():
            assert files == (paths[3],)
    assert paths[3] in str(report)


def test_wrong_words(archive: list[str]) -> None:
    with pytest.raises(ValueError, match="errors"):
        open_mfdataset(archive, errors="perhaps")
    with pytest.raises(ValueError, match="concat_dim"):
        open_mfdataset(archive, concat_dim="time")
    with pytest.raises(ValueError, match="compat"):
        open_mfdataset(archive, compat="same")
    with pytest.raises(TypeError, match="decode_tmes"):
        open_mfdataset(archive, decode_tmes=False)


def test_chunks_give_dask(archive: list[str]) -> None:
    dask_array = pytest.importorskip("dask.array")
    ds = open_mfdataset(archive, chunks={})
    assert isinstance(ds.tas.data, dask_array.Array)
    xr.testing.assert_identical(ds.load(), expected(archive))


@pytest.mark.parametrize(
    ("dim", "names", "expected"),
    [
        ("time", ["20200131", "20200201"], ["2020-01-31", "2020-02-01"]),
        ("time", ["2020013106", "2020020100"], ["2020-01-31T06", "2020-02-01"]),
        ("init_time", ["20200131T0630", "20200201T00"], ["2020-01-31T06:30", "2020-02-01"]),
        ("run", ["2020-01-31", "2020-02-01"], ["2020-01-31", "2020-02-01"]),
        ("time", ["2020_01", "2020_02"], ["2020-01-01", "2020-02-01"]),
        ("run", ["20200131", "20200201"], [20200131, 20200201]),
        ("time", ["20201331", "20200201"], [20201331, 20200201]),
        ("time", ["1200", "1800"], [1200, 1800]),
        ("time", ["early", "late"], ["early", "late"]),
    ],
)
def test_labels_that_are_dates(tmp_path: Path, dim: str, names: list[str], expected: list[Any]) -> None:
    for number, name in enumerate(names):
        xr.Dataset({"v": (("x",), np.arange(3.0) + number)}).to_netcdf(tmp_path / f"v_{name}.nc")
    is_dates = isinstance(expected[0], str) and expected[0][:2] == "20"
    labels = np.array(expected, "M8[ns]" if is_dates else None)
    with open_mfdataset(str(tmp_path / "*.nc"), concat_dim={dim: r"v_(.*)\.nc"}) as ds:
        found = ds.sortby(dim).load()
        assert found[dim].dtype == labels.dtype or labels.dtype.kind == "U"
        for number, label in enumerate(labels):
            np.testing.assert_array_equal(found.v.sel({dim: label}).values, np.arange(3.0) + number)
        ds.insitu.save(tmp_path / "x.insitu")
    with insitu.open_dataset(tmp_path / "x.insitu") as again:
        xr.testing.assert_identical(again.sortby(dim).load(), found)
