"""The superblock is found and parsed in every version.

Modules: formats/hdf5/format.py, formats/hdf5/structures/object_header.py
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import insitu
from fixtures.hdf5_property import library
from insitu.errors import FormatError
from insitu.model import Stored


def _write_sized(path: Path, offset: int, length: int, **options: int) -> None:
    """A file with addresses of `offset` and lengths of `length` bytes."""
    create = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    create.set_sizes(offset, length)
    if "userblock" in options:
        create.set_userblock(options["userblock"])
    if "k" in options:
        library("H5Pset_istore_k", create.id, options["k"])
        library("H5Pset_sym_k", create.id, options["k"], 3)
    file = h5py.File(h5py.h5f.create(str(path).encode(), fcpl=create))
    with file:
        file.attrs["text"] = "a text in the heap"
        file["contiguous"] = np.arange(10)
        file.create_dataset("chunked", data=np.arange(400).reshape(20, 20), chunks=(1, 3), compression="gzip")
        file.create_dataset("texts", data=["one", "two"])
        for number in range(20):
            file.create_group(f"group {number}")


@pytest.mark.parametrize("offset", [4, 8])
@pytest.mark.parametrize("length", [4, 8])
@pytest.mark.parametrize("options", [{}, {"userblock": 1024}, {"k": 5}])
def test_widths_and_constants(tmp_path: Path, scan, same_chunks, offset, length, options) -> None:
    path = tmp_path / "x.h5"
    _write_sized(path, offset, length, **options)
    group = scan(path)
    assert group.attributes["text"] == "a text in the heap"
    assert len(group.groups) == 20
    with h5py.File(path) as file:
        assert same_chunks(file["chunked"], group.arrays["chunked"]) == 140
        state = group.arrays["contiguous"].tiles[0].chunks[0]
        assert isinstance(state, Stored)
        assert state.offset == file["contiguous"].id.get_offset()
    codec = group.arrays["texts"].tiles[0].encodings[0].codecs[0]
    assert codec.configuration["offset_size"] == offset
    assert codec.configuration.get("length_size", 8) == length
    assert codec.configuration.get("base_address", 0) == options.get("userblock", 0)


@pytest.mark.parametrize("libver", ["earliest", "v108", "v110", "v112", "v114", "latest"])
def test_versions(tmp_path: Path, scan, libver) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file["x"] = np.arange(3)
    assert list(scan(path).arrays) == ["x"]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("size", [512, 2048, 1 << 18])
def test_user_block(tmp_path: Path, scan, libver, size) -> None:
    """One that the library made, and one that was put in front afterwards."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver=libver, userblock_size=size) as file:
        file.create_dataset("x", data=np.arange(30, dtype="<i4"), chunks=(10,))
    later = tmp_path / "later.h5"
    with h5py.File(later, "w", libver=libver) as file:
        file.create_dataset("x", data=np.arange(30, dtype="<i4"), chunks=(10,))
    later.write_bytes(b"#" * size + later.read_bytes())
    for one in (path, later):
        data, chunks = one.read_bytes(), scan(one).arrays["x"].tiles[0].chunks
        found = b"".join(data[c.offset : c.offset + c.length] for c in (chunks[i] for i in range(3)))
        assert found == np.arange(30, dtype="<i4").tobytes()


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_truncated(tmp_path: Path, scan, libver) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file["x"] = np.arange(1000)
    data = path.read_bytes()
    for length in (8, 20, 48, 100, 600, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(FormatError) as caught:
            scan(path)
        assert caught.value.url == str(path)
        assert caught.value.offset is not None
        assert "structure" in caught.value.place


def test_checksum(tmp_path: Path, scan) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["x"] = np.arange(3)
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match="checksum"):
        scan(path)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_joined_family_is_a_file_like_any_other(tmp_path: Path, libver: str) -> None:
    with h5py.File(tmp_path / "x_%d.h5", "w", driver="family", memb_size=4096, libver=libver) as file:
        file["x"] = np.arange(5000)
        file.create_dataset("chunked", data=np.arange(999), chunks=(100,), compression="gzip")
    members = sorted(tmp_path.glob("x_*.h5"), key=lambda path: int(path.stem[2:]))
    assert len(members) > 5
    (tmp_path / "joined.h5").write_bytes(b"".join(path.read_bytes() for path in members))
    (tmp_path / "x_1.h5").unlink()
    np.testing.assert_array_equal(insitu.read(tmp_path / "joined.h5", "x", decode=False), np.arange(5000))
    np.testing.assert_array_equal(insitu.read(tmp_path / "joined.h5", "chunked", decode=False), np.arange(999))
