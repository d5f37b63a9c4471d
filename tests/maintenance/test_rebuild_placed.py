"""Archives whose files overlap or leave gaps: whatever is done to them, they are what opening all files anew gives.

Modules: combining/placed_files.py, maintenance/append_by_labels.py, maintenance/change_placed.py
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import insitu
from fixtures.make_archive import Part, write
from insitu.combining.recipe import Recipe
from insitu.errors import CombineError, InsituError, NotFoundError, StaleSourceError, UnsupportedError
from insitu.maintenance import saved_recipe

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of xarray, about its defaults


class Kept:
    """An archive, and the files that it is made of, in the order in which they were given."""

    def __init__(self, folder: str, names: list[str], **options: Any) -> None:
        self.folder, self.options = folder, options
        self.target = f"{folder}/kept.insitu"
        self.files = [self.path(name) for name in names]
        insitu.Archive.open(self.files, many=True, **options).save(self.target)

    def path(self, name: str) -> str:
        """Return where a file lies."""
        return f"{self.folder}/{name}.nc"

    @property
    def archive(self) -> insitu.Archive:
        """The archive, opened again."""
        return insitu.Archive.open(self.target)

    def check(self) -> None:
        """Assert that it holds what its files give, and knows them."""
        anew = insitu.Archive.open(self.files, many=True, **self.options)
        found, expected = self.archive.dataset().load(), anew.dataset().load()
        xr.testing.assert_equal(found, expected)
        assert {n: v.dtype for n, v in found.variables.items()} == {n: v.dtype for n, v in expected.variables.items()}
        recipe = saved_recipe(self.target)
        assert recipe is not None
        assert list(recipe.files) == self.files
        before, after = (json.dumps(own.placed and own.placed.to_document()) for own in (recipe, anew.recipe))
        assert before == after, f"{before}\n{after}"


def make(folder: str, name: str, first: int, days: int, seed: int = 0, **more: Any) -> str:
    """Write a file."""
    attributes = {"creation_date": f"2020-01-01T00:{seed:02d}:00Z"}
    path = Path(folder, f"{name}.nc")
    write(path, Part(first=first, days=days, stored="i2", level=1.0, seed=seed, attributes=attributes, **more))
    os.utime(path, (1e9 + 60 * seed, 1e9 + 60 * seed))
    return str(path)


STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "append", "again", "replace", "drop", "refresh"]), st.integers(0, 99)),
    min_size=1,
    max_size=6,
)
FILES = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5)), min_size=9, max_size=9)


@given(
    files=FILES,
    steps=STEPS,
    overlap=st.sampled_from(["first", "last", "newest"]),
    expect=st.sampled_from([None, "1D"]),
    nested=st.booleans(),
)
@hypothesis_settings(max_examples=15, deadline=None)
def test_random_changes(
    files: list[tuple[int, int]], steps: list[tuple[str, int]], overlap: str, expect: str | None, nested: bool
) -> None:
    options: dict[str, Any] = {"overlap": overlap, "expect": expect}
    if nested:
        options |= {"combine": "nested", "concat_dim": "time"}
    with tempfile.TemporaryDirectory() as folder:
        for number, (first, days) in enumerate(files):
            make(folder, f"f{number}", first, days, seed=number)
        kept = Kept(folder, ["f0", "f1", "f2"], **options)
        spare = [kept.path(f"f{number}") for number in range(3, 9)]
        for what, number in steps:
            chosen = kept.files[number % len(kept.files)]
            if what == "append" and spare:
                kept.files.append(spare.pop())
                kept.archive.append([kept.files[-1]])
            elif what == "again":
                assert chosen in kept.archive.append([chosen]).skipped
            elif what == "replace" and spare:
                at = kept.files.index(chosen)
                kept.files[at] = spare.pop()
                kept.archive.drop([chosen], [kept.files[at]])
            elif what == "drop" and len(kept.files) > 1:
                kept.files.remove(chosen)
                kept.archive.drop([chosen])
                spare.insert(0, chosen)
            elif what == "refresh":
                make(folder, Path(chosen).stem, number % 13, number % 4 + 1, seed=20 + number % 30)
                kept.archive.refresh()
            kept.check()


class TestCorrections:
    """What operators do with archives that are corrected later."""

    @pytest.fixture
    def kept(self, tmp_path: Path) -> Kept:
        for week in range(4):
            make(str(tmp_path), f"week{week}", 7 * week, 7, seed=week)
        return Kept(str(tmp_path), ["week0", "week1", "week2"], overlap="last")

    def test_a_part_is_corrected(self, kept: Kept) -> None:
        kept.files.append(make(kept.folder, "correction", 9, 3, seed=9))
        done = kept.archive.append([kept.files[-1]])
        assert (done.steps, done.added, done.shadowed) == (3, (kept.files[-1],), ())
        kept.check()

    def test_the_job_that_runs_twice(self, kept: Kept) -> None:
        kept.files.append(make(kept.folder, "correction", 7, 7, seed=9))
        for files in ([kept.files[-1]], [kept.path("week1")], kept.files):
            kept.archive.append(files)
            kept.check()
        root = Path(kept.target, "root.json").read_bytes()
        done = kept.archive.append(kept.files)
        assert (done.steps, done.added) == (0, ())
        assert done.skipped == tuple(kept.files)
        assert Path(kept.target, "root.json").read_bytes() == root

    def test_a_file_of_which_nothing_is_shown(self, tmp_path: Path) -> None:
        make(str(tmp_path), "all", 0, 10)
        kept = Kept(str(tmp_path), ["all"], overlap="first")
        kept.files.append(make(kept.folder, "part", 2, 3, seed=1))
        done = kept.archive.append([kept.files[-1]])
        assert (done.steps, done.shadowed) == (0, (kept.files[-1],))
        kept.check()
        kept.files.pop(0)
        kept.archive.drop([kept.path("all")])
        kept.check()

    def test_a_shadowed_file_that_changes(self, kept: Kept) -> None:
        kept.files.append(make(kept.folder, "correction", 7, 7, seed=9))
        kept.archive.append([kept.files[-1]])
        make(kept.folder, "week1", 5, 10, seed=12)
        with pytest.raises(StaleSourceError, match=r"week1\.nc.*refresh"):
            kept.archive.append([kept.path("week1")])
        kept.archive.refresh()
        kept.check()

    def test_an_archive_that_was_not_made_so(self, tmp_path: Path) -> None:
        for week in range(3):
            make(str(tmp_path), f"week{week}", 7 * week, 7, seed=week)
        kept = Kept(str(tmp_path), ["week0", "week1", "week2"])
        kept.files.append(make(kept.folder, "correction", 9, 3, seed=9))
        with pytest.raises(InsituError, match="already, from another file"):
            kept.archive.append([kept.files[-1]])
        kept.archive.append([kept.files[-1]], overlap="newest")
        kept.options = {"overlap": "last"}
        xr.testing.assert_equal(
            kept.archive.dataset().load(), insitu.Archive.open(kept.files, overlap="last").dataset().load()
        )
        with pytest.raises(CombineError, match="cannot grow along 'lat'"):
            kept.archive.append([kept.path("week0"), make(kept.folder, "other", 30, 3)], dim="lat")

    def test_what_is_refused(self, kept: Kept) -> None:
        with pytest.raises(NotFoundError, match="no file other"):
            kept.archive.drop(["other.nc"])
        with pytest.raises(UnsupportedError, match="all files"):
            kept.archive.drop(kept.files)
        make(kept.folder, "wide", 8, 2, lat=(0.0, 10.0, 30.0))
        with pytest.raises(CombineError, match=r"do not match[\s\S]*wide\.nc"):
            kept.archive.append([kept.path("wide")])

    def test_a_moved_archive(self, kept: Kept) -> None:
        insitu.Archive.open(kept.files, overlap="last").save(kept.target, relative=True)
        moved = kept.folder + "-moved"
        Path(kept.folder).rename(moved)
        recipe = saved_recipe(f"{moved}/kept.insitu")
        assert recipe is not None
        assert recipe.files == tuple(f"{moved}/week{week}.nc" for week in range(3))
        assert insitu.Archive.open(f"{moved}/kept.insitu").append([f"{moved}/week3.nc"]).steps == 7


class TestGaps:
    """Files that come late."""

    def test_a_file_comes_late_and_another_one_back(self, tmp_path: Path) -> None:
        for day in range(8):
            make(str(tmp_path), f"day{day}", day, 1, seed=day)
        kept = Kept(str(tmp_path), ["day1", "day2", "day5"], expect="1D")
        for late in ("day3", "day7", "day0"):
            kept.files.append(kept.path(late))
            kept.archive.append([kept.path(late)])
            kept.check()
        kept.files.remove(kept.path("day2"))
        kept.archive.drop([kept.path("day2")])
        kept.check()
        kept.files.append(kept.path("day2"))
        kept.archive.append([kept.path("day2")])
        kept.check()
        with pytest.raises(CombineError, match="both have time"):
            kept.archive.append([make(kept.folder, "other", 3, 1, seed=40)])

    def test_files_with_other_variables(self, tmp_path: Path) -> None:
        make(str(tmp_path), "a", 0, 3)
        make(str(tmp_path), "b", 2, 3, seed=1)
        for name, first in (("winds", 0), ("more", 4)):
            whole = xr.open_dataset(make(str(tmp_path), name, first, 4, seed=2))[["wind"]].load()
            whole.rename(wind="gust").to_netcdf(tmp_path / f"{name}.nc")
        kept = Kept(str(tmp_path), ["a", "winds"], overlap="last", expect="1D")
        kept.check()
        for name in ("b", "more"):
            kept.files.append(kept.path(name))
            kept.archive.append([kept.path(name)])
            kept.check()


def write_days(folder: Path, name: str, first: int, days: int, value: int = 0) -> str:
    """Write a file of some days, perhaps of none."""
    times = np.arange(first, first + days).astype("timedelta64[D]") + np.datetime64("2000-01-01", "ns")
    data = xr.Dataset({"tas": (("time", "x"), np.full((days, 2), value))}, {"time": times})
    data.to_netcdf(folder / name)
    return str(folder / name)


def test_files_without_labels_are_an_archive_that_grows(tmp_path: Path) -> None:
    empty = [write_days(tmp_path, f"{number}.nc", 0, 0) for number in range(2)]
    late = write_days(tmp_path, "late.nc", 3, 2)
    with insitu.open_mfdataset(empty, overlap="last") as ds:
        xr.testing.assert_identical(ds.load(), xr.open_dataset(empty[0]).load())
    options = {"combine": "nested", "concat_dim": "time", "overlap": "last"}
    target = str(tmp_path / "a.insitu")
    insitu.open_mfdataset(empty, **options).insitu.save(target)
    insitu.Archive.open(target).append([late])
    xr.testing.assert_equal(insitu.open_dataset(target).load(), xr.open_dataset(late).load())


def test_one_file_has_the_labels_that_are_expected(tmp_path: Path) -> None:
    parts = [xr.open_dataset(write_days(tmp_path, f"{first}.nc", first, 2)) for first in (0, 4)]
    whole = xr.concat(parts, "time")
    whole.to_netcdf(tmp_path / "one.nc")
    found = insitu.Archive.open(tmp_path / "one.nc", expect="1D").dataset().load()
    xr.testing.assert_equal(found, whole.resample(time="1D").asfreq())


def test_expected_labels_beside_labels_of_names_of_an_earlier_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of the files is not recorded, and days between the old and the new ones would be left out."""
    files = [write_days(tmp_path, f"m{model}_{day}.nc", day, 1) for model in (1, 2) for day in (0, 2)]
    target = str(tmp_path / "a.insitu")
    with monkeypatch.context() as earlier:
        earlier.setattr(Recipe, "needs_order", False)
        earlier.setattr("insitu.combining.placed_files.PlacedFiles.of", lambda *_: None)
        insitu.open_mfdataset(files, concat_dim={"m": r"m(\d)_"}, expect="1D").insitu.save(target)
    more = [write_days(tmp_path, f"m{model}_6.nc", 6, 1) for model in (1, 2)]
    with pytest.raises(UnsupportedError, match="cannot be added where labels are expected"):
        insitu.Archive.open(target).append(more)
    assert insitu.open_dataset(target).sizes["time"] == 3


