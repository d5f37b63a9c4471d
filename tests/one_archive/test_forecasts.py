"""Are files of forecasts one dataset, whatever says which run they are of, and is it that of cfgrib and xarray?

Modules: combining/arrange_forecasts.py, combining/scan_by_kind.py, scanning/forecast_axes.py,
formats/file_outline.py, formats/grib/index_outline.py, maintenance/append_forecasts.py,
maintenance/last_steps.py
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import xarray as xr

import insitu
from forecast_files import (
    Field,
    fields_of,
    indexes_of,
    open_with_cfgrib,
    same_values,
    write_grib,
    write_runs,
)
from insitu.combining.recipe import Recipe
from insitu.errors import CombineError, FormatError, NotFoundError, StaleSourceError, UnsupportedError
from insitu.lazy_array.duck_array import LazyArray
from insitu.maintenance.saving import saved_recipe
from insitu.scanning.scan_member import Job

pytest.importorskip("eccodes")
pytest.importorskip("cfgrib")


def random_cells(seed: int, runs: int = 5, leads: int = 4) -> list[tuple[int, int]]:
    """Runs every three hours with lead times every three hours, some missing, in any order."""
    random = np.random.default_rng(seed)
    cells = [(3 * run, 3 * lead) for run in range(runs) for lead in range(leads) if random.random() < 0.75]
    random.shuffle(cells)
    return [(int(run), int(lead)) for run, lead in cells]


@pytest.mark.parametrize("kind", ["grib2", "idx", "index"])
@pytest.mark.parametrize("seed", [1, 2])
def test_fields_are_one_table(tmp_path: Path, seed: int, kind: str) -> None:
    paths = write_runs(tmp_path, random_cells(seed))
    expected = open_with_cfgrib(paths)
    given = paths if kind == "grib2" else indexes_of(paths, kind)
    with insitu.open_forecasts(given) as ds:
        assert isinstance(ds.t.variable._data, LazyArray)
        assert ds.insitu.tiles()["t"] <= 4
        same_values(ds, expected)
        same_values(ds, expected)
        ds.insitu.save(tmp_path / "a.insitu")
    with insitu.open_dataset(tmp_path / "a.insitu") as saved:
        same_values(saved, expected)
        best = saved[["t"]].insitu.best().load()
    newest = {}
    for run, lead in sorted(random_cells(seed)):
        newest[run + lead] = (run, lead)
    picked = [expected.t.sel(time=np.datetime64("2024-02-28T00", "ns") + np.timedelta64(run, "h"),
                             step=np.timedelta64(lead, "h")).values
              for _, (run, lead) in sorted(newest.items())]  # fmt: skip
    np.testing.assert_array_equal(best.t, picked)


@pytest.mark.parametrize("kind", ["grib2", "idx"])
def test_a_file_of_each_run(tmp_path: Path, kind: str) -> None:
    """Runs of several lead times, not all the same ones."""
    leads = {0: (0, 3, 6), 3: (0, 3), 6: (3, 6, 9), 9: (0, 3, 6), 12: (0, 3, 6)}
    files, fields = [], []
    for run, own in leads.items():
        files.append(write_grib(tmp_path / f"r{run}.grib2", [Field(run, lead, "TMP") for lead in own]))
        fields += [write_grib(tmp_path / "one" / f"{run}_{lead}.grib2", [Field(run, lead, "TMP")]) for lead in own]
    with insitu.open_forecasts(files if kind == "grib2" else indexes_of(files, kind)) as ds:
        same_values(ds, open_with_cfgrib(fields))


def test_only_one_file_of_a_kind_is_scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_runs(tmp_path, [(run, lead) for run in range(5) for lead in (0, 3)])
    scanned: list[str] = []
    one = Job.one
    monkeypatch.setattr(Job, "one", lambda self, url, *more: scanned.append(url) or one(self, url, *more))
    with insitu.open_forecasts(indexes_of(paths, "idx")) as ds:
        assert len(scanned) == 2
        assert len(ds.insitu.sources) == len(paths)
        assert ds.insitu.report().files == len(paths)
        same_values(ds, open_with_cfgrib(paths))


@pytest.mark.parametrize("kind", ["idx", "index"])
def test_a_file_of_another_run_than_its_index_says(tmp_path: Path, kind: str) -> None:
    """It was replaced, and its index was not: what counts is in the file."""
    paths = write_runs(tmp_path, [(run, lead) for run in range(0, 12, 3) for lead in (0, 3)])
    indexes = indexes_of(paths, kind)
    Path(paths[4]).write_bytes(b"".join(field.message() for field in fields_of(30, 0)))
    expected = open_with_cfgrib(paths)
    assert expected.sizes["time"] == 5
    same_values(insitu.open_forecasts(indexes).load(), expected)


@pytest.mark.parametrize("resume", [None, True])
@pytest.mark.parametrize("kind", ["grib2", "idx"])
def test_wherever_they_are_scanned(tmp_path: Path, kind: str, resume: bool | None) -> None:
    paths = write_runs(tmp_path, [(0, 0), (0, 3), (3, 0)])
    given = paths if kind == "grib2" else indexes_of(paths, kind)
    with ThreadPoolExecutor(2) as pool, insitu.open_forecasts(given, parallel=pool, resume=resume) as ds:
        xr.testing.assert_identical(ds.load(), insitu.open_forecasts(given).load())
        same_values(ds, open_with_cfgrib(paths))
    again = [*given, *write_runs(tmp_path / "again", [(0, 3)])]
    with (
        ThreadPoolExecutor(2) as pool,
        insitu.open_forecasts(again, overlap="last", parallel=pool, resume=resume) as ds,
    ):
        xr.testing.assert_identical(ds.load(), insitu.open_forecasts(again, overlap="last").load())


@pytest.mark.parametrize("kind", ["idx", "index"])
@pytest.mark.parametrize("runs", [2, 5])
def test_of_files_given_by_their_indexes_the_newest_counts(tmp_path: Path, runs: int, kind: str) -> None:
    """What counts is when the GRIB file was written, also of files that are scanned as one."""
    paths = write_runs(tmp_path, [(run, lead) for run in range(runs) for lead in (0, 3)])
    (other,) = write_runs(tmp_path / "other", [(1, 3)])
    messages = [field.message(np.linspace(7 + number, 30, 12)) for number, field in enumerate(fields_of(1, 3))]
    Path(other).write_bytes(b"".join(messages))
    expected = open_with_cfgrib(paths)
    for seconds, is_newest in ((9e8, False), (2e9, True)):
        for path in [*paths, other]:
            os.utime(path, (seconds, seconds) if path == other else (1e9, 1e9))
        for given in ([*paths, other], [other, *paths]):
            with insitu.open_forecasts(indexes_of(given, kind), overlap="newest") as ds:
                assert bool(ds.t[1, 1].min() == 7) == is_newest
                same_values(ds.isel(time=[0]), expected.isel(time=[0]))
        target = str(tmp_path / f"{is_newest}.insitu")
        insitu.open_forecasts(indexes_of(paths, kind), overlap="newest").insitu.save(target)
        insitu.Archive.open(target).append(indexes_of([other], kind), "time")
        assert bool(insitu.open_dataset(target).t[1, 1].min() == 7) == is_newest


def test_references_of_a_view_name_the_files_that_it_shows(tmp_path: Path) -> None:
    paths = write_runs(tmp_path, [(run, lead) for run in (0, 3, 6) for lead in (0, 3)])
    insitu.open_forecasts(indexes_of(paths, "idx")).insitu.save(tmp_path / "a.insitu")
    best = insitu.open_dataset(tmp_path / "a.insitu")[["t"]].insitu.best()
    for _ in range(2):
        found = best.t.insitu.references()
        assert [found["urls"][number] for number in found["source"]] == [paths[0], paths[2], *paths[4:]]


def test_control_and_perturbed_members(tmp_path: Path) -> None:
    paths = {
        member: [write_grib(tmp_path / f"m{member}r{run}.grib2", [Field(run, 3, "TMP", member)]) for run in (0, 3)]
        for member in (0, 1, 2)
    }
    deterministic = [write_grib(tmp_path / f"d{run}.grib2", [Field(run, 3, "TMP")]) for run in (0, 3)]
    with insitu.open_forecasts([path for own in paths.values() for path in own]) as ds:
        assert ds.t.dims == ("number", "time", "step", "latitude", "longitude")
        assert ds.number.values.tolist() == [0, 1, 2]
        for member, own in paths.items():
            np.testing.assert_array_equal(ds.t.sel(number=member), open_with_cfgrib(own).t)
        assert ds.insitu.best().t.dims == ("number", "valid_time", "latitude", "longitude")
    with insitu.open_forecasts([*deterministic, *paths[1], *paths[2]]) as ds:
        np.testing.assert_array_equal(ds.t.sel(number=0), open_with_cfgrib(deterministic).t)


def test_runs_are_appended_dropped_and_refreshed(tmp_path: Path) -> None:
    paths = write_runs(tmp_path, [(run, lead) for run in range(0, 12, 3) for lead in (0, 3, 6)])
    target = str(tmp_path / "a.insitu")
    with insitu.open_forecasts(indexes_of(paths[:6], "idx")) as ds:
        ds.insitu.save(target)
    for begin in (6, 9):
        insitu.Archive.open(target).append(indexes_of(paths[begin : begin + 3], "idx"), "time")
        same_values(insitu.open_dataset(target).load(), open_with_cfgrib(paths[: begin + 3]))
    again = insitu.Archive.open(target).append(indexes_of(paths[9:], "idx"), "time")
    assert again.steps == 0
    assert len(again.skipped) == 3
    for cells in ([(12, 0), (12, 6)], [(12, 3)], [(7, 3)], [(12, 9)]):  # a run, its rest, a late one, a new lead time
        more = write_runs(tmp_path, cells)
        done = insitu.Archive.open(target).append(more, "time")
        assert sorted(done.added) == sorted(more)
        paths += more
        same_values(insitu.open_dataset(target).load(), open_with_cfgrib(paths))
    with insitu.Archive.open(target).dataset() as ds:
        newest = ds.isel(time=slice(-2, None)).load()
    gone = insitu.Archive.open(target).drop(keep_last={"time": 2})
    assert sorted(gone) == sorted(path for path in paths if "r009" not in path and "r012" not in path)
    xr.testing.assert_identical(insitu.open_dataset(target).load(), newest)
    insitu.Archive.open(target).rollback()
    other = write_runs(tmp_path / "other", [(12, 3), (15, 3)])
    with pytest.raises(CombineError, match=r"holds .* at time 2024-02-28T12.*already, from another file"):
        insitu.Archive.open(target).append(other, "time")
    same_values(insitu.open_dataset(target).load(), open_with_cfgrib(paths))


@pytest.mark.parametrize("kind", ["grib2", "idx", "index"])
def test_files_are_dropped_and_replaced(tmp_path: Path, kind: str) -> None:
    paths = write_runs(tmp_path, [(run, lead) for run in (0, 3, 6) for lead in (0, 3)])
    target = str(tmp_path / "a.insitu")
    insitu.open_forecasts(paths if kind == "grib2" else indexes_of(paths, kind)).insitu.save(target)
    given = paths[3] if kind == "grib2" else indexes_of(paths, kind)[3]
    assert insitu.Archive.open(target).drop([given]) == (paths[3],)
    same_values(insitu.open_dataset(target).load(), open_with_cfgrib([*paths[:3], *paths[4:]]))
    other = write_runs(tmp_path / "other", [(3, 3)])
    insitu.Archive.open(target).drop(paths[4:], replacement=other)
    same_values(insitu.open_dataset(target).load(), open_with_cfgrib([*paths[:3], *other]))
    with pytest.raises(NotFoundError, match="no file"):
        insitu.Archive.open(target).drop([paths[4]])
    with pytest.raises(UnsupportedError, match="all files"):
        insitu.Archive.open(target).drop([*paths[:3], *other])
    same_values(insitu.open_dataset(target).load(), open_with_cfgrib([*paths[:3], *other]))


def test_a_collection_that_an_earlier_version_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not say in which order its files were given."""
    paths, target = write_runs(tmp_path, [(0, 0), (0, 3)]), str(tmp_path / "a.insitu")
    with monkeypatch.context() as earlier:
        earlier.setattr(Recipe, "needs_order", False)
        insitu.open_forecasts(paths, overlap="last").insitu.save(target)
    with pytest.raises(UnsupportedError, match=r"may overlap[\s\S]*--keep-last time=30"):
        insitu.Archive.open(target).drop([paths[0]])
    paths += write_runs(tmp_path, [(3, 0)])
    insitu.Archive.open(target).append(paths)
    same_values(insitu.open_dataset(target).load(), open_with_cfgrib(paths))


