"""HDF5's values of varying length, found through the heaps of files that h5py wrote.

Modules: codecs/outside_values.py, formats/hdf5/codecs/records.py
"""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from insitu.codecs import decode, prepare
from insitu.errors import CodecError
from insitu.formats.hdf5.codecs.heap_values import Records
from insitu.model import Codec, Encoding

TEXTS = ["", "a", "häßlich", "日本語", "x" * 100]


class File:
    """A file's bytes; counts the calls that read them."""

    def __init__(self, path):
        self.data = path.read_bytes()
        self.calls = 0

    def __call__(self, ranges):
        self.calls += 1
        return [self.data[offset : offset + length] for offset, length in ranges]


def chunks_of(path):
    with h5py.File(path) as file:
        dataset = file["x"]
        info = [dataset.id.get_chunk_info(i) for i in range(dataset.id.get_num_chunks())]
        found = [(chunk.chunk_offset, *dataset.id.read_direct_chunk(chunk.chunk_offset)) for chunk in info]
        return found, dataset.chunks


def encoding(kind, base="u1", *codecs, **more):
    configuration = {"kind": kind, "base": base, "charset": "utf-8", "offset_size": 8, **more}
    return Encoding(np.dtype(object), (Codec("hdf5_vlen", configuration), *codecs))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("userblock", [0, 512])
def test_texts(tmp_path, compressed, userblock):
    values = np.array([TEXTS[i % 5] + str(i) * (i % 3) for i in range(600)], object).reshape(20, 30)
    options = {"compression": "gzip", "shuffle": True} if compressed else {}
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=userblock) as file:
        file.create_dataset("x", data=values, dtype=h5py.string_dtype(), chunks=(7, 30), **options)
    codecs = (Codec("shuffle", {"elementsize": 16}), Codec("zlib")) if compressed else ()
    stored, shape = chunks_of(tmp_path / "x.h5")
    for start, mask, data in stored:
        fetch = File(tmp_path / "x.h5")
        chain = encoding("string", "u1", *codecs, base_address=userblock)
        decoded = decode(data, chain, shape, filter_mask=mask << 1, fetch=fetch)
        expected = values[start[0] : start[0] + 7]
        assert decoded[: len(expected)].tolist() == expected.tolist()
        assert all(text == "" for text in decoded[len(expected) :].reshape(-1))
        assert fetch.calls <= 2
        given = np.empty(shape, object)
        decode(data, chain, shape, filter_mask=mask << 1, out=given, fetch=fetch)
        assert given.tolist() == decoded.tolist()
        part = np.empty((2, 3), object)
        prepare(chain, shape, mask << 1).place(data, (slice(1, 3), slice(0, 3)), part, fetch)
        assert part.tolist() == decoded[1:3, :3].tolist()


@pytest.mark.parametrize("base", ["<i4", ">f8", "u1"])
def test_sequences(tmp_path, base):
    values = np.empty(9, object)
    values[:] = [np.arange(i, dtype=base) for i in range(9)]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=values, dtype=h5py.vlen_dtype(np.dtype(base)), chunks=(9,))
    (((_, mask, data),), shape) = chunks_of(tmp_path / "x.h5")
    decoded = decode(data, encoding("sequence", base), shape, filter_mask=mask << 1, fetch=File(tmp_path / "x.h5"))
    assert [item.tolist() for item in decoded] == [list(range(i)) for i in range(9)]
    assert all(item.dtype == np.dtype(base) for item in decoded)


def test_one_large_object_takes_a_second_request(tmp_path):
    values = np.array(["short", "long" * 5000, "other" * 3000], object)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=values, dtype=h5py.string_dtype(), chunks=(3,))
    (((_, _, data),), shape) = chunks_of(tmp_path / "x.h5")
    fetch = File(tmp_path / "x.h5")
    assert decode(data, encoding("string"), shape, fetch=fetch).tolist() == values.tolist()
    assert fetch.calls == 2


