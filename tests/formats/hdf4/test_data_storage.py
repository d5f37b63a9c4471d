"""Is every way in which HDF4 keeps data read as its own library reads it?

Modules: formats/hdf4/compression.py
"""

from __future__ import annotations

import ctypes
import struct
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

import insitu
from damaged_bytes import ONE_BIT, count_refused, cut, flip, flip_one, read_all, written_to
from insitu.errors import InsituError, NotFoundError
from insitu.model import Inline

SD = pytest.importorskip("pyhdf.SD")
TYPES = {
    "i1": SD.SDC.INT8, "u1": SD.SDC.UINT8, "i2": SD.SDC.INT16, "u2": SD.SDC.UINT16, "i4": SD.SDC.INT32,
    "u4": SD.SDC.UINT32, "f4": SD.SDC.FLOAT32,
    "f8": SD.SDC.FLOAT64,
}  # fmt: skip
METHODS = {
    "runs": (SD.SDC.COMP_RLE, ()), "huffman": (SD.SDC.COMP_SKPHUFF, None), "deflate": (SD.SDC.COMP_DEFLATE, (6,)),
}  # fmt: skip


def _library() -> Any:
    import pyhdf._hdfext as ext

    return ctypes.CDLL(ext.__file__)


def _new(path: Path) -> Any:
    return SD.SD(str(path), SD.SDC.WRITE | SD.SDC.CREATE)


def _read_with_pyhdf(path: Path, name: str) -> np.ndarray[Any, Any]:
    file = SD.SD(str(path))
    values = file.select(name)[:]
    file.end()
    return np.asarray(values)


def _agrees(path: Path, name: str) -> None:
    actual, expected = insitu.read(path, name, decode=False), _read_with_pyhdf(path, name)
    assert actual.dtype.newbyteorder("=") == expected.dtype
    np.testing.assert_array_equal(actual, expected)
    if actual.ndim == 2:
        np.testing.assert_array_equal(insitu.read(path, name, np.s_[1::3, ::-2], decode=False), expected[1::3, ::-2])


