"""Granules of unequal lengths side by side, padded with missing values: what xarray makes of them by hand."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from fixtures.agreement import compare
from fixtures.granules import pad_by_hand, random_profiles, random_swaths, write_granules
from insitu.errors import CombineError

NESTED: dict[str, Any] = {"combine": "nested"}


def loaded(paths: list[str]) -> list[xr.Dataset]:
    found = []
    for path in paths:
        with xr.open_dataset(path, engine="netcdf4") as ds:
            found.append(ds.load())
    return found


def check(found: xr.Dataset, expected: xr.Dataset) -> None:
    """Twice, so that caches answer, too; and a part alone."""
    assert set(found.xindexes) == set(expected.xindexes)
    part = {dim: slice(1, None, 2) for dim in expected.dims}
    xr.testing.assert_identical(found.isel(part).load(), expected.isel(part))
    for _ in range(2):
        xr.testing.assert_identical(found.copy().load(), expected)
    assert {name: v.dtype for name, v in found.variables.items()} == {n: v.dtype for n, v in expected.variables.items()}


@pytest.mark.parametrize("seed", range(16))
def test_profiles_side_by_side(tmp_path: Path, seed: int) -> None:
    paths = write_granules(tmp_path, random_profiles(seed), seed)
    found = insitu.open_mfdataset(paths, **NESTED, concat_dim="profile", pad=True)
    assert "temp" in found.insitu.virtual
    expected = pad_by_hand(loaded(paths), "profile")
    check(found, expected)
    store = tmp_path / "saved.insitu"
    insitu.open_mfdataset(paths, **NESTED, concat_dim="profile", pad=True).insitu.save(store)
    check(insitu.open_dataset(store), expected)


@pytest.mark.parametrize("seed", range(12))
def test_swaths_of_several_widths_one_after_another(tmp_path: Path, seed: int) -> None:
    paths = write_granules(tmp_path, random_swaths(seed), seed)
    found = insitu.open_mfdataset(paths, **NESTED, concat_dim="along_track", pad=True)
    check(found, pad_by_hand(loaded(paths), "along_track"))


@pytest.mark.parametrize("seed", range(0, 12, 2))
def test_swaths_of_one_width_need_no_padding(tmp_path: Path, seed: int) -> None:
    paths = write_granules(tmp_path, random_swaths(seed), seed)
    assert compare(paths, **NESTED, concat_dim="along_track")


def test_a_single_value_labels_the_new_dimension(tmp_path: Path) -> None:
    granules = random_profiles(4)
    paths = write_granules(tmp_path, granules)
    check(insitu.open_mfdataset(paths, **NESTED, concat_dim="time", pad=True), pad_by_hand(loaded(paths), "time"))


def test_names_of_files_label_the_new_dimension(tmp_path: Path) -> None:
    paths = write_granules(tmp_path, random_profiles(8))
    found = insitu.open_mfdataset(paths, concat_dim={"profile": r"_(\d+)\.nc"}, pad=True)
    check(found, pad_by_hand(loaded(paths), "profile").assign_coords(profile=range(5)))


def test_a_grid_of_profiles_with_a_hole(tmp_path: Path) -> None:
    granules = random_profiles(0, 6)
    paths = write_granules(tmp_path, granules)
    places = {"platform": [0, 0, 0, 1, 1], "cast": [0, 1, 2, 0, 1]}
    found = insitu.open_mfdataset(paths[:5], concat_dim=places, pad=True, coords="minimal",
                                  compat="override")  # fmt: skip
    every = [ds.temp.values for ds in loaded(paths[:5])]
    values = np.full((2, 3, max(map(len, every))), np.nan, "f4")
    levels = np.full(values.shape, np.nan)
    for at, (i, j) in enumerate(zip(places["platform"], places["cast"], strict=True)):
        values[i, j, : len(every[at])] = every[at]
        levels[i, j, : len(every[at])] = loaded([paths[at]])[0].level.values
    np.testing.assert_array_equal(found.temp.transpose("platform", "cast", "level"), values)
    np.testing.assert_array_equal(found.level.transpose("platform", "cast", "level"), levels)


@pytest.mark.parametrize("engine", [ThreadPoolExecutor, ProcessPoolExecutor])
@pytest.mark.parametrize("seed", [0, 1, 3])
def test_on_workers(tmp_path: Path, engine: Any, seed: int) -> None:
    paths = write_granules(tmp_path, random_profiles(seed, 9), seed)
    with engine(2) as workers:
        found = insitu.open_mfdataset(paths, **NESTED, concat_dim="profile", pad=True, parallel=workers)
    check(found, pad_by_hand(loaded(paths), "profile"))


def test_what_a_preprocess_computes_is_padded(tmp_path: Path) -> None:
    paths = write_granules(tmp_path, random_profiles(0))

    def compute(ds: xr.Dataset) -> xr.Dataset:
        return ds[["temp"]].assign(temp=ds.temp * 2)

    found = insitu.open_mfdataset(paths, **NESTED, concat_dim="profile", pad=True, preprocess=compute)
    check(found, pad_by_hand([compute(ds) for ds in loaded(paths)], "profile"))


def test_what_is_shown_one_profile_at_a_time(tmp_path: Path) -> None:
    granules = random_profiles(0)
    paths = write_granules(tmp_path, granules)
    found = insitu.open_mfdataset(paths, **NESTED, concat_dim="profile", pad=True)
    for number, ds in enumerate(loaded(paths)):
        one = found.isel(profile=number, level=slice(ds.sizes["level"])).set_xindex("level")
        np.testing.assert_array_equal(one.temp, ds.temp)
        assert one.indexes["level"].equals(ds.indexes["level"])


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("first", [1, 3])
def test_appending_gives_what_opening_all_gives(tmp_path: Path, seed: int, first: int) -> None:
    paths = write_granules(tmp_path, random_profiles(seed), seed)
    store = tmp_path / "saved.insitu"
    how: dict[str, Any] = {**NESTED, "concat_dim": "profile", "pad": True}
    insitu.open_mfdataset(paths[:first], **how).insitu.save(store)
    for path in paths[first:]:
        insitu.Archive.open(store).append([path], "profile")
    check(insitu.open_dataset(store), pad_by_hand(loaded(paths), "profile"))


@pytest.mark.parametrize("seed", range(4))
def test_files_are_taken_out_replaced_and_refreshed(tmp_path: Path, seed: int) -> None:
    granules = random_profiles(seed, 7)
    paths = write_granules(tmp_path, granules, seed)
    store = tmp_path / "saved.insitu"
    how: dict[str, Any] = {**NESTED, "concat_dim": "profile", "pad": True}
    insitu.open_mfdataset(paths[:5], **how).insitu.save(store)
    longest = max(range(5), key=lambda number: granules[number].sizes["level"])
    insitu.Archive.open(store).drop([paths[longest]])
    rest = [path for path in paths[:5] if path != paths[longest]]
    check(insitu.open_dataset(store), pad_by_hand(loaded(rest), "profile"))
    insitu.Archive.open(store).drop([rest[1]], replacement=[paths[5]])
    rest[1] = paths[5]
    check(insitu.open_dataset(store), pad_by_hand(loaded(rest), "profile"))
    loaded([paths[6]])[0].to_netcdf(rest[2], engine="netcdf4")
    insitu.refresh(store)
    check(insitu.open_dataset(store), pad_by_hand(loaded(rest), "profile"))


def test_the_error_says_how_uneven_files_are_joined(tmp_path: Path) -> None:
    paths = write_granules(tmp_path, random_profiles(2))
    with pytest.raises(CombineError, match="pad=True"):
        insitu.open_mfdataset(paths, **NESTED, concat_dim="profile")