def test_a_changed_file_is_refreshed(tmp_path: Path) -> None:
    paths = write_runs(tmp_path, [(run, lead) for run in (0, 3, 6) for lead in (0, 3)])
    target = str(tmp_path / "a.insitu")
    insitu.open_forecasts(indexes_of(paths[:-1], "idx")).insitu.save(target)
    messages = [field.message(np.full(12, 7.0 + number)) for number, field in enumerate(fields_of(3, 3))]
    Path(paths[3]).write_bytes(b"".join(messages))
    insitu.refresh(target)
    found = insitu.open_dataset(target).load()
    same_values(found, open_with_cfgrib(paths[:-1]))
    assert (found.t[1, 1] == 7).all()


@pytest.mark.parametrize("overlap", ["last", "first"])
def test_a_corrected_file_counts_as_the_rule_says(tmp_path: Path, overlap: str) -> None:
    paths = write_runs(tmp_path, [(run, lead) for run in (0, 3) for lead in (0, 3)])
    target = str(tmp_path / "a.insitu")
    insitu.open_forecasts(paths, overlap=overlap).insitu.save(target)
    other = tmp_path / "other.grib2"
    other.write_bytes(Field(3, 3, "TMP").message(np.full(12, 5.0)))
    insitu.Archive.open(target).append([str(other)], "time")
    found, anew = (
        insitu.open_dataset(target).load(),
        insitu.open_forecasts([*paths, str(other)], overlap=overlap).load(),
    )
    xr.testing.assert_identical(found, anew)
    assert (found.t[1, 1] == 5).all() == (overlap == "last")
    np.testing.assert_array_equal(found.sp, open_with_cfgrib(paths).sp)  # of which there is no correction


