"""Files whose labels overlap, interleave or leave gaps, compared with xarray by hand.

Modules: combining/arrange_by_names.py, combining/expected_labels.py, combining/file_times.py,
combining/join_files.py, combining/label_boxes.py
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import insitu
from fixtures.make_archive import PACKINGS, STORAGE, STORED, Part, write_all
from insitu.combining import scan_portions
from insitu.engines.executor import ThisThread
from insitu.errors import CombineError
from insitu.reading import ReadStatistics
from insitu.xarray_bridge import open_mfdataset

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of xarray, about its defaults

KEEP = {"first": "first", "last": "last", "newest": "last"}


def by_hand(paths: Sequence[str], overlap: str, grid: Any = None) -> xr.Dataset:
    """Return what xarray makes of files: joined, sorted, without duplicates, reindexed.

    Files that give no label are left out: their types and attributes do not count.
    """
    parts = [xr.open_dataset(path, engine="netcdf4").load() for path in paths]
    if overlap == "newest":
        parts = sorted(parts, key=lambda part: part.attrs["creation_date"])
    giver: dict[Any, int] = {}
    for number, part in enumerate(parts):
        for label in part.time.values.tolist():
            if KEEP[overlap] == "last" or label not in giver:
                giver[label] = number
    parts = [part for number, part in enumerate(parts) if number in giver.values()]
    whole = xr.concat(parts, "time").sortby("time").drop_duplicates("time", keep=KEEP[overlap])
    return whole if grid is None else whole.reindex(time=grid)


def same(found: xr.Dataset, expected: xr.Dataset) -> None:
    """Assert that values, types and dimensions are those of xarray: a part of them, the whole, and again."""
    some = {"time": slice(None, None, 2)}
    xr.testing.assert_equal(found.isel(some).load(), expected.isel(some))
    for _ in range(2):
        xr.testing.assert_equal(found.compute(), expected)
    for name, variable in expected.variables.items():
        assert found[name].dtype == variable.dtype, name
        assert found[name].dims == variable.dims, name


@st.composite
def overlapping(draw: st.DrawFn) -> list[Part]:
    """Return files with any days, in any order."""
    calendar = draw(st.sampled_from(("standard", "standard", "noleap", "360_day")))
    return [
        Part(
            first=draw(st.integers(0, 14)),
            days=draw(st.integers(1, 6)),
            stored=draw(st.sampled_from(STORED)),
            packing=draw(st.integers(0, len(PACKINGS) - 1)),
            storage=draw(st.integers(0, len(STORAGE) - 1)),
            chunks=draw(st.none() | st.tuples(st.integers(1, 5), st.integers(1, 2), st.integers(1, 4))),
            calendar=calendar,
            seed=number,
            level=2.0,
            attributes={"creation_date": f"2020-01-{draw(st.integers(1, 9)):02d}T00:00:00Z"},
        )
        for number in range(draw(st.integers(2, 6)))
    ]


@given(archive=overlapping(), overlap=st.sampled_from(sorted(KEEP)), gaps=st.booleans())
@hypothesis_settings(max_examples=20, deadline=None)
def test_random_archives(archive: list[Part], overlap: str, gaps: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = write_all(Path(folder), archive)
        days = {day for part in archive for day in range(part.first, part.first + part.days)}
        grid = None
        if gaps:
            labels = xr.open_dataset(paths[0]).time.to_index()
            first = labels[0] + pandas.Timedelta(days=min(days) - archive[0].first).to_pytimedelta()
            grid = xr.date_range(
                first, periods=max(days) - min(days) + 1, freq="1D",
                calendar=archive[0].calendar, use_cftime=archive[0].calendar != "standard",
            )  # fmt: skip
        options: dict[str, Any] = {"overlap": overlap, "expect": "1D" if gaps else None}
        expected = by_hand(paths, overlap, grid)
        same(open_mfdataset(paths, **options), expected)
        open_mfdataset(paths, **options).insitu.save(f"{folder}/saved.insitu")
        same(insitu.open_dataset(f"{folder}/saved.insitu"), expected)


@given(archive=overlapping(), overlap=st.sampled_from(sorted(KEEP)), gaps=st.booleans(), nested=st.booleans())
@hypothesis_settings(max_examples=12, deadline=None)
def test_portions_give_the_same(archive: list[Part], overlap: str, gaps: bool, nested: bool) -> None:
    options: dict[str, Any] = {"overlap": overlap, "expect": "1D" if gaps else None}
    if nested:
        options |= {"combine": "nested", "concat_dim": "time"}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_portions, "PORTIONS", 3)
        patch.setattr(scan_portions, "FAN_IN", 2)
        paths = write_all(Path(folder), archive)
        found = open_mfdataset(paths, parallel=ThisThread(), **options)
        xr.testing.assert_identical(found.load(), open_mfdataset(paths, **options).load())


@given(archive=overlapping(), overlap=st.sampled_from(["first", "last"]))
@hypothesis_settings(max_examples=12, deadline=None)
def test_lists_keep_their_order(archive: list[Part], overlap: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = write_all(Path(folder), archive)
        found = open_mfdataset(paths, combine="nested", concat_dim="time", overlap=overlap)
        parts = [xr.open_dataset(path, engine="netcdf4").load() for path in paths]
        expected = xr.concat(parts, "time").drop_duplicates("time", keep=overlap)
        xr.testing.assert_equal(found.load(), expected)


def test_attributes_are_those_of_the_first_labels(tmp_path: Path) -> None:
    paths = write_all(tmp_path, [Part(first=3, days=3, title="late"), Part(first=0, days=4, title="early", seed=1)])
    assert open_mfdataset(paths, overlap="last").attrs["title"] == "early"


def test_shadowed_steps_are_not_read(tmp_path: Path) -> None:
    """Files have a chunk for each day: as many are read as there are days."""
    archive = [Part(first=4 * n, days=6, chunks=(1, 3, 4), seed=n, stored="i4") for n in range(5)]
    archive.append(Part(first=9, days=2, chunks=(1, 3, 4), seed=9, stored="i4"))
    paths = write_all(tmp_path, archive)
    for overlap in ("first", "last"):
        archived = insitu.Archive.open(paths, overlap=overlap)
        tally = ReadStatistics()
        values = archived.read("tas", tally=tally)
        assert len(values) == 22
        assert tally.chunks == 22
        urls = {source.url for source in archived.tree.arrays["tas"].sources}
        assert urls == set(paths if overlap == "last" else paths[:5])


class TestNewest:
    """Which time counts."""

    def _paths(self, folder: Path, *attributes: dict[str, Any]) -> list[str]:
        return write_all(folder, [Part(days=2, seed=n, attributes=own) for n, own in enumerate(attributes)])

    def _giver(self, paths: Sequence[str]) -> int:
        found = open_mfdataset(paths, overlap="newest").tas.values
        every = [xr.open_dataset(path).tas.values for path in paths]
        return next(number for number, values in enumerate(every) if np.array_equal(values, found))

    @pytest.mark.parametrize(
        "dates",
        [
            ("2020-01-02T00:00:00Z", "2020-01-03", "2020-01-01T23:00:00+01:00"),
            ("20200102", "20200103", "20200101"),
            ("2020-01-02 00:00:00", "Fri Jan  3 10:00:00 2020", "2020-01-03T09:00:00"),
        ],
    )
    def test_dates_in_attributes(self, tmp_path: Path, dates: Sequence[str]) -> None:
        assert self._giver(self._paths(tmp_path, *({"date_created": date} for date in dates))) == 1

    def test_times_of_objects_unless_all_have_the_attribute(self, tmp_path: Path) -> None:
        paths = self._paths(tmp_path, {}, {"creation_date": "2020-01-01"}, {"creation_date": "2030-01-01"})
        for path, seconds in zip(paths, (3e8, 2e8, 1e8), strict=True):
            os.utime(path, (seconds, seconds))
        assert self._giver(paths) == 0
        assert self._giver(paths[1:]) == 1

    def test_no_dates(self, tmp_path: Path) -> None:
        paths = self._paths(tmp_path, {"creation_date": "yesterday"}, {"creation_date": "2020-01-01"})
        assert self._giver(paths) == 1  # by the times of the objects: the second was written later


class TestErrors:
    """What is refused, and what the message names."""

    def test_nothing_is_chosen(self, tmp_path: Path) -> None:
        paths = write_all(tmp_path, [Part(first=0, days=4), Part(first=2, days=4)])
        with pytest.raises(CombineError, match=r"monotonic global indexes.*overlap="):
            open_mfdataset(paths)
        for options in ({"overlap": "error"}, {"expect": "1D"}):
            with pytest.raises(
                CombineError, match=r"part_000.nc and .*part_001.nc both have time 2000-01-03.*overlap="
            ):
                open_mfdataset(paths, **options)

    def test_a_label_off_the_grid(self, tmp_path: Path) -> None:
        paths = write_all(tmp_path, [Part(first=0, days=1), Part(first=3, days=1), Part(first=4, days=1)])
        with pytest.raises(CombineError, match=r"2000-01-04 of 'time' is off the grid of expect='2D'.*part_001"):
            open_mfdataset(paths, expect="2D")

    @pytest.mark.parametrize(
        ("expect", "message"),
        [
            ("fortnight", "no spacing of the labels of 'time'"),
            (2, "dates and durations need an offset"),
            ({"time": "1D", "height": 2}, "'height', along which no file has labels"),
            ({"lat": "1D"}, "no spacing of the labels of 'lat'"),
            ({"lat": -1.0}, "must be a positive number"),
            ("1ns", "more than"),
        ],
    )
    def test_spacings_that_are_none(self, tmp_path: Path, expect: Any, message: str) -> None:
        paths = write_all(tmp_path, [Part(first=0), Part(first=3)])
        with pytest.raises(CombineError, match=message):
            open_mfdataset(paths, expect=expect)

    def test_a_label_twice_in_a_file(self, tmp_path: Path) -> None:
        paths = write_all(tmp_path, [Part(first=0), Part(first=1)])
        twice = xr.open_dataset(paths[0]).isel(time=[0, 1, 1])
        twice.to_netcdf(tmp_path / "twice.nc")
        with pytest.raises(CombineError, match=r"2000-01-02 of 'time' is in the file more than once.*twice.nc"):
            open_mfdataset([str(tmp_path / "twice.nc"), paths[1]], overlap="last")

    def test_calendars(self, tmp_path: Path) -> None:
        paths = write_all(tmp_path, [Part(first=0, calendar="noleap"), Part(first=1, calendar="360_day")])
        with pytest.raises(CombineError, match=r"mixed types|no order"):
            open_mfdataset(paths, overlap="last")

    def test_other_labels_across(self, tmp_path: Path) -> None:
        paths = write_all(tmp_path, [Part(first=0), Part(first=1, lat=(0.0, 10.0, 20.5))])
        with pytest.raises(CombineError, match=r"do not fill the grid.*lat.*[\s\S]*same labels along 'lat'"):
            open_mfdataset(paths, overlap="last")

    def test_values_of_the_option(self) -> None:
        with pytest.raises(ValueError, match="overlap must be"):
            open_mfdataset("a.nc", overlap="best")
        with pytest.raises(ValueError, match="expect must be"):
            open_mfdataset("a.nc", expect=[1])


class TestExpect:
    """Grids of labels."""

    def test_numbers(self, tmp_path: Path) -> None:
        lats = [(0.0, 0.1, 0.2), (0.5, 0.6000000001)]
        paths = write_all(tmp_path, [replace(Part(), lat=lat) for lat in lats])
        found = open_mfdataset(paths, expect={"lat": 0.1}).load()
        assert found.lat.values.tolist() == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
        expected = xr.open_mfdataset(paths, engine="netcdf4").load().reindex(lat=found.lat.values)
        xr.testing.assert_equal(found, expected)

    def test_one_file_with_a_gap(self, tmp_path: Path) -> None:
        paths = write_all(tmp_path, [Part(first=0, days=5, stored="i2")])
        xr.open_dataset(paths[0]).isel(time=[0, 1, 4]).to_netcdf(tmp_path / "gap.nc")
        found = open_mfdataset([str(tmp_path / "gap.nc")], expect="1D").load()
        expected = xr.open_dataset(tmp_path / "gap.nc").reindex(time=pandas.date_range("2000-01-01", periods=5))
        xr.testing.assert_equal(found, expected)

    def test_descending(self, tmp_path: Path) -> None:
        paths = write_all(tmp_path, [Part(lat=(30.0, 20.0)), Part(lat=(0.0, -10.0))])
        found = open_mfdataset(paths, expect={"lat": 10}).load()
        assert found.lat.values.tolist() == [30, 20, 10, 0, -10]
        expected = xr.open_mfdataset(paths, engine="netcdf4").load().reindex(lat=found.lat.values)
        xr.testing.assert_equal(found, expected)

    def test_offsets_of_pandas(self, tmp_path: Path) -> None:
        paths = write_all(tmp_path, [Part(first=0, days=1), Part(first=60, days=1)])
        found = open_mfdataset(paths, expect=pandas.tseries.offsets.MonthBegin())
        assert found.time.dt.strftime("%m-%d").values.tolist() == ["01-01", "02-01", "03-01"]
        assert found.tas.isel(time=1).isnull().all()


class TestListsInLists:
    """`combine="nested"` along several dimensions."""

    @staticmethod
    def grid(folder: Path, last: int = 2) -> list[list[str]]:
        """Write two rows of files, each of some days, of two columns of latitudes."""
        lats = [(0.0, 10.0), (20.0, 30.0)]
        rows = [[Part(first=first, days=3, lat=lat, seed=first + 1) for lat in lats] for first in (0, last)]
        folder.mkdir(exist_ok=True)
        found = write_all(folder, [part for row in rows for part in row])
        return [found[:2], found[2:]]

    @pytest.mark.parametrize("keep", ["first", "last"])
    def test_rows_that_overlap(self, tmp_path: Path, keep: str) -> None:
        paths = self.grid(tmp_path)
        how = {"combine": "nested", "concat_dim": ["time", "lat"]}
        found = open_mfdataset(paths, overlap=keep, data_vars="minimal", **how)
        columns = []
        for column in zip(*paths, strict=True):
            parts = [xr.open_dataset(path, engine="netcdf4").load() for path in column]
            columns.append(xr.concat(parts, "time", data_vars="minimal").drop_duplicates("time", keep=keep))
        expected = xr.concat(columns, "lat", data_vars="minimal", combine_attrs="override")
        for _ in range(2):
            xr.testing.assert_equal(found.compute(), expected)
        target = tmp_path / "x.insitu"
        found.insitu.save(target)
        xr.testing.assert_equal(insitu.open_dataset(target).load(), expected)
        archive, late = insitu.Archive.open(target), self.grid(tmp_path / "more", 4)[1]

        def check(lists: list[list[str]]) -> None:
            anew = open_mfdataset(lists, overlap=keep, data_vars="minimal", **how)
            xr.testing.assert_identical(insitu.open_dataset(target).load(), anew.compute())
            assert insitu.open_dataset(target).insitu.files.equals(anew.insitu.files)

        assert archive.append([late]).added == tuple(late)
        check([*paths, late])
        assert archive.append(late).skipped == tuple(late)
        archive.drop(paths[0])
        check([paths[1], late])
        with pytest.raises(CombineError, match="do not fill the grid"):
            archive.drop(late[:1])
        for new, path in zip(self.grid(tmp_path / "new", 6)[1], paths[1], strict=True):
            Path(new).replace(path)
        insitu.refresh(str(target))
        check([paths[1], late])

    def test_days_that_are_missing(self, tmp_path: Path) -> None:
        paths = self.grid(tmp_path, 4)
        how: dict[str, Any] = {"combine": "nested", "concat_dim": ["time", "lat"], "data_vars": "minimal"}
        found = open_mfdataset(paths, expect={"time": "1D"}, **how).load()
        whole = xr.open_mfdataset(paths, engine="netcdf4", **how).load()
        xr.testing.assert_equal(found, whole.reindex(time=pandas.date_range("2000-01-01", periods=7)))

    def test_what_is_refused(self, tmp_path: Path) -> None:
        paths = self.grid(tmp_path)
        with pytest.raises(CombineError, match="need labels along 'model'"):
            open_mfdataset(paths, combine="nested", concat_dim=["model", "lat"], overlap="last")
        with pytest.raises(CombineError, match="as deep as there are dimensions"):
            open_mfdataset(paths, combine="nested", concat_dim=["time", None], overlap="last")
        with pytest.raises(CombineError, match="both have"):
            open_mfdataset(paths, combine="nested", concat_dim=["time", "lat"], overlap="error")
