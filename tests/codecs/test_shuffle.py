"""The kernel and its NumPy twin do the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from insitu.codecs import decode, libraries
from insitu.codecs.filters.shuffle import unshuffle
from insitu.errors import CodecError
from insitu.model import Codec, Encoding

kernel = libraries.find_function("insitu.codecs._kernels", "unshuffle")
needs_kernel = pytest.mark.skipif(kernel is None, reason="the C extension was not built")


def planes(data: np.ndarray, size: int) -> np.ndarray:
    count = data.size // size
    return np.concatenate([data[: count * size].reshape(count, size).T.reshape(-1), data[count * size :]])


ways = [pytest.param(unshuffle, id="numpy"), pytest.param(kernel, id="kernel", marks=needs_kernel)]


@pytest.mark.parametrize("way", ways)
@given(size=st.integers(1, 40), count=st.integers(0, 70), rest=st.integers(0, 39), seed=st.integers(0, 5))
def test_unshuffle(way, size, count, rest, seed):
    data = np.random.default_rng(seed).integers(0, 256, size * count + rest % size, dtype=np.uint8)
    out = np.zeros_like(data)
    way(planes(data, size), size, out)
    assert (out == data).all()


@pytest.mark.parametrize("way", ways)
def test_other_lengths_are_refused(way):
    with pytest.raises(ValueError, match="do not unshuffle"):
        way(np.zeros(8, np.uint8), 4, np.zeros(9, np.uint8))


@needs_kernel
def test_the_kernel_checks_its_arguments():
    box = libraries.find_function("insitu.codecs._kernels", "unshuffle_box")
    bits = libraries.find_function("insitu.codecs._kernels", "unpack_bits")
    out = np.zeros((2, 2), "<i4")
    for arguments in (
        (bytes(15), 4, (2, 2), (0, 0), out),
        (bytes(16), 2, (2, 2), (0, 0), out),
        (bytes(16), 4, (2, 2), (1, 0), out),
        (bytes(16), 4, (2,), (0,), out),
        (bytes(16), 4, (-2, 2), (0, 0), out),
        (bytes(16), 0, (2, 2), (0, 0), out),
        (bytes(16), 4, [2, 2], (0, 0), out),
    ):
        with pytest.raises(ValueError):
            box(*arguments)
    with pytest.raises(OverflowError):
        box(bytes(16), 4, (2**62, 2**62), (0, 0), out)
    with pytest.raises(TypeError):
        box(bytes(16), 4)
    with pytest.raises(BufferError):
        kernel(bytes(8), 4, bytes(8))
    for arguments in (
        (bytes(4), 0, 9, 9, np.zeros(2, "u1")),
        (bytes(4), -1, 8, 8, np.zeros(2, "u1")),
        (bytes(4), 0, 0, 8, np.zeros(2, "u1")),
        (bytes(4), 0, 8, 8, np.zeros(5, "u1")),
        (bytes(4), 2**62, 8, 8, np.zeros(1, "u1")),
    ):
        with pytest.raises(ValueError):
            bits(*arguments)


def test_a_chunk_of_another_length_is_noticed():
    encoding = Encoding(np.dtype("<i4"), (Codec("shuffle", {"elementsize": 4}),))
    for length in (0, 15, 17):
        with pytest.raises(CodecError):
            decode(bytes(length), encoding, (4,))


def test_elements_of_another_size_than_the_type():
    """HDF5 shuffles compounds and arrays by the size of the whole element, others may not."""
    data = np.arange(48, dtype=np.uint8)
    encoding = Encoding(np.dtype("<f8"), (Codec("shuffle", {"elementsize": 4}),))
    assert decode(planes(data, 4), encoding, (6,)).tobytes() == data.tobytes()