@pytest.mark.parametrize("are_appended", [False, True])
@pytest.mark.parametrize("kind", ["grib2", "idx"])
def test_files_that_are_shadowed_are_not_taken_again(tmp_path: Path, kind: str, are_appended: bool) -> None:
    """The job that appends the same week again changes nothing: of one file another one gives all, of one a part."""
    paths = [
        write_grib(tmp_path / "a.grib2", [Field(0, 0, "TMP")]),
        write_grib(tmp_path / "b.grib2", [Field(3, 0, "TMP"), Field(3, 3, "TMP")]),
    ]
    for number, (run, lead) in enumerate([(0, 0), (3, 3)]):
        paths.append(write_grib(tmp_path / f"new{number}.grib2", [Field(run, lead, "TMP")]))
        Path(paths[-1]).write_bytes(Field(run, lead, "TMP").message(np.full(12, 5.0 + number)))
    given = paths if kind == "grib2" else indexes_of(paths, kind)
    target = str(tmp_path / "a.insitu")
    insitu.open_forecasts(given[:2] if are_appended else given, overlap="last").insitu.save(target)
    if are_appended:
        insitu.Archive.open(target).append(given[2:])
    before = insitu.open_dataset(target).load()
    assert (before.t[0, 0] == 5).all()
    assert (before.t[1, 1] == 6).all()
    assert insitu.open_dataset(target).insitu.files["shadowed"].isna().all()  # of how much was not recorded
    assert insitu.Archive.open(target).append(given).steps == 0
    xr.testing.assert_identical(insitu.open_dataset(target).load(), before)


