"""Bands of images by name, as rasterio and rioxarray show them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rasterio
import rioxarray  # noqa: F401  (registers the engine)
import xarray as xr

import insitu
from fixtures.images import write_image
from insitu.errors import SelectionError

pytestmark = pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")  # rasterio's own

NAMES = ("red", None, "nir")


def test_labels(tmp_path: Path) -> None:
    write_image(tmp_path / "a.tif", descriptions=NAMES)
    found = insitu.open_dataset(tmp_path / "a.tif").insitu.name_bands()
    with rasterio.open(tmp_path / "a.tif") as file:
        assert found.band.values.tolist() == [
            name or f"band_{n}" for n, name in zip(file.indexes, file.descriptions, strict=True)
        ]
        for number, name in zip(file.indexes, found.band.values, strict=True):
            np.testing.assert_array_equal(found.sel(band=name).band_data, file.read(number))
    assert found.insitu.virtual == ["band_data"]
    found.insitu.save(tmp_path / "named.insitu")
    saved = insitu.open_dataset(tmp_path / "named.insitu")
    xr.testing.assert_identical(saved.sel(band="nir").load(), found.sel(band="nir").load())


@pytest.mark.parametrize("descriptions", [NAMES, ("one",), (None, None)])
def test_variables(tmp_path: Path, descriptions: tuple[str | None, ...]) -> None:
    write_image(tmp_path / "a.tif", descriptions=descriptions, tags={"SENSOR": "X"})
    found = insitu.open_dataset(tmp_path / "a.tif").insitu.split_bands()
    assert found.insitu.virtual == list(found.data_vars)
    with xr.open_dataset(tmp_path / "a.tif", engine="rasterio", band_as_variable=True) as expected:
        assert found.attrs == expected.attrs
        assert list(found.data_vars) == list(expected.data_vars)
        assert set(found.coords) == set(expected.coords)
        for name, band in expected.data_vars.items():
            xr.testing.assert_equal(found[name].load(), band)
            assert {key: value for key, value in found[name].attrs.items() if key != "grid_mapping"} == band.attrs
            assert found[name].rio.crs == band.rio.crs


def test_variables_of_a_series_by_name(tmp_path: Path) -> None:
    values = [write_image(tmp_path / f"a_2020010{day}.tif", day) for day in (1, 2)]
    paths = sorted(tmp_path.glob("*.tif"))
    found = insitu.open_mfdataset(paths, concat_dim={"time": r"_(\d{8})"}).insitu.name_bands().insitu.split_bands()
    assert list(found.data_vars) == ["red", "nir"]
    np.testing.assert_array_equal(found.nir, np.stack(values)[:, 1])
    found.insitu.save(tmp_path / "bands.insitu")
    np.testing.assert_array_equal(insitu.open_dataset(tmp_path / "bands.insitu").red, np.stack(values)[:, 0])


def test_files_whose_bands_are_in_another_order(tmp_path: Path) -> None:
    """Named before they are joined, they are joined by name."""
    one = write_image(tmp_path / "a_20200101.tif", 1)
    other = write_image(tmp_path / "a_20200102.tif", 2, descriptions=("nir", "red"))
    found = insitu.open_mfdataset(
        sorted(tmp_path.glob("*.tif")),
        concat_dim={"time": r"_(\d{8})"},
        preprocess=lambda ds: ds.insitu.name_bands(),
        join="outer",
    )
    np.testing.assert_array_equal(found.band_data.sel(band="red"), [one[0], other[1]])


@pytest.mark.parametrize(
    ("descriptions", "text"),
    [((None, None), "have no descriptions"), (("a", "a"), "several bands of 'band_data' have the description 'a'")],
)
def test_bands_that_have_no_names(tmp_path: Path, descriptions: tuple[str | None, ...], text: str) -> None:
    write_image(tmp_path / "a.tif", descriptions=descriptions)
    with pytest.raises(SelectionError, match=text):
        insitu.open_dataset(tmp_path / "a.tif").insitu.name_bands()
    with pytest.raises(SelectionError, match="no variable has a dimension 'band'"):
        xr.Dataset({"v": ("x", [1])}).insitu.split_bands()
    with pytest.raises(SelectionError, match="a variable 'red' already"):
        xr.Dataset({"v": ("band", [1]), "red": ((), 1)}, {"band": ["red"]}).insitu.split_bands()
