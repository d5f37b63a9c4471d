"""Files that are scanned in portions and joined as a tree make the same dataset as all at once.

Modules: combining/choose_variables.py, combining/failures.py, combining/files_table.py, combining/join_files.py,
combining/recipe.py, combining/scan_journal.py, combining/scan_progress.py, engines/executor.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from combining.test_like_xarray import OPTIONS
from fixtures.agreement import open_with_insitu
from fixtures.make_archive import Part, parts, write_all
from fixtures.random_archive import random_archive, write_archive
from insitu.combining import scan_journal, scan_portions
from insitu.combining.arrange import arrange_by_labels
from insitu.combining.combine_rules import CombineRules
from insitu.combining.files_table import FilesTable
from insitu.combining.join_pieces import Lines, plan_lines
from insitu.combining.scan_many import scan_many
from insitu.combining.scan_progress import ScanProgress
from insitu.engines.executor import ThisThread
from insitu.errors import AccessError, CombineError, InsituError
from insitu.model import VirtualArray
from insitu.open_options import CombineOptions
from insitu.scanning.member import Member
from insitu.scanning.scan_member import Job, make_loader
from insitu.xarray_bridge import open_mfdataset


class Pieces(list[dict[int, Member]]):
    """What each opening on an engine joined: the members, by the number of their first file."""

    @property
    def counts(self) -> list[int]:
        """Return how many pieces each opening had to join in the end."""
        return list(map(len, self))


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> Pieces:
    """Record the pieces; portions are as small as can be, and trees as deep."""
    found = Pieces()
    original = scan_portions.PortionScan.pieces

    def recorded(scan: scan_portions.PortionScan, lines: Lines | None) -> Any:
        found.append(dict(original(scan, lines)))
        return found[-1]

    monkeypatch.setattr(scan_portions.PortionScan, "pieces", recorded)
    monkeypatch.setattr(scan_portions, "PORTIONS", 3)
    monkeypatch.setattr(scan_portions, "FAN_IN", 2)
    return found


def same(paths: Any, **options: Any) -> None:
    """Compare a tree of joins with the combination at once: values, attributes, encoding, report."""
    at_once, tree = open_with_insitu(paths, **options), open_with_insitu(paths, parallel=ThisThread(), **options)
    if isinstance(at_once, Exception):
        assert isinstance(tree, Exception), at_once
        assert str(tree) == str(at_once) or isinstance(tree, CombineError)
        return
    if isinstance(tree, Exception):
        raise tree
    assert list(tree.variables) == list(at_once.variables)
    for name, variable in at_once.variables.items():
        assert tree[name].dtype == variable.dtype, name
        assert sorted(map(repr, tree[name].encoding.items())) == sorted(map(repr, variable.encoding.items())), name
    assert tree.encoding == at_once.encoding
    assert str(tree.insitu.report()) == str(at_once.insitu.report())
    xr.testing.assert_identical(tree.load(), at_once.load())


@hypothesis_settings(max_examples=20, deadline=None)
@given(archive=parts(most=6), options=OPTIONS, nested=st.sampled_from((None, "time", "level")), backwards=st.booleans())
def test_any_files(archive: list[Part], options: dict[str, Any], nested: str | None, backwards: bool) -> None:
    how = {"combine": "nested", "concat_dim": nested} if nested else {}
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(scan_portions, "PORTIONS", 3)
        patch.setattr(scan_portions, "FAN_IN", 2)
        paths = write_all(Path(folder), archive)
        same(paths[::-1] if backwards else paths, **options, **how)


@pytest.mark.parametrize("first", [0, 25])
def test_random_archives(tmp_path: Path, pieces: Pieces, first: int) -> None:
    joined = 0
    for seed in range(first, first + 25):
        archive = random_archive(seed, calendars=seed % 3 == 0, orders=seed % 4 == 0)
        (tmp_path / str(seed)).mkdir()
        paths = write_archive(tmp_path / str(seed), archive)
        try:
            same(paths, **archive.options)
        except Exception as problem:
            problem.add_note(f"seed {seed}, {archive.options}")
            raise
        joined += bool(pieces) and len(pieces.pop()) < len(paths)
    assert joined >= 5


def test_files_that_agree_are_one_piece(tmp_path: Path, pieces: Pieces) -> None:
    """Their chunk tables are one tile, their sources one list for all variables."""
    paths = write_all(tmp_path, [Part(first=2 * i, stored="i2", packing=3) for i in range(12)])
    ds = open_mfdataset(paths, parallel=ThisThread())
    ((whole,),) = (found.values() for found in pieces)
    assert whole.sizes["time"] == ds.sizes["time"]
    arrays = [v.data for v in whole.variables.values() if isinstance(v.data, VirtualArray)]
    assert all(len(array.tiles) == 1 for array in arrays)
    assert len({id(array.tiles[0].chunks.sources) for array in arrays}) == 1
    xr.testing.assert_identical(ds.load(), open_mfdataset(paths).load())


@pytest.mark.parametrize(
    ("change", "count"), [({"stored": "f8"}, 3), ({"has_wind": False}, 3), ({"chunks": (1, 3, 4)}, 1)], ids=str
)
def test_one_file_that_differs_begins_another_piece(
    tmp_path: Path, pieces: Pieces, change: dict[str, Any], count: int
) -> None:
    archive = [Part(first=2 * i) for i in range(9)]
    archive[4] = Part(first=8, **change)
    paths = write_all(tmp_path, archive)
    same(paths, combine="nested", concat_dim="time")
    same(paths, combine="nested", concat_dim="time", coords="minimal", data_vars="minimal", compat="override")
    assert pieces.counts == [count, count]


@pytest.mark.parametrize("odd", [0, 3, 6])
@pytest.mark.parametrize("options", [{"data_vars": "all"}, {"data_vars": "different"}, {"data_vars": ["w"]}], ids=str)
@pytest.mark.parametrize("nested", [True, False])
def test_variables_that_lack_the_dimension(
    tmp_path: Path, pieces: Pieces, odd: int, options: dict[str, Any], nested: bool
) -> None:
    """The dimension comes first in them, also if a single file of another type is joined with many."""
    for number in range(7):
        v = np.array([number], "f8" if number == odd else "f4")
        w = [1.0, 2.0 + (number > 4)]
        xr.Dataset({"v": ("x", v), "w": ("y", w)}, {"x": [number], "y": [0, 1]}).to_netcdf(tmp_path / f"{number}.nc")
    how = {"combine": "nested", "concat_dim": "x"} if nested else {}
    same(sorted(map(str, tmp_path.glob("*.nc"))), **options, **how)
    assert pieces.counts[0] < 7


@pytest.mark.parametrize("odd", [0, 3, 6])
def test_a_dimension_that_only_some_files_have(tmp_path: Path, odd: int, pieces: Pieces) -> None:
    for number in range(7):
        w: Any = (("y", "x"), [[1.0], [2.0]]) if number == odd else ("y", [1.0, number])
        data = {"v": ("x", [float(number)]), "w": w}
        xr.Dataset(data, {"x": [number], "y": [0, 1]}).to_netcdf(tmp_path / f"{number}.nc")
    paths = sorted(map(str, tmp_path.glob("*.nc")))
    for data_vars, compat in (("all", "equals"), ("different", "equals"), ("minimal", "override")):
        same(paths, combine="nested", concat_dim="x", data_vars=data_vars, compat=compat, coords="minimal")
    assert len(pieces) == 3


def test_a_grid_of_files_has_a_piece_for_each_line(tmp_path: Path, pieces: Pieces) -> None:
    grid = [Part(first=2 * i, lon_first=4 * j) for i in range(3) for j in range(4)]
    paths = write_all(tmp_path, grid)
    same(paths)
    same([paths[4 * i : 4 * i + 4] for i in range(3)], combine="nested", concat_dim=["time", "lon"])
    assert pieces.counts == [4, 4]


def test_files_that_interleave_are_one_piece(tmp_path: Path, pieces: Pieces) -> None:
    same(write_all(tmp_path, INTERLEAVED))
    assert pieces.counts == [1]


@pytest.mark.parametrize("scalar", ["run", "x"], ids=["beside", "as label"])
@pytest.mark.parametrize("options", [{}, {"coords": "minimal", "compat": "override"}, {"coords": "all"}], ids=str)
def test_single_values_that_differ(tmp_path: Path, pieces: Pieces, scalar: str, options: dict[str, Any]) -> None:
    """Each file has another one, and still they are one piece."""
    for number in range(7):
        values = {"v": ("x", [float(number)])} if scalar == "run" else {"v": ("y", [float(number)]), "w": ((), 1)}
        coords = {"x": [number], "run": number * 10.0} if scalar == "run" else {"x": number, "y": [0]}
        xr.Dataset(values, coords, {"title": str(number)}).to_netcdf(tmp_path / f"{number}.nc")
    paths = sorted(map(str, tmp_path.glob("*.nc")))
    same(paths, combine="nested", concat_dim="x", **options)
    assert pieces.counts == [1]


@pytest.mark.parametrize("data_vars", ["all", "different", None])
def test_a_new_dimension(tmp_path: Path, pieces: Pieces, data_vars: str | None) -> None:
    """Also where one file has another type, and one lacks a variable. Whether arrays differ only their
    values say: then files are pieces of their own.
    """
    for number in range(7):
        data: dict[str, Any] = {"v": ("y", np.array([number, 1.0], "f8" if number == 3 else "f4"))}
        if number != 5 and data_vars != "different":
            data["w"] = (("z", "y"), np.full((2, 2), number))
        xr.Dataset(data, {"y": [0, 1], "where": ("y", [5, 6])}).to_netcdf(tmp_path / f"{number}.nc")
    paths = sorted(map(str, tmp_path.glob("*.nc")))
    same(paths, combine="nested", concat_dim="run", data_vars=data_vars)
    same(paths, concat_dim={"run": r"(\d)\.nc"}, data_vars=data_vars)
    assert pieces.counts[0] == pieces.counts[1]
    assert (pieces.counts[0] < 7) is (data_vars != "different")


@pytest.mark.parametrize("combine_attrs", ["no_conflicts", "drop_conflicts", "identical", "override", "drop"])
@pytest.mark.parametrize("compat", ["identical", "no_conflicts"])
def test_attributes(tmp_path: Path, pieces: Pieces, combine_attrs: str, compat: str) -> None:
    """Files whose attributes count, and differ, are pieces of their own."""
    for number in range(6):
        attributes = {"units": "m", **({"note": "odd"} if number == 2 else {})}
        ds = xr.Dataset({"v": ("x", [1.0], attributes), "h": ((), 2.0, attributes)}, {"x": [number]}, attributes)
        ds.to_netcdf(tmp_path / f"{number}.nc")
    same(sorted(map(str, tmp_path.glob("*.nc"))), combine_attrs=combine_attrs, compat=compat, data_vars="minimal")
    if pieces:
        assert pieces.counts == [1 if combine_attrs in ("override", "drop") and compat != "identical" else 3]


def test_values_that_count_as_the_same(tmp_path: Path, pieces: Pieces) -> None:
    """NaN in one file, a number in another: which one is taken depends on all files."""
    for number, value in enumerate([np.nan, np.nan, 1.0, 2.0]):
        data = {"v": ("x", [float(number)]), "w": ("y", [value])}
        xr.Dataset(data, {"x": [number], "y": [0]}).to_netcdf(tmp_path / f"{number}.nc")
    paths = sorted(map(str, tmp_path.glob("*.nc")))
    for chosen in (paths, paths[:3]):
        same(chosen, data_vars="minimal", compat="no_conflicts", join="outer", coords="minimal")
    assert pieces.counts == [3, 2]


@pytest.mark.parametrize(
    "pool",
    [lambda: ThreadPoolExecutor(2), lambda: ProcessPoolExecutor(1), ThisThread],
    ids=["threads", "processes", "this thread"],
)
def test_executors(tmp_path: Path, pool: Callable[[], Any]) -> None:
    paths = write_all(tmp_path, [Part(first=2 * i, storage=i % 4) for i in range(5)])
    with pool() as executor:
        ds = open_mfdataset(paths, parallel=executor)
    xr.testing.assert_identical(ds.load(), open_mfdataset(paths).load())


def test_bad_files_are_left_out(tmp_path: Path, pieces: Pieces) -> None:
    paths = write_all(tmp_path, [Part(first=2 * i) for i in range(7)])
    Path(paths[3]).write_bytes(b"no data")
    with pytest.raises(InsituError, match="part_003"):
        open_mfdataset(paths, parallel=ThisThread())
    ds = open_mfdataset(paths, parallel=ThisThread(), errors="skip")
    assert list(ds.insitu.report().left_out) == [paths[3]]
    xr.testing.assert_identical(ds.load(), open_mfdataset(paths, errors="skip").load())
    assert pieces.counts == [1]
    for path in paths:
        Path(path).write_bytes(b"no data")
    with pytest.raises(InsituError, match="none of the 7 files"):
        open_mfdataset(paths, parallel=ThisThread(), errors="skip")


INTERLEAVED = [Part(first=2 * (i % 4) + i // 4, days=1) for i in range(8)]
GRID = [Part(first=2 * i, lon_first=4 * j) for i in range(4) for j in range(3)]
SEQUENCE = [Part(first=2 * i) for i in range(7)]


@pytest.mark.parametrize("archive", [INTERLEAVED, GRID, SEQUENCE], ids=["interleaved", "grid", "sequence"])
@pytest.mark.parametrize("pool", [ThisThread, lambda: ThreadPoolExecutor(2)], ids=["this thread", "threads"])
def test_every_file_is_scanned_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: list[Part], pool: Callable[[], Any]
) -> None:
    """Also where neighbours in a line of files lie in different portions."""
    paths = write_all(tmp_path, archive)
    expected = open_mfdataset(paths).load()
    for portions in (3, 64):
        monkeypatch.setattr(scan_portions, "PORTIONS", portions)
        monkeypatch.setattr(scan_portions, "FAN_IN", 2)
        scanned = count_scans(monkeypatch)
        with pool() as executor:
            found = open_mfdataset(paths, parallel=executor)
        assert sorted(scanned) == sorted(paths)
        xr.testing.assert_identical(found.load(), expected)


def test_files_whose_labels_overlap_are_scanned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_all(tmp_path, [*SEQUENCE, Part(first=3, days=3)])
    scanned = count_scans(monkeypatch)
    with pytest.raises(CombineError) as here:
        open_mfdataset(paths, parallel=False)
    with pytest.raises(CombineError) as there:
        open_mfdataset(paths, parallel=ThisThread())
    assert str(there.value) == str(here.value)
    assert scanned == [*paths, *paths]


# -- types and calendars, on the way


def count_scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that every scanned file is added to."""
    scanned: list[str] = []
    original = Job.one
    monkeypatch.setattr(Job, "one", lambda job, url, memory=None: (scanned.append(url), original(job, url, memory))[1])
    return scanned