def write_variables(folder: Path, name: str, cells: list[tuple[int, int]]) -> list[str]:
    return [write_grib(folder / f"{name}_{run}_{lead}.grib2", [Field(run, lead, name)]) for run, lead in cells]


@pytest.mark.parametrize("order", [("TMP", "PRES"), ("PRES", "TMP")])
def test_files_of_one_variable_each_are_appended_one_after_another(tmp_path: Path, order: tuple[str, str]) -> None:
    """A file takes nothing from those of another variable, and does not count as being there for them."""
    cells = [(0, 0), (0, 3), (3, 0), (3, 3)]
    target = str(tmp_path / "a.insitu")
    paths = write_variables(tmp_path, order[0], cells[:2])
    insitu.open_forecasts(paths).insitu.save(target)
    for name, new in ((order[1], cells[:3]), (order[0], cells[2:]), (order[1], cells[3:])):
        more = write_variables(tmp_path, name, new)
        done = insitu.Archive.open(target).append(more, "time")
        assert sorted(done.added) == sorted(more)
        paths += more
        xr.testing.assert_identical(insitu.open_dataset(target).load(), insitu.open_forecasts(paths).load())
    same_values(insitu.open_dataset(target).load(), open_with_cfgrib(paths))
    again = insitu.Archive.open(target).append(paths, "time")
    assert again.steps == 0
    assert sorted(again.skipped) == sorted(paths)


def test_variables_of_a_lead_time_come_from_several_files(tmp_path: Path) -> None:
    """Files share variables, but no two have the same one of a run and a lead time."""
    paths = [
        write_grib(tmp_path / "both.grib2", [Field(0, 0, "TMP"), Field(0, 0, "PRES")]),
        *write_variables(tmp_path, "TMP", [(0, 3)]),
        *write_variables(tmp_path, "PRES", [(0, 3)]),
    ]
    fields = [field for name in ("TMP", "PRES") for field in write_variables(tmp_path / "one", name, [(0, 0), (0, 3)])]
    expected = open_with_cfgrib(fields)
    same_values(insitu.open_forecasts(paths).load(), expected)
    target = str(tmp_path / "a.insitu")
    insitu.open_forecasts(paths[:2]).insitu.save(target)
    insitu.Archive.open(target).append(paths[2:], "time")
    same_values(insitu.open_dataset(target).load(), expected)
    with pytest.raises(CombineError, match=r"both have time 2024-02-28, step"):
        insitu.open_forecasts([*paths, *write_variables(tmp_path / "other", "TMP", [(0, 0)])])


