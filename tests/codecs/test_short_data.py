"""Damaged data of every codec: an error, or the same values whatever was in memory before; never
uninitialised memory.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from codecs_encoded import encoded
from damaged_bytes import flip_one
from insitu.codecs import thread_buffers
from insitu.codecs.chain import decode
from insitu.codecs.registry import CODECS
from insitu.errors import CodecError, UnknownCodecError
from insitu.model import Codec, Encoding

PATTERNS = (0x55, 0xAA)
M_PERTURB = -6
"""Of glibc's mallopt: fresh memory is filled with a pattern, that of C libraries too."""
DAMAGES = 20


@pytest.fixture
def fill_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that makes all fresh memory hold a pattern."""
    libc = ctypes.CDLL(None)
    perturb = getattr(libc, "mallopt", lambda *_: 0)
    empty = np.empty

    def fill(pattern: int) -> None:
        def patterned(*arguments: Any, **options: Any) -> Any:
            array = empty(*arguments, **options)
            if not array.dtype.hasobject and array.size:
                array.reshape(-1).view(np.uint8)[:] = pattern
            return array

        perturb(M_PERTURB, pattern)
        monkeypatch.setattr(np, "empty", patterned)
        thread_buffers._slots.buffers.clear()

    yield fill
    perturb(M_PERTURB, 0)


def decode_or_fail(data: bytes, encoding: Encoding, shape: tuple[int, ...]) -> Any:
    try:
        values = decode(data, encoding, shape)
    except CodecError as error:
        return f"{type(error).__name__}"
    return [str(value) for value in values.ravel().tolist()] if values.dtype.hasobject else values.tobytes()


def damage(data: bytes, number: int) -> bytes:
    random = np.random.default_rng(number)
    place = int(random.integers(0, len(data)))
    if number % 2:
        return data[:place]
    for at in (place, *random.integers(0, len(data), number % 5).tolist()):
        data = flip_one(data, at, 1 << int(random.integers(0, 8)))
    return data


@pytest.mark.parametrize("name", sorted(CODECS))
def test_damaged_data_is_an_error_or_always_the_same(name: str, hdf5: Any, fill_memory: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            chunk = encoded(name, hdf5)
        except (ImportError, UnknownCodecError, ValueError) as problem:
            pytest.skip(f"nothing here encodes it: {problem}")
    encoding = Encoding(np.dtype(chunk.dtype), (Codec(name, chunk.configuration),))
    good = decode_or_fail(chunk.data, encoding, chunk.shape)
    assert not isinstance(good, str), f"{good}: the chunk itself is decoded"
    for number in range(DAMAGES):
        bad = damage(chunk.data, number)
        found = []
        for pattern in PATTERNS:
            fill_memory(pattern)
            found.append(decode_or_fail(bad, encoding, chunk.shape))
        assert found[0] == found[1], f"damage {number}: the values are those of uninitialised memory"
