"""Szip with blocks of every size that HDF5 writes."""

from __future__ import annotations

import io

import h5py
import numpy as np
import pytest

import insitu
from insitu.sources import MemorySource


@pytest.mark.parametrize("block", [2, 4, 6, 8, 10, 16, 32])
@pytest.mark.parametrize("dtype", ["u1", "<i2", ">f4", "<f8"])
def test_szip_blocks_of_every_size(block: int, dtype: str) -> None:
    """imagecodecs' general interface takes a block of 4 for one of 8, without a word."""
    values = np.random.default_rng(block).integers(0, 90, (7, 13)).astype(dtype)
    file = io.BytesIO()
    with h5py.File(file, "w") as written:
        try:
            written.create_dataset("x", data=values, chunks=(4, 13), compression="szip", compression_opts=("nn", block))
        except ValueError as refused:
            pytest.skip(f"h5py does not write it: {refused}")
    source = MemorySource(file.getvalue())
    group = insitu.scan(source, decode=False)
    np.testing.assert_array_equal(insitu.read(group, "x", decode=False), values)
