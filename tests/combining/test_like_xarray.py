"""Law 1: what `xarray.open_mfdataset` makes of many files, we make too; where it refuses, so do we."""

from __future__ import annotations

import tempfile
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import insitu
from fixtures.agreement import compare, identical, open_with_xarray
from fixtures.make_archive import Part, parts, write_all
from fixtures.random_archive import Archive, random_archive, write_archive
from insitu.errors import InsituError
from insitu.xarray_bridge import open_dataset, open_mfdataset

OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "data_vars": st.sampled_from(("all", "minimal", "different", None)),
        "coords": st.sampled_from(("all", "minimal", "different")),
        "compat": st.sampled_from(("equals", "broadcast_equals", "no_conflicts", "override", "identical", "minimal")),
        "join": st.sampled_from(("outer", "inner", "left", "right", "exact", "override")),
        "combine_attrs": st.sampled_from(("override", "drop", "no_conflicts", "drop_conflicts", "identical")),
    },
)


@settings(max_examples=20)
@given(archive=parts(odd=False), options=OPTIONS)
def test_files_that_differ_in_storage(archive: list[Part], options: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        compare(write_all(Path(folder), archive), **options)


@settings(max_examples=20)
@given(archive=parts(odd=True), options=OPTIONS)
def test_files_that_differ_in_what_they_hold(archive: list[Part], options: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        compare(write_all(Path(folder), archive), **options)


@settings(max_examples=20)
@given(archive=parts(odd=True), options=OPTIONS, dim=st.sampled_from(("time", "member", "level", None)))
def test_nested(archive: list[Part], options: dict[str, Any], dim: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        compare(write_all(Path(folder), archive), combine="nested", concat_dim=dim, **options)


@pytest.mark.parametrize("how", [{}, {"combine": "nested", "concat_dim": None}], ids=["by_coords", "nested"])
@pytest.mark.parametrize("coords", [True, False], ids=["coordinates", "data"])
def test_merging_with_minimal_compatibility(tmp_path: Path, how: dict[str, Any], coords: bool) -> None:
    """What conflicts is left out; files that are joined along a dimension need more."""
    files = []
    for number in range(3):
        shared = {"same": ("x", [1.0, 2.0]), "other": ("x", [1.0, number]), "one": ((), 5)}
        ds = xr.Dataset({f"v{number}": ("x", [1.0, number]), **shared}, {"x": [0, 1]})
        files.append(ds.set_coords(list(shared)) if coords else ds)
        files[-1].to_netcdf(tmp_path / f"{number}.nc")
    paths = [str(tmp_path / f"{number}.nc") for number in range(3)]
    assert compare(paths, compat="minimal", **how)
    assert "other" not in open_mfdataset(paths, compat="minimal", **how)
    compare(paths, combine="nested", concat_dim="run", compat="minimal")
    with pytest.raises(InsituError, match="compat='minimal' is for files that are merged"):
        open_mfdataset(paths, combine="nested", concat_dim="run", compat="minimal")


@pytest.mark.parametrize("order", [("time", "lon"), ("lon", "time")], ids=str)
def test_grid_of_files(tmp_path: Path, order: tuple[str, str]) -> None:
    grid = [[Part(first=2 * i, lon_first=4 * j, packing=(i + j) % 5, stored="i2") for j in range(3)] for i in range(2)]
    flat = [part for row in grid for part in row]
    paths = write_all(tmp_path, flat)
    for options in ({}, {"data_vars": "minimal", "coords": "minimal", "compat": "override"}):
        compare(paths, **options)
        compare(list(reversed(paths)), **options)
    nested = [paths[:3], paths[3:]]
    if order == ("lon", "time"):
        nested = [[paths[j], paths[3 + j]] for j in range(3)]
    compare(nested, combine="nested", concat_dim=list(order))


def test_grid_with_a_hole(tmp_path: Path) -> None:
    flat = [Part(first=2 * i, lon_first=4 * j) for i in range(2) for j in range(2)]
    paths = write_all(tmp_path, flat)
    compare(paths[:3])


@pytest.mark.parametrize("first", [0, 30])
def test_random_archives(tmp_path: Path, first: int) -> None:
    """Thousands have been tried; these stay. A failure names its seed."""
    combined = [_random(tmp_path, seed) for seed in range(first, first + 30)]
    assert sum(combined) >= 10  # the others both refuse


def test_random_archives_of_several_calendars(tmp_path: Path) -> None:
    combined = [_random(tmp_path, seed, calendars=True) for seed in range(1000, 1040)]
    assert sum(combined) >= 10  # the others both refuse


def test_random_archives_with_dimensions_in_several_orders(tmp_path: Path) -> None:
    combined = [_random(tmp_path, seed, orders=True) for seed in range(2000, 2030)]
    assert sum(combined) >= 10  # the others both refuse


def _random(folder: Path, seed: int, **how: bool) -> bool:
    """Compare one archive; whether it can be combined."""
    archive = random_archive(seed, **how)
    (folder / str(seed)).mkdir()
    try:
        return compare(write_archive(folder / str(seed), archive), **archive.options)
    except Exception as problem:
        problem.add_note(f"seed {seed}, {how}, {archive.options}")
        raise


@pytest.mark.parametrize("order", list(permutations(("v", "x", "y", "w"))), ids="".join)
def test_variables_that_lack_the_dimensions_of_a_grid(tmp_path: Path, order: tuple[str, ...]) -> None:
    """Which dimension comes first in them is decided by the order in which a file holds its
    variables.
    """
    files = [
        xr.Dataset(
            {"v": (("x", "y"), np.full((2, 3), 10.0 * i + j)), "w": ((), 10.0 * i + j)},
            {"x": np.arange(2.0) + 2 * i, "y": np.arange(3.0) + 3 * j},
        )
        for i in range(2)
        for j in range(2)
    ]
    paths = write_archive(tmp_path, Archive(files, None, {}, list(order)))
    assert compare(paths, data_vars="all")
    assert compare(paths, data_vars="all", preprocess=lambda ds: ds.transpose("y", "x"))


def test_files_inside_each_other(tmp_path: Path) -> None:
    """Files of different size, each inside the labels of the one before: they are joined along what
    xarray meets first.
    """
    archive = random_archive(5431)
    assert compare(write_archive(tmp_path, archive), **archive.options)


@pytest.mark.parametrize("seed", range(40))
def test_appended_one_by_one(tmp_path: Path, seed: int) -> None:
    """A store of one or several files, to which the others are appended, is the dataset that xarray
    makes of all files; dates of several calendars are refused by name.
    """
    rng = np.random.default_rng(seed)
    archive, first = [], 0
    for _ in range(int(rng.integers(2, 5))):
        days = int(rng.integers(1, 4))
        storage: dict[str, Any] = {"chunks": (int(rng.integers(1, 4)), 3, 4)} if rng.random() < 0.5 else {}
        archive.append(
            Part(
                first=first,
                days=days,
                stored=str(rng.choice(["f4", "i2"])),
                packing=int(rng.integers(0, 6)),
                storage=int(rng.integers(0, 4)),
                units=int(rng.integers(0, 3)),
                calendar="noleap" if rng.random() < 0.1 else "standard",
                has_wind=rng.random() < 0.9,
                **storage,
            )
        )
        first += days
    paths = write_all(tmp_path, archive)
    start = int(rng.integers(1, len(paths)))
    how: dict[str, Any] = {"combine": "nested", "concat_dim": "time"} if seed % 4 < 3 else {}
    how |= {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
    expected = open_with_xarray(paths, **how)
    store = tmp_path / "kept.insitu"

    def grow() -> None:
        open_mfdataset(paths[:start], **how).insitu.save(store)
        for path in paths[start:]:
            if seed % 2:
                open_dataset(path).insitu.append(store, "time")
            else:
                insitu.Archive.open(store).append(path)

    if len({part.calendar for part in archive}) > 1:
        with pytest.raises(InsituError, match=r"several calendars|mixed types"):
            grow()
        return
    assert isinstance(expected, xr.Dataset), f"xarray refuses: {expected!r}"
    grow()
    identical(open_dataset(store), expected)
