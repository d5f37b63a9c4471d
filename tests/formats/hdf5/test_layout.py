"""Contiguous and compact data is located."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import insitu
from insitu.errors import FormatError
from insitu.formats.hdf5.structures.layout import ChunkedLayout, ContiguousLayout, parse_layout
from insitu.model import Inline, Stored, Unwritten


@pytest.mark.parametrize("libver", ["earliest", "v108", "latest"])
def test_contiguous_compact_and_never_written(tmp_path: Path, scan, libver) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file["contiguous"] = np.arange(6.0).reshape(2, 3)
        file["scalar"] = np.float32(2.5)
        file.create_dataset("unwritten", (3,), "i2")
        file.create_dataset("empty", (0, 3), "i2")
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        create.set_layout(h5py.h5d.COMPACT)
        h5py.h5d.create(file.id, b"compact", h5py.h5t.STD_I16BE, h5py.h5s.create_simple((4,)), create)
        file["compact"][...] = [1, 2, 3, 4]
        offsets = {name: file[name].id.get_offset() for name in ("contiguous", "scalar")}
    arrays = scan(path).arrays
    contiguous = arrays["contiguous"].tiles[0].chunks[0, 0]
    assert isinstance(contiguous, Stored)
    assert (contiguous.offset, contiguous.length) == (offsets["contiguous"], 48)
    scalar = arrays["scalar"].tiles[0].chunks[()]
    assert isinstance(scalar, Stored)
    assert (arrays["scalar"].shape, scalar.offset, scalar.length) == ((), offsets["scalar"], 4)
    assert arrays["compact"].tiles[0].chunks[0] == Inline(np.array([1, 2, 3, 4], ">i2").tobytes())
    assert arrays["unwritten"].tiles[0].chunks[0] == Unwritten()
    assert arrays["empty"].tiles[0].chunks.shape == (0, 1)
    assert arrays["contiguous"].details.chunks is None


def test_null_dataspace(tmp_path: Path, scan) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = h5py.Empty("f4")
    array = scan(path).arrays["x"]
    assert (array.shape, array.dtype, array.details.is_null) == ((0,), np.float32, True)


def test_versions_1_and_2_put_the_address_first() -> None:
    chunked = bytes([1, 3, 2]) + bytes(5) + (100).to_bytes(8, "little")
    chunked += b"".join(n.to_bytes(4, "little") for n in (4, 5, 8))
    assert parse_layout(chunked, 8, 8) == ChunkedLayout((4, 5), 8, "btree_v1", 100)
    contiguous = bytes([2, 1, 1]) + bytes(5) + b"\xff" * 4 + (4).to_bytes(4, "little")
    assert parse_layout(contiguous, 4, 4) == ContiguousLayout(None, None)


@pytest.mark.parametrize("body", [bytes([9, 1]), bytes([3, 2, 1]), bytes([4, 2, 0, 2, 9, 1, 1])])
def test_damaged_messages(body: bytes) -> None:
    with pytest.raises(FormatError):
        parse_layout(body + bytes(8), 8, 8)


def test_chunks_larger_than_hdf5_allows_are_damage() -> None:
    dims = b"".join(length.to_bytes(4, "little") for length in (1 << 20, 1 << 12, 4))
    body = bytes([3, 2, 3]) + bytes(8) + dims
    with pytest.raises(FormatError, match="more than HDF5 allows"):
        parse_layout(body, 8, 8)


def test_since_version_5_chunks_may_be_larger(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="latest") as file:
        try:
            file.create_dataset("x", (1 << 33,), "u1", chunks=((1 << 32) + 10,), fillvalue=3)
        except (ValueError, OSError):
            pytest.skip("this library has no such chunks")
    group = insitu.scan(path, decode=False)
    assert group.arrays["x"].details.chunks == ((1 << 32) + 10,)
    assert insitu.read(group, "x", slice(-2, None), decode=False).tolist() == [3, 3]
