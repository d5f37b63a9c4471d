"""Image codecs are saved by the names that other readers know, and these read the same values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import tifffile
import zarr

import insitu
from insitu.errors import UnsupportedError
from insitu.references import open_references, save

pytestmark = pytest.mark.filterwarnings("ignore:.*")

CHAINS = [
    ("lzw", None), ("lzw", True), ("zlib", True), ("zstd", None), ("packbits", None),
    ("png", None), ("jpegxl", None), ("lerc", None),
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def register_codecs() -> None:
    """What a reader of such references has to do once."""
    from imagecodecs.numcodecs import register_codecs

    register_codecs(verbose=False)


@pytest.mark.parametrize(
    ("shape", "planes"), [((64, 96), None), ((3, 64, 96), "separate"), ((64, 96, 3), "contig")], ids=str
)
@pytest.mark.parametrize(("compression", "predictor"), CHAINS)
def test_tiles(tmp_path: Path, compression: str, predictor: bool | None, shape: Any, planes: Any) -> None:
    values = np.random.default_rng(0).integers(0, 999, shape).astype("u2")
    path = tmp_path / "a.tif"
    kind = "minisblack" if planes is None else "rgb"
    tifffile.imwrite(
        path,
        values,
        compression=compression,
        predictor=predictor,
        tile=(32, 32),
        photometric=kind,
        planarconfig=planes,
    )
    group = insitu.scan(path, decode=False)
    ((name, array),) = [(name, array) for name, array in group.arrays.items() if array.ndim == 3]
    expected = insitu.read(array, decode=False)
    bands = np.moveaxis(values, -1, 0) if planes == "contig" else values.reshape(-1, 64, 96)
    assert np.array_equal(expected, bands)
    if planes == "contig":  # the bands lie innermost, which Zarr V2 cannot say of a dimension in front
        save(group, tmp_path / "x.insitu")
        assert np.array_equal(
            insitu.read(insitu.scan(tmp_path / "x.insitu", decode=False), name, decode=False), expected
        )
        with pytest.raises(UnsupportedError, match=r"transposed to \('y', 'x', 'band'\)"):
            save(group, tmp_path / "x.json", zarr_format=2)
        group = replace(group, arrays={**group.arrays, name: array.transpose(1, 2, 0)})
        expected = np.moveaxis(expected, 0, -1)
    for target in ("x.json", "x.parq", "x.insitu"):
        save(group, tmp_path / target)
        back = open_references(str(tmp_path / target))
        assert back is not None
        assert np.array_equal(insitu.read(back, name, decode=False), expected), target
    files = fsspec.filesystem("reference", fo=str(tmp_path / "x.json"), remote_protocol="file")
    assert np.array_equal(zarr.open_group(files.get_mapper(""), mode="r")[name][...], expected)


def test_what_v3_has_no_name_for(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((64, 96), "u2"), compression="lzw", tile=(32, 32))
    with pytest.raises(UnsupportedError, match="imagecodecs_lzw"):
        save(insitu.scan(tmp_path / "a.tif", decode=False), tmp_path / "x.json", zarr_format=3)