@pytest.fixture(scope="module")
def second_has_dates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 200 files, in the second of which the variable has another type."""
    folder = tmp_path_factory.mktemp("types")
    for number in range(200):
        date = {"units": "days since 2000-01-01"} if number == 1 else {}
        ds = xr.Dataset({"v": ("time", [1.5], date)}, {"time": [number]})
        ds.to_netcdf(folder / f"{number:03d}.nc", engine="netcdf4")
    return folder


@pytest.mark.parametrize("parallel", [None, ThisThread()], ids=["here", "engine"])
@pytest.mark.parametrize("nested", [True, False])
def test_types_are_checked_on_the_way(
    second_has_dates: Path, monkeypatch: pytest.MonkeyPatch, parallel: Any, nested: bool
) -> None:
    """The error comes after the second of 200 files, and names it."""
    scanned = count_scans(monkeypatch)
    how = {"combine": "nested", "concat_dim": "time"} if nested else {}
    with pytest.raises(CombineError, match=r"no type in common.*001\.nc"):
        open_mfdataset(str(second_has_dates / "*.nc"), parallel=parallel, **how)
    assert len(scanned) < 100


def test_calendars_are_checked_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = [Part(first=2 * i, calendar="noleap" if i == 1 else "360_day") for i in range(40)]
    paths = write_all(tmp_path, archive)
    scanned = count_scans(monkeypatch)
    with pytest.raises(CombineError, match=r"mixed types\. Found: Datetime360Day, DatetimeNoLeap"):
        open_mfdataset(paths)
    assert len(scanned) < 20


# -- going on after an interruption


class Failing(ThisThread):
    """An executor whose calls fail after some."""

    def __init__(self, good: int, error: Exception) -> None:
        self.good, self.error = good, error

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.good -= 1
        if self.good < 0:
            future: Future[Any] = Future()
            future.set_exception(self.error)
            return future
        return super().submit(fn, *args, **kwargs)


@pytest.fixture
def journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of journals."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "insitu" / "scans"


def test_opening_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journals: Path) -> None:
    """Also with other credentials than those that expired, which are written nowhere."""
    paths = write_all(tmp_path, [Part(first=2 * i) for i in range(8)])
    scanned = count_scans(monkeypatch)
    expired = AccessError("the token has expired", url="s3://x")
    with pytest.raises(AccessError, match="5 of 8 files are scanned and kept"):
        open_mfdataset(paths, parallel=Failing(5, expired), resume=True, storage_options={"key": "old", "secret": "a"})
    assert len(scanned) == 5
    assert not any(b"old" in path.read_bytes() for path in journals.rglob("*") if path.is_file())
    ds = open_mfdataset(paths, parallel=ThisThread(), resume=True, storage_options={"key": "new", "secret": "b"})
    assert scanned == paths
    xr.testing.assert_identical(ds.load(), open_mfdataset(paths).load())
    assert not [*journals.iterdir()]


def test_other_options_or_files_begin_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journals: Path) -> None:
    paths = write_all(tmp_path, [Part(first=2 * i) for i in range(4)])
    with pytest.raises(AccessError):
        open_mfdataset(paths, parallel=Failing(2, AccessError("refused")), resume=True)
    scanned = count_scans(monkeypatch)
    open_mfdataset(paths, parallel=ThisThread(), resume=True, decode_times=False)
    assert scanned == paths
    write_all(tmp_path, [Part(first=0, days=1)])
    del scanned[:]
    open_mfdataset(paths, parallel=ThisThread(), resume=True)
    assert scanned == [paths[0], *paths[2:]]


@pytest.mark.parametrize(
    "second", [{}, {"combine": "nested", "concat_dim": "time"}, {"combine_attrs": "drop_conflicts"}]
)
def test_files_combined_in_another_way_are_not_scanned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journals: Path, second: dict[str, Any]
) -> None:
    """The journal keeps what was scanned, whatever is made of it."""
    paths = write_all(tmp_path, [Part(first=2 * i) for i in range(6)])
    with pytest.raises(AccessError):
        open_mfdataset(paths, parallel=Failing(4, AccessError("refused")), resume=True, coords="minimal")
    scanned = count_scans(monkeypatch)
    ds = open_mfdataset(paths, parallel=ThisThread(), resume=True, **second)
    assert scanned == paths[4:]
    xr.testing.assert_identical(ds.load(), open_mfdataset(paths, **second).load())
    assert not [*journals.iterdir()]


def test_old_journals_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journals: Path) -> None:
    paths = write_all(tmp_path, [Part(first=2 * i) for i in range(2)])
    with pytest.raises(AccessError):
        open_mfdataset(paths, parallel=Failing(1, AccessError("refused")), resume=True)
    assert len([*journals.iterdir()]) == 1
    monkeypatch.setattr(scan_journal, "MAX_AGE_DAYS", -1)
    open_mfdataset(paths[:1], parallel=ThisThread(), resume=True)
    assert not [*journals.iterdir()]


def test_lost_workers_are_an_error_of_ours(tmp_path: Path, journals: Path) -> None:
    from concurrent.futures import BrokenExecutor

    paths = write_all(tmp_path, [Part(first=2 * i) for i in range(4)])
    with pytest.raises(InsituError, match=r"workers were lost.*2 of 4 files are scanned and kept"):
        open_mfdataset(paths, parallel=Failing(2, BrokenExecutor("a process ended")), resume=True)
    with pytest.raises(InsituError, match=r"workers were lost"):
        open_mfdataset(paths, parallel=Failing(2, BrokenExecutor("a process ended")))


@pytest.mark.parametrize("parallel", [None, ThisThread()], ids=["here", "engine"])
def test_expired_credentials_are_no_reason_to_leave_files_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parallel: Any
) -> None:
    paths = write_all(tmp_path, [Part(first=2 * i) for i in range(3)])

    def refuse(url: str, *_: object, **__: object) -> None:
        raise AccessError("the store denies access: the provided token has expired", url=url)

    monkeypatch.setattr("insitu.scanning.scan_member.scan_member", refuse)
    with pytest.raises(AccessError, match="expired"):
        open_mfdataset(paths, parallel=parallel, errors="skip")


# -- progress


def test_progress_by_worker() -> None:
    state = ScanProgress(10, began=0.0)
    state.add(2)
    state.add(3, 1, "one")
    state.add(1, 0, "two")
    assert (state.done, state.failed, state.resumed) == (6, 1, 2)
    text = str(state)
    assert text.startswith("6 of 10 files, ")
    assert "ETA" in text
    assert "1 failed" in text
    assert text.endswith("by worker: one 3, two 1")
    for number in range(20):
        state.add(number, 0, f"worker {number:02d}")
    assert "22 workers: 0 (worker 00) to 19 (worker 19) files each" in str(state)


def test_progress_on_an_engine(tmp_path: Path, pieces: Pieces) -> None:
    paths = write_all(tmp_path, [Part(first=2 * i) for i in range(7)])
    seen: list[tuple[int, int]] = []
    open_mfdataset(paths, parallel=ThisThread(), progress=lambda done, of: seen.append((done, of)))
    assert seen[-1] == (7, 7)
    assert seen == sorted(seen)
    open_mfdataset(paths, parallel=ThisThread(), progress=True)


def _sum_up(parts: Sequence[Mapping[str, Any]], context: Any) -> dict[str, Any]:
    return {"files": len(parts)}


def test_rules_that_need_every_file(tmp_path: Path, pieces: Pieces) -> None:
    """A function sees the attributes of every file, and merging has no order."""
    paths = write_all(tmp_path, [Part(first=2 * i) for i in range(5)])
    same(paths, combine_attrs=_sum_up)
    assert pieces.counts == [5]
    files = FilesTable.of(scan_many(paths, Job()))
    arrangement = arrange_by_labels(files, files.opened, lambda numbers: [], CombineOptions())
    load = make_loader(None)
    assert plan_lines(arrangement, files, CombineRules(load=load)) is not None
    assert plan_lines(arrangement, files, CombineRules(load=load, compat="minimal")) is None
