"""DataTrees: images with overviews, and the accessor `tree.insitu`."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.errors import StaleSourceError
from insitu.maintenance import refresh

FILES = Path(__file__).resolve().parents[1] / "files"


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    path = tmp_path / "tree.nc"
    for number, group in enumerate((None, "a", "a/b", "c")):
        values = np.arange(12.0).reshape(3, 4) + number
        dataset = xr.Dataset({"v": (("x", "y"), values)}, {"x": [1.0, 2.0, 3.0]}, {"number": number})
        encoding = {"v": {"chunksizes": (2, 4), "zlib": True}}
        dataset.to_netcdf(path, engine="h5netcdf", group=group, mode="a" if number else "w", encoding=encoding)
    os.utime(path, (1e9, 1e9))
    return path


def test_an_image_lies_beside_its_overviews() -> None:
    path = FILES / "tiff" / "gdal_cog.tif"
    for _ in range(2):
        for tree in (insitu.open_datatree(path), xr.open_datatree(path, engine="insitu")):
            assert list(tree.groups) == ["/", "/full_resolution", "/overview_0", "/overview_1"]
            groups = {"full_resolution": None, "overview_0": "overview_0", "overview_1": "overview_1"}
            for name, group in groups.items():
                expected = insitu.open_dataset(path, group=group).load()
                xr.testing.assert_identical(tree[name].to_dataset(inherit=False).load(), expected)
    assert insitu.open_dataset(path).band_data.ndim == 3  # where it was: only a tree needs another place


def test_pages_of_other_sizes(tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    images = [np.arange(12, dtype="u2").reshape(3, 4), np.arange(30, dtype="u2").reshape(5, 6)]
    with tifffile.TiffWriter(tmp_path / "x.tif") as file:
        for image in images:
            file.write(image, metadata=None)
    tree = insitu.open_datatree(tmp_path / "x.tif")
    for number, image in enumerate(images):
        np.testing.assert_array_equal(tree[f"page_{number}"].band_data.values.squeeze(), image)


def test_what_a_tree_is_made_of(nested: Path) -> None:
    tree = insitu.open_datatree(nested)
    assert tree.insitu.virtual == ["v", "a/v", "c/v", "a/b/v"]
    assert tree.insitu.sources == [str(nested)]
    assert tree.insitu.nbytes_virtual == 4 * 96
    assert 0 < tree.insitu.nbytes_stored < 4 * 96 * 2
    assert tree["a"].insitu.virtual == ["v", "b/v"]
    assert "4 virtual variables of 4 groups in 1 file(s)" in repr(tree.insitu)
    assert pickle.loads(pickle.dumps(tree)).insitu.virtual == tree.insitu.virtual


def test_a_saved_tree(nested: Path, tmp_path: Path) -> None:
    expected = xr.open_datatree(nested, engine="h5netcdf").load()
    tree = insitu.open_datatree(nested)
    tree.insitu.save(tmp_path / "x.insitu", relative=True)
    tree["a"].insitu.save(tmp_path / "a.insitu")
    for _ in range(2):
        xr.testing.assert_identical(insitu.open_datatree(tmp_path / "x.insitu").load(), expected)
        xr.testing.assert_identical(
            insitu.open_dataset(tmp_path / "x.insitu", group="a/b").load(),
            insitu.open_dataset(nested, group="a/b").load(),
        )
        part = insitu.open_datatree(tmp_path / "a.insitu").load()
        for path in ("", "b"):
            xr.testing.assert_identical(
                part[path or "/"].to_dataset(inherit=False), expected[f"a/{path}"].to_dataset(inherit=False)
            )
    # As it was opened, it can be refreshed; as it was changed, it cannot.
    tree["a/more"] = xr.Variable("x", [1, 2, 3])
    tree.insitu.save(tmp_path / "changed.insitu")
    assert insitu.open_datatree(tmp_path / "changed.insitu")["a/more"].values.tolist() == [1, 2, 3]
    shutil.copy(nested, tmp_path / "copy.nc")
    shutil.move(tmp_path / "copy.nc", nested)
    with pytest.raises(StaleSourceError, match="insitu refresh"):
        insitu.open_datatree(tmp_path / "x.insitu").load()
    refresh(tmp_path / "x.insitu")
    xr.testing.assert_identical(insitu.open_datatree(tmp_path / "x.insitu").load(), expected)
    with pytest.raises(StaleSourceError, match="the tree was changed"):
        refresh(tmp_path / "changed.insitu")
