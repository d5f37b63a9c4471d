"""The chain itself: sizes, masks, orders, given buffers, boxes, bombs, threads.

Modules: codecs/compressors/bzip.py, codecs/compressors/lz.py, codecs/external_codecs.py,
codecs/filters/arithmetic.py, codecs/filters/array_layout.py, codecs/filters/vlen_values.py, codecs/thread_buffers.py
"""

from __future__ import annotations

import gzip
import sys
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor

import imagecodecs
import numcodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from damaged_bytes import count_refused, flip_one
from insitu.codecs import decode, prepare, thread_buffers
from insitu.errors import CodecError, UnknownCodecError
from insitu.model import Codec, Encoding

ZLIB = Codec("zlib", {"level": 1})
SHUFFLE = Codec("shuffle", {"elementsize": 4})


def shuffled(array):
    return array.reshape(-1).view(np.uint8).reshape(array.size, array.itemsize).T.tobytes()


def test_no_codecs(any_dtype, make):
    array = make(any_dtype, (3, 4))
    decoded = decode(array.tobytes(), Encoding(any_dtype), (3, 4))
    assert decoded.dtype == any_dtype
    assert decoded.tobytes() == array.tobytes()
    with pytest.raises(CodecError, match="declared"):
        decode(array.tobytes()[:-1], Encoding(any_dtype), (3, 4))
    with pytest.raises(CodecError, match="declared"):
        decode(array.tobytes() + b"x", Encoding(any_dtype), (3, 4))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_any_buffer_goes_in(kind, make):
    array = make("<f4", (5, 6))
    for codecs, data in (((), array.tobytes()), ((SHUFFLE, ZLIB), zlib.compress(shuffled(array)))):
        assert (decode(kind(data), Encoding(array.dtype, codecs), (5, 6)) == array).all()


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2)])
def test_small_and_empty_chunks(shape):
    array = np.full(shape, 5, "<i4")
    decoded = decode(zlib.compress(array.tobytes()), Encoding(array.dtype, (SHUFFLE, ZLIB)), shape)
    assert decoded.shape == shape
    assert (decoded == array).all()
    given = np.zeros(shape, "<i4")
    decoder = prepare(Encoding(array.dtype, (SHUFFLE, ZLIB)), shape)
    decoder.place(zlib.compress(array.tobytes()), (slice(None),) * len(shape), given)
    assert (given == array).all()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
@pytest.mark.parametrize("codecs", [(), (ZLIB,), (SHUFFLE, ZLIB)], ids=["raw", "zlib", "shuffle"])
def test_orders(order, codecs, make):
    array = make("<i4", (3, 4, 5))
    stored = np.ascontiguousarray(array.transpose(order))
    data = stored.tobytes() if SHUFFLE not in codecs else shuffled(stored)
    data = zlib.compress(data) if codecs else data
    encoding = Encoding(np.dtype("<i4"), codecs, order=order)
    assert (decode(data, encoding, (3, 4, 5)) == array).all()
    given = np.zeros((3, 4, 5), "<i4")
    decode(data, encoding, (3, 4, 5), out=given)
    assert (given == array).all()
    part = np.zeros((2, 2, 3), "<i4")
    prepare(encoding, (3, 4, 5)).place(data, (slice(1, 3), slice(0, 4, 2), slice(4, 1, -1)), part)
    assert (part == array[1:3, 0:4:2, 4:1:-1]).all()


def test_order_of_another_rank():
    with pytest.raises(CodecError, match="axes"):
        prepare(Encoding(np.dtype("i4"), order=(1, 0)), (2, 3, 4))


@pytest.mark.parametrize("mask", range(8))
def test_filter_masks(mask, make):
    """Every subset of a pipeline skipped, as HDF5 may do for a chunk."""
    array = make("<i4", (6, 7))
    data = array.tobytes()
    data = data if mask & 1 else shuffled(array)
    data = data if mask & 2 else zlib.compress(data)
    data = data if mask & 4 else bytes(numcodecs.Fletcher32().encode(np.frombuffer(data, np.uint8)))
    encoding = Encoding(np.dtype("<i4"), (SHUFFLE, ZLIB, Codec("fletcher32")))
    assert (decode(data, encoding, (6, 7), filter_mask=mask) == array).all()
    part = np.zeros((2, 3), "<i4")
    prepare(encoding, (6, 7), mask).place(data, (slice(1, 3), slice(2, 5)), part)
    assert (part == array[1:3, 2:5]).all()


