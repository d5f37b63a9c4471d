"""Rows appended to unlimited datasets of HDF4, and what was never written, as pyhdf shows them."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import insitu

SD = pytest.importorskip("pyhdf.SD")
TYPES = {
    "i1": SD.SDC.INT8, "u1": SD.SDC.UINT8, "i2": SD.SDC.INT16, "u2": SD.SDC.UINT16, "i4": SD.SDC.INT32,
    "u4": SD.SDC.UINT32, "f4": SD.SDC.FLOAT32, "f8": SD.SDC.FLOAT64,
}  # fmt: skip
CHARACTERS = {"S1": SD.SDC.CHAR, "unsigned": SD.SDC.UCHAR}


class _ChunkDefinition(ctypes.Structure):
    """HDF_CHUNK_DEF: the lengths, the compression, its parameters."""

    _fields_ = (("lengths", ctypes.c_int32 * 32), ("rest", ctypes.c_int32 * 64))


def _library() -> Any:
    import pyhdf._hdfext as ext

    library = ctypes.CDLL(ext.__file__)
    if not hasattr(library, "SDsetchunk"):
        pytest.skip("the library does not show SDsetchunk")
    library.SDsetchunk.argtypes = [ctypes.c_int32, _ChunkDefinition, ctypes.c_int32]
    return library


def _set_chunks(dataset: Any, lengths: tuple[int, ...], deflated: bool) -> None:
    definition = _ChunkDefinition()
    for number, length in enumerate(lengths):
        definition.lengths[number] = length
    if deflated:
        definition.rest[0], definition.rest[1], definition.rest[2] = 4, 4, 5
    assert _library().SDsetchunk(dataset._id, definition, 3 if deflated else 1) == 0


def assert_same_as_pyhdf(path: Path) -> int:
    """Compare every dataset of a file; return the number of values."""
    group, count = insitu.scan(path, decode=False), 0
    file = SD.SD(str(path))
    for name in file.datasets():
        dataset = file.select(name)
        shape = np.atleast_1d(dataset.info()[2]).tolist()
        actual = insitu.read(group, name, decode=False)
        assert list(actual.shape) == shape, name
        if 0 not in shape:  # pyhdf cannot read what is empty
            expected = np.asarray(dataset[:]).reshape(shape)
            assert actual.dtype.newbyteorder("=") == expected.dtype
            np.testing.assert_array_equal(actual, expected, err_msg=name)
            count += actual.size
        dataset.endaccess()
    file.end()
    return count


@pytest.mark.parametrize("length", [3, SD.SDC.UNLIMITED])
@pytest.mark.parametrize("with_fill_value", [False, True])
def test_never_written(tmp_path: Path, length: int, with_fill_value: bool) -> None:
    """The library's default fill values (FILL_BYTE and so on) are shown for want of `_FillValue`."""
    path = tmp_path / "a.hdf"
    file = SD.SD(str(path), SD.SDC.WRITE | SD.SDC.CREATE)
    for name, kind in {**TYPES, **CHARACTERS}.items():
        dataset = file.create(name, kind, (length, 4))
        if with_fill_value and name in TYPES:
            dataset.setfillvalue(7)
        dataset.endaccess()
    file.end()
    assert_same_as_pyhdf(path)
    if length and not with_fill_value:
        assert insitu.read(path, "i2", decode=False)[0, 0] == -32767
        assert insitu.read(path, "f4", decode=False)[0, 0] == np.float32(9.96921e36)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("how", ["plain", "deflated", "chunks", "deflated chunks"])
@pytest.mark.parametrize("written", ["nothing", "a part"])
def test_partly_written(tmp_path: Path, kind: str, how: str, written: str) -> None:
    path = tmp_path / "a.hdf"
    file = SD.SD(str(path), SD.SDC.WRITE | SD.SDC.CREATE)
    dataset = file.create("v", TYPES[kind], (20, 9))
    if how == "deflated":
        dataset.setcompress(SD.SDC.COMP_DEFLATE, 5)
    elif how != "plain":
        _set_chunks(dataset, (6, 4), how != "chunks")
    if written == "a part" and how == "deflated":  # whole rows: the library writes no others
        dataset[3:8] = np.ones((5, 9), kind)
    elif written == "a part":
        dataset[3:8, 2:5] = np.ones((5, 3), kind)
    dataset.endaccess()
    file.end()
    assert assert_same_as_pyhdf(path) == 180


