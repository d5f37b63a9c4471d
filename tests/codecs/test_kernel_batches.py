"""Batches of chunks that the compiled kernels decode, and what they link.

Modules: codecs/chunk_batch.py
"""

from __future__ import annotations

import zlib
from dataclasses import replace

import numcodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from insitu.codecs import chain
from insitu.codecs.chain import prepare
from insitu.codecs.chunk_batch import ChunkBatch
from insitu.codecs.libraries import find_function
from insitu.codecs.linked_libraries import linked_libraries
from insitu.errors import CodecError
from insitu.model import Codec, Encoding

COMPRESS = {"zlib": zlib.compress, "zstd": lambda data: bytes(numcodecs.Zstd().encode(data))}

needs_libraries = pytest.mark.skipif(not linked_libraries(), reason="the kernels were built without libraries")


def shuffled(data: bytes, size: int) -> bytes:
    return np.frombuffer(data, np.uint8).reshape(-1, size).T.tobytes()


def in_one_buffer(chunks: list[bytes]) -> ChunkBatch:
    """Put the chunks into one buffer, the last one first, with a gap after each."""
    length = np.array([len(chunk) for chunk in chunks], np.int64)
    block = np.frombuffer(b"".join(chunk + b"gap" for chunk in reversed(chunks)), np.uint8)
    return ChunkBatch(block, (np.cumsum((length + 3)[::-1]) - (length + 3)[::-1])[::-1], length)


@given(data=st.data())
@settings(max_examples=60)
def test_many_small_chunks_go_to_their_places(data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from(sorted(COMPRESS)))
    dtype = np.dtype(data.draw(st.sampled_from(["<f4", ">i2", "u1", "<c16", "<M8[s]", "S3", "<f8"])))
    shuffle = data.draw(st.booleans())
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    start = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    extent = tuple(data.draw(st.integers(0, n - s)) for n, s in zip(shape, start, strict=True))
    places = data.draw(st.lists(st.tuples(*[st.integers(0, 8)] * len(shape)), max_size=5))
    codecs = (Codec("shuffle", {"elementsize": dtype.itemsize}),) if shuffle else ()
    decoder = prepare(Encoding(dtype, (*codecs, Codec(codec))), shape)
    plain = np.random.default_rng(len(places)).integers(0, 255, (len(places), *shape, dtype.itemsize), np.uint8)
    chunks = [np.ascontiguousarray(p).view(dtype).reshape(shape) for p in plain]
    stored = [COMPRESS[codec](shuffled(c.tobytes(), dtype.itemsize) if shuffle else c.tobytes()) for c in chunks]
    backing = np.zeros(tuple(2 * n + 20 for n in shape), dtype)
    step = data.draw(st.sampled_from([1, 2]))
    out = backing[tuple(slice(None, None, step) for _ in shape)]
    expected = out.copy()
    inside = tuple(slice(s, s + n) for s, n in zip(start, extent, strict=True))
    for chunk, place in zip(chunks, places, strict=True):
        expected[tuple(slice(p, p + n) for p, n in zip(place, extent, strict=True))] = chunk[inside]
    decoder.scatter(stored, start, extent, out, places)
    assert out.tobytes() == expected.tobytes()
    apart = np.zeros_like(backing)[tuple(slice(None, None, step) for _ in shape)]
    replace(decoder, batch_codec=None).scatter(stored, start, extent, apart, places)
    assert apart.tobytes() == expected.tobytes()
    together = np.zeros_like(backing)[tuple(slice(None, None, step) for _ in shape)]
    decoder.scatter(in_one_buffer(stored), start, extent, together, np.array(places, int).reshape(-1, len(shape)))
    assert together.tobytes() == expected.tobytes()
    raw = np.zeros_like(backing)[tuple(slice(None, None, step) for _ in shape)]
    not_encoded = in_one_buffer([c.tobytes() for c in chunks])
    prepare(Encoding(dtype), shape).scatter(
        not_encoded, start, extent, raw, np.array(places, int).reshape(-1, len(shape))
    )
    assert raw.tobytes() == expected.tobytes()


@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("damage", ["cut", "flipped", "short", "long", "empty"])
def test_a_damaged_chunk_among_many_is_named(codec: str, damage: str) -> None:
    decoder = prepare(Encoding(np.dtype("<i4"), (Codec("shuffle", {"elementsize": 4}), Codec(codec))), (8,))
    good = COMPRESS[codec](np.arange(8, dtype="<i4").tobytes())
    bad = {
        "cut": good[:-3],
        "flipped": bytes([good[0] ^ 255]) + good[1:],
        "short": COMPRESS[codec](bytes(28)),
        "long": COMPRESS[codec](bytes(36)),
        "empty": b"",
    }[damage]
    out = np.zeros(40, "<i4")
    with pytest.raises(CodecError) as caught:
        decoder.scatter([good, good, good, bad, good], (0,), (8,), out, [(8 * n,) for n in range(5)])
    assert caught.value.place["number"] == 3
    batch = in_one_buffer([good, good, good, bad, good])
    with pytest.raises(CodecError) as caught:
        decoder.scatter(batch, (0,), (8,), out, np.arange(0, 40, 8).reshape(5, 1))
    assert caught.value.place["number"] == 3


def test_a_chunk_that_is_not_encoded_has_its_size() -> None:
    batch = in_one_buffer([bytes(32), bytes(31), bytes(32)])
    with pytest.raises(CodecError, match="31 bytes") as caught:
        prepare(Encoding(np.dtype("<i4")), (8,)).scatter(batch, (0,), (8,), np.zeros(24, "<i4"), [(0,), (8,), (16,)])
    assert caught.value.place["number"] == 1