def test_many_chunks_in_one_batch(tmp_path):
    values = np.array([f"text {i}" for i in range(100)], object)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=values, dtype=h5py.string_dtype(), chunks=(10,))
    stored, shape = chunks_of(tmp_path / "x.h5")
    decoder = prepare(encoding("string"), shape)
    references = np.concatenate([decoder.references(data) for _, _, data in sorted(stored)])
    fetch = File(tmp_path / "x.h5")
    assert decoder.records.resolve(references, fetch).tolist() == values.tolist()
    assert fetch.calls == 1


def test_small_offsets_and_null_references():
    records = Records.of({"kind": "string", "offset_size": 4})
    assert records.dtype.itemsize == 12
    references = np.zeros(3, records.dtype)
    references["address"] = [0, 2**32 - 1, 77]
    assert records.resolve(references, lambda ranges: []).tolist() == ["", "", ""]


def test_bytes_that_are_no_text_are_kept(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", (2,), dtype=h5py.string_dtype("ascii"), chunks=(2,))
        dataset[:] = np.array([b"ok", b"\xff\xfe"], object)
    (((_, _, data),), shape) = chunks_of(tmp_path / "x.h5")
    decoded = decode(data, encoding("string"), shape, fetch=File(tmp_path / "x.h5"))
    assert decoded[1].encode("utf-8", "surrogateescape") == b"\xff\xfe"


def test_what_goes_wrong(tmp_path):
    values = np.array(["abc", "defg"], object)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=values, dtype=h5py.string_dtype(), chunks=(2,))
    (((_, _, data),), shape) = chunks_of(tmp_path / "x.h5")
    fetch = File(tmp_path / "x.h5")
    with pytest.raises(CodecError, match="file is needed"):
        decode(data, encoding("string"), shape)
    with pytest.raises(CodecError, match="skipped"):
        decode(data, encoding("string"), shape, filter_mask=1, fetch=fetch)
    with pytest.raises(CodecError, match="heap"):
        decode(data, encoding("string"), shape, fetch=lambda ranges: [b"nothing of the kind" * 9 for _ in ranges])
    with pytest.raises(CodecError, match="heap"):
        decode(data, encoding("string"), shape, fetch=lambda ranges: [b"" for _ in ranges])
    other = np.frombuffer(data, prepare(encoding("string"), shape).dtype).copy()
    other["index"] = 99
    with pytest.raises(CodecError, match="no object 99"):
        decode(other.tobytes(), encoding("string"), shape, fetch=fetch)
    other["index"], other["length"] = 1, 10**6
    with pytest.raises(CodecError, match="are needed"):
        decode(other.tobytes(), encoding("string"), shape, fetch=fetch)
    huge = b"GCOL\x01\0\0\0" + (2**60).to_bytes(8, "little") + bytes(4080)
    with pytest.raises(CodecError, match="heap collection of"):
        decode(data, encoding("string"), shape, fetch=lambda ranges: [huge for _ in ranges])
    with pytest.raises(CodecError, match="itself"):
        prepare(Encoding(np.dtype("<i4")), (2,)).references(bytes(8))


@pytest.mark.parametrize("record", [False, True])
def test_one_object_used_again_and_again_is_damage(tmp_path, record):
    kind = np.dtype([("s", h5py.string_dtype())]) if record else h5py.string_dtype()
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (1000,), kind, chunks=(1000,))[0] = ("a" * 50_000,) if record else "a" * 50_000
    ((_, _, data),), shape = chunks_of(tmp_path / "x.h5")
    description = {"kind": "compound", "size": 16, "members": [["s", 0, [], {"kind": "text"}]]}
    configuration = {"kind": "record", "type": description} if record else {"kind": "string"}
    chain = Encoding(kind if record else np.dtype(object), (Codec("hdf5_vlen", configuration),))
    assert decode(data, chain, shape, fetch=File(tmp_path / "x.h5")).shape == (1000,)
    with pytest.raises(CodecError, match="again and again"):
        decode(data[:16] * 1000, chain, shape, fetch=File(tmp_path / "x.h5"))