def write_table(path: Path, run: int, leads: list[int], value: float, **attrs: str) -> str:
    """Write a NetCDF file of one run with CF's standard names."""
    times = np.array([run], "timedelta64[h]") + np.datetime64("2024-01-01", "ns")
    table = xr.Dataset(
        {"tas": (("time", "step", "x"), np.full((1, len(leads), 2), value))},
        {"time": ("time", times, {"standard_name": "forecast_reference_time"}),
         "step": ("step", np.array(leads, "timedelta64[h]").astype("timedelta64[ns]"),
                  {"standard_name": "forecast_period"})},
        attrs,
    )  # fmt: skip
    table.to_netcdf(path)
    return str(path)


def test_expected_labels_are_expected_of_what_is_appended(tmp_path: Path) -> None:
    files = [write_table(tmp_path / f"{run}.nc", run, leads, run) for run, leads in ((0, [0, 6]), (12, [0, 6]))]
    late = write_table(tmp_path / "late.nc", 24, [0, 18], 24)
    expect = {"time": "6h", "step": "6h"}
    target = str(tmp_path / "a.insitu")
    insitu.open_forecasts(files, expect=expect).insitu.save(target)
    insitu.Archive.open(target).append([late])
    found = insitu.open_dataset(target).load()
    assert dict(found.sizes) == {"time": 5, "step": 4, "x": 2}
    xr.testing.assert_identical(found, insitu.open_forecasts([*files, late], expect=expect).load())


@pytest.mark.parametrize("overlap", ["last", "first"])
@pytest.mark.parametrize("at", ["first", "last"])
def test_files_of_a_kind_count_in_the_order_in_which_they_were_given(tmp_path: Path, overlap: str, at: str) -> None:
    """Indexes of one kind are scanned as one; a corrected file of two of their runs is no such file."""
    paths = write_runs(tmp_path, [(run, lead) for run in range(0, 12, 3) for lead in (0, 3)])
    fields = [Field(3, 3, "TMP"), Field(6, 3, "TMP")]
    corrected = write_grib(tmp_path / "corrected.grib2", fields)
    messages = [field.message(np.full(12, 5.0 + number)) for number, field in enumerate(fields)]
    Path(corrected).write_bytes(b"".join(messages))
    offsets = iter([0, len(messages[0])])
    lines = [line.split(":") for line in Path(f"{corrected}.idx").read_text().splitlines()]
    Path(f"{corrected}.idx").write_text("".join(":".join([a, str(next(offsets)), *c]) + "\n" for a, _, *c in lines))
    given = [corrected, *paths] if at == "first" else [*paths, corrected]
    found = insitu.open_forecasts(indexes_of(given, "idx"), overlap=overlap).load()
    expected = insitu.open_forecasts(given, overlap=overlap).load()
    same_values(found, expected)
    assert (found.t[1:3, 1, 0, 0] == [5, 6]).all() == (overlap == at)


@pytest.mark.parametrize("target", ["renamed", "converted", "moved"])
def test_shadowed_files_are_known_under_their_new_names(tmp_path: Path, target: str) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    names = [f"{number}.nc" for number in range(2)]
    files = [write_table(folder / name, 0, [0, 6], 1 + number) for number, name in enumerate(names)]
    saved = folder / "a.insitu"
    insitu.open_forecasts(files, overlap="last").insitu.save(saved, relative=target == "moved")
    moved = folder.rename(tmp_path / "new")
    if target == "renamed":
        insitu.maintenance.rename_sources(str(moved / "a.insitu"), {str(folder): str(moved)})
    elif target == "converted":
        insitu.maintenance.convert(moved / "a.insitu", moved / "b.insitu", rename={str(folder): str(moved)})
    saved = moved / ("b.insitu" if target == "converted" else "a.insitu")
    recipe = saved_recipe(str(saved))
    assert recipe is not None
    assert list(recipe.shadowed) == [str(moved / names[0])]
    assert insitu.Archive.open(str(saved)).append([str(moved / names[0])]).steps == 0
    assert (insitu.open_dataset(saved).tas == 2).all()
    assert not insitu.refresh(saved).stale


