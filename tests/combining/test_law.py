"""Law 1: what `xarray.open_mfdataset` makes of many files, we make too; where it refuses, so do we."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.agreement import agree
from fixtures.make_archive import Part, parts, write_all
from fixtures.random_archive import random_archive, write_archive

OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "data_vars": st.sampled_from(("all", "minimal", "different", None)),
        "coords": st.sampled_from(("all", "minimal", "different")),
        "compat": st.sampled_from(("equals", "broadcast_equals", "no_conflicts", "override", "identical")),
        "join": st.sampled_from(("outer", "inner", "left", "right", "exact", "override")),
        "combine_attrs": st.sampled_from(("override", "drop", "no_conflicts", "drop_conflicts", "identical")),
    },
)


@settings(max_examples=40)
@given(archive=parts(odd=False), options=OPTIONS)
def test_files_that_differ_in_storage(archive: list[Part], options: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        agree(write_all(Path(folder), archive), **options)


@settings(max_examples=40)
@given(archive=parts(odd=True), options=OPTIONS)
def test_files_that_differ_in_what_they_hold(archive: list[Part], options: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        agree(write_all(Path(folder), archive), **options)


@settings(max_examples=40)
@given(archive=parts(odd=True), options=OPTIONS, dim=st.sampled_from(("time", "member", "level", None)))
def test_nested(archive: list[Part], options: dict[str, Any], dim: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        agree(write_all(Path(folder), archive), combine="nested", concat_dim=dim, **options)


@pytest.mark.parametrize("order", [("time", "lon"), ("lon", "time")], ids=str)
def test_grid_of_files(tmp_path: Path, order: tuple[str, str]) -> None:
    grid = [[Part(first=2 * i, lon_first=4 * j, packing=(i + j) % 5, stored="i2") for j in range(3)] for i in range(2)]
    flat = [part for row in grid for part in row]
    paths = write_all(tmp_path, flat)
    for options in ({}, {"data_vars": "minimal", "coords": "minimal", "compat": "override"}):
        agree(paths, **options)
        agree(list(reversed(paths)), **options)
    nested = [paths[:3], paths[3:]]
    if order == ("lon", "time"):
        nested = [[paths[j], paths[3 + j]] for j in range(3)]
    agree(nested, combine="nested", concat_dim=list(order))


def test_grid_with_a_hole(tmp_path: Path) -> None:
    flat = [Part(first=2 * i, lon_first=4 * j) for i in range(2) for j in range(2)]
    paths = write_all(tmp_path, flat)
    agree(paths[:3])


@pytest.mark.parametrize("first", [0, 30])
def test_random_archives(tmp_path: Path, first: int) -> None:
    """Thousands have been tried; these stay. A failure names its seed."""
    assert any([_random(tmp_path, seed) for seed in range(first, first + 30)])


def test_random_archives_of_several_calendars(tmp_path: Path) -> None:
    assert any([_random(tmp_path, seed, calendars=True) for seed in range(1000, 1040)])


def test_random_archives_with_dimensions_in_several_orders(tmp_path: Path) -> None:
    assert any([_random(tmp_path, seed, orders=True) for seed in range(2000, 2030)])


def _random(folder: Path, seed: int, **how: bool) -> bool:
    """Compare one archive; whether it can be combined."""
    archive = random_archive(seed, **how)
    (folder / str(seed)).mkdir()
    try:
        return agree(write_archive(folder / str(seed), archive), **archive.options)
    except Exception as problem:
        problem.add_note(f"seed {seed}, {how}, {archive.options}")
        raise