@pytest.mark.parametrize("options", [{"overlap": "last"}, {"expect": "1D"}, {"overlap": "first", "expect": "1D"}])
def test_files_that_are_padded(tmp_path: Path, options: dict[str, Any]) -> None:
    """A longer file makes the others longer, also one that is shadowed; without it they are as before."""
    options = {"combine": "nested", "concat_dim": "time", "pad": True, **options}
    target, kept = str(tmp_path / "a.insitu"), []
    for number, (first, length) in enumerate([(0, 2), (3, 1), (1, 3), (5, 1)]):
        days = np.array([first]).astype("timedelta64[D]") + np.datetime64("2000-01-01", "ns")
        data = xr.Dataset({"tas": (("time", "x"), np.full((1, length), number))}, {"time": days})
        data.to_netcdf(tmp_path / f"{number}.nc")
        kept.append(str(tmp_path / f"{number}.nc"))
        if number == 1:
            insitu.open_mfdataset(kept, **options).insitu.save(target)
        elif number > 1:
            insitu.Archive.open(target).append(kept[-1:])
            xr.testing.assert_identical(
                insitu.open_dataset(target).load(), insitu.open_mfdataset(kept, **options).load()
            )
    insitu.Archive.open(target).drop([kept.pop(2)])
    found = insitu.open_dataset(target).load()
    assert found.sizes["x"] == 2
    xr.testing.assert_identical(found, insitu.open_mfdataset(kept, **options).load())


