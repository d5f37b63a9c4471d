"""Zarr stores are saved as references, and unwritten chunks stay unwritten."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr

from insitu.formats.scan_request import ScanRequest
from insitu.formats.zarr import open_zarr
from insitu.model import Inline, Unwritten, VirtualGroup, concatenate
from insitu.reading import read_array
from insitu.references import open_references, save

pytestmark = pytest.mark.filterwarnings("ignore:.*")


def store(path: Path, zarr_format: int, **options: object) -> VirtualGroup:
    root = zarr.create_group(path, zarr_format=zarr_format)
    array = root.create_array("a", shape=(8, 6), chunks=(2, 3), dtype="i4", fill_value=-3, **options)
    array[:3] = np.arange(18).reshape(3, 6)
    group = open_zarr(str(path), ScanRequest())
    assert group is not None
    return group


@pytest.mark.parametrize("name", ["x.json", "x.parq", "x.insitu", "x.parquet"])
@pytest.mark.parametrize(("zarr_format", "options"), [(2, {}), (3, {}), (3, {"shards": (4, 6)})])
def test_stores_as_references(tmp_path: Path, name: str, zarr_format: int, options: dict) -> None:
    group = store(tmp_path / "s", zarr_format, **options)
    save(group, tmp_path / name)
    back = open_references(str(tmp_path / name))
    assert back is not None
    assert read_array(back.array("a")).tolist() == read_array(group.array("a")).tolist()
    state = back.array("a").tiles[0].chunks[3, 1]
    # V2 metadata would mask the fill of a V3 store, so there it is written out.
    assert isinstance(state, Unwritten if zarr_format == 2 or name == "x.insitu" else Inline)


def test_joined_stores(tmp_path: Path) -> None:
    parts = [store(tmp_path / f"s{n}", n).array("a") for n in (2, 3)]
    whole = concatenate([parts[1], parts[1]], 0)
    expected = np.concatenate([read_array(part) for part in (parts[1], parts[1])])
    assert read_array(whole).tolist() == expected.tolist()
    for name in ("x.json", "x.insitu"):
        save(VirtualGroup({"a": whole}), tmp_path / name)
        back = open_references(str(tmp_path / name))
        assert back is not None
        assert read_array(back.array("a")).tolist() == expected.tolist()