def test_filter_masks_of_h5py(tmp_path, hdf5, make):
    """Chunks that h5py wrote with filters left out read back the same."""
    import h5py

    array = make("<f4", (20,))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", (40,), "<f4", chunks=(10,), compression="gzip", shuffle=True)
        for start, mask in ((0, 0b00), (10, 0b01), (20, 0b10), (30, 0b11)):
            part = array[:10]
            data = part.tobytes() if mask & 1 else shuffled(part)
            dataset.id.write_direct_chunk((start,), data if mask & 2 else zlib.compress(data), filter_mask=mask)
    with h5py.File(tmp_path / "x.h5") as file:
        dataset = file["x"]
        encoding = Encoding(np.dtype("<f4"), (SHUFFLE, ZLIB))
        for start in (0, 10, 20, 30):
            mask, data = dataset.id.read_direct_chunk((start,))
            assert (decode(data, encoding, (10,), filter_mask=mask) == dataset[start : start + 10]).all()


@given(data=st.data())
def test_boxes_equal_slicing(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    size = data.draw(st.sampled_from([1, 2, 3, 4, 8, 16]))
    array = np.random.default_rng(0).integers(0, 256, (int(np.prod(shape)), size), dtype=np.uint8)
    values = array.reshape(-1).view(f"V{size}").reshape(shape)
    codecs = data.draw(st.sampled_from([(), (ZLIB,), (Codec("shuffle", {"elementsize": size}), ZLIB)]))
    stored = array.T.tobytes() if len(codecs) == 2 else array.tobytes()
    stored = zlib.compress(stored) if codecs else stored
    box = tuple(data.draw(st.slices(n)) for n in shape)
    expected = values[box]
    room = np.zeros(tuple(2 * n + 1 for n in expected.shape), values.dtype)
    layout = data.draw(st.sampled_from(["slab", "steps", "plain", "turned"]))
    if layout == "slab":
        out = room[tuple(slice(1, 1 + n) for n in expected.shape)]
    elif layout == "steps":
        out = room[tuple(slice(0, 2 * n, 2) for n in expected.shape)]
    elif layout == "plain":
        out = np.zeros(expected.shape, values.dtype)
    else:
        out = np.zeros(expected.shape[::-1], values.dtype).T
    prepare(Encoding(values.dtype, codecs), shape).place(stored, box, out)
    assert out.tobytes() == expected.tobytes()


def test_a_given_array_of_the_other_byte_order(make):
    array = make(">f4", (4, 5))
    given = np.zeros((4, 5), "<f4")
    decode(zlib.compress(array.tobytes()), Encoding(array.dtype, (ZLIB,)), (4, 5), out=given)
    assert (given == array).all()


@pytest.mark.parametrize("codecs", [(), (ZLIB,), (SHUFFLE, ZLIB)], ids=["raw", "zlib", "shuffle"])
@pytest.mark.parametrize(
    "box", [(slice(0, 2), slice(0, 5)), (slice(0, 4), slice(4, None, -1)), (slice(1, 4), slice(0, 2))]
)
def test_a_box_of_another_shape_is_refused(codecs, box, make):
    array = make("<i4", (4, 5))
    data = shuffled(array) if SHUFFLE in codecs else array.tobytes()
    data = zlib.compress(data) if codecs else data
    for shape in ((4, 5), (1, 5), (3, 3)):
        if array[box].shape != shape:
            with pytest.raises(ValueError, match="does not go into"):
                prepare(Encoding(array.dtype, codecs), (4, 5)).place(data, box, np.zeros(shape, "<i4"))


def test_a_given_array_of_another_type_is_refused(make):
    array = make("<f4", (4, 5))
    with pytest.raises(TypeError):
        decode(array.tobytes(), Encoding(array.dtype), (4, 5), out=np.zeros((4, 5), "i2"))


def test_results_do_not_share_scratch(make):
    """A decoded chunk must survive the next one, whichever step came last."""
    fletcher = Codec("fletcher32")
    first, second = make("<i4", (100,), 1), make("<i4", (100,), 2)
    for codecs in ((fletcher, ZLIB), (SHUFFLE, fletcher, ZLIB), (ZLIB, Codec("zstd")), (Codec("bitround"), ZLIB)):
        decoded = []
        for array in (first, second):
            data = shuffled(array) if SHUFFLE in codecs else array.tobytes()
            if fletcher in codecs:
                data = bytes(numcodecs.Fletcher32().encode(np.frombuffer(data, np.uint8)))
            data = zlib.compress(data)
            data = bytes(numcodecs.Zstd().encode(data)) if Codec("zstd") in codecs else data
            decoded.append(decode(data, Encoding(np.dtype("<i4"), codecs), (100,)))
        assert (decoded[0] == first).all()
        assert (decoded[1] == second).all()


def test_large_buffers_are_not_kept():
    assert thread_buffers.get_buffer(9, thread_buffers.MAX_KEPT_BYTES + 1).size == thread_buffers.MAX_KEPT_BYTES + 1
    assert 9 not in thread_buffers._slots.buffers


def snappy(data):
    try:
        return imagecodecs.snappy_encode(data)
    except TypeError:  # some versions want a level
        return imagecodecs.snappy_encode(data, 1)


BOMBS = {
    "zlib": zlib.compress,
    "gzip": gzip.compress,
    "deflate": lambda data: zlib.compress(data)[2:-4],
    "zstd": lambda data: numcodecs.Zstd().encode(data),
    "blosc": lambda data: numcodecs.Blosc().encode(data),
    "blosc2": imagecodecs.blosc2_encode,
    "lz4": lambda data: numcodecs.LZ4().encode(data),
    "lz4_frame": imagecodecs.lz4f_encode,
    "hdf5_lz4": imagecodecs.lz4h5_encode,
    "lzf": imagecodecs.lzf_encode,
    "bz2": lambda data: numcodecs.BZ2().encode(data),
    "lzma": lambda data: numcodecs.LZMA(preset=1).encode(data),
    "snappy": snappy,
    "brotli": lambda data: imagecodecs.brotli_encode(data, level=1),
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("stacked", [False, True])
def test_bombs(name, stacked):
    """Much more output than declared: an error, before memory is spent on it."""
    size = 16 << 20
    data = BOMBS[name](bytes(size))
    codecs = (Codec("shuffle", {"elementsize": 2}), ZLIB, Codec(name)) if stacked else (Codec(name),)
    encoding = Encoding(np.dtype("u1"), codecs)
    tracemalloc.start()
    try:
        with pytest.raises(CodecError) as caught:
            decode(data, encoding, (1000,))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert caught.value.place["codec"] in (name, "zlib")


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("size", [999, 1001, 2000])
def test_other_sizes_than_declared(name, size):
    data = BOMBS[name](bytes(range(250)) * 8)[:]
    good = BOMBS[name](bytes(range(200)) * 5)
    assert decode(good, Encoding(np.dtype("u1"), (Codec(name),)), (1000,)).tobytes() == bytes(range(200)) * 5
    with pytest.raises(CodecError):
        decode(
            good if size != 2000 else data, Encoding(np.dtype("u1"), (Codec(name),)), (size if size != 2000 else 1000,)
        )


@pytest.mark.parametrize("name", BOMBS)
def test_truncated_data(name):
    payload = np.random.default_rng(0).integers(0, 4, 5000, dtype=np.uint8).tobytes()
    data = bytes(BOMBS[name](payload))
    for length in (0, 1, 5, 11, len(data) // 2, len(data) - 5):
        with pytest.raises(CodecError):
            decode(data[:length], Encoding(np.dtype("u1"), (Codec(name),)), (5000,))


def test_gzip_of_several_members():
    data = gzip.compress(b"a" * 10) + gzip.compress(b"b" * 20) + b"\0" * 7
    assert decode(data, Encoding(np.dtype("S1"), (Codec("gzip"),)), (30,)).tobytes() == b"a" * 10 + b"b" * 20
    with pytest.raises(CodecError):
        decode(data, Encoding(np.dtype("S1"), (Codec("gzip"),)), (29,))


def test_zstd_without_its_size_and_in_pieces():
    payload = bytes(range(256)) * 40
    plain = numcodecs.Zstd().encode(payload[:5000]) + numcodecs.Zstd().encode(payload[5000:])
    assert decode(plain, Encoding(np.dtype("u1"), (Codec("zstd"),)), (len(payload),)).tobytes() == payload


def test_unknown_codecs_say_what_to_do():
    with pytest.raises(UnknownCodecError, match="no decoder for codec 'no-such'"):
        prepare(Encoding(np.dtype("i4"), (Codec("no-such", {"a": 1}),)), (3,))
    with pytest.raises(UnknownCodecError, match=r"SZ \(HDF5 filter 32017\)") as caught:
        prepare(Encoding(np.dtype("i4"), (Codec("hdf5_filter_32017", {"cd_values": [1]}),)), (3,))
    assert "hdf5plugin" in str(caught.value)
    with pytest.raises(UnknownCodecError, match="HDF5 filter 40000"):
        prepare(Encoding(np.dtype("i4"), (Codec("hdf5_filter_40000"),)), (3,))


def test_a_skipped_unknown_codec_does_no_harm():
    encoding = Encoding(np.dtype("<i4"), (Codec("no-such"),))
    assert decode(bytes(12), encoding, (3,), filter_mask=1).tolist() == [0, 0, 0]


def test_quantising_filters_of_hdf5_are_the_identity():
    encoding = Encoding(
        np.dtype("<i4"), (Codec("hdf5_filter_32022", {"cd_values": [3]}), Codec("hdf5_filter_32023"), ZLIB)
    )
    assert decode(zlib.compress(bytes(12)), encoding, (3,)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "codec",
    [
        Codec("shuffle", {"elementsize": 0}),
        Codec("shuffle", {"elementsize": "x"}),
        Codec("bitshuffle", {"elementsize": 4, "blocksize": 3}),
        Codec("szip", {}),
        Codec("delta", {}),
        Codec("delta", {"dtype": "O"}),
        Codec("delta", {"dtype": "<i8"}),
        Codec("astype", {"encode_dtype": "nonsense", "decode_dtype": "<i4"}),
        Codec("fixedscaleoffset", {"dtype": "<f4"}),
        Codec("transpose", {"order": [0, 0]}),
        Codec("bytes", {"endian": "middle"}),
        Codec("scaleoffset", {}),
        Codec("nbit", {}),
        Codec("zfp", {"cd_values": [1]}),
        Codec("hdf5_vlen", {"offset_size": 3}),
        Codec("hdf5_vlen", {"kind": "matrix"}),
    ],
    ids=str,
)
def test_configurations_that_make_no_sense(codec):
    with pytest.raises(CodecError):
        prepare(Encoding(np.dtype("<i4"), (codec,)), (3,))


def test_array_codecs_need_arrays():
    for name in ("transpose", "vlen-utf8", "pcodec"):
        with pytest.raises(CodecError):
            prepare(Encoding(np.dtype("<i4"), (ZLIB, Codec(name))), (3,))


@pytest.mark.parametrize(
    ("codecs", "message"),
    [
        ((Codec("pcodec"),), "varying length"),
        ((Codec("imagecodecs_png"),), "varying length"),
        ((Codec("vlen-utf8"), Codec("hdf4_huffman", {"skip": 2})), "the data ends after"),
    ],
    ids=["pcodec", "images", "huffman"],
)
def test_a_chunk_of_no_declared_size_takes_no_memory(codecs, message):
    """The limit of such a chunk is 2 GiB, which were allocated before the data was looked at."""
    encoding = Encoding(np.dtype(object), codecs)
    tracemalloc.start()
    try:
        with pytest.raises(CodecError, match=message):
            decode(bytes(100), encoding, (3, 4))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_objects_need_a_codec():
    with pytest.raises(CodecError, match="values of varying length"):
        prepare(Encoding(np.dtype(object)), (3,))
    with pytest.raises(CodecError, match="does not hold"):
        decode(zlib.compress(b"abc"), Encoding(np.dtype(object), (ZLIB,)), (3,))


def test_texts_of_another_number():
    data = numcodecs.VLenUTF8().encode(np.array(["a", "b"], object))
    encoding = Encoding(np.dtype(object), (Codec("vlen-utf8"),))
    for broken in (data, b"", data[:6], (2**31).to_bytes(4, "little") + bytes(data[4:])):
        with pytest.raises(CodecError):
            decode(broken, encoding, (3,))


def test_pickles_are_refused():
    for name in ("pickle", "numcodecs.pickle"):
        with pytest.raises(UnknownCodecError, match="refused"):
            prepare(Encoding(np.dtype(object), (Codec(name, {"protocol": 5}),)), (3,))


def test_threads_share_a_decoder(make):
    arrays = [make("<i4", (50, 60), seed) for seed in range(40)]
    decoder = prepare(Encoding(np.dtype("<i4"), (SHUFFLE, ZLIB)), (50, 60))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            decoded = list(pool.map(decoder, [zlib.compress(shuffled(array)) for array in arrays]))
    finally:
        sys.setswitchinterval(interval)
    assert all((actual == expected).all() for actual, expected in zip(decoded, arrays, strict=True))


@pytest.mark.parametrize("name", sorted(BOMBS))
@given(data=st.data())
def test_flipped_bytes_raise_or_decode_but_never_crash(name, data):
    payload = np.random.default_rng(0).integers(0, 3, 3000, dtype=np.uint8).tobytes()
    encoded = BOMBS[name](payload)
    for _ in range(data.draw(st.integers(1, 4))):
        encoded = flip_one(encoded, data.draw(st.integers(0, len(encoded) - 1)), data.draw(st.integers(1, 255)))

    def check(data: bytes) -> None:
        assert decode(data, Encoding(np.dtype("u1"), (Codec(name),)), (3000,)).shape == (3000,)

    count_refused([encoded], check)
