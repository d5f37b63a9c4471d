"""HDF5's n-bit filter: numbers of few bits, compounds, arrays, and types that it keeps whole."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t, h5z

from insitu.codecs import decode
from insitu.errors import CodecError
from insitu.model import Codec, Encoding


def integer(base, precision, offset=0):
    kind = base.copy()
    kind.set_precision(precision)
    kind.set_offset(offset)
    return kind


def written(tmp_path, kind, array, chunks):
    """Chunks as HDF5 stores them, and what it reads from them in the file's own type."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_chunk(chunks)
        plist.set_filter(h5z.FILTER_NBIT, h5z.FLAG_MANDATORY, ())
        dataset = h5d.create(file.id, b"x", kind, h5s.create_simple(array.shape), plist)
        dataset.write(h5s.ALL, h5s.ALL, array, h5t.py_create(array.dtype))
    with h5py.File(path) as file:
        dataset = file["x"].id
        values = dataset.get_create_plist().get_filter(0)[2]
        mask, data = dataset.read_direct_chunk((0,) * array.ndim)
        # Read without conversion: the bytes after the filter, which is what a decoder yields.
        raw = np.empty(array.shape, f"V{dataset.get_type().get_size()}")
        dataset.read(h5s.ALL, h5s.ALL, raw, dataset.get_type())
    return data, mask, Codec("nbit", {"cd_values": list(values)}), raw


@pytest.mark.parametrize(
    "base", ["STD_I8LE", "STD_U16LE", "STD_I16BE", "STD_I32LE", "STD_U32BE", "STD_I64LE", "STD_U64BE"]
)
@pytest.mark.parametrize(("less", "offset"), [(3, 0), (4, 2), (4, 4), (1, 1), (1, 0), (0, 0)])
def test_integers(tmp_path, base, less, offset):
    base = getattr(h5t, base)
    precision = base.get_size() * 8 - less
    kind = integer(base, precision, offset)
    signed = kind.get_sign() == h5t.SGN_2
    high = 2 ** (precision - 1)
    values = (
        np.random.default_rng(1)
        .integers(-high if signed else 0, high, (7, 9), dtype="i8")
        .astype(kind.dtype.newbyteorder("="))
    )
    data, mask, codec, raw = written(tmp_path, kind, values, (7, 9))
    decoded = decode(data, Encoding(raw.dtype, (codec,)), (7, 9), filter_mask=mask)
    assert decoded.tobytes() == raw.tobytes()


def test_compound(tmp_path):
    kind = h5t.create(h5t.COMPOUND, 24)
    kind.insert(b"a", 0, integer(h5t.STD_I32LE, 17, 3))
    kind.insert(b"b", 5, integer(h5t.STD_U16BE, 9))
    kind.insert(b"c", 8, h5t.IEEE_F32LE)
    text = h5t.C_S1.copy()
    text.set_size(5)
    kind.insert(b"d", 12, text)
    kind.insert(b"e", 20, h5t.array_create(integer(h5t.STD_U8LE, 3), (3,)))
    array = np.zeros(40, [("a", "i4"), ("b", "u2"), ("c", "f4"), ("d", "S5"), ("e", "u1", 3)])
    rng = np.random.default_rng(2)
    array["a"] = rng.integers(-65536, 65536, 40)
    array["b"] = rng.integers(0, 512, 40)
    array["c"] = rng.normal(size=40)
    array["d"] = [f"t{i}" for i in range(40)]
    array["e"] = rng.integers(0, 8, (40, 3))
    data, mask, codec, raw = written(tmp_path, kind, array, (40,))
    decoded = decode(data, Encoding(raw.dtype, (codec,)), (40,), filter_mask=mask)
    for name, start, stop in (("a", 0, 4), ("b", 5, 7), ("c", 8, 12), ("d", 12, 17), ("e", 20, 23)):
        actual = decoded.view(np.uint8).reshape(40, 24)[:, start:stop]
        expected = raw.view(np.uint8).reshape(40, 24)[:, start:stop]
        assert (actual == expected).all(), name


def test_nested_arrays_and_compounds(tmp_path):
    inner = h5t.create(h5t.COMPOUND, 6)
    inner.insert(b"x", 0, integer(h5t.STD_I16LE, 10))
    inner.insert(b"y", 2, integer(h5t.STD_U32LE, 20, 4))
    kind = h5t.array_create(inner, (2, 2))
    outer = h5t.create(h5t.COMPOUND, kind.get_size())
    outer.insert(b"z", 0, kind)
    array = np.zeros(11, [("z", [("x", "<i2"), ("y", "<u4")], (2, 2))])
    rng = np.random.default_rng(4)
    array["z"]["x"] = rng.integers(-512, 512, (11, 2, 2))
    array["z"]["y"] = rng.integers(0, 2**20, (11, 2, 2))
    data, mask, codec, raw = written(tmp_path, outer, array, (11,))
    decoded = decode(data, Encoding(raw.dtype, (codec,)), (11,), filter_mask=mask)
    assert decoded.tobytes() == raw.tobytes()


def test_full_precision_is_left_alone(tmp_path):
    array = np.arange(10, dtype="<i4")
    data, mask, codec, _raw = written(tmp_path, h5t.STD_I32LE, array, (10,))
    assert (decode(data, Encoding(np.dtype("<i4"), (codec,)), (10,), filter_mask=mask) == array).all()


def test_damage_is_noticed(tmp_path):
    data, _, codec, raw = written(tmp_path, integer(h5t.STD_I32LE, 17), np.arange(100, dtype="i4"), (100,))
    encoding = Encoding(raw.dtype, (codec,))
    for broken in (b"", data[:100]):
        with pytest.raises(CodecError):
            decode(broken, encoding, (100,))
    with pytest.raises(CodecError):
        decode(data, encoding, (101,))


@pytest.mark.parametrize(
    "values",
    [
        [],
        [8, 0, 4, 1, 4],
        [8, 0, 4, 9, 4, 0, 3, 0],
        [8, 0, 4, 1, 4, 0, 33, 0],
        [8, 0, 4, 1, 4, 0, 0, 0],
        [9, 0, 4, 2, 4, 4, 0],
        [9, 0, 4, 3, 4, 1, 3, 1, 4, 0, 20, 0],
    ],
)
def test_client_values_that_make_no_sense(values):
    with pytest.raises(CodecError):
        decode(bytes(16), Encoding(np.dtype("<i4"), (Codec("nbit", {"cd_values": values}),)), (4,))