STATIC = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}


def write_heights(folder: Path, name: str, days: range, variable: str, height: float) -> None:
    """Write a file of some days, with a height and a mask of its own."""
    values = {variable: ("time", np.arange(len(days)) + height), "mask": ("x", [height, 1.0])}
    time = np.datetime64("2000-01-01", "ns") + np.array(days) * np.timedelta64(1, "D")
    xr.Dataset(values, {"time": time, "height": height}, {"title": name}).to_netcdf(folder / f"{name}.nc")


def test_what_another_kind_of_files_gave_is_not_kept_without_them(tmp_path: Path) -> None:
    write_heights(tmp_path, "a", range(2), "tas", 1.0)
    write_heights(tmp_path, "b", range(2, 4), "pr", 2.0)
    kept = Kept(str(tmp_path), ["a", "b"], overlap="last", **STATIC)
    kept.archive.drop([kept.files.pop(0)])
    xr.testing.assert_identical(kept.archive.dataset().load(), insitu.open_dataset(kept.files[0]).load())


def test_a_file_that_gives_everything_is_joined_as_one_of_several(tmp_path: Path) -> None:
    for name, days in (("a", range(2)), ("b", range(2, 4)), ("c", range(4))):
        write_heights(tmp_path, name, days, "tas", 1.0)
    kept = Kept(str(tmp_path), ["a", "b"], overlap="last", data_vars="all")
    kept.files.append(kept.path("c"))
    kept.archive.append(kept.files[-1:])
    kept.archive.drop([kept.files.pop(0)])
    assert kept.archive.dataset().mask.dims == ("time", "x")
    kept.check()


def test_files_that_differ_along_another_dimension_are_appended_along_it(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 2)):
        labels = {"time": [0, 1], "x": [first, first + 1]}
        xr.Dataset({"v": (("time", "x"), first + np.eye(2))}, labels).to_netcdf(tmp_path / f"{name}.nc")
    xr.Dataset({"v": (("time", "x"), np.ones((2, 2)))}, {"time": [1, 2], "x": [0, 1]}).to_netcdf(tmp_path / "c.nc")
    xr.Dataset({"v": (("time", "x"), np.ones((2, 2)))}, {"time": [1, 2], "x": [2, 3]}).to_netcdf(tmp_path / "d.nc")
    kept = Kept(str(tmp_path), ["a", "c"], overlap="last")
    kept.files += [kept.path("b"), kept.path("d")]
    kept.archive.append(kept.files[2:], "x")
    kept.check()
