"""Images that belong to another one: overviews and thumbnails, in the chain or in SubIFDs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import insitu
from insitu.errors import FormatError, InsituError, InsituWarning, UnsupportedError

tifffile = pytest.importorskip("tifffile")
rasterio = pytest.importorskip("rasterio")

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
VALUES = np.arange(64 * 40, dtype="u2").reshape(64, 40)
HALF, QUARTER = VALUES[::2, ::2], VALUES[::4, ::4]
COLOURS = np.arange(16 * 10 * 3, dtype="u1").reshape(16, 10, 3)
JBIG = 34661
REDUCED = 1


def write(path: Path, *images: tuple[Any, dict[str, Any]]) -> None:
    with tifffile.TiffWriter(path) as file:
        for values, how in images:
            file.write(values, metadata=None, photometric="rgb" if values is COLOURS else "minisblack", **how)


def images_of(path: Path) -> dict[str, Any]:
    """The images that we find, by path."""
    group = insitu.scan(path, decode=False)
    names = [name for name, _ in group.all_arrays() if name.endswith("band_data")]
    return {name: insitu.read(group, name, decode=False) for name in names}


def levels_of(path: Path) -> list[tuple[int, ...]]:
    """The shapes of the levels of tifffile's first series."""
    with tifffile.TiffFile(path) as file:
        return [level.shape for level in file.series[0].levels]


