"""Are the datasets of HDF4 files found, however they are stored?

Modules: formats/hdf4/dataset_arrays.py, formats/hdf4/descriptors.py, formats/hdf4/vsets.py
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import insitu
from damaged_bytes import ONE_BIT, count_refused, cut, flip, read_all, written_to
from insitu.errors import UnsupportedError, VariableError
from insitu.formats import InsituWarning, scan_format
from insitu.sources import CountingSource
from insitu.sources.local import LocalSource

SD = pytest.importorskip("pyhdf.SD")

TYPES = {
    "i1": SD.SDC.INT8, "u1": SD.SDC.UINT8, "i2": SD.SDC.INT16, "u2": SD.SDC.UINT16, "i4": SD.SDC.INT32,
    "u4": SD.SDC.UINT32, "f4": SD.SDC.FLOAT32,
    "f8": SD.SDC.FLOAT64,
}  # fmt: skip


def _values(shape: tuple[int, ...], kind: str) -> np.ndarray[Any, Any]:
    return (np.random.default_rng(1).normal(50, 10, shape)).astype(kind)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("deflated", [False, True])
def test_types_names_and_attributes(tmp_path: Path, kind: str, deflated: bool) -> None:
    path = tmp_path / "a.hdf"
    file = SD.SD(str(path), SD.SDC.WRITE | SD.SDC.CREATE)
    file.title = "a title"
    file.attr("numbers").set(SD.SDC.INT32, [1, 2, 3])
    dataset = file.create("Cloud_Fraction", TYPES[kind], (20, 31))
    for number, name in enumerate(("Along:Swath", "Across")):
        dataset.dim(number).setname(name)
    dataset.units = "K"
    dataset.attr("scale_factor").set(SD.SDC.FLOAT64, 0.01)
    dataset.attr("_FillValue").set(TYPES[kind], 7)
    if deflated:
        dataset.setcompress(SD.SDC.COMP_DEFLATE, 5)
    values = _values((20, 31), kind)
    dataset[:] = values
    dataset.endaccess()
    other = file.create("other", SD.SDC.FLOAT32, (5,))
    other[:] = np.arange(5, dtype="f4")
    other.endaccess()
    file.end()
    group = insitu.scan(path, decode=False)
    assert list(group.arrays) == ["Cloud_Fraction", "other"]
    array = group.arrays["Cloud_Fraction"]
    assert array.dims == ("Along:Swath", "Across")
    assert array.dtype.newbyteorder("=") == np.dtype(kind)
    assert array.attributes["units"] == "K"
    assert array.attributes["scale_factor"] == 0.01
    assert array.attributes["_FillValue"] == 7
    assert group.attributes["title"] == "a title"
    np.testing.assert_array_equal(group.attributes["numbers"], [1, 2, 3])
    np.testing.assert_array_equal(insitu.read(group, "Cloud_Fraction", decode=False), values)
    np.testing.assert_array_equal(
        insitu.read(group, "Cloud_Fraction", np.s_[3:17:2, ::-3], decode=False), values[3:17:2, ::-3]
    )
    np.testing.assert_array_equal(insitu.read(group, "other", decode=False), np.arange(5))


def test_never_written(tmp_path: Path) -> None:
    file = SD.SD(str(tmp_path / "a.hdf"), SD.SDC.WRITE | SD.SDC.CREATE)
    dataset = file.create("empty", SD.SDC.INT16, (4, 5))
    dataset.setfillvalue(-9)
    dataset.endaccess()
    file.end()
    assert (insitu.read(tmp_path / "a.hdf", "empty", decode=False) == -9).all()


def test_unlimited(tmp_path: Path) -> None:
    file = SD.SD(str(tmp_path / "a.hdf"), SD.SDC.WRITE | SD.SDC.CREATE)
    one = file.create("one", SD.SDC.FLOAT32, (SD.SDC.UNLIMITED, 6))
    two = file.create("two", SD.SDC.INT32, (SD.SDC.UNLIMITED, 3))
    first, second = _values((40, 6), "f4"), _values((40, 3), "i4")
    for begin in range(0, 40, 8):
        one[begin : begin + 8] = first[begin : begin + 8]
        two[begin : begin + 8] = second[begin : begin + 8]
    one.endaccess()
    two.endaccess()
    file.end()
    for name, values in (("one", first), ("two", second)):
        np.testing.assert_array_equal(insitu.read(tmp_path / "a.hdf", name, decode=False), values)


def _chunked(path: Path, deflated: bool, kind: str = "i2") -> np.ndarray[Any, Any]:
    """pyhdf sets no chunks itself: the C library behind it does."""
    import ctypes

    import pyhdf._hdfext as ext

    library = ctypes.CDLL(ext.__file__)
    values = _values((50, 70), kind)
    file = SD.SD(str(path), SD.SDC.WRITE | SD.SDC.CREATE)
    dataset = file.create("data", TYPES[kind], values.shape)

    class Definition(ctypes.Structure):
        _fields_ = (("lengths", ctypes.c_int32 * 32), ("rest", ctypes.c_int32 * 64))

    definition = Definition()
    definition.lengths[0], definition.lengths[1] = 16, 20
    if deflated:  # comp_type and cinfo.deflate.level follow the lengths
        definition.rest[0], definition.rest[2] = 4, 5
        definition.rest[1] = 5
    flags = 0x1 | (0x2 if deflated else 0)
    if not hasattr(library, "SDsetchunk"):
        pytest.skip("the library does not show SDsetchunk")
    library.SDsetchunk.argtypes = [ctypes.c_int32, Definition, ctypes.c_int32]
    assert library.SDsetchunk(dataset._id, definition, flags) == 0
    dataset[:] = values
    dataset.endaccess()
    file.end()
    return values


@pytest.mark.parametrize("deflated", [False, True])
def test_chunks(tmp_path: Path, deflated: bool) -> None:
    values = _chunked(tmp_path / "a.hdf", deflated)
    group = insitu.scan(tmp_path / "a.hdf", decode=False)
    tile = group.arrays["data"].tiles[0]
    assert tile.chunks.shape == (4, 4)
    assert bool(tile.encodings[0].codecs) == deflated
    np.testing.assert_array_equal(insitu.read(group, "data", decode=False), values)
    np.testing.assert_array_equal(insitu.read(group, "data", np.s_[10:40:7, 60], decode=False), values[10:40:7, 60])


def test_what_is_not_read_is_named(tmp_path: Path) -> None:
    """A file of compressed data whose header says a method that nobody knows."""
    file = SD.SD(str(tmp_path / "a.hdf"), SD.SDC.WRITE | SD.SDC.CREATE)
    for name, how in (("plain", None), ("runs", SD.SDC.COMP_RLE)):
        dataset = file.create(name, SD.SDC.INT16, (100,))
        if how is not None:
            dataset.setcompress(how)
        dataset[:] = np.arange(100, dtype="i2")
        dataset.endaccess()
    file.end()
    data = (tmp_path / "a.hdf").read_bytes()
    head = b"\x00\x03\x00\x00\x00\x00\x00\xc8"  # compressed, version 0, 200 bytes
    at = data.index(head) + 12
    assert data[at : at + 2] == b"\x00\x01"
    (tmp_path / "a.hdf").write_bytes(data[:at] + b"\x00\x07" + data[at + 2 :])
    with pytest.raises(UnsupportedError, match="JPEG"):
        insitu.scan(tmp_path / "a.hdf", decode=False)
    with pytest.warns(InsituWarning, match="runs"):
        group = insitu.scan(tmp_path / "a.hdf", errors="warn", decode=False)
    assert list(group.arrays) == ["plain"]
    np.testing.assert_array_equal(insitu.read(tmp_path / "a.hdf", "plain", decode=False), np.arange(100))
    with pytest.raises(VariableError, match="plain"):
        insitu.scan(tmp_path / "a.hdf", variables=["nothing"], errors="warn", decode=False)


def test_few_requests(tmp_path: Path) -> None:
    file = SD.SD(str(tmp_path / "a.hdf"), SD.SDC.WRITE | SD.SDC.CREATE)
    for number in range(40):
        dataset = file.create(f"d{number}", SD.SDC.FLOAT64, (100, 100))
        dataset.units = "m"
        dataset[:] = np.full((100, 100), float(number))
        dataset.endaccess()
    file.end()

    class Remote(LocalSource):
        @property
        def url(self) -> str:
            return "https://example.org/a.hdf"

    source = CountingSource(Remote(tmp_path / "a.hdf"))
    assert len(scan_format(source).arrays) == 40
    assert source.batches < 60
    assert source.bytes < 2 << 20


def test_as_a_dataset(tmp_path: Path) -> None:
    _chunked(tmp_path / "a.hdf", False, "f4")
    assert insitu.open_dataset(tmp_path / "a.hdf")["data"].mean() > 0


def test_truncated_and_flipped(tmp_path: Path) -> None:
    _chunked(tmp_path / "a.hdf", True)
    good = (tmp_path / "a.hdf").read_bytes()
    random = np.random.default_rng(0)
    places = [*range(0, 700, 7), *random.integers(0, len(good), 60).tolist()]
    read = written_to(tmp_path / "bad.hdf", partial(read_all, errors="warn", format="hdf4"))
    assert count_refused(flip(good, places, ONE_BIT), read)
    assert count_refused(cut(good, places), read)


@pytest.mark.parametrize(("scale", "offset"), [(0.01, -15000.0), (2.0, 3.0), (0.5, 0.0)])
def test_calibration_is_that_of_hdf4(tmp_path: Path, scale: float, offset: float) -> None:
    """HDF4 takes the offset away before it scales, CF adds it behind."""
    file = SD.SD(str(tmp_path / "a.hdf"), SD.SDC.WRITE | SD.SDC.CREATE)
    stored = np.array([12000, -3, 0, 7], "i2")
    for name in ("calibrated", "packed"):
        dataset = file.create(name, SD.SDC.INT16, (4,))
        if name == "calibrated":
            dataset.setcal(scale, 0, offset, 0, SD.SDC.FLOAT32)
        else:  # as CF has it: nothing says that this is HDF4's
            dataset.attr("scale_factor").set(SD.SDC.FLOAT64, scale)
            dataset.attr("add_offset").set(SD.SDC.FLOAT64, offset)
        dataset[:] = stored
        dataset.endaccess()
    file.end()
    ds = insitu.open_dataset(tmp_path / "a.hdf")
    for _ in range(2):
        np.testing.assert_allclose(ds.calibrated.values, scale * (stored - offset), rtol=1e-12)
        np.testing.assert_array_equal(ds.packed.values, stored * scale + offset)
    assert ds.calibrated.encoding["add_offset"] == -scale * offset
    assert not np.signbit(ds.calibrated.encoding["add_offset"]) or offset > 0
    np.testing.assert_array_equal(insitu.read(tmp_path / "a.hdf", "calibrated", decode=False), stored)