def test_rows_appended_later(tmp_path: Path) -> None:
    """The record of dimensions keeps the number of rows of the first session."""
    path = tmp_path / "a.hdf"
    file = SD.SD(str(path), SD.SDC.WRITE | SD.SDC.CREATE)
    dataset = file.create("v", SD.SDC.INT32, (SD.SDC.UNLIMITED, 50))
    dataset[0:2] = np.ones((2, 50), "i4")
    dataset.endaccess()
    file.end()
    file = SD.SD(str(path), SD.SDC.WRITE)
    dataset = file.select("v")
    dataset[2:14] = np.full((12, 50), 2, "i4")
    dataset.endaccess()
    file.end()
    assert insitu.scan(path, decode=False).arrays["v"].shape == (14, 50)
    assert assert_same_as_pyhdf(path) == 700


def _write_at_random(path: Path, seed: int) -> None:
    """Several datasets, in several sessions, in turn, some rows left out."""
    random = np.random.default_rng(seed)
    kinds: dict[str, tuple[str, int, tuple[int, ...]]] = {}
    file = SD.SD(str(path), SD.SDC.WRITE | SD.SDC.CREATE)
    for number in range(int(random.integers(1, 5))):
        kind = str(random.choice(list(TYPES)))
        inner = tuple(random.choice([1, 2, 3, 7, 50], int(random.integers(0, 3))).tolist())
        first = 0 if random.random() < 0.7 else int(random.integers(1, 30))
        dataset = file.create(f"v{number}", TYPES[kind], (first, *inner))
        if random.random() < 0.4:
            dataset.setfillvalue(5)
        way = random.random()
        if not first and way < 0.3:
            _library().SDsetblocksize(dataset._id, int(random.choice([16, 100, 1000])))
        elif first and way < 0.3:
            dataset.setcompress(SD.SDC.COMP_DEFLATE, 5)
        elif first and way < 0.6:
            _set_chunks(dataset, (int(random.choice([1, 4, 5])), *(max(1, n // 2) for n in inner)), way < 0.45)
        if random.random() < 0.5:
            dataset.dim(0).setname(f"rows{number}")
        kinds[f"v{number}"] = (kind, first, inner)
        dataset.endaccess()
    file.end()
    rows = dict.fromkeys(kinds, 0)
    for _ in range(int(random.integers(0, 4))):
        file = SD.SD(str(path), SD.SDC.WRITE)
        if random.random() < 0.2:
            file.setfillmode(SD.SDC.NOFILL)
        made = {name: file.select(name) for name in kinds}
        for _ in range(int(random.integers(1, 8))):
            name = str(random.choice(list(kinds)))
            kind, first, inner = kinds[name]
            begin = int(random.integers(0, first)) if first else rows[name] + int(random.choice([0, 0, 0, 2]))
            many = min(int(random.integers(1, 6)), first - begin) if first else int(random.integers(1, 6))
            made[name][begin : begin + many] = random.integers(1, 100, (many, *inner)).astype(kind)
            rows[name] = max(rows[name], begin + many)
        for dataset in made.values():
            dataset.endaccess()
        file.end()


def test_random_sessions(tmp_path: Path) -> None:
    compared = 0
    for seed in range(60):
        path = tmp_path / f"{seed}.hdf"
        try:
            _write_at_random(path, seed)
        except ValueError:  # the library refuses to write again into some compressed data
            continue
        compared += assert_same_as_pyhdf(path)
    assert compared > 10_000


def test_holes_in_linked_blocks(tmp_path: Path) -> None:
    """Rows behind blocks that were never written stay where they are.

    The library's code takes such blocks for zeros (HLPread), whatever the fill value; pyhdf fails
    to read them.
    """
    path = tmp_path / "a.hdf"
    file = SD.SD(str(path), SD.SDC.WRITE | SD.SDC.CREATE)
    file.setfillmode(SD.SDC.NOFILL)
    dataset = file.create("v", SD.SDC.INT16, (SD.SDC.UNLIMITED, 8))
    _library().SDsetblocksize(dataset._id, 32)
    dataset[0:2] = np.ones((2, 8), "i2")
    dataset[30:32] = np.full((2, 8), 3, "i2")
    dataset.endaccess()
    file.end()
    found = insitu.read(path, "v", decode=False)
    file = SD.SD(str(path))
    for rows in (slice(0, 2), slice(30, 32)):
        np.testing.assert_array_equal(found[rows], file.select("v")[rows])
    file.end()
    assert found.shape == (32, 8)
    assert not found[2:30].any()
