"""Do the codecs of TIFF and FITS agree with those who define them: imagecodecs, NumPy, astropy's
conventions?
"""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest

from insitu.codecs import decode
from insitu.errors import CodecError
from insitu.model import Codec, Encoding


def _decoded(data: bytes, dtype: Any, shape: tuple[int, ...], *codecs: Codec) -> np.ndarray[Any, Any]:
    encoding = Encoding(np.dtype(dtype), codecs)
    first = decode(data, encoding, shape)
    out = np.empty(shape, dtype)
    decode(data, encoding, shape, out=out)
    np.testing.assert_array_equal(first, out)
    return first


VALUES = np.random.default_rng(0).integers(0, 200, (11, 13, 3))


@pytest.mark.parametrize("name", ["lzw", "packbits"])
def test_expanding_codecs(name: str) -> None:
    values = (VALUES // 50).astype("u1")
    data = getattr(imagecodecs, f"{name}_encode")(values.tobytes())
    codec = Codec(f"imagecodecs_{name}")
    np.testing.assert_array_equal(_decoded(data, "u1", values.shape, codec), values)
    with pytest.raises(CodecError):
        _decoded(data[: len(data) // 2], "u1", values.shape, codec)
    with pytest.raises(CodecError):
        _decoded(data, "u1", (99, 99, 99), codec)


@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("dtype", ["u1", "<i2", ">u2", "<f4", ">i4", "<u8"])
def test_differences(dtype: str, axis: int) -> None:
    values = VALUES.astype(dtype)
    whole = values.view(f"{np.dtype(dtype).str[0]}u{values.itemsize}".replace("|", ""))
    moved = np.diff(whole, axis=axis, prepend=whole.dtype.type(0)).astype(whole.dtype)
    found = _decoded(moved.tobytes(), dtype, values.shape, Codec("imagecodecs_delta", {"axis": axis}))
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f4"])
def test_floats_by_significance(dtype: str) -> None:
    values = (VALUES / 7).astype(dtype)
    data = imagecodecs.floatpred_encode(values.astype(values.dtype.newbyteorder("=")), axis=-2).tobytes()
    np.testing.assert_array_equal(
        _decoded(data, dtype, values.shape, Codec("imagecodecs_floatpred", {"axis": -2})), values
    )


@pytest.mark.parametrize("bits", [1, 2, 4, 7, 12])
def test_packed_integers(bits: int) -> None:
    values = np.random.default_rng(1).integers(0, 2**bits, (5, 9)).astype("u2" if bits > 8 else "u1")
    rows = []
    for row in values:
        digits = "".join(f"{number:0{bits}b}" for number in row)
        digits += "0" * (-len(digits) % 8)
        rows.append(bytes(int(digits[at : at + 8], 2) for at in range(0, len(digits), 8)))
    codec = Codec("imagecodecs_packints", {"dtype": values.dtype.str, "bitspersample": bits, "runlen": 9})
    np.testing.assert_array_equal(_decoded(b"".join(rows), values.dtype, values.shape, codec), values)
    with pytest.raises(CodecError):
        _decoded(b"".join(rows)[:-1], values.dtype, values.shape, codec)


def test_bits_backwards() -> None:
    assert _decoded(b"\x01\x80\xf0", "u1", (3,), Codec("imagecodecs_bitorder")).tolist() == [0x80, 0x01, 0x0F]


def test_complex_integers() -> None:
    pairs = np.array([[1, -2], [300, 4]], ">i2")
    found = _decoded(pairs.tobytes(), "c8", (2,), Codec("complex_integers", {"dtype": ">i2"}))
    assert found.tolist() == [1 - 2j, 300 + 4j]


def test_what_goes_on_behind_the_last_row_is_cut() -> None:
    values = np.arange(20, dtype="<i2")
    data = zlib.compress(values.tobytes())
    codecs = (Codec("clipped", {"nbytes": 40}), Codec("zlib"))
    assert _decoded(data, "<i2", (12,), *codecs).tolist() == list(range(12))
    with pytest.raises(CodecError):
        _decoded(data, "<i2", (30,), *codecs)


@pytest.mark.parametrize("dtype", [">u2", ">u4", ">u8", "<u2", "i1"])
def test_the_zero_moved_to_the_middle(dtype: str) -> None:
    limits = np.iinfo(dtype)
    meant = np.array([limits.min, limits.min + 1, limits.max, 0], dtype)
    signed = [int(number) + (-(2 ** (8 * meant.itemsize - 1)) if meant.dtype.kind == "u" else 128) for number in meant]
    stored = np.array(signed, np.dtype(dtype.replace("u", "i") if "u" in dtype else "u1"))
    assert _decoded(stored.tobytes(), dtype, (4,), Codec("offset_binary")).tolist() == meant.tolist()


def test_integers_of_any_width() -> None:
    for size in (2, 4, 8):
        data = np.array([1, -5, 300], f">i{size}").tobytes()
        assert _decoded(data, ">i2", (3,), Codec("any_width")).tolist() == [1, -5, 300]
    with pytest.raises(CodecError, match="do not fit"):
        _decoded(np.array([1, 2, 70000], ">i4").tobytes(), ">i2", (3,), Codec("any_width"))


@pytest.mark.parametrize(("dtype", "size"), [("u1", 1), (">i2", 2), (">i4", 4)])
def test_rice_codes(dtype: str, size: int) -> None:
    values = np.random.default_rng(0).integers(0, 100, 64).astype(dtype)
    data = imagecodecs.rcomp_encode(values.astype(values.dtype.newbyteorder("=")), nblock=32)
    codec = Codec("imagecodecs_rcomp", {"nblock": 32, "bytepix": size})
    np.testing.assert_array_equal(_decoded(data, dtype, (8, 8), codec), values.reshape(8, 8))


@pytest.mark.parametrize("missing", [0, 5])
def test_a_member_of_records(missing: int) -> None:
    record = np.dtype([("a", ">i4"), ("b", ">f8", (2,)), ("c", "V5")])
    whole = np.zeros(7, record)
    whole["b"] = np.arange(14).reshape(7, 2)
    fields = [["a", ">i4"], ["b", ">f8", [2]], ["c", "V5"]]
    codec = Codec("record_member", {"member": "b", "dtype": fields})
    data = whole.tobytes()[: whole.nbytes - missing]  # some writers leave out the padding of the last record
    np.testing.assert_array_equal(_decoded(data, ">f8", (7, 2), codec), whole["b"])
    with pytest.raises(CodecError):
        _decoded(data[:-10], ">f8", (7, 2), codec)


IMAGE = np.add.outer(np.arange(32), np.arange(48)).astype("u1")


@pytest.mark.parametrize("bands", [1, 3])
def test_jpeg_with_its_tables_elsewhere(bands: int) -> None:
    values = np.stack([IMAGE] * bands, axis=-1)
    data = imagecodecs.jpeg8_encode(values.squeeze(), level=90, subsampling="444")
    expected = imagecodecs.jpeg8_decode(data).reshape(values.shape)
    np.testing.assert_array_equal(_decoded(data, "u1", values.shape, Codec("imagecodecs_jpeg")), expected)
    shorter = (20, 48, bands)  # the last strip of some writers is as high as the others
    np.testing.assert_array_equal(_decoded(data, "u1", shorter, Codec("imagecodecs_jpeg")), expected[:20])
    at = data.index(b"\xff\xdb")  # the quantization tables
    length = 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    tables = base64.b64encode(b"\xff\xd8" + data[at : at + length] + b"\xff\xd9").decode()
    bare = data[:at] + data[at + length :]
    np.testing.assert_array_equal(
        _decoded(bare, "u1", values.shape, Codec("imagecodecs_jpeg", {"tables": tables})), expected
    )


@pytest.mark.parametrize("name", ["png", "jpegxl", "jpeg2k", "webp", "lerc"])
def test_lossless_images(name: str) -> None:
    values = np.stack([IMAGE, IMAGE[::-1], IMAGE], axis=-1)
    options: dict[str, Any] = {"webp": {"lossless": True}, "jpegxl": {"lossless": True}}.get(name, {})
    data = getattr(imagecodecs, f"{name}_encode")(values, **options)
    codec = Codec(f"imagecodecs_{name}")
    np.testing.assert_array_equal(_decoded(data, "u1", values.shape, codec), values)
    with pytest.raises(CodecError):
        _decoded(data, "u1", (31, 48, 3), codec)
    with pytest.raises(CodecError):
        _decoded(data, "<u2", values.shape, codec)
    with pytest.raises(CodecError):
        _decoded(data[: len(data) // 3], "u1", values.shape, codec)


def test_invalid_pixels_of_lerc_are_nan() -> None:
    values, valid = IMAGE.astype("f4"), IMAGE > 20
    data = imagecodecs.lerc_encode(values, masks=valid)
    found = _decoded(data, "f4", (*values.shape, 1), Codec("imagecodecs_lerc"))[..., 0]
    np.testing.assert_array_equal(np.isnan(found), ~valid)
    np.testing.assert_array_equal(found[valid], values[valid])


def _peak(reset: bool = False) -> int:
    """The largest resident set of this process, in bytes."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) << 10


CLAIMS = {
    "jpeg2k": [{"codecformat": "jp2"}, {"codecformat": "j2k"}],
    "lerc": [{}],
    "jpeg8": [{}],
    "jpegxl": [{"effort": 1}],
    "jpegxr": [{}],
    "png": [{"level": 1}],
    "webp": [{"lossless": True, "method": 0}],
}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc")
@pytest.mark.parametrize("name", CLAIMS)
def test_images_that_claim_to_be_larger_than_the_chunk(name: str) -> None:
    """They are refused before memory is spent on them: 27 MB and more."""
    codec = Codec(f"imagecodecs_{name.removesuffix('8')}")
    for options in CLAIMS[name]:
        data = getattr(imagecodecs, f"{name}_encode")(np.zeros((3000, 3000, 3), "u1"), **options)
        small = getattr(imagecodecs, f"{name}_encode")(np.zeros((8, 8, 3), "u1"), **options)
        encoding = Encoding(np.dtype("u1"), (codec,))
        assert not decode(small, encoding, (8, 8, 3)).any()
        before = _peak(reset=True)
        with pytest.raises(CodecError):
            decode(data, encoding, (8, 8, 3))
        assert _peak() - before < 8 << 20


def test_sizes_of_jpeg_2000(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies before the codestream, its own header counts; a palette may have more channels."""
    encoding = Encoding(np.dtype("u1"), (Codec("imagecodecs_jpeg2k"),))
    values = np.arange(64, dtype="u1").reshape(8, 8)
    plain = imagecodecs.jpeg2k_encode(values, codecformat="jp2", level=0)
    np.testing.assert_array_equal(decode(plain, encoding, (8, 8)), values)
    small = imagecodecs.jpeg2k_encode(values, codecformat="j2k", level=0)
    large = imagecodecs.jpeg2k_encode(np.zeros((500, 500), "u1"), codecformat="jp2")
    start = large.index(b"jp2c") - 4
    decoy = struct.pack(">I4s", 8 + len(small), b"uuid") + small
    long_box = struct.pack(">I4sQ", 1, b"uuid", 16 + len(small)) + small
    palette = struct.pack(">I4sHB", 11, b"pclr", 2, 255)
    opened: list[Any] = []
    monkeypatch.setattr(imagecodecs, "jpeg2k_decode", lambda *arguments, **named: opened.append(1))
    unprepared = Encoding(np.dtype("u1"), (Codec("imagecodecs_jpeg2k", {"level": 1}),))
    begin = plain.index(b"jp2c") - 4
    for data in (
        large[:start] + decoy + large[start:],
        large[:start] + long_box + large[start:],
        plain[:begin] + palette + plain[begin:],
        plain[:begin],
        plain[:20],
        b"",
        b"\xff\x4f\xff\x51" + bytes(10),
    ):
        with pytest.raises(CodecError):
            decode(data, unprepared, (8, 8))
    assert not opened


def test_pcodec_that_holds_more_than_the_chunk() -> None:
    standalone = pytest.importorskip("pcodec.standalone")
    numbers = np.zeros(20_000_000, "<i4")
    data = standalone.simple_compress(numbers, pytest.importorskip("pcodec").ChunkConfig())
    encoding = Encoding(np.dtype("<i4"), (Codec("pcodec"),))
    before = _peak(reset=True) if Path("/proc/self/clear_refs").exists() else None
    with pytest.raises(CodecError, match="holds more"):
        decode(data, encoding, (100,))
    assert before is None or _peak() - before < 8 << 20
    with pytest.raises(CodecError):
        decode(standalone.simple_compress(numbers[:50], pytest.importorskip("pcodec").ChunkConfig()), encoding, (100,))
