from __future__ import annotations

import numpy as np
import pytest

from insitu.codecs.aligned_memory import CACHE_LINE, MIN_ALIGNED_BYTES, allocate_aligned
from insitu.codecs.thread_buffers import get_buffer


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", ["<f4", ">i2", "S3", "<M8[ns]", "u1", [("a", "f4"), ("b", "i2")]])
@pytest.mark.parametrize("shape", [(MIN_ALIGNED_BYTES,), (1000, 1000), (3, 7, 50_000)])
def test_large_arrays_start_at_a_cache_line(dtype, shape) -> None:
    made = [allocate_aligned(shape, dtype) for _ in range(3)]
    for array in made:
        assert array.shape == shape
        assert array.dtype == np.dtype(dtype)
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert address(array) % CACHE_LINE == 0


@pytest.mark.parametrize(("shape", "dtype"), [((), "f8"), ((0, 5), "f4"), ((10,), "i2"), ((100_000,), object)])
def test_small_arrays_and_objects_are_those_of_numpy(shape, dtype) -> None:
    array = allocate_aligned(shape, dtype)
    assert array.shape == shape
    assert array.dtype == np.dtype(dtype)
    assert array.flags.owndata


@pytest.mark.parametrize("shape", [(1 << 62,), (1 << 40, 1 << 40)])
def test_what_does_not_fit_is_refused_as_by_numpy(shape) -> None:
    with pytest.raises((MemoryError, ValueError)):
        allocate_aligned(shape, "f8")


def test_buffers_of_threads_are_aligned() -> None:
    assert address(get_buffer(7, 1 << 20)) % CACHE_LINE == 0
