"""Virtual datasets have the values that h5py reads.

Modules: formats/hdf5/datasets/object_at_path.py, formats/hdf5/datasets/objects.py,
formats/hdf5/datasets/virtual_mapping.py, formats/hdf5/datasets/virtual_sources.py,
formats/hdf5/structures/stored_selection.py
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import insitu
from damaged_bytes import count_refused, flip_each, read_all, written_to
from insitu.errors import FormatError, UnsupportedError
from insitu.formats.hdf5.structures.stored_selection import parse_selection
from insitu.formats.parsing.sibling_files import sibling_urls


def assert_reads_like_h5py(path: Path, *names: str) -> None:
    """Assert that the datasets read as in h5py, whole and in part."""
    group = insitu.scan(path, variables=names or None, decode=False)
    with h5py.File(path) as file:
        for name in names or [name for name in file if isinstance(file[name], h5py.Dataset)]:
            array, dataset = group.array(name), file[name]
            assert (array.shape, array.dtype) == (dataset.shape, dataset.dtype), name
            np.testing.assert_array_equal(insitu.read(group, name, decode=False), dataset[...], err_msg=name)
            part = tuple(slice(length // 3, None, 2) for length in dataset.shape)
            np.testing.assert_array_equal(insitu.read(group, name, part, decode=False), dataset[part], err_msg=name)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for number in range(3):
        with h5py.File(tmp_path / f"s{number}.h5", "w") as file:
            data = np.arange(60.0).reshape(6, 10) + 100 * number
            file.create_dataset("data", data=data, chunks=(4, 3), compression="gzip", maxshape=(None, 10))
            file["line"] = data[0]
    return tmp_path


@pytest.mark.parametrize("libver", ["v110", "latest"])
def test_boxes_gaps_and_missing_sources(sources: Path, libver: str) -> None:
    path = sources / "v.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file["own"] = np.arange(10.0)
        layout = h5py.VirtualLayout((5, 10), "f8")
        for number in range(3):
            layout[number] = h5py.VirtualSource(f"s{number}.h5", "line", (10,))
        layout[3] = h5py.VirtualSource(".", "own", (10,))
        layout[4] = h5py.VirtualSource("gone.h5", "line", (10,))
        file.create_virtual_dataset("stacked", layout, fillvalue=-7)
        layout = h5py.VirtualLayout((20, 12), "f8")
        for number in range(3):
            layout[6 * number : 6 * number + 6, 1:11] = h5py.VirtualSource(f"s{number}.h5", "data", (6, 10))
        file.create_virtual_dataset("framed", layout)
        layout = h5py.VirtualLayout((2, 4), "f8")
        layout[...] = h5py.VirtualSource("s1.h5", "nothing", (2, 4))
        file.create_virtual_dataset("nothing", layout, fillvalue=3)
    assert_reads_like_h5py(path)
    assert insitu.scan(path, decode=False).arrays["stacked"].details.missing_sources == ("gone.h5:line",)


@pytest.mark.parametrize("libver", ["v110", "latest"])
def test_strided_and_interleaved(sources: Path, libver: str) -> None:
    path = sources / "v.h5"
    with h5py.File(path, "w", libver=libver) as file:
        layout = h5py.VirtualLayout((18, 5), "f8")
        for number in range(3):
            layout[number::3] = h5py.VirtualSource(f"s{number}.h5", "data", (6, 10))[:, ::2]
        file.create_virtual_dataset("interleaved", layout)
        layout = h5py.VirtualLayout((3, 10), "f8")
        for number in range(3):
            layout[number] = h5py.VirtualSource(f"s{number}.h5", "data", (6, 10))[number + 1]
        file.create_virtual_dataset("rows", layout)
        layout = h5py.VirtualLayout((6, 3), "f8")
        for number in range(3):
            layout[:, number] = h5py.VirtualSource(f"s{number}.h5", "data", (6, 10))[:, 4]
        file.create_virtual_dataset("columns", layout)
        layout = h5py.VirtualLayout((4, 15), "f8")
        layout[...] = h5py.VirtualSource("s1.h5", "data", (6, 10))
        file.create_virtual_dataset("reshaped", layout)
        layout = h5py.VirtualLayout((6, 10), "f8")
        layout[...] = h5py.VirtualSource("s0.h5", "data", (6, 10))
        layout[2:5, 3:9] = h5py.VirtualSource("s1.h5", "data", (6, 10))[1:4, 1:7]
        layout[3, 3:6] = h5py.VirtualSource("s2.h5", "line", (10,))[:3]
        file.create_virtual_dataset("covered", layout)
    assert_reads_like_h5py(path)


def test_names_that_are_told_once(tmp_path: Path) -> None:
    names = [("a.h5", "first"), ("a_long_name.h5", "a_long_dataset"), (".", "a_long_dataset"), ("a.h5", "first")]
    names += [("a_long_name.h5", "first"), (".", "first"), ("a_long_name.h5", "a_long_dataset")]
    path = tmp_path / "v.h5"
    for number, name in enumerate(("a.h5", "a_long_name.h5", "v.h5")):
        with h5py.File(tmp_path / name, "w", libver="latest") as file:
            file["first"] = np.arange(4.0) + 10 * number
            file["a_long_dataset"] = np.arange(4.0) + 10 * number + 100
    with h5py.File(path, "a", libver="latest") as file:
        layout = h5py.VirtualLayout((len(names), 4), "f8")
        for number, (name, dataset) in enumerate(names):
            layout[number] = h5py.VirtualSource(name, dataset, (4,))
        file.create_virtual_dataset("v", layout)
    assert_reads_like_h5py(path)


def test_irregular_selections(sources: Path) -> None:
    path = sources / "v.h5"
    with h5py.File(path, "w", libver="latest") as file:
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        here, there = h5py.h5s.create_simple((8, 8)), h5py.h5s.create_simple((6, 10))
        here.select_hyperslab((0, 0), (2, 3))
        here.select_hyperslab((1, 2), (4, 4), op=h5py.h5s.SELECT_OR)
        there.select_hyperslab((0, 0), (3, here.get_select_npoints() // 3))
        create.set_virtual(here, b"s1.h5", b"data", there)
        h5py.h5d.create(file.id, b"odd", h5py.h5t.IEEE_F64LE, h5py.h5s.create_simple((8, 8)), create)
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        here, there = h5py.h5s.create_simple((7, 9)), h5py.h5s.create_simple((6, 10))
        here.select_hyperslab((0, 0), (2, 2), (4, 5), (3, 2))
        there.select_hyperslab((0, 1), (2, 2), (3, 4), (3, 2))
        create.set_virtual(here, b"s1.h5", b"data", there)
        h5py.h5d.create(file.id, b"blocks", h5py.h5t.IEEE_F64LE, h5py.h5s.create_simple((7, 9)), create)
    assert_reads_like_h5py(path)


def test_mappings_without_an_end(sources: Path) -> None:
    path = sources / "v.h5"
    endless = h5py.h5s.UNLIMITED
    with h5py.File(path, "w", libver="latest") as file:
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        space = h5py.h5s.create_simple((0, 20), (endless, 20))
        for number in range(2):
            here, there = space.copy(), h5py.h5s.create_simple((6, 10), (endless, 10))
            here.select_hyperslab((0, 10 * number), (1, 1), (1, 1), (endless, 10))
            there.select_hyperslab((0, 0), (1, 1), (1, 1), (endless, 10))
            create.set_virtual(here, f"s{number}.h5".encode(), b"data", there)
        h5py.h5d.create(file.id, b"grows", h5py.h5t.IEEE_F64LE, space, create)
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        space = h5py.h5s.create_simple((0, 10), (endless, 10))
        here, there = space.copy(), h5py.h5s.create_simple((6, 10))
        here.select_hyperslab((0, 0), (endless, 1), (6, 10), (6, 10))
        create.set_virtual(here, b"s%b.h5", b"data", there)
        h5py.h5d.create(file.id, b"numbered", h5py.h5t.IEEE_F64LE, space, create)
    assert_reads_like_h5py(path)
    with h5py.File(sources / "s0.h5", "a") as file:
        file["data"].resize((9, 10))
        file["data"][6:] = 5
    assert_reads_like_h5py(path, "grows")
    with h5py.File(sources / "s0.h5", "a") as file:
        file["data"].resize((6, 10))
    with h5py.File(sources / "s3.h5", "w") as file:
        file["data"] = np.ones((6, 10))
    assert insitu.scan(path, decode=False).arrays["numbered"].shape == (24, 10)
    assert_reads_like_h5py(path)


def test_virtual_of_virtual_texts_and_records(tmp_path: Path) -> None:
    record = np.dtype([("a", "<i4"), ("b", "<f8", (2,))])
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["texts"] = np.array(["a", "bcd", ""], object)
        file["records"] = np.zeros(3, record)
        file["small"] = np.arange(3, dtype=">i2")
    with h5py.File(tmp_path / "inner.h5", "w", libver="latest") as file:
        layout = h5py.VirtualLayout((6,), "i4")
        layout[:3] = h5py.VirtualSource("s.h5", "small", (3,))
        file.create_virtual_dataset("v", layout)
    path = tmp_path / "outer.h5"
    with h5py.File(path, "w", libver="latest") as file:
        for name, dtype in (("records", record), ("small", "i4")):
            layout = h5py.VirtualLayout((4,), dtype)
            layout[1:] = h5py.VirtualSource("s.h5", name, (3,))
            file.create_virtual_dataset(name, layout)
        layout = h5py.VirtualLayout((2, 6), "i4")
        layout[1] = h5py.VirtualSource("inner.h5", "v", (6,))
        file.create_virtual_dataset("nested", layout)
    assert_reads_like_h5py(path)


def test_circles_and_narrowing_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "v.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["large"] = np.arange(3.0)
        for name, other in (("a", "b"), ("b", "a")):
            layout = h5py.VirtualLayout((3,), "f8")
            layout[...] = h5py.VirtualSource(".", other, (3,))
            file.create_virtual_dataset(name, layout)
        layout = h5py.VirtualLayout((3,), "i1")
        layout[...] = h5py.VirtualSource(".", "large", (3,))
        file.create_virtual_dataset("narrow", layout)
        layout = h5py.VirtualLayout((9,), "f8")
        layout[...] = h5py.VirtualSource(".", "large", (9,))
        file.create_virtual_dataset("beyond", layout)
    with pytest.raises(FormatError, match="made of each other"):
        insitu.scan(path, variables=["a"], decode=False)
    with pytest.raises(UnsupportedError, match="int8"):
        insitu.scan(path, variables=["narrow"], decode=False)


@pytest.mark.parametrize("libver", ["v110", "latest"])
def test_damage_to_the_mappings(sources: Path, libver: str) -> None:
    path = sources / "v.h5"
    with h5py.File(path, "w", libver=libver) as file:
        layout = h5py.VirtualLayout((3, 10), "f8")
        for number in range(3):
            layout[number] = h5py.VirtualSource(f"s{number}.h5", "line", (10,))
        file.create_virtual_dataset("v", layout)
    good = path.read_bytes()
    begin = good.index(b"GCOL")
    damaged = flip_each(good, range(begin, begin + 200, 3), (0xFF,))
    assert count_refused(damaged, written_to(path, read_all))


def test_names_never_lead_to_another_host() -> None:
    assert sibling_urls("https://host/a/b.h5", "/etc/x.h5") == ["https://host/a/x.h5"]
    assert sibling_urls("https://host/a/b.h5", "https://elsewhere/x.h5") == []
    assert sibling_urls("https://host/a/b.h5", "//elsewhere/x.h5") == ["https://host/a/x.h5"]
    assert sibling_urls("s3://bucket/a/b.h5", "../../../x.h5") == ["s3://bucket/x.h5"]


@pytest.mark.parametrize("data", [b"", bytes(8), b"\2\0\0\0\3\0\0\0\1\2" + b"\xff" * 40, b"\1\0\0\0" + bytes(40)])
def test_damaged_selections(data: bytes) -> None:
    if data == bytes(8):
        assert parse_selection(data, 0)[0].kind == "none"
        return
    with pytest.raises((FormatError, UnsupportedError)):
        parse_selection(data, 0)
