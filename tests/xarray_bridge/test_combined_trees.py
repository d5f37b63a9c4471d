"""Files with all their groups as one tree. The oracle: xarray's trees of the files, combined group by group by hand.

Modules: combining/combine_groups.py, scanning/group_tree.py, xarray_bridge/open_many_trees.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import xarray as xr

import insitu
from fixtures.tree_products import write_cfradial2, write_odim, write_swath_product
from insitu.errors import CombineError, GroupError
from insitu.formats import InsituWarning

Combine = Callable[[Sequence[xr.Dataset]], xr.Dataset]
BY_COORDS: Combine = partial(
    xr.combine_by_coords,
    combine_attrs="override",
    data_vars="all",
    coords="different",
    compat="no_conflicts",
    join="outer",
)
ONE_BY_ONE = {"data_vars": "all", "coords": "different", "compat": "equals", "join": "outer"}


def along(dim: Any) -> Combine:
    return partial(xr.combine_nested, concat_dim=dim, combine_attrs="override", **ONE_BY_ONE)


def by_hand(files: Sequence[Path], combine: Callable[[str], Combine | None]) -> xr.DataTree:
    """Return the tree that xarray makes; None: of a group without variables, the attributes of the first."""
    trees = [xr.open_datatree(file, engine="netcdf4") for file in files]
    found = {}
    for path in dict.fromkeys(path for tree in trees for path in tree.groups):
        parts = [tree[path].to_dataset() for tree in trees if path in tree.groups]
        how = combine(path)
        found[path] = xr.Dataset(attrs=parts[0].attrs) if how is None else how(parts)
    made = xr.DataTree.from_dict(found).load()
    for tree in trees:
        tree.close()
    return made


def assert_same(tree: xr.DataTree, expected: xr.DataTree) -> None:
    for _ in range(2):
        xr.testing.assert_identical(tree.load(), expected)


def assert_same_in_all_forms(tree: xr.DataTree, expected: xr.DataTree, folder: Path, *suffixes: str) -> None:
    for suffix in suffixes:
        target = folder / f"saved.{suffix}"
        tree.insitu.save(target)
        assert_same(insitu.open_datatree(target), expected)
    assert_same(tree, expected)


@pytest.fixture
def swaths(tmp_path: Path) -> list[Path]:
    return [write_swath_product(tmp_path / f"swath_{number}.nc", number) for number in range(3)]


def _how_of_swaths(path: str) -> Combine | None:
    return BY_COORDS if path.startswith("/PRODUCT") and path != "/PRODUCT/SUPPORT_DATA" else None


class TestProducts:
    def test_of_a_satellite(self, swaths: list[Path], tmp_path: Path) -> None:
        expected = by_hand(swaths, _how_of_swaths)
        tree = insitu.open_mfdatatree(swaths)
        assert "time" not in tree["PRODUCT/SUPPORT_DATA/DETAILED_RESULTS"].to_dataset(inherit=False).coords
        assert tree.insitu.virtual == [
            "PRODUCT/methane",
            "PRODUCT/qa_value",
            "PRODUCT/SUPPORT_DATA/DETAILED_RESULTS/fit",
            "PRODUCT/SUPPORT_DATA/DETAILED_RESULTS/counts",
        ]
        assert_same_in_all_forms(tree, expected, tmp_path, "insitu", "json", "parq")

    def test_of_a_radar_in_cfradial_form(self, tmp_path: Path) -> None:
        files = [write_cfradial2(tmp_path / f"volume_{number}.nc", number) for number in range(3)]
        expected = by_hand(files, lambda path: along("volume") if path == "/" else BY_COORDS)
        by_group = {"/": {"combine": "nested", "concat_dim": "volume"}}
        tree = insitu.open_mfdatatree(files, by_group=by_group)
        assert tree["sweep_0"].sizes["time"] == 12
        assert_same_in_all_forms(tree, expected, tmp_path, "insitu", "json")

    def test_of_a_radar_in_odim_form(self, tmp_path: Path) -> None:
        files = [write_odim(tmp_path / f"volume_{number}.h5", number) for number in range(3)]
        tree = insitu.open_mfdatatree(files, combine="nested", concat_dim="volume")
        assert tree["dataset1/data2/what"].attrs["quantity"] == "VRAD"
        expected = by_hand(files, lambda _: along("volume"))
        assert_same_in_all_forms(tree, expected, tmp_path, "insitu", "json", "parq")

    def test_labels_from_names(self, tmp_path: Path) -> None:
        files = [write_odim(tmp_path / f"volume_{number}0.h5", number) for number in range(3)]
        tree = insitu.open_mfdatatree(files, concat_dim={"minute": r"(\d+)\.h5"})
        labels = xr.DataArray([0, 10, 20], dims="minute", name="minute")
        expected = by_hand(
            files, lambda _: lambda parts: xr.concat(parts, labels, combine_attrs="override", **ONE_BY_ONE)
        )
        assert list(tree["dataset1"].to_dataset(inherit=False).coords) == []
        assert_same(tree, expected)

    def test_labels_from_attributes_of_a_group(self, tmp_path: Path) -> None:
        files = [write_odim(tmp_path / f"{number}.h5", number, (1,) if number == 1 else (1, 2)) for number in range(3)]
        tree = insitu.open_mfdatatree(files, concat_dim={"date": "attr:what/date"})
        assert tree.date.values.astype("M8[D]").astype(str).tolist() == ["2024-01-01", "2024-01-02", "2024-01-03"]
        for name in ("dataset1/data1/data", "dataset2/data1/data"):
            with xr.open_dataset(files[2], group=name[:-5], engine="netcdf4") as last:
                np.testing.assert_array_equal(tree[name].values[2], last["data"])
        assert np.isnan(tree["dataset2/data1/data"].values[1]).all()
        with pytest.raises(CombineError, match=r"no attribute 'dates', .*0\.h5.*Do you mean 'date'"):
            insitu.open_mfdatatree(files, concat_dim={"date": "attr:what/dates"})

    def test_overlaps_and_gaps_by_group(self, tmp_path: Path) -> None:
        files = [write_swath_product(tmp_path / f"{number}.nc", number, number != 3) for number in (0, 1, 3)]
        files.append(write_swath_product(tmp_path / "corrected.nc", 1))
        tree = insitu.open_mfdatatree(files, overlap="last", expect={"time": 1})
        assert tree["PRODUCT"].time.values.tolist() == [0, 1, 2, 3]
        fit = tree["PRODUCT/SUPPORT_DATA/DETAILED_RESULTS/fit"].values
        assert [bool(np.isnan(step).any()) for step in fit] == [False, False, True, True]
        hidden = tree.insitu.files["/PRODUCT"]
        assert hidden.url.tolist() == list(map(str, files))
        assert hidden.labels.tolist() == [1, 1, 1, 1]
        assert hidden.shadowed.tolist() == [0, 1, 0, 0]
        with xr.open_datatree(files[-1], engine="netcdf4") as corrected:
            np.testing.assert_array_equal(tree["PRODUCT/methane"].values[1], corrected["PRODUCT/methane"].values[0])

    def test_preprocess_is_called_with_a_tree(self, tmp_path: Path) -> None:
        files = [write_odim(tmp_path / f"volume_{number}.h5", number) for number in range(2)]

        def with_date(tree: xr.DataTree) -> xr.DataTree:
            for group in tree.subtree:
                if "data" in group.data_vars:
                    group["data"] = group["data"] * 0.5 - 32
            tree.dataset = tree.to_dataset().assign_coords(date=int(tree["what"].attrs["date"]))
            return tree

        tree = insitu.open_mfdatatree(files, preprocess=with_date, combine="nested", concat_dim="date")
        assert tree.date.values.tolist() == [20240101, 20240102]
        for number, file in enumerate(files):
            with xr.open_dataset(file, group="dataset2/data1", engine="netcdf4") as one:
                np.testing.assert_array_equal(tree["dataset2/data1/data"][number], one["data"] * 0.5 - 32)


class TestLackingGroups:
    def test_values_are_missing_at_the_labels_of_files_without_it(self, tmp_path: Path) -> None:
        files = [write_swath_product(tmp_path / f"{number}.nc", number, number != 1) for number in range(3)]
        tree = insitu.open_mfdatatree(files)
        with xr.open_datatree(files[0]) as first, xr.open_datatree(files[2]) as last:
            path = "PRODUCT/SUPPORT_DATA/DETAILED_RESULTS"
            expected = BY_COORDS([first[path].to_dataset(), last[path].to_dataset()]).reindex(time=[0, 1, 2]).load()
        assert tree.insitu.files[f"/{path}"].url.tolist() == [str(files[0]), str(files[2])]
        xr.testing.assert_identical(tree[path].to_dataset().load(), expected)
        assert tree[f"{path}/counts"].dtype == np.float64
        tree.insitu.save(tmp_path / "x.insitu")
        xr.testing.assert_identical(insitu.open_datatree(tmp_path / "x.insitu").load(), tree.load())
        assert "it has no group" in tree.insitu.report().groups[f"/{path}"].left_out[str(files[1])]

    def test_tables_of_files(self, tmp_path: Path) -> None:
        """By group what `ds.insitu.files` says of it, with the labels that it inherits; of a saved tree, too."""
        files = [write_swath_product(tmp_path / f"{number}.nc", number, number != 1) for number in range(3)]
        tree = insitu.open_mfdatatree(files)
        tree.insitu.save(tmp_path / "x.insitu")
        path = "PRODUCT/SUPPORT_DATA/DETAILED_RESULTS"
        product = insitu.open_mfdataset(files, group="PRODUCT")
        for one in (tree, insitu.open_datatree(tmp_path / "x.insitu")):
            tables = one.insitu.files
            assert list(tables) == ["/PRODUCT", f"/{path}"]
            pandas.testing.assert_frame_equal(tables["/PRODUCT"], product.insitu.files)
            details = tables[f"/{path}"]
            assert details[["time_first", "time_last", "labels", "shadowed"]].to_numpy().tolist() == [
                [0, 0, 1, 0],
                [2, 2, 1, 0],
            ]
            assert details["size"].tolist() == [files[number].stat().st_size for number in (0, 2)]
        part = tree.isel(time=[2])
        assert part.insitu.files["/PRODUCT"].url.tolist() == [str(files[2])]

    def test_a_step_of_a_new_dimension_stays(self, tmp_path: Path) -> None:
        files = [write_odim(tmp_path / f"{number}.h5", number, (1,) if number == 1 else (1, 2)) for number in range(3)]
        tree = insitu.open_mfdatatree(files, combine="nested", concat_dim="volume")
        values = tree["dataset2/data1/data"].values
        assert values.shape == (3, 6, 7)
        assert np.isnan(values[1]).all()
        with xr.open_dataset(files[2], group="dataset2/data1", engine="netcdf4") as last:
            np.testing.assert_array_equal(values[2], last["data"])

    def test_labels_of_its_own_have_no_gaps(self, tmp_path: Path) -> None:
        files = [
            write_cfradial2(tmp_path / f"{number}.nc", number, (0,) if number == 1 else (0, 1)) for number in range(3)
        ]
        by_group = {"/": {"combine": "nested", "concat_dim": "sweep"}}
        tree = insitu.open_mfdatatree(files, by_group=by_group)
        assert tree["sweep_0"].sizes["time"] == 12
        assert tree["sweep_1"].sizes["time"] == 8


class TestContradictions:
    def _write(self, path: Path, groups: dict[str, xr.Dataset]) -> Path:
        xr.DataTree.from_dict(groups).to_netcdf(path, engine="h5netcdf")
        return path

    def test_a_group_in_one_file_and_a_variable_in_another(self, tmp_path: Path) -> None:
        x = xr.Dataset({"v": ("x", [1.0])}, {"x": [0]})
        one = self._write(tmp_path / "1.nc", {"/": x, "/a": xr.Dataset({"w": ("y", [1.0])}, {"y": [0]})})
        other = self._write(tmp_path / "2.nc", {"/": xr.Dataset({"v": ("x", [1.0]), "a": ("x", [2.0])}, {"x": [1]})})
        with pytest.raises(CombineError, match=r"'/a' is a group in .*1\.nc, and a variable in .*2\.nc"):
            insitu.open_mfdatatree([one, other])
        with pytest.warns(InsituWarning, match="'/a' is a group"):
            tree = insitu.open_mfdatatree([one, other], errors="warn")
        assert tree.groups == ("/",)
        assert "'/a' is a group" in tree.insitu.report().left_out["a"]

    def test_dimensions_that_contradict_those_above(self, tmp_path: Path) -> None:
        import netCDF4

        files = []
        for number in range(2):
            files.append(tmp_path / f"{number}.nc")
            with netCDF4.Dataset(files[-1], "w") as file:
                file.createDimension("x", 1)
                file.createVariable("x", "i4", ("x",))[:] = [number]
                group = file.createGroup("a")
                group.createDimension("x", 2)
                group.createVariable("v", "f4", ("x",))[:] = [1, 2]
        with pytest.raises(CombineError, match=r"group '/a' .*'x' has length 2, and 1 .*0\.nc"):
            insitu.open_mfdatatree(files)
        with pytest.warns(InsituWarning, match="group '/a' of "):
            tree = insitu.open_mfdatatree(files, errors="warn")
        assert tree.groups == ("/",)
        assert tree.x.values.tolist() == [0, 1]

    def test_a_group_that_cannot_be_joined(self, tmp_path: Path) -> None:
        grid = xr.Dataset({"area": ("cell", [1.0, 2.0])})
        files = [
            self._write(tmp_path / f"{n}.nc", {"/b": xr.Dataset({"v": ("t", [1.0])}, {"t": [n]}), "/a/grid": grid})
            for n in range(2)
        ]
        with pytest.raises(CombineError, match=r"group '/a/grid': Could not find any dimension.*by_group=\{'/a/grid'"):
            insitu.open_mfdatatree(files)
        with pytest.warns(InsituWarning, match="group '/a/grid'"):
            tree = insitu.open_mfdatatree(files, errors="warn")
        assert tree["b"].to_dataset().sizes == {"t": 2}
        assert not tree["a/grid"].to_dataset().variables
        same = insitu.open_mfdatatree(files, by_group={"a/*": {"combine": "nested", "concat_dim": None}})
        np.testing.assert_array_equal(same["a/grid/area"], [1.0, 2.0])

    def test_labels_that_are_not_those_above(self, tmp_path: Path) -> None:
        files = [
            self._write(
                tmp_path / f"{n}.nc",
                {
                    "/": xr.Dataset({"v": ("t", [1.0])}, {"t": [n]}),
                    "/a": xr.Dataset({"w": ("t", [1.0])}),
                },
            )
            for n in range(3)
        ]
        with pytest.raises(CombineError, match=r"group '/a': it does not fit .*'t' has length 0, and 3"):
            insitu.open_mfdatatree(files, by_group={"a": {"join": "inner", "combine": "nested", "concat_dim": None}})

    def test_options_for_groups_that_are_not_there(self, swaths: list[Path]) -> None:
        with pytest.raises(CombineError, match="names '/PRODUKT', and no file has such a group"):
            insitu.open_mfdatatree(swaths, by_group={"/PRODUKT": {"join": "inner"}})
        with pytest.raises(TypeError, match="'joined': did you mean 'join'"):
            insitu.open_mfdatatree(swaths, by_group={"/PRODUCT": {"joined": "inner"}})
        with pytest.raises(TypeError, match="variables"):
            insitu.open_mfdatatree(swaths, variables=["methane"])

    def test_a_file_that_cannot_be_read(self, swaths: list[Path], tmp_path: Path) -> None:
        bad = tmp_path / "bad.nc"
        bad.write_bytes(b"\x89HDF\r\n\x1a\n")
        with pytest.raises(insitu.errors.InsituError, match=r"bad\.nc"):
            insitu.open_mfdatatree([*swaths, bad])
        with pytest.warns(InsituWarning) as warned:
            tree = insitu.open_mfdatatree([*swaths, bad], errors="warn")
        assert len(warned) == 1  # not once for each group
        assert tree["PRODUCT"].sizes["time"] == 3


class TestArchive:
    def test_groups_of_combined_files(self, swaths: list[Path]) -> None:
        archive = insitu.Archive.open(swaths, tree=True)
        path = "PRODUCT/SUPPORT_DATA/DETAILED_RESULTS/fit"
        assert archive.read(path).shape == (3, 4, 3)
        assert archive.reduce(path, "mean", dim="time").shape == (4, 3)
        assert archive.dataset(group="PRODUCT").methane.shape == (3, 4, 3)
        assert "PRODUCT/" in repr(archive)
        with pytest.raises(GroupError, match="There are: PRODUCT"):
            archive.member("NOTHING")
        with pytest.raises(GroupError, match="tree=True"):
            insitu.Archive.open(swaths, group="PRODUCT").member("SUPPORT_DATA")
        with pytest.raises(insitu.errors.VariableError, match="methane"):
            archive.read("methane")

    @pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3")
    def test_a_zarr_view(self, swaths: list[Path]) -> None:
        archive = insitu.Archive.open(swaths, tree=True)
        with xr.open_datatree(archive.zarr_store(), engine="zarr", consolidated=False) as viewed:
            xr.testing.assert_identical(viewed.load(), by_hand(swaths, _how_of_swaths))

    def test_below_a_group(self, swaths: list[Path]) -> None:
        tree = insitu.open_mfdatatree(swaths, group="PRODUCT")
        assert tree.groups == ("/", "/SUPPORT_DATA", "/SUPPORT_DATA/DETAILED_RESULTS")
        assert tree["SUPPORT_DATA/DETAILED_RESULTS/fit"].shape == (3, 4, 3)

    def test_one_scan_for_all_groups(self, swaths: list[Path]) -> None:
        with insitu.trace() as one:
            insitu.open_mfdatatree(swaths)
        with insitu.trace() as each:
            for group in ("PRODUCT", "PRODUCT/SUPPORT_DATA/DETAILED_RESULTS"):
                for swath in swaths:
                    insitu.open_dataset(swath, group=group)
        assert one.requests < each.requests

    @pytest.mark.parametrize("parallel", [None, 2, "executor"])
    @pytest.mark.parametrize("resume", [None, True])
    def test_wherever_it_is_scanned(self, swaths: list[Path], parallel: Any, resume: bool | None) -> None:
        expected = by_hand(swaths, _how_of_swaths)
        with ThreadPoolExecutor(2) as pool:
            parallel = pool if parallel == "executor" else parallel
            assert_same(insitu.open_mfdatatree(swaths, parallel=parallel, resume=resume), expected)

    def test_on_a_cluster(self, swaths: list[Path], tmp_path: Path) -> None:
        """Threads of a Dask cluster scan the files; what they make, and which file gives what, stays the same."""
        distributed = pytest.importorskip("distributed")
        files = [*swaths, write_swath_product(tmp_path / "corrected.nc", 1)]
        address = {"dashboard_address": "127.0.0.1:0", "protocol": "inproc://"}
        with (
            distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, **address) as cluster,
            distributed.Client(cluster) as client,
        ):
            assert_same(insitu.open_mfdatatree(swaths, parallel=client, resume=True), by_hand(swaths, _how_of_swaths))
            tree = insitu.open_mfdatatree(files, parallel=client, resume=True, overlap="last")
            expected = insitu.open_mfdatatree(files, overlap="last")
            xr.testing.assert_identical(tree.load(), expected.load())
            for path, table in expected.insitu.files.items():
                pandas.testing.assert_frame_equal(tree.insitu.files[path], table)
                assert table.shadowed.sum() == 1

    def test_dask_arrays(self, swaths: list[Path]) -> None:
        tree = insitu.open_mfdatatree(swaths, chunks={})
        assert tree["PRODUCT/methane"].chunks is not None
        assert_same(tree, by_hand(swaths, _how_of_swaths))

    def test_explained(self, swaths: list[Path]) -> None:
        tree = insitu.open_mfdatatree(swaths)
        every = tree.insitu.explain()
        assert set(every.variables) == set(tree.insitu.virtual)
        one = tree.insitu.explain("PRODUCT/methane", "mean", "time")
        assert one.chunks == 3
        assert set(tree.insitu.explain(reduction="mean", dim="scanline").variables) == set(tree.insitu.virtual)
        with pytest.raises(insitu.errors.VariableError, match="Groups have it: PRODUCT/methane"):
            tree.insitu.explain("methane")


@pytest.mark.parametrize("expect", [{"time": "1D"}, "1D"])
def test_overlaps_and_gaps_beside_a_grid_that_all_files_have(tmp_path: Path, expect: Any) -> None:
    """A group that is merged has no labels that are chosen or expected."""
    files = []
    for number, first in enumerate((0, 1, 5)):
        days = np.arange(first, first + 2).astype("timedelta64[D]") + np.datetime64("2000-01-01", "ns")
        root = xr.Dataset({"tas": ("time", np.full(2, float(number)))}, {"time": days})
        below = xr.Dataset({"flag": ("time", np.full(2, 10.0 + number))})
        grid = xr.Dataset({"area": ("cell", np.arange(3.0))})
        files.append(tmp_path / f"{number}.nc")
        xr.DataTree.from_dict({"/": root, "/quality": below, "/grid": grid}).to_netcdf(files[-1])
    merged = {"grid": {"combine": "nested", "concat_dim": None}}

    def open_anew(chosen: Sequence[Path]) -> xr.DataTree:
        return insitu.open_mfdatatree(chosen, overlap="last", expect=expect, by_group=merged)

    target = tmp_path / "a.insitu"
    tree = open_anew(files)
    xr.testing.assert_equal(
        tree["grid"].to_dataset(inherit=False).load(), xr.Dataset({"area": ("cell", np.arange(3.0))})
    )
    np.testing.assert_array_equal(tree["tas"], [0, 1, 1, np.nan, np.nan, 2, 2])
    np.testing.assert_array_equal(tree["quality/flag"], [10, 11, 11, np.nan, np.nan, 12, 12])
    open_anew(files[:2]).insitu.save(target)
    insitu.Archive.open(target).append([files[2]])
    xr.testing.assert_identical(insitu.open_datatree(target).load(), open_anew(files).load())


def test_labels_are_expected_of_the_groups_that_have_them(tmp_path: Path) -> None:
    files = []
    for first in (0, 3):
        days = np.array([first]).astype("timedelta64[D]") + np.datetime64("2000-01-01", "ns")
        files.append(tmp_path / f"{first}.nc")
        fields = xr.Dataset({"tas": ("time", [float(first)])}, {"time": days})
        rays = xr.Dataset({"dbz": ("ray", [1.0 + first])}, {"ray": [first]})
        xr.DataTree.from_dict({"/fields": fields, "/rays": rays}).to_netcdf(files[-1])
    tree = insitu.open_mfdatatree(files, expect={"time": "1D"})
    np.testing.assert_array_equal(tree["fields/tas"], [0, np.nan, np.nan, 3])
    assert tree["rays/ray"].values.tolist() == [0, 3]
    with pytest.raises(CombineError, match="expect= names 'level', along which no group"):
        insitu.open_mfdatatree(files, expect={"level": 1})
