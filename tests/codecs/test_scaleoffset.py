"""HDF5's scale-offset filter, decoded to the bits that the HDF5 library gives.

Modules: codecs/filters/bit_fields.py
"""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from insitu.codecs import decode, prepare
from insitu.codecs.filters import bit_fields
from insitu.errors import CodecError
from insitu.model import Codec, Encoding

INTEGERS = ["<i1", "<u1", "<i2", ">i2", "<u2", "<i4", ">u4", "<i8", ">i8", "<u8"]


def assert_same_as_hdf5(stored):
    for data, mask, expected in stored.stored():
        chunk = decode(data, stored.encoding, stored.chunks, filter_mask=mask)
        assert chunk.dtype == expected.dtype
        assert chunk[tuple(slice(n) for n in expected.shape)].tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", INTEGERS)
@given(seed=st.integers(0, 1000), width=st.integers(0, 64), fill=st.booleans(), given_bits=st.booleans())
def test_integers(hdf5, dtype, seed, width, fill, given_bits):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    span = min(2**width, int(info.max) - int(info.min) + 1)
    low = (
        int(rng.integers(info.min, int(info.max) - span + 2, dtype=np.dtype(dtype).newbyteorder("=").type))
        if span <= info.max
        else info.min
    )
    values = (low + (rng.random(60) * span).astype(object)).astype(object)
    array = np.array([min(max(int(v), info.min), info.max) for v in values], dtype)
    options = {"fillvalue": array[3]} if fill else {}
    if fill:
        array[5::7] = array[3]
    assert_same_as_hdf5(hdf5(array, (25,), scaleoffset=min(width, info.bits) if given_bits and width else 0, **options))


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8"])
@given(
    data=hnp.arrays(np.float64, 40, elements=st.floats(-1e4, 1e4, width=32)),
    digits=st.integers(0, 4),
    fill=st.sampled_from([None, 0.0, -999.5, 1e3]),
)
def test_floats(hdf5, dtype, data, digits, fill):
    array = data.astype(dtype)
    options = {}
    if fill is not None:
        array[::5] = fill
        options["fillvalue"] = fill
    assert_same_as_hdf5(hdf5(array, (15,), scaleoffset=digits, **options))


@pytest.mark.parametrize("value", [0, 7, -128, 127])
def test_constant_chunk(hdf5, value):
    assert_same_as_hdf5(hdf5(np.full(50, value, "i1"), (50,), scaleoffset=0))


def test_all_fill(hdf5):
    assert_same_as_hdf5(hdf5(np.full(50, 9, "<i4"), (50,), scaleoffset=0, fillvalue=9))


def test_fill_value_undefined(tmp_path):
    path = tmp_path / "x.h5"
    array = np.arange(100, 200, dtype="<i4")
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((100,))
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        plist.set_scaleoffset(h5py.h5z.SO_INT, 0)
        space = h5py.h5s.create_simple((100,))
        dataset = h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I32LE, space, plist)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, array)
    with h5py.File(path) as file:
        values = file["x"].id.get_create_plist().get_filter(0)[2]
        mask, data = file["x"].id.read_direct_chunk((0,))
    encoding = Encoding(np.dtype("<i4"), (Codec("scaleoffset", {"cd_values": list(values)}),))
    assert (decode(data, encoding, (100,), filter_mask=mask) == array).all()


def test_damage_is_noticed(hdf5):
    stored = hdf5(np.arange(1000, dtype="<i4"), (1000,), scaleoffset=0)
    ((data, _, _),) = stored.stored()
    for broken in (data[:10], data[:-5], b"", (77).to_bytes(4, "little") + data[4:]):
        with pytest.raises(CodecError):
            decode(broken, stored.encoding, (1000,))
    with pytest.raises(CodecError, match="the chunk has"):
        decode(data, stored.encoding, (999,))


@pytest.mark.parametrize("values", [[], [0] * 20, [2, 0, 4, 0, 3, 0, 0, 0], [1, 0, 4, 1, 4, 0, 0, 0]])
def test_client_values_that_make_no_sense(values):
    with pytest.raises(CodecError):
        prepare(Encoding(np.dtype("<i4"), (Codec("scaleoffset", {"cd_values": values}),)), (4,))


@given(
    st.integers(1, 64), st.integers(0, 20), st.integers(0, 9), st.integers(0, 40), st.binary(min_size=700, max_size=700)
)
def test_unpacking_without_the_kernel(width, first, gap, count, data):
    packed = np.frombuffer(data, np.uint8)
    fields = bit_fields.unpack_bits_numpy(packed, first, width + gap, width, count, np.dtype("u8"))
    text = "".join(f"{byte:08b}" for byte in data)
    starts = [first + i * (width + gap) for i in range(count)]
    assert fields.tolist() == [int(text[s : s + width], 2) for s in starts]
    assert bit_fields.unpack_bits(packed, first, width + gap, width, count, np.dtype("u8")).tolist() == fields.tolist()


def test_too_few_bits():
    with pytest.raises(CodecError, match="too few"):
        bit_fields.unpack_bits(np.zeros(2, np.uint8), 0, 5, 5, 4, np.dtype("u1"))