def test_a_dataset_is_appended_as_the_files_that_it_was_opened_from(tmp_path: Path) -> None:
    """Not behind what is saved: further lead times of a run that is there belong beside the others of it."""
    files = [write_table(tmp_path / f"{run}.nc", run, [0, 6], run) for run in (0, 12)]
    late = write_table(tmp_path / "late.nc", 0, [12], 24)
    target = str(tmp_path / "a.insitu")
    insitu.open_forecasts(files).insitu.save(target)
    more = insitu.open_forecasts([late])
    with pytest.raises(UnsupportedError, match="which files this dataset has is unknown"):
        more.isel(x=[0, 1]).insitu.append(target, "time")
    more.insitu.append(target, "time")
    found = insitu.open_dataset(target).load()
    xr.testing.assert_identical(found, insitu.open_forecasts([*files, late]).load())
    again = insitu.open_dataset(late).insitu.append(target, "time")
    assert (again.steps, again.skipped) == (0, (late,))


def test_a_dataset_of_saved_forecasts_is_appended(tmp_path: Path) -> None:
    files = [write_table(tmp_path / f"{run}.nc", run, [0, 6], run) for run in (0, 12, 24)]
    insitu.open_forecasts(files[:2]).insitu.save(tmp_path / "a.insitu")
    insitu.open_forecasts(files[2:]).insitu.save(tmp_path / "b.insitu")
    insitu.open_dataset(tmp_path / "b.insitu").insitu.append(tmp_path / "a.insitu", "time")
    found = insitu.open_dataset(tmp_path / "a.insitu").load()
    xr.testing.assert_identical(found, insitu.open_forecasts(files).load())


def test_newest_by_attributes_is_not_decided_by_times_of_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write_table(tmp_path / "a.nc", 0, [0, 6], 1, date_created="2024-02-02")
    other = write_table(tmp_path / "b.nc", 0, [0, 6], 2, date_created="2024-01-01")
    assert (insitu.open_forecasts([first, other], overlap="newest").tas == 1).all()
    target = str(tmp_path / "a.insitu")
    insitu.open_forecasts([first], overlap="newest").insitu.save(target)
    insitu.Archive.open(target).append([other])
    assert (insitu.open_dataset(target).tas == 1).all()
    newer = write_table(tmp_path / "c.nc", 0, [0, 6], 3, date_created="2024-03-01")
    insitu.Archive.open(target).append([newer])
    found = insitu.open_dataset(target).load()
    assert (found.tas == 3).all()
    xr.testing.assert_identical(found, insitu.open_forecasts([first, other, newer], overlap="newest").load())
    with monkeypatch.context() as earlier:  # whose stores do not list the files
        earlier.setattr(Recipe, "needs_order", False)
        insitu.open_forecasts([first], overlap="newest").insitu.save(target, mode="w")
    with pytest.raises(CombineError, match="which file was written last is said by 'date_created' of each"):
        insitu.Archive.open(target).append([other])
    assert (insitu.open_dataset(target).tas == 1).all()