def test_a_batch_is_a_sequence_of_chunks() -> None:
    batch = in_one_buffer([b"one", b"three", b"", b"four"])
    assert [bytes(chunk) for chunk in batch] == [b"one", b"three", b"", b"four"]
    assert [bytes(chunk) for chunk in batch[1:3]] == [b"three", b""]
    assert [bytes(chunk) for chunk in batch.take(np.array([3, 0]))] == [b"four", b"one"]


def test_other_chains_go_one_by_one() -> None:
    few = Encoding(np.dtype("u1"), (Codec("zlib"),))
    assert prepare(replace(few, codecs=(Codec("bz2"),)), (10,)).batch_codec is None
    checked = replace(few, codecs=(Codec("zlib"), Codec("fletcher32")))
    assert prepare(checked, (10,)).batch_codec is None
    assert prepare(few, (10,)).batch_codec == ("zlib" if "zlib" in linked_libraries() else None)


def test_a_build_has_all_libraries_or_none() -> None:
    assert set(linked_libraries()) in ({"zlib", "zstd"}, set())
    assert all(name.split()[0] in ("libdeflate", "zstd") for name in linked_libraries().values())


@needs_libraries
@pytest.mark.parametrize("codec", COMPRESS)
@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_linked_libraries_decode_what_the_chain_decodes(codec: str, dtype: str, shuffle: bool) -> None:
    codecs = (Codec("shuffle", {"elementsize": np.dtype(dtype).itemsize}),) if shuffle else ()
    decoder = prepare(Encoding(np.dtype(dtype), (*codecs, Codec(codec))), (300, 1000))
    values = np.random.default_rng(1).normal(280, 10, (300, 1000)).round(1).astype(dtype)
    stored = COMPRESS[codec](shuffled(values.tobytes(), values.itemsize) if shuffle else values.tobytes())
    assert decoder.batch_codec == codec  # large chunks too
    found, apart = np.zeros((2, *values.shape), dtype)
    decoder.scatter([stored], (0, 0), values.shape, found, [(0, 0)])
    replace(decoder, batch_codec=None).scatter([stored], (0, 0), values.shape, apart, [(0, 0)])
    assert found.tobytes() == apart.tobytes() == values.tobytes()


@needs_libraries
@pytest.mark.parametrize("codec", COMPRESS)
def test_linked_libraries_refuse_truncated_data(codec: str) -> None:
    decode = find_function("insitu.codecs._kernels", "decode_boxes")
    assert decode is not None
    values = np.random.default_rng(2).integers(0, 255, 5000, np.uint8)
    stored, out, room = COMPRESS[codec](values.tobytes()), np.zeros(5000, "u1"), np.zeros(5000, "u1")
    for length in range(0, len(stored), 97):
        settings = 1, False, (5000,), (0,), (5000,), out, [(0,)], room
        assert decode(codec, [stored[:length]], *settings) == 0
    assert decode(codec, [stored], *settings) == 1
    assert out.tobytes() == values.tobytes()


@needs_libraries
def test_the_kernel_checks_what_it_is_given() -> None:
    decode = find_function("insitu.codecs._kernels", "decode_boxes")
    assert decode is not None
    chunk = zlib.compress(bytes(16))
    out = np.zeros((4, 4), "u1")
    good = ("zlib", [chunk], 1, False, (4, 4), (0, 0), (2, 2), out, [(2, 2)], bytearray(16))
    assert decode(*good) == 1
    for at, wrong in {
        0: "lzma", 1: (chunk,), 2: 0, 4: (4,), 5: (3, 3), 6: (5, 1), 7: out.view("u2"), 8: [(3, 3)], 9: bytearray(15),
    }.items():  # fmt: skip
        with pytest.raises((ValueError, TypeError)):
            decode(*good[:at], wrong, *good[at + 1 :])
    with pytest.raises(ValueError, match="one length"):
        decode(*good[:8], [], good[9])
    with pytest.raises((TypeError, BufferError)):
        decode(*good[:9], bytes(16))
    with pytest.raises((TypeError, BufferError)):
        decode("zlib", [chunk, None], *good[2:8], [(0, 0), (0, 0)], good[9])
    with pytest.raises(ValueError, match="linked"):
        decode(0, *good[1:])
    one, far = np.array([0]), np.array([1 << 62])
    columns = (np.zeros(16, "u1"), one, np.array([16]))
    assert decode(None, columns, *good[2:8], np.array([[2, 2]]), None) == 1
    outside = [(one - 1, one), (one, one + 17), (far, far), (one, columns[0]), (one, one.astype("i4"))]
    for wrong_columns in ((columns[0], one), *((columns[0], *pair) for pair in outside)):
        with pytest.raises((ValueError, TypeError)):
            decode(None, wrong_columns, *good[2:8], np.array([[2, 2]]), None)
    for wrong_places in ([[2, 3]], [[-1, 0]], [[1 << 62, 0]], [[0, 0], [0, 0]], [[0]]):
        with pytest.raises(ValueError):
            decode(None, columns, *good[2:8], np.array(wrong_places), None)


def test_without_the_kernel_a_batch_gives_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = in_one_buffer([np.arange(n, n + 6, dtype="<i4").tobytes() for n in range(3)])
    places = np.array([[0, 1], [2, 0], [4, 2]])
    found = []
    for kernel in (chain.find_placing_kernel(), None):
        monkeypatch.setattr(chain, "find_placing_kernel", lambda kernel=kernel: kernel)
        out = np.zeros((6, 4), "<i4")
        prepare(Encoding(np.dtype("<i4")), (2, 3)).scatter(batch, (0, 1), (2, 2), out, places)
        found.append(out)
    assert found[0].tolist() == found[1].tolist()
    assert found[0][4:, 2:].tolist() == [[3, 4], [6, 7]]
