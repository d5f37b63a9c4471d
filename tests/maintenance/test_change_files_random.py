"""Whatever is done to a saved archive of any kind, it is what opening its files anew by its recipe gives."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import xarray as xr

import insitu
from insitu.combining.file_ranges import FileLayout
from insitu.errors import InsituError
from insitu.maintenance.saving import saved_recipe

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of xarray, about its defaults

START = np.datetime64("2000-01-01", "ns")
Draw = random.Random


def days(first: int, count: int) -> np.ndarray:
    """Return so many days from one on."""
    return START + np.arange(first, first + count).astype("timedelta64[D]")


def series(draw: Draw, first: int, count: int, **attributes: Any) -> xr.Dataset:
    """Return a dataset of some days, with values, a mask and a height that no other file has."""
    values = np.array([[draw.randrange(1000) for _ in range(2)] for _ in range(count)], "i4").reshape(count, 2)
    return xr.Dataset(
        {"tas": (("time", "x"), values), "mask": ("x", np.array([draw.randrange(9), 1]))},
        {"time": days(first, count), "x": [0, 1], "height": ((), float(draw.randrange(9)))},
        attributes,
    )


@dataclass(frozen=True)
class Kind:
    """A kind of archive: how its files are written and opened."""

    write: Callable[[Draw, int], xr.Dataset | xr.DataTree]
    """Makes the file of a number."""
    options: dict[str, Any] = field(default_factory=dict)
    dim: str = "time"
    by_xarray: Callable[[Sequence[str]], xr.Dataset] | None = None
    """What xarray makes of files, by hand."""
    name: Callable[[int], str] = "f{}".format

    def open(self, paths: Sequence[str], **where: Any) -> xr.Dataset | xr.DataTree:
        """Return what files make together."""
        how = {name: value for name, value in self.options.items() if name not in ("forecasts", "tree")} | where
        if self.options.get("forecasts"):
            return insitu.open_forecasts(paths, **how)
        return (insitu.open_mfdatatree if self.options.get("tree") else insitu.open_mfdataset)(paths, **how)

    def open_saved(self, target: str) -> xr.Dataset | xr.DataTree:
        """Return what was saved."""
        return (insitu.open_datatree if self.options.get("tree") else insitu.open_dataset)(target)


STATIC = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}


def joined(paths: Sequence[str], **how: Any) -> xr.Dataset:
    """Return files joined by xarray."""
    with xr.open_mfdataset(paths, engine="netcdf4", **how) as whole:
        return whole.load()


def without_repeats(paths: Sequence[str], keep: str) -> xr.Dataset:
    """Return files one behind the other, in order, and of days that several have the first or last one."""
    parts = [xr.load_dataset(path, engine="netcdf4") for path in paths]
    giver: dict[Any, int] = {}
    for number, part in enumerate(parts):
        for label in part.time.values.tolist():
            if keep == "last" or label not in giver:
                giver[label] = number
    used = [part for number, part in enumerate(parts) if number in giver.values()]
    whole = xr.concat(used, "time", **STATIC, join="outer", combine_attrs="override")
    return whole.sortby("time").drop_duplicates("time", keep=keep)


def by_days(draw: Draw, number: int) -> xr.Dataset:
    return series(draw, 3 * number, draw.choice([1, 2, 3]), title=f"file {number}")


def overlapping(draw: Draw, number: int) -> xr.Dataset:
    return series(draw, draw.randrange(9), draw.randrange(1, 5), date_created=f"2020-01-{draw.randrange(1, 28):02}")


def with_more(draw: Draw, number: int) -> xr.Dataset:
    part = overlapping(draw, number).drop_vars(["mask", "height"])
    return part.assign(pr=part.tas * 2.0) if number % 2 else part


def partly_empty(draw: Draw, number: int) -> xr.Dataset:
    part = overlapping(draw, number)
    return part if number % 3 else part.isel(time=slice(0))


def of_a_model(draw: Draw, number: int) -> xr.Dataset:
    return series(draw, 0, 2, source_id=f"model{number % 7}").drop_vars("mask")


def of_few_models(draw: Draw, number: int) -> xr.Dataset:
    part = series(draw, 0, 2, source_id=f"model{number % 3}", date_created=f"2020-01-{draw.randrange(1, 28):02}")
    return part.drop_vars("mask")


def of_models_and_days(draw: Draw, number: int) -> xr.Dataset:
    return series(draw, 2 * (number // 2), 2, source_id=f"model{number % 2}").drop_vars("mask")


def of_a_run(draw: Draw, number: int) -> xr.Dataset:
    return series(draw, 0, 2, run=2 * (number % 7)).drop_vars("mask")


def of_few_runs(draw: Draw, number: int) -> xr.Dataset:
    part = series(draw, 0, 2, run=2 * (number % 4), date_created=f"2020-01-{draw.randrange(1, 28):02}")
    return part.drop_vars("mask")


def of_members_and_days(draw: Draw, number: int) -> xr.Dataset:
    return series(draw, 3 * (number // 2), 2, member=3 * (number % 2)).drop_vars(["mask", "height"])


def runs_by_hand(paths: Sequence[str], keep: str = "last") -> xr.Dataset:
    """Return files one behind the other by their runs, and missing values for those that none has."""
    givers: dict[int, xr.Dataset] = {}
    for path in paths:
        part = xr.load_dataset(path, engine="netcdf4")
        run = int(part.attrs["run"])
        givers[run] = part if keep == "last" else givers.get(run, part)
    labels = pandas.Index(list(givers), name="run")
    whole = xr.concat(list(givers.values()), labels, data_vars="all", combine_attrs="override").sortby("run")
    return whole.reindex(run=np.arange(min(labels), max(labels) + 1))


def members_by_hand(paths: Sequence[str]) -> xr.Dataset:
    """Return the days of each member, members one behind the other, and missing values for all that no file has."""
    parts: dict[int, list[xr.Dataset]] = {}
    for path in paths:
        part = xr.load_dataset(path, engine="netcdf4")
        parts.setdefault(int(part.attrs["member"]), []).append(part)
    how = {"data_vars": "all", "combine_attrs": "override"}
    rows = [own[0] if len(own) == 1 else xr.concat(own, "time", **how).sortby("time") for own in parts.values()]
    labels = pandas.Index(list(parts), name="member")
    whole = xr.concat(rows, labels, join="outer", **how).sortby("member")
    dates = pandas.date_range(whole.time.values[0], whole.time.values[-1])
    return whole.reindex(member=np.arange(min(labels), max(labels) + 1), time=dates)


def forecast(draw: Draw, number: int) -> xr.Dataset:
    part = series(draw, 0, 1, date_created=f"2020-01-{draw.randrange(1, 28):02}")
    run = START + np.timedelta64(6 * (number % 4), "h")
    part = part.isel(time=0, drop=True).drop_vars(["mask", "height"])
    run_name = {"standard_name": "forecast_reference_time"}
    lead = np.timedelta64(6 * draw.randrange(3), "h").astype("timedelta64[ns]")
    return part.assign_coords(time=((), run, run_name), step=((), lead, {"standard_name": "forecast_period"}))


def exact_forecast(draw: Draw, number: int) -> xr.Dataset:
    run, lead = START + np.timedelta64(6 * (number % 3), "h"), np.timedelta64(6 * (number // 3), "h")
    part = forecast(draw, number)
    return part.assign_coords(time=part.time.copy(data=run), step=part.step.copy(data=lead.astype("timedelta64[ns]")))


def tree(draw: Draw, number: int) -> xr.DataTree:
    part = by_days(draw, number).drop_vars(["mask", "height"])
    wind = part.rename(tas="wind").drop_vars("x")
    groups = {"/": part.drop_vars("tas"), "/data": part[["tas"]].drop_vars(["time", "x"])}
    if number % 4 != 3:
        groups["/more/wind"] = wind
    return xr.DataTree.from_dict(groups)


def overlapping_tree(draw: Draw, number: int) -> xr.DataTree:
    part = overlapping(draw, number).drop_vars(["mask", "height"])
    return xr.DataTree.from_dict({"/": part, "/wind": part.rename(tas="wind")})


NESTED = {"combine": "nested", "concat_dim": "time"}
KINDS: dict[str, Kind] = {
    "plain": Kind(by_days, STATIC, by_xarray=lambda paths: joined(paths, **STATIC, combine_attrs="override")),
    "plain by default": Kind(
        lambda draw, number: by_days(draw, number).drop_vars("height"),
        {},
        by_xarray=lambda paths: joined(paths, combine_attrs="override"),
    ),
    "first": Kind(overlapping, {**STATIC, "overlap": "first"}),
    "last": Kind(overlapping, {**STATIC, "overlap": "last"}, by_xarray=None),
    "newest": Kind(overlapping, {**STATIC, "overlap": "newest"}),
    "newest, gaps": Kind(overlapping, {**STATIC, "overlap": "newest", "expect": "1D"}),
    "gaps": Kind(by_days, {**STATIC, "expect": "1D"}),
    "last, empty files": Kind(partly_empty, {**STATIC, "overlap": "last"}),
    "attributes that conflict": Kind(by_days, {**STATIC, "combine_attrs": "drop_conflicts"}),
    "names": Kind(of_a_model, {"concat_dim": {"model": r"f(\d+)"}}, "model"),
    "attributes": Kind(of_a_model, {"concat_dim": {"model": "attr:source_id"}}, "model"),
    "attributes, newest": Kind(
        of_few_models, {"concat_dim": {"model": "attr:source_id"}, "overlap": "newest"}, "model"
    ),
    "attributes and days": Kind(of_models_and_days, {"concat_dim": {"model": "attr:source_id"}}, "time"),
    "names, gaps": Kind(of_a_run, {"concat_dim": {"run": r"f(\d+)"}, "expect": 1}, "run"),
    "attributes, gaps": Kind(
        of_a_run, {"concat_dim": {"run": "attr:run"}, "expect": 1, "overlap": "last"}, "run", by_xarray=runs_by_hand
    ),
    "attributes, first, gaps": Kind(
        of_few_runs,
        {"concat_dim": {"run": "attr:run"}, "expect": {"run": 1}, "overlap": "first"},
        "run",
        by_xarray=partial(runs_by_hand, keep="first"),
    ),
    "attributes, newest, gaps": Kind(
        of_few_runs, {"concat_dim": {"run": "attr:run"}, "expect": 1, "overlap": "newest"}, "run"
    ),
    "attributes and days, gaps": Kind(
        of_members_and_days,
        {"concat_dim": {"member": "attr:member"}, "expect": {"member": 1, "time": "1D"}},
        by_xarray=members_by_hand,
    ),
    "nested": Kind(
        by_days,
        {**NESTED, **STATIC},
        by_xarray=lambda paths: joined(paths, **NESTED, **STATIC),
    ),
    "nested, new dimension": Kind(
        of_a_model,
        {"combine": "nested", "concat_dim": "model"},
        "model",
        by_xarray=lambda paths: joined(paths, combine="nested", concat_dim="model"),
    ),
    "nested, last": Kind(overlapping, {**NESTED, **STATIC, "overlap": "last"}),
    "nested, first, gaps": Kind(overlapping, {**NESTED, **STATIC, "overlap": "first", "expect": "1D"}),
    "nested, last, some with more": Kind(with_more, {**NESTED, **STATIC, "overlap": "last"}),
    "forecasts": Kind(exact_forecast, {"forecasts": True}),
    "forecasts, last": Kind(forecast, {"forecasts": True, "overlap": "last"}),
    "forecasts, first": Kind(forecast, {"forecasts": True, "overlap": "first"}),
    "forecasts, newest": Kind(forecast, {"forecasts": True, "overlap": "newest"}),
    "tree": Kind(tree, {"tree": True}),
    "tree, last": Kind(overlapping_tree, {"tree": True, "overlap": "last"}),
}


def used_files(opened: xr.Dataset | xr.DataTree) -> set[str]:
    """Return the files that something is read from: of those that were taken out nothing may be."""
    return {url for _, group in opened.insitu.tree().walk() for url in FileLayout.of(group).spans}


class Saved:
    """An archive, and the files that it is to be made of, in their order."""

    def __init__(self, kind: Kind, folder: Path, draw: Draw) -> None:
        self.kind, self.folder, self.draw = kind, folder, draw
        self.target, self.files = str(folder / "saved.insitu"), [self.write(number) for number in (2, 3)]
        self.numbers = iter(draw.sample([0, 1, *range(4, 9)], 7))
        self.kind.open(self.files).insitu.save(self.target)

    @property
    def archive(self) -> insitu.Archive:
        """The archive, opened again."""
        return insitu.Archive.open(self.target)

    def write(self, number: int) -> str:
        """Write the file of a number, with other values each time; return its name."""
        path = self.folder / f"{self.kind.name(number)}.nc"
        self.kind.write(self.draw, number).to_netcdf(path)
        seconds = 1e9 + self.draw.randrange(100000)
        os.utime(path, (seconds, seconds))
        return str(path)

    def renew(self, path: str) -> None:
        """Write a file anew and refresh the archive; as before, if the files make nothing then."""
        before, moment = Path(path).read_bytes(), os.stat(path).st_mtime
        self.write(int(Path(path).stem[1:]))
        try:
            self.kind.open(self.files).load()
        except (InsituError, ValueError):
            Path(path).write_bytes(before)
            os.utime(path, (moment, moment))
            return
        self.change("refresh", self.files, partial(insitu.refresh, self.target))

    def change(self, what: str, files: Sequence[str], do: Callable[[], Any]) -> None:
        """Assert that a change gives what files make; one that they do not allow changes nothing."""
        try:
            expected = self.kind.open(files).load()
        except (InsituError, ValueError):
            expected = None
        if expected is None:
            before = Path(self.target, "root.json").read_bytes()
            with pytest.raises(InsituError):
                do()
            assert Path(self.target, "root.json").read_bytes() == before, what
            return
        do()
        self.files = list(files)
        found = self.kind.open_saved(self.target)
        assert used_files(found) == used_files(self.kind.open(files)), what
        for _ in range(2):
            xr.testing.assert_identical(found.load(), expected)
        recipe = saved_recipe(self.target)
        assert recipe is not None
        if recipe.files:
            assert list(recipe.files) == self.files
        if recipe.placed is not None:
            tables = [opened.insitu.files for opened in (self.kind.open_saved(self.target), self.kind.open(files))]
            pandas.testing.assert_frame_equal(*tables)
        if self.kind.by_xarray is not None:
            xr.testing.assert_identical(found.load(), self.kind.by_xarray(files))


def change_at_random(kind: Kind, folder: Path, seed: int, steps: int = 4) -> None:
    """Change an archive at random."""
    saved = Saved(kind, folder, draw := random.Random(seed))
    for _ in range(steps):
        what = draw.choice(["append", "append", "append two", "replace", "drop", "refresh", "again"])
        files, chosen = saved.files, draw.choice(saved.files)
        count = {"append": 1, "append two": 2, "replace": 1}.get(what, 0)
        new = [saved.write(number) for number, _ in zip(saved.numbers, range(count), strict=False)]
        if what == "again":
            saved.change(what, files, partial(saved.archive.append, [chosen], kind.dim))
        elif what == "drop" and len(files) > 1:
            saved.change(what, [path for path in files if path != chosen], partial(saved.archive.drop, [chosen]))
        elif what == "refresh":
            saved.renew(chosen)
        elif what == "replace" and new:
            put = [new[0] if path == chosen else path for path in files]
            saved.change(what, put, partial(saved.archive.drop, [chosen], new))
        elif new:
            saved.change(what, [*files, *new], partial(saved.archive.append, new, kind.dim))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
@pytest.mark.parametrize("name", KINDS)
def test_random_changes(name: str, seed: int, tmp_path: Path) -> None:
    change_at_random(KINDS[name], tmp_path, seed)


def test_random_archives_are_the_same_on_a_cluster(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    address = {"dashboard_address": "127.0.0.1:0", "protocol": "inproc://"}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, **address) as cluster,
        distributed.Client(cluster) as client,
    ):
        for seed, name in enumerate(["tree", "tree, last", "attributes and days, gaps", "attributes, newest, gaps"]):
            kind, draw, paths = KINDS[name], random.Random(seed), []
            for number in draw.sample(range(9), 4):
                paths.append(str(tmp_path / f"{seed}_{kind.name(number)}.nc"))
                kind.write(draw, number).to_netcdf(paths[-1])
            assert kind.open(paths, parallel=client, resume=True).load().identical(kind.open(paths).load()), name