class TestStandardNames:
    """CF's names, in all the forms in which files have them."""

    TIMES = np.array(["2024-02-28T00", "2024-02-28T06"], "datetime64[ns]")
    LEADS = np.array([0, 3, 6], "timedelta64[h]").astype("timedelta64[ns]")

    @pytest.fixture
    def table(self) -> xr.Dataset:
        values = np.random.default_rng(1).random((2, 3, 4)).astype("f4")
        data = xr.Dataset({"tas": (("time", "step", "x"), values)}, {"time": self.TIMES, "step": self.LEADS})
        data["lsm"] = "x", np.arange(4.0)
        return data.assign_coords(x=np.arange(4.0))

    def write(self, folder: Path, form: str, table: xr.Dataset) -> list[str]:
        run_about, lead_about = ({"standard_name": name} for name in ("forecast_reference_time", "forecast_period"))
        folder.mkdir(exist_ok=True)
        paths = []

        def put(data: xr.Dataset) -> None:
            paths.append(str(folder / f"{len(paths)}.nc"))
            data.to_netcdf(paths[-1], encoding={"frt": {"units": "hours since 2024-01-01"}} if "frt" in data else {})

        for run in range(2):
            one = table.isel(time=run)
            valid = one.time.values + one.step.values
            series = one.drop_vars(["time", "step"]).rename(step="time")
            if form == "scalars":
                for lead in range(3):
                    part = one.isel(step=lead).drop_vars(["time", "step"])
                    put(part.assign_coords(
                        frt=((), self.TIMES[run], run_about), fp=((), self.LEADS[lead], lead_about), time=valid[lead]
                    ))  # fmt: skip
            elif form == "valid times and lead times":
                put(series.assign_coords(
                    time=("time", valid), frt=((), self.TIMES[run], run_about), fp=("time", self.LEADS, lead_about)
                ))  # fmt: skip
            elif form == "hours":
                hours = self.LEADS.astype("timedelta64[h]").astype(float)
                put(series.assign_coords(
                    time=("time", valid), frt=((), self.TIMES[run], run_about),
                    fp=("time", hours, {**lead_about, "units": "h"})
                ))  # fmt: skip
            elif form == "valid times":
                put(series.assign_coords(time=("time", valid), frt=((), self.TIMES[run], run_about)))
            elif form == "lead times and valid times":
                put(series.assign_coords(time=("time", valid), fp=("time", self.LEADS, lead_about)))
        if form == "constant lead":
            for lead in range(3):
                one = table.isel(step=lead).drop_vars("step")
                valid = self.TIMES + self.LEADS[lead]
                put(one.assign_coords(
                    time=("time", valid), frt=("time", self.TIMES, run_about), fp=((), self.LEADS[lead], lead_about)
                ))  # fmt: skip
        return paths

    @pytest.mark.parametrize(
        "form",
        [
            "scalars",
            "valid times and lead times",
            "hours",
            "valid times",
            "lead times and valid times",
            "constant lead",
        ],
    )
    def test_every_form_is_the_same_table(self, tmp_path: Path, table: xr.Dataset, form: str) -> None:
        with insitu.open_forecasts(self.write(tmp_path / "files", form, table)) as ds:
            assert ds.tas.dims == ("time", "step", "x")
            np.testing.assert_array_equal(ds.time, table.time)
            np.testing.assert_array_equal(ds.step, table.step)
            np.testing.assert_array_equal(ds.tas, table.tas)
            np.testing.assert_array_equal(ds.valid_time, self.TIMES[:, None] + self.LEADS)
            if form != "scalars":  # there all data may be forecasts
                assert ds.lsm.dims == ("x",)

    def test_names_attributes_and_functions(self, tmp_path: Path, table: xr.Dataset) -> None:
        paths = []
        for run in range(2):
            for lead in range(3):
                one = table[["tas"]].isel(time=run, step=lead).drop_vars(["time", "step"])
                paths.append(str(tmp_path / f"m_{str(self.TIMES[run])[:13].replace('-', '')}_f{3 * lead:03}.nc"))
                one.assign_attrs(issued=str(self.TIMES[run])[:13], hour=3 * lead).to_netcdf(paths[-1])
        ways = [
            {"time": r"_(\d{8}T\d\d)_", "step": r"_f(\d{3})"},
            {"time": "attr:issued", "step": "attr:hour"},
            {"time": lambda path: np.datetime64(f"{path[-18:-14]}-{path[-14:-12]}-{path[-12:-8][:2]}T{path[-10:-8]}")
             if False else self.TIMES[int("T06" in path)], "step": lambda path: np.timedelta64(int(path[-6:-3]), "h")},
        ]  # fmt: skip
        for way in ways:
            with insitu.open_forecasts(paths, **way) as ds:
                np.testing.assert_array_equal(ds.tas, table.tas)
                np.testing.assert_array_equal(ds.step, table.step)
        with insitu.open_forecasts(paths, **ways[0], names={"time": "run", "step": "lead"}) as ds:
            assert ds.tas.dims == ("run", "lead", "x")
            assert ds.insitu.run().sizes["valid_time"] == 3
            ds.insitu.save(tmp_path / "a.insitu")
        more = tmp_path / "m_20240228T12_f000.nc"
        table[["tas"]].isel(time=0, step=0).drop_vars(["time", "step"]).to_netcdf(more)
        insitu.Archive.open(str(tmp_path / "a.insitu")).append([str(more)], "run")
        saved = insitu.open_dataset(tmp_path / "a.insitu")
        assert saved.sizes["run"] == 3
        np.testing.assert_array_equal(saved.tas.isel(run=2, lead=0), table.tas.isel(time=0, step=0))
        assert saved.tas.isel(run=2, lead=slice(1, None)).isnull().all()
        with pytest.raises(CombineError, match=r"does not say which run.*time="):
            insitu.open_forecasts(paths)
        with pytest.raises(CombineError, match="is no date"):
            insitu.open_forecasts(paths, time=r"_f(\d{3})", step=r"_f(\d{3})")


