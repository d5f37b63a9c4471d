"""Is a codec's configuration checked field by field, and is a defect of ours shown as itself?

Modules: codecs/buffer_spec.py, codecs/registry.py
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from codecs_encoded import encoded
from insitu.codecs.buffer_spec import BufferSpec, DecodeStep
from insitu.codecs.chain import decode, prepare
from insitu.codecs.configuration import (
    dtype_field,
    float_field,
    floats_field,
    integer_field,
    integers_field,
    reading_configuration,
)
from insitu.codecs.registry import CODECS
from insitu.errors import CodecError, UnknownCodecError
from insitu.model import Codec, Encoding

ODD: list[Any] = [
    None, -1, 0, 3, 1 << 40, "x", "", "<f8", "O", "V0", "(2", 1.5, float("nan"), float("inf"), [], [1], [None], ["x"],
    {"a": 1}, True,
]  # fmt: skip


@pytest.mark.parametrize("name", sorted(CODECS))
@pytest.mark.filterwarnings("ignore")
def test_an_invalid_configuration_is_a_codec_error(name: str, hdf5: Any) -> None:
    try:
        chunk = encoded(name, hdf5)
    except (ImportError, UnknownCodecError, ValueError) as problem:
        pytest.skip(f"nothing here encodes it: {problem}")
    keys = {*chunk.configuration, "dtype", "shape", "elementsize", "cd_values", "order", "scale", "field"}
    for key in sorted(keys):
        for odd in ODD:
            encoding = Encoding(np.dtype(chunk.dtype), (Codec(name, {**chunk.configuration, key: odd}),))
            try:
                decode(chunk.data, encoding, chunk.shape)
            except (CodecError, MemoryError):
                continue


@pytest.mark.parametrize("name", sorted(CODECS))
@pytest.mark.filterwarnings("ignore")
def test_chunks_of_another_shape_or_type_are_a_codec_error(name: str, hdf5: Any) -> None:
    try:
        chunk = encoded(name, hdf5)
    except (ImportError, UnknownCodecError, ValueError) as problem:
        pytest.skip(f"nothing here encodes it: {problem}")
    for dtype in ("u1", ">i4", "<f8", "O", "S3", "?", "c16", "V5"):
        for shape in ((), (0,), (7,), (3, 4), (1, 1, 5, 3), chunk.shape):
            try:
                decode(chunk.data, Encoding(np.dtype(dtype), (Codec(name, chunk.configuration),)), shape)
            except (CodecError, MemoryError):
                continue


def test_fields() -> None:
    fields = {"level": "4", "none": None, "sizes": [1, "2"], "scale": "1.5", "kind": "<i2", "bytes": np.arange(3)}
    assert integer_field(fields, "level") == 4
    assert integer_field(fields, "none", 7) == integer_field(fields, "missing", 7) == 7
    assert integers_field(fields, "sizes") == (1, 2)
    assert integers_field(fields, "bytes") == (0, 1, 2)
    assert float_field(fields, "scale") == 1.5
    assert floats_field(fields, "sizes") == (1.0, 2.0)
    assert dtype_field(fields, "kind") == np.dtype("<i2")
    for read, name in (
        (integer_field, "missing"),
        (integer_field, "sizes"),
        (integers_field, "level"),
        (float_field, "kind"),
        (dtype_field, "level"),
    ):
        with pytest.raises(CodecError, match=name):
            read(fields, name)
    with pytest.raises(CodecError, match="'tree' is invalid: KeyError"), reading_configuration("tree"):
        fields["kinds"]


@pytest.mark.parametrize("uses_library", [True, False])
def test_only_what_libraries_raise_is_called_damage(uses_library: bool) -> None:
    def run(data: Any, out: Any) -> Any:
        raise TypeError("no such thing")

    step = DecodeStep("odd", run, BufferSpec(8, False), uses_library=uses_library)
    decoder = dataclasses.replace(prepare(Encoding(np.dtype("u1"), (Codec("zlib"),)), (4,)), steps=((step, 4),))
    with pytest.raises(CodecError if uses_library else TypeError, match="no such thing"):
        decoder(b"12345678")


def test_a_chunk_of_a_chain_that_does_not_compress_has_one_size() -> None:
    encoding = Encoding(np.dtype("<u2"), (Codec("shuffle", {"elementsize": 2}),))
    for size in (0, 7, 9):
        with pytest.raises(CodecError, match=f"has {size} bytes, but 8"):
            decode(bytes(size), encoding, (4,))
        with pytest.raises(CodecError, match=f"has {size} bytes, but 8"):
            prepare(encoding, (4,)).place(bytes(size), (slice(1, 3),), np.zeros(2, "<u2"))
