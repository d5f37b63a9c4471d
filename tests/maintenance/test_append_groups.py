"""Saved trees over time: after each append, drop and refresh they are what opening all files anew gives.

Modules: maintenance/append_groups.py, maintenance/change_files.py
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from fixtures.tree_products import write_cfradial2, write_odim, write_swath_product
from insitu.errors import ModelError, NotFoundError, SelectionError, UnsupportedError
from insitu.maintenance.saving import saved_recipe

VOLUMES: dict[str, Any] = {"by_group": {"/": {"combine": "nested", "concat_dim": "volume"}}}


def assert_like_anew(target: Path, files: list[Path], **how: Any) -> None:
    """The saved tree is what opening these files gives, in every process, and so are its groups one by one."""
    expected = insitu.open_mfdatatree(files, **how)
    xr.testing.assert_identical(insitu.open_datatree(target).load(), expected.load())
    recipe = saved_recipe(str(target))
    assert recipe is not None
    assert list(recipe.files) == list(map(str, files))
    assert recipe.options.scan.tree


@pytest.fixture
def swaths(tmp_path: Path) -> list[Path]:
    """Of six files the fourth lacks a group."""
    return [write_swath_product(tmp_path / f"{number}.nc", number, number != 3) for number in range(6)]


class TestAppend:
    def test_by_labels(self, swaths: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.open_mfdatatree(swaths[:2]).insitu.save(target)
        for end in (3, 4, 6):
            done = insitu.Archive.open(target).append(list(map(str, swaths[:end])))
            assert done.steps == len(done.added)
            assert_like_anew(target, swaths[:end])
        again = insitu.Archive.open(target).append(list(map(str, swaths)))
        assert (again.steps, len(again.skipped)) == (0, 6)
        insitu.check(target).raise_stale()

    def test_only_new_files_are_scanned(self, swaths: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.open_mfdatatree(swaths[:3]).insitu.save(target)
        for swath in swaths[:3]:
            swath.rename(swath.with_suffix(".away"))
        insitu.Archive.open(target).append(str(swaths[4]))
        for swath in swaths[:3]:
            swath.with_suffix(".away").rename(swath)
        assert_like_anew(target, [*swaths[:3], swaths[4]])

    def test_in_front(self, swaths: list[Path], tmp_path: Path) -> None:
        insitu.open_mfdatatree(swaths[4:]).insitu.save(tmp_path / "x.insitu")
        insitu.Archive.open(tmp_path / "x.insitu").append(str(swaths[2]))
        times = insitu.open_datatree(tmp_path / "x.insitu")["PRODUCT/SUPPORT_DATA/DETAILED_RESULTS"].time
        assert times.values.tolist() == [2, 4, 5]

    def test_a_group_is_appended_with_all_groups_of_its_files(self, swaths: list[Path], tmp_path: Path) -> None:
        """A dataset is one group of what it was opened from: the others were left as short as they were."""
        target = tmp_path / "x.insitu"
        insitu.open_mfdatatree(swaths[:2]).insitu.save(target)
        root = insitu.open_mfdataset(list(map(str, swaths[2:4])), group="PRODUCT")
        root.insitu.append(target, "time")
        assert_like_anew(target, swaths[:4])
        with pytest.raises(UnsupportedError, match="which files this dataset has is unknown"):
            root.isel(time=[0]).insitu.append(target, "time")

    def test_of_opened_trees(self, swaths: list[Path], tmp_path: Path) -> None:
        insitu.open_mfdatatree(swaths[:2]).insitu.save(tmp_path / "x.insitu")
        tree = insitu.open_mfdatatree(swaths[2:5])
        assert tree.insitu.append(tmp_path / "x.insitu", "time").steps == 3
        assert tree.insitu.append(tmp_path / "x.insitu", "time").steps == 0
        assert_like_anew(tmp_path / "x.insitu", swaths[:5])

    def test_with_options_by_group(self, tmp_path: Path) -> None:
        files = [write_cfradial2(tmp_path / f"{number}.nc", number) for number in range(4)]
        target = tmp_path / "x.insitu"
        insitu.open_mfdatatree(files[:2], **VOLUMES).insitu.save(target)
        for end in (3, 4):
            assert insitu.Archive.open(target).append(str(files[end - 1])).steps == 4
            assert_like_anew(target, files[:end], **VOLUMES)

    @pytest.mark.parametrize("lacking", [None, 1, 2])
    def test_new_dimensions(self, tmp_path: Path, lacking: int | None) -> None:
        files = [write_odim(tmp_path / f"{n}.h5", n, (1,) if n == lacking else (1, 2)) for n in range(4)]
        how: dict[str, Any] = {"combine": "nested", "concat_dim": "volume"}
        target = tmp_path / "x.insitu"
        insitu.open_mfdatatree(files[:2], **how).insitu.save(target)
        for end in (3, 4):
            insitu.Archive.open(target).append(str(files[end - 1]), "volume")
            assert_like_anew(target, files[:end], **how)

    def test_labels_twice(self, swaths: list[Path], tmp_path: Path) -> None:
        insitu.open_mfdatatree(swaths[:2]).insitu.save(tmp_path / "x.insitu")
        other = write_swath_product(tmp_path / "other.nc", 1)
        with pytest.raises(ModelError, match=r"holds 1 of 'time' already.*other\.nc"):
            insitu.Archive.open(tmp_path / "x.insitu").append(str(other))
        with pytest.raises(SelectionError, match="no dimension 'day'"):
            insitu.Archive.open(tmp_path / "x.insitu").append(str(swaths[2]), "day")
        assert_like_anew(tmp_path / "x.insitu", swaths[:2])

    def test_a_file_that_comes_late(self, swaths: list[Path], tmp_path: Path) -> None:
        files = [swaths[0], swaths[2], swaths[4]]
        insitu.open_mfdatatree(files).insitu.save(tmp_path / "x.insitu")
        for late in (swaths[1], swaths[3]):  # the latter lacks a group
            insitu.Archive.open(tmp_path / "x.insitu").append(str(late))
            files.append(late)
            assert_like_anew(tmp_path / "x.insitu", files)

    def test_overlaps(self, swaths: list[Path], tmp_path: Path) -> None:
        insitu.open_mfdatatree(swaths[:3], overlap="last").insitu.save(tmp_path / "x.insitu")
        corrected = write_swath_product(tmp_path / "corrected.nc", 1)
        insitu.Archive.open(tmp_path / "x.insitu").append(str(corrected))
        assert_like_anew(tmp_path / "x.insitu", [*swaths[:3], corrected], overlap="last")

    def test_labels_from_attributes(self, tmp_path: Path) -> None:
        files = [write_odim(tmp_path / f"{n}.h5", n, (1,) if n == 1 else (1, 2)) for n in range(4)]
        how: dict[str, Any] = {"concat_dim": {"date": "attr:what/date"}}
        insitu.open_mfdatatree(files[:3], **how).insitu.save(tmp_path / "x.insitu")
        insitu.Archive.open(tmp_path / "x.insitu").append(str(files[3]), "date")
        assert_like_anew(tmp_path / "x.insitu", files, **how)
        insitu.Archive.open(tmp_path / "x.insitu").drop([str(files[0])])
        assert_like_anew(tmp_path / "x.insitu", files[1:], **how)

    def test_to_a_store_of_one_file(self, swaths: list[Path], tmp_path: Path) -> None:
        insitu.open_datatree(swaths[0]).insitu.save(tmp_path / "x.insitu")
        insitu.Archive.open(tmp_path / "x.insitu").append(str(swaths[1]))
        assert_like_anew(tmp_path / "x.insitu", swaths[:2])

    def test_to_a_repository(self, swaths: list[Path], tmp_path: Path) -> None:
        pytest.importorskip("icechunk")
        target = str(tmp_path / "x.icechunk")
        insitu.open_mfdatatree(swaths[:2]).insitu.save(target)
        insitu.Archive.open(target).append(str(swaths[2]))
        found = insitu.open_datatree(target).load()
        xr.testing.assert_identical(found, insitu.open_mfdatatree(swaths[:3]).load())


class TestDropAndRefresh:
    def test_drop(self, swaths: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.open_mfdatatree(swaths[:5]).insitu.save(target)
        assert insitu.Archive.open(target).drop([str(swaths[1]), str(swaths[3])]) == (str(swaths[1]), str(swaths[3]))
        assert_like_anew(target, [swaths[0], swaths[2], swaths[4]])
        insitu.Archive.open(target).drop([str(swaths[2])], replacement=str(swaths[1]))
        assert_like_anew(target, [swaths[0], swaths[1], swaths[4]])
        with pytest.raises(NotFoundError, match="no file nothing"):
            insitu.Archive.open(target).drop(["nothing.nc"])

    def test_refresh(self, swaths: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.open_mfdatatree(swaths[:4]).insitu.save(target)
        write_swath_product(swaths[3], 3, True)  # with the group that it lacked
        os.utime(swaths[3], (2e9, 2e9))
        assert insitu.refresh(target).stale
        assert_like_anew(target, swaths[:4])
        assert not np.isnan(insitu.open_datatree(target)["PRODUCT/SUPPORT_DATA/DETAILED_RESULTS/fit"].values).any()

    def test_last_steps_are_not_kept_of_one_group_alone(self, swaths: list[Path], tmp_path: Path) -> None:
        insitu.open_mfdatatree(swaths[:2]).insitu.save(tmp_path / "x.insitu")
        with pytest.raises(UnsupportedError, match="steps of a tree"):
            insitu.Archive.open(tmp_path / "x.insitu").drop(keep_last={"time": 1})
        assert_like_anew(tmp_path / "x.insitu", swaths[:2])

    def test_of_one_file(self, swaths: list[Path], tmp_path: Path) -> None:
        insitu.open_datatree(swaths[0]).insitu.save(tmp_path / "x.insitu")
        write_swath_product(swaths[0], 9)
        os.utime(swaths[0], (2e9, 2e9))
        insitu.refresh(tmp_path / "x.insitu")
        assert insitu.open_datatree(tmp_path / "x.insitu")["PRODUCT"].time.values.tolist() == [9]


@pytest.mark.parametrize("seed", range(3))
def test_random_sequences(swaths: list[Path], tmp_path: Path, seed: int) -> None:
    dice, target = random.Random(seed), tmp_path / "x.insitu"
    there = sorted(dice.sample(swaths, 2))
    insitu.open_mfdatatree(there).insitu.save(target)
    for _ in range(5):
        rest = [swath for swath in swaths if swath not in there]
        match dice.choice(["append", "drop", "replace"]):
            case "append" if rest:
                new = dice.choice(rest)
                insitu.Archive.open(target).append(str(new))
                there.append(new)
            case "drop" if len(there) > 1:
                there.remove(gone := dice.choice(there))
                insitu.Archive.open(target).drop([str(gone)])
            case "replace" if rest:
                at, new = dice.randrange(len(there)), dice.choice(rest)
                insitu.Archive.open(target).drop([str(there[at])], replacement=str(new))
                there[at] = new
        assert_like_anew(target, there)
