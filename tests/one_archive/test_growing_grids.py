"""Appending gives what opening all files by the recipe of the archive gives, or is refused by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.errors import InsituError

LEADS = (0, 3, 6, 12)
GRID: dict[str, Any] = {"combine": "nested", "concat_dim": ["time", "step"]}
OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "minimal": {"data_vars": "minimal", "coords": "minimal", "compat": "override"},
    "all": {"data_vars": "all"},
    "different": {"data_vars": "different", "coords": "different", "compat": "equals"},
}


def forecast(folder: Path, run: int, lead: int) -> str:
    """A file of one field, with scalar times, as cfgrib shows a message."""
    time = np.datetime64("2020-01-01", "ns") + np.timedelta64(run, "D")
    step = np.timedelta64(lead, "h").astype("m8[ns]")
    path = folder / f"run{run}" / f"lead{lead:02d}.nc"
    path.parent.mkdir(exist_ok=True)
    xr.Dataset(
        {"t": (("y", "x"), run * 100.0 + lead + np.arange(6).reshape(2, 3)), "crs": ((), 1)},
        {"time": time, "step": step, "valid_time": time + step, "surface": 0.0, "y": [0, 1], "x": [0, 1, 2]},
    ).to_netcdf(path)
    return str(path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    folder = tmp_path_factory.mktemp("runs")
    return [[forecast(folder, run, lead) for lead in LEADS] for run in range(4)]


def expected(paths: Any, **how: Any) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        with xr.open_mfdataset(paths, engine="netcdf4", **how) as ds:
            return ds.load()


def save(paths: Any, target: Path, **how: Any) -> insitu.Archive:
    insitu.open_mfdataset(paths, **how).insitu.save(target)
    return insitu.Archive.open(target)


def check(target: Path, paths: Any, **how: Any) -> None:
    for _ in range(2):
        xr.testing.assert_identical(insitu.open_dataset(target).load(), expected(paths, **how))


@pytest.mark.parametrize(("count", "options"), [(1, "defaults"), (2, "minimal"), (2, "all"), (1, "different")])
class TestGridOfForecasts:
    def test_one_run(self, runs: list[list[str]], tmp_path: Path, count: int, options: str) -> None:
        how, target = {**GRID, **OPTIONS[options]}, tmp_path / "x.insitu"
        archive = save(runs[:count], target, **how)
        assert archive.append(runs[count]).steps == 1
        check(target, runs[: count + 1], **how)
        again = archive.append(runs[count])
        assert (again.steps, set(again.skipped)) == (0, set(runs[count]))

    def test_by_a_pattern_and_by_a_dataset(
        self, runs: list[list[str]], tmp_path: Path, count: int, options: str
    ) -> None:
        how, target = {**GRID, **OPTIONS[options]}, tmp_path / "x.insitu"
        save(runs[:count], target, **how).append(str(Path(runs[count][0]).parent / "*.nc"))
        insitu.open_mfdataset([runs[count + 1]], **how).insitu.append(target, "time")
        check(target, runs[: count + 2], **how)

    def test_two_runs(self, runs: list[list[str]], tmp_path: Path, count: int, options: str) -> None:
        how, target = {**GRID, **OPTIONS[options]}, tmp_path / "x.insitu"
        assert save(runs[:count], target, **how).append(runs[: count + 2]).steps == 2
        check(target, runs[: count + 2], **how)

    def test_a_lead(self, runs: list[list[str]], tmp_path: Path, count: int, options: str) -> None:
        how, target = {**GRID, **OPTIONS[options]}, tmp_path / "x.insitu"
        for new in ([row[-1] for row in runs[:2]], [[row[-1]] for row in runs[:2]]):
            archive = save([row[:-count] for row in runs[:2]], target, **how)
            if count == 2:
                archive.append([row[-2] for row in runs[:2]], "step")
            archive.append(new, "step")
            check(target, runs[:2], **how)


def test_known_and_new_files_of_a_grid(runs: list[list[str]], tmp_path: Path) -> None:
    target = tmp_path / "x.insitu"
    done = save(runs[:2], target, **GRID).append([*runs[1], *runs[2]])
    assert set(done.skipped) == set(runs[1])
    check(target, runs[:3], **GRID)


Change = Callable[[insitu.Archive, list[list[str]], Path], Any]
REFUSED: dict[str, tuple[Change, str]] = {
    "a part of a run": (lambda archive, runs, _: archive.append(runs[3][:2]), "labels of 'step'.*not those of"),
    "two runs in one list": (lambda archive, runs, _: archive.append([*runs[3], *runs[0]]), "labels of 'step'"),
    "a lead of one run": (lambda archive, runs, _: archive.append(runs[3][:1], "step"), "labels of 'time'"),
    "lists too deep": (lambda archive, runs, _: archive.append([[runs[3]]]), "grid of time × step"),
    "another dimension": (lambda archive, runs, _: archive.append(runs[3], "y"), "cannot grow along 'y'.*time × step"),
    "joined along time": (
        lambda _, runs, target: insitu.open_mfdataset(
            runs[3], combine="nested", concat_dim="time"
        ).insitu.append(target, "time"),
        "labels of 'step'",
    ),
    "one field": (
        lambda _, runs, target: insitu.open_mfdataset(
            runs[3][:1], combine="nested", concat_dim="time"
        ).insitu.append(target, "time"),
        "labels of 'step'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_a_grid_is_refused(runs: list[list[str]], tmp_path: Path, case: str) -> None:
    change, message = REFUSED[case]
    target = tmp_path / "x.insitu"
    archive = save(runs[1:3], target, **GRID)
    with pytest.raises(InsituError, match=message):
        change(archive, runs, target)
    check(target, runs[1:3], **GRID)


def year(folder: Path, member: int, number: int, calendar: str = "standard", months: int = 12) -> str:
    times = xr.date_range(f"{number}-01-01", periods=months, freq="MS", calendar=calendar, use_cftime=True)
    values = member * 1e4 + number + np.arange(months * 3.0).reshape(months, 3)
    path = folder / f"v_r{member}_{number}.nc"
    if path.exists():
        return str(path)
    xr.Dataset({"v": (("time", "x"), values)}, {"time": times, "x": [0, 1, 2]}).to_netcdf(path)
    return str(path)


@pytest.mark.parametrize(("calendar", "months"), [("standard", 1), ("standard", 12), ("360_day", 1), ("noleap", 12)])
@pytest.mark.parametrize("way", ["archive", "dataset"])
def test_a_year_before_those_of_a_list(tmp_path: Path, calendar: str, way: str, months: int) -> None:
    """In an archive joined by lists it comes last, as in a longer list; by labels it comes first."""
    years = [year(tmp_path, 1, number, calendar, months) for number in (2000, 2001, 2002)]
    nested = {"combine": "nested", "concat_dim": "time"}
    for how in (nested, {}):
        for first in (years[1:], years[1:2]):
            target = tmp_path / "x.insitu"
            archive = save(first, target, **how)

            def append(path: str, archive: insitu.Archive = archive, target: Path = target) -> None:
                if way == "archive":
                    archive.append(path)
                else:
                    insitu.open_dataset(path).insitu.append(target, "time")

            append(years[0])
            check(target, [*first, years[0]] if how else [years[0], *first], **how)


def test_years_between_others(tmp_path: Path) -> None:
    """By labels they come between them, unless they lie between the labels of one file."""
    years = [year(tmp_path, 1, number) for number in range(2000, 2006)]
    for how in ({"combine": "nested", "concat_dim": "time"}, {}):
        target = tmp_path / "x.insitu"
        archive = save([years[0], years[2], years[5]], target, **how)
        archive.append([years[4], years[1]])
        check(target, [years[0], years[2], years[5], years[4], years[1]], **how)
        archive.append([years[3]])
        check(target, [years[0], years[2], years[5], years[4], years[1], years[3]], **how)
    within = tmp_path / "within.nc"
    middle = xr.open_dataset(years[2]).isel(time=[0])
    middle.assign_coords(time=middle.time + np.timedelta64(5, "D")).to_netcdf(within)
    with pytest.raises(InsituError, match=r"lie between those of .*2002\.nc.*overlap="):
        archive.append([str(within)])
    archive.append([str(within)], overlap="last")
    assert archive.dataset().indexes["time"].is_monotonic_increasing


@pytest.mark.parametrize("how", [{"combine": "nested", "concat_dim": "time"}, {}], ids=["nested", "by_coords"])
@pytest.mark.filterwarnings("ignore:.*datetime64:xarray.SerializationWarning")
def test_dates_that_datetime64_does_not_hold(tmp_path: Path, how: dict[str, Any]) -> None:
    """Opened together with the others, all would be dates of cftime."""
    target = tmp_path / "x.insitu"
    archive = save([year(tmp_path, 1, 2000)], target, **how)
    for number in (1000, 3000):
        with pytest.raises(InsituError, match=r"mixed types.*DatetimeGregorian, datetime64.*use_cftime=True"):
            archive.append(year(tmp_path, 1, number))
    check(target, year(tmp_path, 1, 2000))


def test_files_of_a_list_in_the_wrong_order(tmp_path: Path) -> None:
    years = [year(tmp_path, 1, number) for number in range(2000, 2004)]
    target = tmp_path / "x.insitu"
    archive = save(years[:2], target, combine="nested", concat_dim="time")
    (tmp_path / "copy").mkdir()
    with pytest.raises(InsituError, match=r"hold 2002-01-01.* of 'time' more than once"):
        archive.append([years[2], year(tmp_path / "copy", 1, 2002)])
    archive.append([years[3], years[2]])
    check(target, [years[0], years[1], years[3], years[2]], combine="nested", concat_dim="time")


def test_an_earlier_step_in_a_repository(tmp_path: Path) -> None:
    pytest.importorskip("icechunk")
    years = [year(tmp_path, 1, number, months=1) for number in (2000, 2001)]
    target = tmp_path / "x.icechunk"
    insitu.open_dataset(years[1]).insitu.save(target)
    with pytest.raises(InsituError, match="out of order"):
        insitu.Archive.open(target).append(years[0])


def test_a_run_onto_a_grid_in_a_repository(runs: list[list[str]], tmp_path: Path) -> None:
    """It does not record how files were combined."""
    pytest.importorskip("icechunk")
    target = tmp_path / "x.icechunk"
    archive = save(runs[:2], target, **GRID)
    before = insitu.open_dataset(target).load()
    with pytest.raises(InsituError, match="Could not find any dimension coordinates"):
        archive.append(runs[2])
    xr.testing.assert_identical(insitu.open_dataset(target).load(), before)


BY_NAME: dict[str, Any] = {"concat_dim": {"member": r"_r(\d+)_"}}


class TestDimensionsFromNames:
    def files(self, folder: Path, members: tuple[int, ...], years: tuple[int, ...]) -> list[str]:
        return [year(folder, member, number) for member, number in product(members, years)]

    def same_as_anew(self, target: Path, paths: list[str]) -> None:
        wanted = insitu.open_mfdataset(paths, **BY_NAME).load()
        xr.testing.assert_identical(insitu.open_dataset(target).load(), wanted)

    def test_a_year_of_all_members(self, tmp_path: Path) -> None:
        archive = save(self.files(tmp_path, (1, 2), (2000, 2001)), tmp_path / "x.insitu", **BY_NAME)
        archive.append(self.files(tmp_path, (1, 2), (2002,)))
        self.same_as_anew(tmp_path / "x.insitu", self.files(tmp_path, (1, 2), (2000, 2001, 2002)))

    def test_a_member(self, tmp_path: Path) -> None:
        archive = save(self.files(tmp_path, (1, 2), (2000, 2001)), tmp_path / "x.insitu", **BY_NAME)
        archive.append(self.files(tmp_path, (3,), (2000, 2001)), "member")
        self.same_as_anew(tmp_path / "x.insitu", self.files(tmp_path, (1, 2, 3), (2000, 2001)))

    def test_a_year_of_one_member(self, tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        files, new = self.files(tmp_path, (1, 2), (2000, 2001)), year(tmp_path, 1, 2002)
        archive = save(files, target, **BY_NAME)
        with pytest.raises(InsituError, match="labels of 'member'"):  # of a dataset nothing says which member it is
            insitu.open_dataset(new).insitu.append(target, "time")
        self.same_as_anew(target, files)
        archive.append(new)
        self.same_as_anew(target, [*files, new])

    def test_a_replaced_file_keeps_its_member(self, tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        files = self.files(tmp_path, (1, 2, 3), (2000,))
        archive = save(files, target, **BY_NAME)
        (tmp_path / "new").mkdir()
        other = year(tmp_path / "new", 2, 2000)
        archive.drop(files[1:2], other)
        self.same_as_anew(target, [files[0], other, files[2]])


def test_an_archive_whose_opening_is_unknown(tmp_path: Path) -> None:
    """Files are not added as they are to what a function or a selection made."""
    years, target = [year(tmp_path, 1, number) for number in (2000, 2001)], tmp_path / "x.insitu"

    def double(ds: xr.Dataset) -> xr.Dataset:
        return ds.rename(v="w")

    archive = save(years[:1], target, preprocess=double)
    with pytest.raises(InsituError, match=r"preprocess=.*ds\.insitu\.append"):
        archive.append(years[1])
    with pytest.raises(InsituError, match="preprocess="):
        archive.drop(years[:1], years[1])
    insitu.open_mfdataset(years[1:], preprocess=double).insitu.append(target, "time")
    check(target, years, preprocess=double)

    insitu.open_mfdataset(years[:1]).isel(x=slice(2)).insitu.save(target)
    with pytest.raises(InsituError, match="changed after it was opened"):
        insitu.Archive.open(target).append(years[1])


def test_dimensions_that_differ_are_refused(tmp_path: Path) -> None:
    """Values are not repeated along a dimension that the new files lack."""
    flat, deep, target = tmp_path / "flat.nc", tmp_path / "deep.nc", tmp_path / "x.insitu"
    xr.Dataset({"v": (("time", "z"), np.zeros((2, 3)))}, {"time": [0, 1]}).to_netcdf(deep)
    xr.Dataset({"v": (("time",), np.ones(2))}, {"time": [2, 3]}).to_netcdf(flat)
    insitu.open_dataset(deep).insitu.save(target)
    with pytest.raises(InsituError, match=r"'v' has the dimensions \(time, z\) in .* and \(time\) in the new files"):
        insitu.Archive.open(target).append(str(flat))