def _values(kind: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    """Stretches that repeat, and others that do not."""
    random = np.random.default_rng(seed)
    many = int(np.prod(shape))
    values = np.repeat(random.integers(0, 120, many), random.integers(1, 40, many))[:many].astype(kind)
    noise = random.random(values.shape) < 0.2
    values[noise] = random.integers(0, 120, int(noise.sum()))
    return values.reshape(shape)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", TYPES)
def test_compressed(tmp_path: Path, method: str, kind: str) -> None:
    code, options = METHODS[method]
    file = _new(tmp_path / "a.hdf")
    dataset = file.create("v", TYPES[kind], (40, 50))
    dataset.setcompress(code, *(options if options is not None else (np.dtype(kind).itemsize,)))
    dataset[:] = _values(kind, (40, 50))
    dataset.endaccess()
    file.end()
    _agrees(tmp_path / "a.hdf", "v")


@pytest.mark.parametrize("method", METHODS)
def test_a_compressed_dataset_that_grew(tmp_path: Path, method: str) -> None:
    """Others were written meanwhile, so its bytes lie in pieces."""
    code, options = METHODS[method]
    file = _new(tmp_path / "a.hdf")
    made = [file.create(f"v{number}", SD.SDC.INT16, (30, 400)) for number in range(3)]
    random = np.random.default_rng(0).integers(-3000, 3000, (3, 30, 400)).astype("i2")
    for dataset in made:
        dataset.setcompress(code, *(options if options is not None else (2,)))
        dataset[:] = np.zeros((30, 400), "i2")
    for number, dataset in enumerate(made):
        dataset[:] = random[number]
        dataset.endaccess()
    file.end()
    for number in range(3):
        _agrees(tmp_path / "a.hdf", f"v{number}")
    states = {
        type(array.tiles[0].chunks[0, 0]) for array in insitu.scan(tmp_path / "a.hdf", decode=False).arrays.values()
    }
    assert method == "deflate" or Inline in states  # the library gathers deflated bytes until the end


NBIT = [
    ("i2", 11, 12, 1, 0),
    ("u2", 9, 5, 0, 1),
    ("i4", 20, 13, 1, 1),
    ("u1", 6, 3, 0, 0),
    ("i4", 31, 32, 0, 0),
    ("u4", 17, 18, 0, 1),
]


@pytest.mark.parametrize(("kind", "start", "length", "sign", "ones"), NBIT)
def test_some_bits_only(tmp_path: Path, kind: str, start: int, length: int, sign: int, ones: int) -> None:
    library = _library()
    if not hasattr(library, "SDsetnbitdataset"):
        pytest.skip("the library does not show SDsetnbitdataset")
    file = _new(tmp_path / "a.hdf")
    dataset = file.create("v", TYPES[kind], (20, 30))
    arguments = [ctypes.c_int32(number) for number in (dataset._id, start, length, sign, ones)]
    assert library.SDsetnbitdataset(*arguments) >= 0
    random = np.random.default_rng(1).integers(-(2**30), 2**30, (20, 30))
    dataset[:] = random.astype(kind)
    dataset.endaccess()
    file.end()
    _agrees(tmp_path / "a.hdf", "v")


def _chunked(path: Path, method: int, parameters: list[int], kind: str = "i2", partly: bool = False) -> None:
    library = _library()
    if not hasattr(library, "SDsetchunk"):
        pytest.skip("the library does not show SDsetchunk")

    class Definition(ctypes.Structure):
        _fields_ = (("lengths", ctypes.c_int32 * 32), ("rest", ctypes.c_int32 * 64))

    file = _new(path)
    dataset = file.create("v", TYPES[kind], (50, 70))
    dataset.setfillvalue(7)
    definition = Definition()
    definition.lengths[0], definition.lengths[1] = 16, 20
    definition.rest[0] = method
    for number, parameter in enumerate([method, *parameters]):
        definition.rest[1 + number] = parameter
    library.SDsetchunk.argtypes = [ctypes.c_int32, Definition, ctypes.c_int32]
    assert library.SDsetchunk(dataset._id, definition, 0x1 | (0x2 if method else 0)) == 0
    values = _values(kind, (50, 70))
    if partly:
        dataset[:20, :33] = values[:20, :33]
    else:
        dataset[:] = values
    dataset.endaccess()
    file.end()


@pytest.mark.parametrize(("method", "parameters"), [(0, []), (1, []), (3, [2]), (4, [5])])
@pytest.mark.parametrize("partly", [False, True])
def test_chunks(tmp_path: Path, method: int, parameters: list[int], partly: bool) -> None:
    _chunked(tmp_path / "a.hdf", method, parameters, partly=partly)
    _agrees(tmp_path / "a.hdf", "v")
    assert insitu.scan(tmp_path / "a.hdf", decode=False).arrays["v"].tiles[0].chunks.shape == (4, 4)


def test_szip_with_its_preamble(tmp_path: Path) -> None:
    """The library here only reads szip, if at all: a file of deflated data is given szip's header
    and data.
    """
    imagecodecs = pytest.importorskip("imagecodecs")
    values = _values("u2", (40, 64)).astype(">u2")
    parameters = {
        "options_mask": 128 | 32 | 16,
        "pixels_per_block": 16,
        "bits_per_pixel": 16,
        "pixels_per_scanline": 64,
    }
    packed = bytes(imagecodecs.szip_encode(values.tobytes(), **parameters))
    path = tmp_path / "a.hdf"
    for preamble, plain in ((True, False), (True, True), (False, False)):
        body = values.tobytes() if plain else packed
        stored = (bytes([plain]) + struct.pack(">I", len(body)) if preamble else b"") + body
        path.unlink(missing_ok=True)
        file = _new(path)
        dataset = file.create("v", SD.SDC.UINT16, (40, 64))
        dataset.setcompress(SD.SDC.COMP_SKPHUFF, 2)
        # As many bytes as szip needs, or more: noise does not become smaller.
        dataset[:] = np.random.default_rng(0).integers(0, 2**16, (40, 64)).astype("u2")
        dataset.endaccess()
        file.end()
        data = bytearray(path.read_bytes())
        head = data.index(struct.pack(">HHi", 3, 0, values.nbytes))
        rows = [
            struct.unpack_from(">HHii", data, at)
            for at in range(10, 10 + 12 * struct.unpack_from(">H", data, 4)[0], 12)
        ]
        number, (tag, ref, offset, length) = next((n, row) for n, row in enumerate(rows) if row[0] == 40)
        assert length >= len(stored)
        data[offset : offset + len(stored)] = stored
        struct.pack_into(">HHii", data, 10 + 12 * number, tag, ref, offset, len(stored))
        # The new header is longer, so it goes to the end of the file.
        words = struct.pack(
            ">IIIBB", values.size, 64, parameters["options_mask"] | (1 << 16 if preamble else 0), 16, 16
        )
        header = bytes(data[head : head + 12]) + struct.pack(">H", 5) + words
        place = next(n for n, row in enumerate(rows) if row[2] == head)
        struct.pack_into(">ii", data, 10 + 12 * place + 4, len(data), len(header))
        path.write_bytes(bytes(data) + header)
        np.testing.assert_array_equal(insitu.read(path, "v", decode=False), values)


def test_data_in_another_file(tmp_path: Path) -> None:
    library = _library()
    if not hasattr(library, "SDsetexternalfile"):
        pytest.skip("the library does not show SDsetexternalfile")
    (tmp_path / "data").mkdir()
    path, values = tmp_path / "data" / "a.hdf", _values("i4", (20, 30))
    file = _new(path)
    dataset = file.create("v", SD.SDC.INT32, (20, 30))
    outside = tmp_path / "data" / "outside.dat"
    assert library.SDsetexternalfile(ctypes.c_int32(dataset._id), str(outside).encode(), ctypes.c_int32(100)) == 0
    dataset[:] = values
    dataset.endaccess()
    file.end()
    group = insitu.scan(path, decode=False)
    assert [source.url for source in group.sources] == [str(outside)]
    np.testing.assert_array_equal(insitu.read(group, "v", decode=False), values)
    # Another machine's path: looked for beside the file, never elsewhere.
    (tmp_path / "data").rename(tmp_path / "moved")
    np.testing.assert_array_equal(insitu.read(tmp_path / "moved" / "a.hdf", "v", decode=False), values)
    (tmp_path / "moved" / "outside.dat").unlink()
    with pytest.raises(NotFoundError):
        insitu.read(tmp_path / "moved" / "a.hdf", "v", decode=False)


def test_labels_of_dimensions(tmp_path: Path) -> None:
    file = _new(tmp_path / "a.hdf")
    dataset = file.create("v", SD.SDC.FLOAT32, (4, 3))
    values = np.arange(12, dtype="f4").reshape(4, 3)
    dataset[:] = values
    rows, columns = dataset.dim(0), dataset.dim(1)
    rows.setname("lat")
    rows.setscale(SD.SDC.FLOAT64, [10.0, 20.0, 30.0, 40.0])
    columns.setname("band")
    columns.setstrs("the band", "1", "%d")  # attributes, but no labels
    dataset.endaccess()
    file.end()
    found = insitu.open_dataset(tmp_path / "a.hdf")
    assert found["v"].dims == ("lat", "band")
    assert found["lat"].values.tolist() == [10, 20, 30, 40]
    assert "band" not in found.variables
    np.testing.assert_array_equal(found["v"].sel(lat=30), values[2])


def test_records_one_by_one(tmp_path: Path) -> None:
    file = _new(tmp_path / "a.hdf")
    sizes = {"a": 7, "b": 1000, "c": 3}
    values = {name: _values("i2", (90, n), n) for name, n in sizes.items()}
    made = {name: file.create(name, SD.SDC.INT16, (SD.SDC.UNLIMITED, n)) for name, n in sizes.items()}
    for row in range(90):
        for name, dataset in made.items():
            dataset[row] = values[name][row]
    for name, dataset in made.items():
        dataset.dim(0).setname(f"time_{name}")
        dataset.endaccess()
    file.end()
    for name in sizes:
        _agrees(tmp_path / "a.hdf", name)
        np.testing.assert_array_equal(insitu.read(tmp_path / "a.hdf", name, decode=False), values[name])
    assert insitu.scan(tmp_path / "a.hdf", decode=False).unlimited == ("time_a", "time_b", "time_c")


GRID = """GROUP=GridStructure
	GROUP=GRID_1
		GridName="MOD_Grid"
		XDim=4
		YDim=3
		UpperLeftPointMtrs=(-20.000000,9.000000)
		LowerRightMtrs=(20.000000,0.000000)
		Projection=GCTP_SNSOID
	END_GROUP=GRID_1
END_GROUP=GridStructure
"""
SWATH = """GROUP=SwathStructure
	GROUP=SWATH_1
		SwathName="mod04"
		GROUP=GeoField
			OBJECT=GeoField_1
				GeoFieldName="Latitude"
			END_OBJECT=GeoField_1
		END_GROUP=GeoField
	END_GROUP=SWATH_1
END_GROUP=SwathStructure
"""


def test_hdf_eos(tmp_path: Path) -> None:
    file = _new(tmp_path / "a.hdf")
    for name, dims in (
        ("NDVI", ("YDim:MOD_Grid", "XDim:MOD_Grid")),
        ("Latitude", ("Along:mod04", "Across:mod04")),
        ("AOD", ("Along:mod04", "Across:mod04")),
    ):
        dataset = file.create(name, SD.SDC.FLOAT32, (3, 4))
        dataset[:] = np.arange(12, dtype="f4").reshape(3, 4)
        for number, dim in enumerate(dims):
            dataset.dim(number).setname(dim)
        dataset.endaccess()
    setattr(file, "StructMetadata.0", GRID + SWATH[:60])
    setattr(file, "StructMetadata.1", SWATH[60:])
    file.end()
    found = insitu.open_dataset(tmp_path / "a.hdf")
    assert set(found.coords) == {"Latitude", "YDim:MOD_Grid", "XDim:MOD_Grid"}
    assert found["YDim:MOD_Grid"].values.tolist() == [7.5, 4.5, 1.5]
    assert found["XDim:MOD_Grid"].values.tolist() == [-15, -5, 5, 15]
    assert "Latitude" in found["AOD"].coords


def test_kept_and_opened_again(tmp_path: Path) -> None:
    _chunked(tmp_path / "a.hdf", 4, [5])
    actual = insitu.open_dataset(tmp_path / "a.hdf")
    for target in ("a.json", "a.parq", "a.insitu"):
        actual.insitu.save(tmp_path / target)
        xarray.testing.assert_identical(insitu.open_dataset(tmp_path / target).load(), actual.load())


@pytest.mark.parametrize("method", [1, 3])
def test_damaged(tmp_path: Path, method: int) -> None:
    _chunked(tmp_path / "a.hdf", method, [2] if method == 3 else [])
    good = (tmp_path / "a.hdf").read_bytes()
    random = np.random.default_rng(0)
    places = [*range(0, 600, 11), *random.integers(0, len(good), 60).tolist()]
    read = written_to(tmp_path / "bad.hdf", partial(read_all, errors="warn", format="hdf4"))
    assert count_refused(flip(good, places, ONE_BIT), read)
    assert count_refused(cut(good, places), read)


@pytest.mark.parametrize("coder", [0, 4])
def test_special_elements_that_refer_to_themselves(tmp_path: Path, coder: int) -> None:
    file = _new(tmp_path / "a.hdf")
    dataset = file.create("v", TYPES["i2"], (40, 50))
    dataset.setcompress(SD.SDC.COMP_DEFLATE, 6)
    dataset[:] = _values("i2", (40, 50))
    dataset.endaccess()
    file.end()
    data = bytearray((tmp_path / "a.hdf").read_bytes())
    (count,) = struct.unpack_from(">H", data, 4)
    rows = [(10 + 12 * row, *struct.unpack_from(">HHii", data, 10 + 12 * row)) for row in range(count)]
    (header,) = [row for row in rows if row[1] == 702 | 0x4000]
    (stored,) = [row for row in rows if row[1] == 40]
    struct.pack_into(">H", data, header[3] + 12, coder)
    # What is said to be the compressed bytes is the header that refers to them.
    struct.pack_into(">HHii", data, stored[0], 40 | 0x4000, stored[2], header[3], header[4])
    (tmp_path / "b.hdf").write_bytes(data)
    with pytest.raises(InsituError, match="cycle" if coder == 0 else "not supported"):
        insitu.scan(tmp_path / "b.hdf", decode=False)


def _tags_and_references(data: bytes) -> list[int]:
    """Where the file names a piece of data: in its descriptors, in numeric data groups and in Vgroups."""
    at, following, places, refs = 0, 4, [], set()
    while following:
        at = following
        count, following = struct.unpack_from(">HI", data, at)
        for row in range(at + 6, at + 6 + 12 * count, 12):
            tag, ref = struct.unpack_from(">HH", data, row)
            if tag & ~0x4000 in (40, 61, 702):
                places.append(row)
                refs |= {ref} if tag & ~0x4000 == 702 else set()
    for ref in refs:
        named = struct.pack(">HH", 702, ref)
        places += [at for at in range(len(data) - 4) if data[at : at + 4] == named and at not in places]
        # Vgroups list all tags, then all references.
        places += [at for at in range(len(data) - 2) if data[at : at + 2] == named[:2] and at not in places]
    return places


@pytest.mark.parametrize("method", ["plain", "deflate", "chunks", "packed chunks"])
def test_a_flipped_bit_in_a_tag_or_a_reference_of_data(tmp_path: Path, method: str) -> None:
    path = tmp_path / "a.hdf"
    if "chunks" in method:
        _chunked(path, *((4, [6]) if method == "packed chunks" else (0, [])))
    else:
        file = _new(path)
        for name in ("v", "w"):
            dataset = file.create(name, TYPES["i2"], (20, 30))
            if method == "deflate":
                dataset.setcompress(*METHODS["deflate"][:1], *METHODS["deflate"][1])
            dataset[:] = _values("i2", (20, 30), seed=len(name))
            dataset.endaccess()
        file.end()
    data, whole = path.read_bytes(), read_all(path)
    refused = 0
    for place in _tags_and_references(data):
        for byte in range(4):
            for bits in (1, 8):
                path.write_bytes(flip_one(data, place + byte, bits))
                try:
                    found = read_all(path)
                except InsituError:
                    refused += 1
                    continue
                for name in found.keys() & whole.keys():
                    np.testing.assert_array_equal(found[name], whole[name])
    assert refused


def _write_old_file(path: Path, data_tag: int = 702) -> None:
    """A file of the interface before SD: a numeric data group (tag 720) that no Vgroup names."""
    values = np.arange(6, dtype=">i2").tobytes()
    objects = [
        (106, 2, struct.pack(">BBBB", 1, 22, 16, 1)),  # a number type: integers of 16 bits
        (701, 2, struct.pack(">HiiHHHHHH", 2, 2, 3, 106, 2, 106, 2, 106, 2)),
        (702, 2, values),
        (720, 2, struct.pack(">HHHH", data_tag, 2, 701, 2)),
    ]
    head = b"\x0e\x03\x13\x01" + struct.pack(">HI", len(objects), 0)
    begin, rows, stored = len(head) + 12 * len(objects), b"", b""
    for tag, ref, content in objects:
        rows += struct.pack(">HHii", tag, ref, begin + len(stored), len(content))
        stored += content
    path.write_bytes(head + rows + stored)


def test_a_dataset_of_the_interface_before_sd(tmp_path: Path) -> None:
    _write_old_file(tmp_path / "a.hdf")
    file = SD.SD(str(tmp_path / "a.hdf"))
    expected = file.select("Data-Set-2").get()
    file.end()
    found = read_all(tmp_path / "a.hdf")["Data-Set-2"]
    np.testing.assert_array_equal(found, expected)
    for bit in (1, 8, 256):
        _write_old_file(tmp_path / "b.hdf", 702 ^ bit)
        with pytest.raises(InsituError, match="names no data"):
            read_all(tmp_path / "b.hdf")
