"""Law 1: what `xarray.open_mfdataset` makes of many files, we make too; where it refuses, so do we."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.make_archive import Part, parts, write_all
from insitu.xarray_bridge import open_mfdataset

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


# What xarray fails on without meaning to refuse it: an inner join that leaves no date of a calendar of its own.
THEIR_FAILURES = ("attempt to get argmin of an empty sequence",)


def theirs(paths: Any, **options: Any) -> xr.Dataset | Exception:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with xr.open_mfdataset(paths, engine="netcdf4", **options) as ds:
                return ds.load()
        except (ValueError, TypeError) as refused:
            return refused


def ours(paths: Any, **options: Any) -> xr.Dataset | Exception:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return open_mfdataset(paths, **options)
        except (ValueError, TypeError) as refused:
            return refused


def agree(paths: Any, **options: Any) -> None:
    expected, found = theirs(paths, **options), ours(paths, **options)
    if isinstance(expected, Exception):
        if any(text in str(expected) for text in THEIR_FAILURES):
            return
        assert isinstance(found, Exception), f"xarray refuses: {expected}"
        return
    if isinstance(found, Exception):
        raise found
    part = {dim: slice(1, None, 2) for dim in expected.dims if expected.sizes[dim] > 1}
    xr.testing.assert_identical(found.isel(part).load(), expected.isel(part))
    xr.testing.assert_identical(found.load(), expected)
    for name, variable in expected.variables.items():
        assert found[name].dtype == variable.dtype, name


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