class TestBadInput:
    @pytest.mark.parametrize("end", ["", ".idx"])
    def test_a_run_whose_file_is_complete_later(self, tmp_path: Path, end: str) -> None:
        target, late = str(tmp_path / "a.insitu"), tmp_path / "6.grib2"
        given = [write_grib(tmp_path / "0.grib2", [Field(0, lead, "TMP") for lead in (0, 3)]) + end]
        given.append(write_grib(late, [Field(6, 0, "TMP")]) + end)
        insitu.open_forecasts(given).insitu.save(target)
        (missing,) = insitu.open_dataset(target).insitu.missing["time", "step"]
        assert missing == (pandas.Timestamp("2024-02-28T06"), pandas.Timedelta("3h"))
        write_grib(late, [Field(6, lead, "TMP") for lead in (0, 3)])
        with pytest.raises(StaleSourceError, match=r"6\.grib2"):
            insitu.open_dataset(target).t.load()
        with pytest.raises(StaleSourceError, match=r"earlier version of this file.*6\.grib2.*insitu refresh"):
            insitu.Archive.open(target).append(given[1:])
        insitu.refresh(target)
        with insitu.open_dataset(target) as ds, insitu.open_forecasts(given) as anew:
            assert ds.insitu.missing == {}
            xr.testing.assert_identical(ds.load(), anew.load())

    @pytest.mark.parametrize(
        ("expect", "message"),
        [
            (
                {"tiem": "3h"},
                "expect= names 'tiem', along which no file has labels. Labels lie along: number, step, time",
            ),
            ("2h", r"2024-02-28T03:00 of 'time' is off the grid of expect='2h'.*r003"),
            ({"step": "2h"}, r"0 days 03:00:00 of 'step' is off the grid.*r000/f003"),
        ],
    )
    def test_expected_labels_that_no_file_follows(self, tmp_path: Path, expect: Any, message: str) -> None:
        paths = write_runs(tmp_path, [(0, 0), (0, 3), (3, 0)])
        with pytest.raises(CombineError, match=message):
            insitu.open_forecasts(paths, expect=expect)

    def test_the_hint_of_fields_is_a_call_that_joins_them(self, tmp_path: Path) -> None:
        paths = [write_grib(tmp_path / f"{run}_{lead}.grib2", [Field(run, lead, "TMP")])
                 for run in (0, 3) for lead in (3, 6)]  # fmt: skip
        with pytest.raises(CombineError, match=r"'time' and 'step'.*open_mfdataset\(paths, forecasts=True\)"):
            insitu.open_mfdataset(paths)
        same_values(insitu.open_mfdataset(paths, forecasts=True).load(), open_with_cfgrib(paths))

    def test_files_of_several_groups(self, tmp_path: Path) -> None:
        for run in (0, 3):
            data = xr.Dataset({"t": ("x", [1.0, run])}, {"time": np.datetime64("2024-01-01", "ns"), "step": 0})
            data.time.attrs["standard_name"] = "forecast_reference_time"
            data.step.attrs |= {"standard_name": "forecast_period", "units": "hours"}
            data.assign_coords(step=run).to_netcdf(tmp_path / f"{run}.nc", group="low")
        with pytest.raises(CombineError, match="group='low'"):
            insitu.open_forecasts(str(tmp_path / "*.nc"))

    def test_the_same_run_and_lead_twice(self, tmp_path: Path) -> None:
        paths = write_runs(tmp_path, [(run, lead) for run in range(4) for lead in (0, 3)])
        other = write_grib(tmp_path / "again.grib2", [Field(2, 3, name, 1)._replace(member=None) for name in ("TMP",)])
        for given in ([*paths, other], indexes_of([*paths, other], "idx")):
            with pytest.raises(CombineError, match=r"again.*both have time 2024-02-28T02.*step 0 days 03:00"):
                insitu.open_forecasts(given)
            with insitu.open_forecasts(given, overlap="first") as ds:
                same_values(ds, open_with_cfgrib(paths))

    def test_an_index_of_another_file(self, tmp_path: Path) -> None:
        paths = write_runs(tmp_path, [(run, 3) for run in range(4)])
        whole = Path(paths[2]).read_bytes()
        for data, message in (
            (whole[:-5], "its last message, at .* the file ends after"),
            (whole + Field(2, 3, "TMP").message(), "by its header and .* by the index"),
            (b"x" * len(whole), "no message begins at|no GRIB message begins"),
            (whole[:100], "belongs to another file|no message begins"),
        ):
            Path(paths[2]).write_bytes(data)
            with pytest.raises(FormatError, match=message):
                insitu.open_forecasts(indexes_of(paths, "idx"))
            with insitu.open_forecasts(indexes_of(paths, "idx"), errors="skip") as ds:
                assert ds.sizes["time"] == 3
                assert list(ds.insitu.report().left_out) == [f"{paths[2]}.idx"]
        Path(paths[2]).write_bytes(whole)
        # One that says the same as the others, of a file on another grid: found when its values are read.
        text = Path(f"{paths[2]}.idx").read_text()
        moved = write_grib(tmp_path / "z.grib2", [Field(2, 3, name) for name in ("PRES", "TMP", "APCP")])
        Path(f"{moved}.idx").write_text(text)
        ds = insitu.open_forecasts([*indexes_of(paths[:2], "idx"), f"{moved}.idx"])
        with pytest.raises(insitu.errors.InsituError, match=r"z\.grib2"):
            ds.t.load()