CASES: dict[str, tuple[tuple[tuple[Any, dict[str, Any]], ...], dict[str, Any]]] = {
    "overviews in SubIFDs": (
        ((VALUES, {"subifds": 2}), (HALF, {"subfiletype": REDUCED}), (QUARTER, {"subfiletype": REDUCED})),
        {"band_data": VALUES[None], "overview_0/band_data": HALF[None], "overview_1/band_data": QUARTER[None]},
    ),
    "overviews in SubIFDs that do not say so": (
        ((VALUES, {"subifds": 1}), (HALF, {})),
        {"band_data": VALUES[None], "overview_0/band_data": HALF[None]},
    ),
    "a SubIFD as large as the image": (
        ((VALUES, {"subifds": 1}), (VALUES + 1, {})),
        {"band_data": VALUES[None], "subimage_0/band_data": VALUES[None] + 1},
    ),
    "a raw image behind its thumbnail": (
        ((COLOURS, {"subifds": 1, "subfiletype": REDUCED}), (VALUES, {})),
        {"band_data": COLOURS.transpose(2, 0, 1), "subimage_0/band_data": VALUES[None]},
    ),
    "a thumbnail in colours before the overview": (
        ((VALUES, {}), (COLOURS, {"subfiletype": REDUCED}), (HALF, {"subfiletype": REDUCED})),
        {
            "band_data": VALUES[None],
            "overview_0/band_data": HALF[None],
            "subimage_0/band_data": COLOURS.transpose(2, 0, 1),
        },
    ),
    "pages with SubIFDs": (
        ((VALUES, {"subifds": 1}), (HALF, {}), (VALUES + 1, {"subifds": 1}), (HALF + 1, {})),
        {
            "band_data": np.stack([VALUES, VALUES + 1])[:, None],
            "overview_0/band_data": np.stack([HALF, HALF + 1])[:, None],
        },
    ),
    "pages with SubIFDs of their size": (
        ((VALUES, {"subifds": 1}), (VALUES + 5, {}), (VALUES + 1, {"subifds": 1}), (VALUES + 6, {})),
        {
            "band_data": np.stack([VALUES, VALUES + 1])[:, None],
            "subimage_0/band_data": np.stack([VALUES + 5, VALUES + 6])[:, None],
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_they_are_no_pages(tmp_path: Path, case: str) -> None:
    written, expected = CASES[case]
    path = tmp_path / "a.tif"
    write(path, *written)
    found = images_of(path)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    with tifffile.TiffFile(path) as file:
        assert len(file.pages) - sum(page.is_reduced for page in file.pages[1:]) == (
            len(found["band_data"]) if found["band_data"].ndim == 4 else 1
        )
    levels = [name for name in found if name == "band_data" or name.startswith("overview")]
    if "as large" not in case and "of their size" not in case:  # tifffile stacks those with their page
        shapes = [np.squeeze(found[name]).shape for name in levels]
        assert case.startswith("a raw") or levels_of(path) == shapes
    with rasterio.open(path) as file:
        overviews = [name for name in found if name.startswith("overview")]
        assert "do not say" in case or case == "pages with SubIFDs" or len(file.overviews(1)) == len(overviews)


def damage(path: Path, page: int, *, sub: int | None = None) -> None:
    """Give one image a compression that is not supported."""
    with tifffile.TiffFile(path, mode="r+b") as file:
        found = file.pages[page] if sub is None else file.pages[page].pages[sub]
        found.tags["Compression"].overwrite(JBIG)


@pytest.mark.parametrize("where", ["chain", "SubIFD", "page"])
def test_a_thumbnail_does_not_refuse_its_image(tmp_path: Path, where: str) -> None:
    path = tmp_path / "a.tif"
    if where == "SubIFD":
        write(path, (VALUES, {"subifds": 1}), (HALF, {"subfiletype": REDUCED}))
        damage(path, 0, sub=0)
    elif where == "chain":
        write(path, (VALUES, {}), (HALF, {"subfiletype": REDUCED}), (QUARTER, {"subfiletype": REDUCED}))
        damage(path, 1)
    else:
        write(path, (COLOURS, {}), (VALUES, {}), (HALF, {"subfiletype": REDUCED}))
        damage(path, 2)
    with rasterio.open(path) as file:
        expected = file.read()
    for _ in range(2):
        with pytest.warns(InsituWarning, match=r"left out: TIFF compression JBIG"):
            group = insitu.scan(path, decode=False)
        np.testing.assert_array_equal(insitu.read(group, "band_data", decode=False), expected)
        with pytest.warns(InsituWarning, match="JBIG"):
            dataset = insitu.open_dataset(path)
        np.testing.assert_array_equal(dataset.band_data, expected)
    if where == "chain":  # the next one takes its number, as in GDAL
        np.testing.assert_array_equal(insitu.read(group, "overview_0/band_data", decode=False)[0], QUARTER)


def test_an_overview_that_is_cut_off(tmp_path: Path) -> None:
    """It is refused where it is asked for."""
    path = tmp_path / "a.tif"
    write(path, (VALUES, {}), (HALF, {"subfiletype": REDUCED}))
    with tifffile.TiffFile(path, mode="r+b") as file:
        file.pages[1].tags["StripOffsets"].overwrite(1 << 20)
    with pytest.warns(InsituWarning, match=r"left out: .*behind the end"):
        np.testing.assert_array_equal(insitu.open_dataset(path).band_data[0], VALUES)
    for requested in ({"group": "overview_0"}, {"variables": ["overview_0/band_data"]}):
        with pytest.raises(FormatError, match="behind the end"):
            insitu.scan(path, decode=False, **requested)


def test_a_mask_or_a_page_that_cannot_be_read_refuses(tmp_path: Path) -> None:
    for subfile in (0, 4):
        path = tmp_path / "a.tif"
        write(path, (VALUES, {}), (VALUES > 9, {"subfiletype": subfile}))
        damage(path, 1)
        with pytest.raises(UnsupportedError, match="JBIG"):
            insitu.scan(path, decode=False)
        with pytest.warns(InsituWarning, match="JBIG"):
            group = insitu.scan(path, decode=False, errors="warn")
        np.testing.assert_array_equal(insitu.read(group, "band_data", decode=False)[0], VALUES)


def test_a_thumbnail_comes_first(tmp_path: Path) -> None:
    """Then it is the image: GDAL and tifffile begin with it, too."""
    path = tmp_path / "a.tif"
    write(path, (COLOURS, {"subfiletype": REDUCED}), (VALUES, {}))
    assert [*images_of(path)] == ["band_data", "page_1/band_data"]
    damage(path, 0)
    with pytest.raises(InsituError, match="JBIG"):
        insitu.scan(path, decode=False)
