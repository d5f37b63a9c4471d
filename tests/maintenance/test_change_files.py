"""Files are taken out, replaced and renewed: what is left is what opening the others gives, by xarray too."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import xarray as xr

import insitu
from insitu.combining.file_ranges import FileLayout
from insitu.errors import CombineError, NotFoundError
from insitu.maintenance.saving import convert, saved_recipe

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of xarray, about its defaults

START = np.datetime64("2000-01-01", "ns")
STATIC: dict[str, Any] = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}


def write(path: Path, first: int, count: int, value: float, dtype: str = "i2", **attributes: str) -> str:
    """Write a file of some days, with a mask of its own."""
    times = START + np.arange(first, first + count).astype("timedelta64[D]")
    data = xr.Dataset(
        {"tas": (("time", "x"), np.full((count, 2), value, dtype)), "mask": ("x", np.array([value, 1.0]))},
        {"time": times, "height": ((), 2.0)},
        {"title": path.stem, **attributes},
    )
    data.to_netcdf(path, encoding={"tas": {"_FillValue": None}})
    os.utime(path, (1e9 + value, 1e9 + value))
    return str(path)


def by_xarray(paths: Sequence[str], **how: Any) -> xr.Dataset:
    """Return what xarray makes of files."""
    if len(paths) == 1:
        return xr.load_dataset(paths[0], engine="netcdf4")
    with xr.open_mfdataset(paths, engine="netcdf4", **how) as whole:
        return whole.load()


def used_files(target: Path) -> set[str]:
    """Return the files that values of an archive lie in."""
    return set(FileLayout.of(insitu.Archive.open(target).tree).spans)


class TestFilesInOrder:
    """Files that follow each other."""

    @pytest.mark.parametrize("options", [STATIC, {}], ids=["static", "defaults"])
    @pytest.mark.parametrize("gone", [[0], [1], [0, 2], [0, 1]])
    def test_nothing_is_left_of_a_file_that_is_taken_out(
        self, tmp_path: Path, options: dict[str, Any], gone: list[int]
    ) -> None:
        """Attributes, variables without the dimension, and those that have it as files differ."""
        paths = [write(tmp_path / f"{n}.nc", 2 * n, 2, n) for n in range(3)]
        target = tmp_path / "x.insitu"
        insitu.open_mfdataset(paths, **options).insitu.save(target)
        insitu.Archive.open(target).drop([paths[n] for n in gone])
        rest = [path for n, path in enumerate(paths) if n not in gone]
        for path in (paths[n] for n in gone):
            os.remove(path)
        xr.testing.assert_identical(insitu.open_dataset(target).load(), by_xarray(rest, **options))
        assert used_files(target) == set(rest)

    def test_a_type_that_one_file_had(self, tmp_path: Path) -> None:
        paths = [write(tmp_path / f"{n}.nc", 2 * n, 2, n, "f8" if n == 1 else "i2") for n in range(3)]
        target = tmp_path / "x.insitu"
        insitu.open_mfdataset(paths, **STATIC).insitu.save(target)
        assert insitu.open_dataset(target).tas.dtype == "f8"
        insitu.Archive.open(target).drop([paths[1]])
        xr.testing.assert_identical(insitu.open_dataset(target).load(), by_xarray([paths[0], paths[2]], **STATIC))
        write(tmp_path / "2.nc", 4, 2, 50, "f4")
        insitu.refresh(target)
        xr.testing.assert_identical(insitu.open_dataset(target).load(), by_xarray([paths[0], paths[2]], **STATIC))
        write(tmp_path / "2.nc", 4, 2, 51)
        insitu.refresh(target)
        assert insitu.open_dataset(target).tas.dtype == "i2"

    def test_references_that_do_not_say_how_they_were_made(self, tmp_path: Path) -> None:
        """What they show under another name stays: the files alone would not give it."""
        paths = [write(tmp_path / f"{n}.nc", 2 * n, 2, n) for n in range(3)]
        opened = insitu.open_mfdataset(paths, **STATIC)[["tas"]].rename(tas="t2m")
        opened.insitu.save(tmp_path / "x.json")
        target = str(tmp_path / "x.insitu")
        convert(tmp_path / "x.json", target, allow_local=True)
        assert saved_recipe(target) is None
        insitu.Archive.open(target).drop([paths[1]])
        expected = opened.load().isel(time=[0, 1, 4, 5])
        xr.testing.assert_equal(insitu.open_dataset(target).t2m.load(), expected.t2m)

    def test_files_of_an_archive_of_files(self, tmp_path: Path) -> None:
        """What is appended and taken out is so for a refresh, too."""
        paths = [write(tmp_path / f"{n}.nc", 2 * n, 2, n) for n in range(4)]
        with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
            for path in paths:
                archive.write(path, Path(path).name)
        members = [f"{tmp_path}/all.zip::{n}.nc" for n in range(4)]
        target = tmp_path / "x.insitu"
        insitu.Archive.open(members[:2], many=True, **STATIC).save(target)
        insitu.Archive.open(target).append(members[2:])
        xr.testing.assert_identical(insitu.open_dataset(target).load(), by_xarray(paths, **STATIC))
        os.utime(tmp_path / "all.zip", (2e9, 2e9))
        insitu.refresh(target)
        xr.testing.assert_identical(insitu.open_dataset(target).load(), by_xarray(paths, **STATIC))


class TestOverlaps:
    """Files of which each label comes from one."""

    @staticmethod
    def by_hand(paths: Sequence[str], keep: str) -> xr.Dataset:
        """Return each run of days that one file gives, one behind the other: the first one gives what has no days."""
        parts = [xr.load_dataset(path, engine="netcdf4") for path in paths]
        giver: dict[Any, int] = {}
        for number, part in enumerate(parts):
            for label in part.time.values:
                if keep == "last" or label not in giver:
                    giver[label] = number
        pieces = [parts[giver[label]].sel(time=[label]) for label in sorted(giver)]
        return xr.concat(pieces, "time", **STATIC, combine_attrs="override")

    @pytest.mark.parametrize("keep", ["first", "last"])
    def test_what_has_no_days_comes_from_the_file_that_gives_the_first_day(self, tmp_path: Path, keep: str) -> None:
        paths = [
            write(tmp_path / "a.nc", 0, 4, 1),
            write(tmp_path / "b.nc", 0, 2, 2),
            write(tmp_path / "c.nc", 3, 3, 3),
        ]
        target = tmp_path / "x.insitu"
        insitu.open_mfdataset(paths[::2], overlap=keep, **STATIC).insitu.save(target)
        insitu.Archive.open(target).append([paths[1]])
        order = [paths[0], paths[2], paths[1]]
        for _ in range(2):
            xr.testing.assert_identical(insitu.open_dataset(target).load(), self.by_hand(order, keep))
        assert insitu.open_dataset(target).attrs["title"] == ("a" if keep == "first" else "b")
        insitu.Archive.open(target).drop([paths[0]])
        xr.testing.assert_identical(insitu.open_dataset(target).load(), self.by_hand(order[1:], keep))
        assert used_files(target) == set(order[1:])

    def test_a_replacement_takes_the_place_of_the_first_that_goes(self, tmp_path: Path) -> None:
        """A correction that was appended later still counts for more."""
        paths = [write(tmp_path / "a.nc", 0, 4, 1), write(tmp_path / "b.nc", 2, 2, 2)]
        target = tmp_path / "x.insitu"
        insitu.open_mfdataset(paths, overlap="last", **STATIC).insitu.save(target)
        better = write(tmp_path / "c.nc", 0, 4, 3)
        insitu.Archive.open(target).drop([paths[0]], replacement=better)
        assert insitu.open_dataset(target).tas[:, 0].values.tolist() == [3, 3, 2, 2]
        xr.testing.assert_identical(insitu.open_dataset(target).load(), self.by_hand([better, paths[1]], "last"))

    def test_files_of_one_day_that_is_no_dimension(self, tmp_path: Path) -> None:
        """They lie along a dimension that only the list gives them; the day labels it."""
        paths = []
        for number, day in enumerate((0, 1, 1, 3)):
            part = xr.load_dataset(write(tmp_path / f"{number}.nc", day, 1, number), engine="netcdf4")
            part.isel(time=0).to_netcdf(tmp_path / f"{number}_.nc")
            paths.append(str(tmp_path / f"{number}_.nc"))
        target = tmp_path / "x.insitu"
        how: dict[str, Any] = {"combine": "nested", "concat_dim": "time", "overlap": "last"}
        insitu.open_mfdataset(paths[:2], **how).insitu.save(target)
        insitu.Archive.open(target).append(paths[2:])
        xr.testing.assert_identical(insitu.open_dataset(target).load(), insitu.open_mfdataset(paths, **how).load())
        assert insitu.open_dataset(target).tas[:, 0].values.tolist() == [0, 2, 3]
        insitu.Archive.open(target).drop(paths[:1])
        expected = insitu.open_mfdataset(paths[1:], **how).load()
        xr.testing.assert_identical(insitu.open_dataset(target).load(), expected)


def model(path: Path, name: str, first: int, value: float) -> str:
    """Write two days of a model."""
    return write(path, first, 2, value, source_id=name)


class TestLabelsOfFiles:
    """Files whose attributes or names say where they go."""

    @pytest.mark.parametrize("rule", ["attr:source_id", r"([ab])_"])
    def test_a_file_that_comes_late(self, tmp_path: Path, rule: str) -> None:
        """Days of a model that is there, before and between those that it has, and a model that is not."""
        cells = [("a", 2), ("b", 2), ("a", 0), ("b", 0), ("a", 6), ("b", 6), ("a", 4), ("b", 4)]
        paths = [model(tmp_path / f"{name}_{day}.nc", name, day, n) for n, (name, day) in enumerate(cells)]
        target, how = tmp_path / "x.insitu", {"concat_dim": {"model": rule}}
        insitu.open_mfdataset(paths[:2], **how).insitu.save(target)
        for end in (4, 6, 8):
            insitu.Archive.open(target).append(paths[end - 2 : end])
            found = insitu.open_dataset(target).load()
            xr.testing.assert_identical(found, insitu.open_mfdataset(paths[:end], **how).load())
        by_model = [by_xarray(sorted(own)) for own in (paths[::2], paths[1::2])]
        expected = xr.concat(by_model, pandas.Index(["a", "b"], name="model"))
        xr.testing.assert_equal(found.tas, expected.tas)
        again = insitu.Archive.open(target).append(paths)
        assert (again.steps, set(again.skipped)) == (0, set(paths))
        insitu.Archive.open(target).drop(paths[:2])
        xr.testing.assert_identical(insitu.open_dataset(target).load(), insitu.open_mfdataset(paths[2:], **how).load())

    def test_the_same_days_twice(self, tmp_path: Path) -> None:
        paths = [model(tmp_path / f"{name}.nc", name, 0, n) for n, name in enumerate("ab")]
        target = tmp_path / "x.insitu"
        insitu.open_mfdataset(paths, concat_dim={"model": "attr:source_id"}).insitu.save(target)
        before = (target / "root.json").read_bytes()
        with pytest.raises(CombineError, match=r"do not match[\s\S]*other\.nc|other\.nc"):
            insitu.Archive.open(target).append([model(tmp_path / "other.nc", "a", 0, 5)], "model")
        assert (target / "root.json").read_bytes() == before

    def test_expected_days(self, tmp_path: Path) -> None:
        cells = [(name, day) for day in (0, 4, 8) for name in "ab"]
        paths = [model(tmp_path / f"{name}_{day}.nc", name, day, n) for n, (name, day) in enumerate(cells)]
        target, how = tmp_path / "x.insitu", {"concat_dim": {"model": "attr:source_id"}, "expect": "1D"}
        insitu.open_mfdataset(paths[:4], **how).insitu.save(target)
        insitu.Archive.open(target).append(paths[4:])
        found = insitu.open_dataset(target).load()
        assert found.sizes["time"] == 10
        xr.testing.assert_identical(found, insitu.open_mfdataset(paths, **how).load())


def forecast(path: Path, run: int, lead: int, value: float, **attributes: str) -> str:
    """Write a field of a run and a lead time in hours."""
    data = xr.Dataset(
        {"tas": ("x", np.full(2, value))},
        {"time": ((), START + np.timedelta64(run, "h"), {"standard_name": "forecast_reference_time"}),
         "step": ((), np.timedelta64(lead, "h").astype("timedelta64[ns]"), {"standard_name": "forecast_period"})},
        attributes,
    )  # fmt: skip
    data.to_netcdf(path)
    os.utime(path, (1e9 + value, 1e9 + value))
    return str(path)


class TestForecasts:
    """Forecasts that overlap."""

    def values(self, target: Path) -> list[list[float]]:
        """Return a value of each run and lead time."""
        found: list[list[float]] = insitu.open_dataset(target).tas[..., 0].values.tolist()
        return found

    @pytest.mark.parametrize("overlap", ["first", "last", "newest"])
    def test_files_that_were_shadowed_show_again(self, tmp_path: Path, overlap: str) -> None:
        """Two files claim a run and a lead time; the one that counts is taken out, comes back, and is taken again."""
        dates = {"date_created": "2020-01-01"}
        paths = [
            forecast(tmp_path / "a.nc", 0, 0, 1, date_created="2020-01-03"),
            forecast(tmp_path / "b.nc", 0, 6, 2, **dates),
            forecast(tmp_path / "c.nc", 0, 0, 3, **dates),
        ]
        target = tmp_path / "x.insitu"
        insitu.open_forecasts(paths, overlap=overlap).insitu.save(target)
        winner, other = (paths[2], paths[0]) if overlap == "last" else (paths[0], paths[2])
        value = {paths[0]: 1.0, paths[2]: 3.0}
        assert self.values(target) == [[value[winner], 2.0]]
        insitu.Archive.open(target).drop([winner])
        assert self.values(target) == [[value[other], 2.0]]
        insitu.Archive.open(target).append([winner])
        rest = [path for path in paths if path != winner] + [winner]
        expected = insitu.open_forecasts(rest, overlap=overlap)
        xr.testing.assert_identical(insitu.open_dataset(target).load(), expected.load())
        insitu.Archive.open(target).append(paths)
        xr.testing.assert_identical(insitu.open_dataset(target).load(), expected.load())
        recipe = saved_recipe(str(target))
        assert recipe is not None
        assert list(recipe.files) == rest

    def test_a_shadowed_file_that_is_taken_out_may_come_back(self, tmp_path: Path) -> None:
        paths = [forecast(tmp_path / f"{n}.nc", 0, 0, n) for n in range(2)]
        target = tmp_path / "x.insitu"
        insitu.open_forecasts(paths, overlap="last").insitu.save(target)
        insitu.Archive.open(target).drop([paths[0]])
        with pytest.raises(NotFoundError, match=r"no file .*0\.nc"):
            insitu.Archive.open(target).drop([paths[0]])
        insitu.Archive.open(target).append([paths[0]])
        assert self.values(target) == [[0.0]]

    def test_a_shadowed_file_that_changes(self, tmp_path: Path) -> None:
        paths = [forecast(tmp_path / f"{n}.nc", 0, 0, n) for n in range(2)]
        target = tmp_path / "x.insitu"
        insitu.open_forecasts(paths, overlap="last").insitu.save(target)
        forecast(tmp_path / "0.nc", 6, 0, 5)
        insitu.refresh(target)
        assert self.values(target) == [[1.0], [5.0]]

    def test_files_of_runs_that_are_gone_do_not_come_back(self, tmp_path: Path) -> None:
        """Of two files of the first run one is shadowed: what combines all files anew has neither."""
        cells = [(0, 0), (0, 0), (6, 0), (6, 0)]
        paths = [forecast(tmp_path / f"{n}.nc", *cell, n) for n, cell in enumerate(cells)]
        target = tmp_path / "x.insitu"
        insitu.open_forecasts(paths, overlap="last").insitu.save(target)
        assert insitu.Archive.open(target).drop(keep_last={"time": 1}) == (paths[1],)
        assert self.values(target) == [[3.0]]
        insitu.Archive.open(target).drop([paths[3]])
        expected = insitu.open_forecasts(paths[2:3], overlap="last")
        xr.testing.assert_identical(insitu.open_dataset(target).load(), expected.load())

    def test_what_runs_lack(self, tmp_path: Path) -> None:
        """Compared with the values: what no file has is missing in all of them."""
        cells = [(0, 0), (0, 6), (12, 0), (12, 12), (36, 6)]
        paths = [forecast(tmp_path / f"{n}.nc", *cell, n) for n, cell in enumerate(cells)]
        target = tmp_path / "x.insitu"
        opened = insitu.open_forecasts(paths, expect={"time": "12h"})
        opened.insitu.save(target)
        for dataset in (opened, insitu.open_dataset(target)):
            missing = dataset.insitu.missing
            has = dataset.tas.notnull().all("x").to_series()
            runs = has.groupby("time").any()
            assert missing["time"].tolist() == runs.index[~runs].to_numpy().tolist()
            expected = has.index[~has.to_numpy() & has.index.get_level_values("time").isin(runs.index[runs])]
            assert sorted(missing["time", "step"]) == sorted(expected)
            assert len(expected) == 4
