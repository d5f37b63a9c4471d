"""Do files of several formats make one dataset, wherever they are, and is it kept in every form
that can hold it?
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

import insitu
from formats.mixed import GRIB_ONLY, NAMES, five_years, part
from insitu.errors import UnsupportedError

pytest.importorskip("eccodes")
pytest.importorskip("cfgrib")

HOW: dict[str, Any] = {"drop_variables": GRIB_ONLY, "combine_attrs": "override"}


@pytest.fixture
def archive(tmp_path: Path) -> list[Path]:
    """The files."""
    return five_years(tmp_path)


def _open_with_xarray(archive: list[Path]) -> xarray.Dataset:
    found = xarray.combine_by_coords([part(path).load() for path in archive], combine_attrs="override")
    assert isinstance(found, xarray.Dataset)
    return found


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_five_years_in_four_formats(archive: list[Path]) -> None:
    actual, expected = insitu.open_mfdataset(archive, **HOW), _open_with_xarray(archive)
    assert actual.t2m.dims == ("time", "latitude", "longitude")
    xarray.testing.assert_identical(actual.isel(time=slice(38, 170, 3)).load(), expected.isel(time=slice(38, 170, 3)))
    xarray.testing.assert_identical(actual.load(), expected)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_only_some_files_have(archive: list[Path]) -> None:
    """The scalar coordinates of GRIB: xarray's concat takes them along where it can."""
    how: dict[str, Any] = {
        "combine_attrs": "override",
        "coords": "minimal",
        "compat": "override",
        "data_vars": "minimal",
    }
    actual = insitu.open_mfdataset(archive, combine="nested", concat_dim="time", preprocess=_plain, **how)
    parts = [_plain(part(path).load()) for path in archive]
    xarray.testing.assert_identical(actual.load(), xarray.concat(parts, "time", join="outer", **how))


def _plain(dataset: xarray.Dataset) -> xarray.Dataset:
    return dataset[["t2m"]].reset_coords(drop=True)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_from_a_web_server(archive: list[Path], served: Any) -> None:
    actual = insitu.open_mfdataset([served.url(name) for name in NAMES], **HOW)
    xarray.testing.assert_identical(actual.load(), _open_with_xarray(archive))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("far", [False, True])
def test_kept_and_opened_again(archive: list[Path], tmp_path: Path, served: Any, far: bool) -> None:
    actual = insitu.open_mfdataset([served.url(name) for name in NAMES] if far else archive, **HOW)
    actual.insitu.save(tmp_path / "archive.insitu")
    again = insitu.open_dataset(tmp_path / "archive.insitu")
    xarray.testing.assert_identical(again.load(), actual.load())
    xarray.testing.assert_identical(again.load(), _open_with_xarray(archive))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("target", ["archive.json", "archive.parq", "archive.icechunk"])
def test_forms_that_cannot_hold_it_say_so(archive: list[Path], tmp_path: Path, target: str) -> None:
    """Packings differ from year to year: one Zarr array cannot say that. Years that are alike can
    be kept.
    """
    if target.endswith("icechunk"):
        pytest.importorskip("icechunk")
    actual = insitu.open_mfdataset(archive, **HOW)
    with pytest.raises(UnsupportedError, match="t2m"):
        actual.insitu.save(tmp_path / target)
    assert not (tmp_path / target).exists()
    for path in archive[:4]:
        single = insitu.open_dataset(path)
        saved = tmp_path / f"{path.stem}{Path(target).suffix}"
        single.insitu.save(saved)
        xarray.testing.assert_equal(insitu.open_dataset(saved).load(), single.load())


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::zarr.errors.UnstableSpecificationWarning")
def test_any_reader_of_zarr_sees_it_whole(archive: list[Path], tmp_path: Path) -> None:
    actual = insitu.open_mfdataset(archive, **HOW)
    actual.insitu.save(tmp_path / "archive.insitu")
    store = insitu.zarr_store(tmp_path / "archive.insitu")
    seen = xarray.open_zarr(store, consolidated=False, chunks=None)
    np.testing.assert_array_equal(seen.t2m.values, actual.t2m.values)
    np.testing.assert_array_equal(seen.time.values, actual.time.values)
