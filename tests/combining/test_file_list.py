"""Tables of the files behind a dataset: of files that follow each other, overlap, or leave gaps."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas
import pytest
import xarray as xr

import insitu
from fixtures.make_archive import Part, write_all


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Three files: the last one shadows two days of the first, and all of the second."""
    archive = [
        Part(first=0, days=4),
        Part(first=2, days=2, seed=1),
        Part(first=2, days=5, seed=2),
        Part(first=9, days=1),
    ]
    found = write_all(tmp_path, archive)
    for number, path in enumerate(found):
        os.utime(path, (1e9 + number, 1e9 + number))
    return found


def test_files_that_overlap(tmp_path: Path, paths: list[str]) -> None:
    target = tmp_path / "x.insitu"
    opened = insitu.open_mfdataset(paths, overlap="newest", expect="1D")
    opened.insitu.save(target)
    for dataset in (opened, insitu.open_dataset(target)):
        table = dataset.insitu.files
        assert list(table.columns) == ["url", "size", "time", "time_first", "time_last", "labels", "shadowed"]
        assert table.url.tolist() == paths
        assert table["size"].tolist() == [os.path.getsize(path) for path in paths]
        assert table.time.tolist() == [pandas.Timestamp(1e9 + n, unit="s", tz="UTC") for n in range(4)]
        assert table.attrs["time"] == "modified"
        assert table.time_first.dt.day.tolist() == [1, 3, 3, 10]
        assert table.time_last.dt.day.tolist() == [4, 4, 7, 10]
        assert table.labels.tolist() == [4, 2, 5, 1]
        assert table.shadowed.tolist() == [2, 2, 0, 0]
        assert dataset.insitu.missing["time"].tolist() == np.array(["2000-01-08", "2000-01-09"], "M8[ns]").tolist()
        assert sorted(dataset.insitu.sources) == [paths[0], paths[2], paths[3]]


def test_dates_in_attributes(tmp_path: Path) -> None:
    dates = ["2020-01-02", "2020-01-01"]
    archive = [Part(first=n, seed=n, attributes={"creation_date": date}) for n, date in enumerate(dates)]
    table = insitu.open_mfdataset(write_all(tmp_path, archive), overlap="newest").insitu.files
    assert table.attrs["time"] == "creation_date"
    assert table.time.dt.strftime("%Y-%m-%d").tolist() == dates
    assert table.shadowed.tolist() == [0, 1]


def test_files_that_follow_each_other(tmp_path: Path, paths: list[str]) -> None:
    target = tmp_path / "x.insitu"
    opened = insitu.open_mfdataset([paths[0], paths[3]])
    opened.insitu.save(target)
    for dataset in (opened, insitu.open_dataset(target), opened.isel(lat=0)):
        table = dataset.insitu.files
        assert table.url.tolist() == [paths[0], paths[3]]
        assert table.time_last.dt.day.tolist() == [4, 10]
        assert table.shadowed.tolist() == [0, 0]
        assert dataset.insitu.missing == {}


def test_a_part_of_a_dataset_has_fewer(paths: list[str]) -> None:
    later = insitu.open_mfdataset(paths, overlap="last").isel(time=slice(4, None))
    assert later.insitu.files.url.tolist() == [paths[2], paths[3]]
    assert later.insitu.files.labels.tolist() == [3, 1]


def test_groups_of_a_tree(tmp_path: Path) -> None:
    """One file lacks a group, one of the others shadows a day of it; days are labels of the group above."""
    files = []
    for number, (days, has_wind) in enumerate([((0, 1, 2), True), ((2, 3), True), ((5, 6), False)]):
        times = np.array(days, "M8[D]").astype("M8[ns]")
        values = xr.Dataset({"tas": ("time", np.full(len(days), number))}, {"time": times})
        groups = {"/": values[["time"]], "/land": values, **({"/wind": values.rename(tas="u")} if has_wind else {})}
        xr.DataTree.from_dict(groups).to_netcdf(tmp_path / f"{number}.nc")
        files.append(str(tmp_path / f"{number}.nc"))
    target = str(tmp_path / "x.insitu")
    opened = insitu.open_mfdatatree(files[:2], overlap="last", expect="1D")
    opened.insitu.save(target)
    insitu.Archive.open(target).append(files[2])
    for tree in (insitu.open_mfdatatree(files, overlap="last", expect="1D"), insitu.open_datatree(target)):
        tables = tree.insitu.files
        land, wind = tables["/land"], tables["/wind"]
        assert land.url.tolist() == files
        assert (land.labels.tolist(), land.shadowed.tolist()) == ([3, 2, 2], [1, 0, 0])
        assert land.time_first.dt.day.tolist() == [1, 3, 6]
        assert wind.url.tolist() == files[:2]
        assert (wind.labels.tolist(), wind.shadowed.tolist()) == ([3, 2], [1, 0])
        assert wind.time_last.dt.day.tolist() == [3, 4]
        assert tree["land/tas"].values.tolist()[:4] == [0, 0, 1, 1]
