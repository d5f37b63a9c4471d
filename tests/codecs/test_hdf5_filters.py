"""Chunks written by h5py with the HDF5 library's filters and hdf5plugin's decode to what h5py
reads.
"""

from __future__ import annotations

import hdf5plugin
import numpy as np
import pytest

from insitu.codecs import decode, prepare

PIPELINES = {
    "zlib": {"compression": "gzip"},
    "shuffle-zlib-fletcher32": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "shuffle": {"shuffle": True},
    "fletcher32": {"fletcher32": True},
    "lzf": {"compression": "lzf", "shuffle": True},
    "blosc-lz4": hdf5plugin.Blosc(),
    "blosc-zstd-bitshuffle": hdf5plugin.Blosc(cname="zstd", shuffle=hdf5plugin.Blosc.BITSHUFFLE),
    "blosc-zlib": hdf5plugin.Blosc(cname="zlib"),
    "blosc-blosclz": hdf5plugin.Blosc(cname="blosclz"),
    "blosc2": hdf5plugin.Blosc2(),
    "blosc2-zstd": hdf5plugin.Blosc2(cname="zstd", filters=hdf5plugin.Blosc2.BITSHUFFLE),
    "blosc2-delta": hdf5plugin.Blosc2(cname="lz4", filters=hdf5plugin.Blosc2.DELTA),
    "bitshuffle-lz4": hdf5plugin.Bitshuffle(),
    "bitshuffle-zstd": hdf5plugin.Bitshuffle(cname="zstd"),
    "bitshuffle-none": hdf5plugin.Bitshuffle(cname="none"),
    "bitshuffle-16": hdf5plugin.Bitshuffle(nelems=16),
    "lz4": hdf5plugin.LZ4(),
    "lz4-256": hdf5plugin.LZ4(nbytes=256),
    "zstd": hdf5plugin.Zstd(),
    "bz2": hdf5plugin.BZip2(),
}
SHAPES = [((37,), (37,)), ((20, 33), (7, 11)), ((4, 5, 6), (3, 5, 2))]


def compare(stored: object) -> None:
    encoding = stored.encoding
    for data, mask, expected in stored.stored():
        chunk = decode(data, encoding, stored.chunks, filter_mask=mask)
        assert chunk.dtype == stored.values.dtype
        assert chunk.shape == stored.chunks
        inside = tuple(slice(n) for n in expected.shape)
        assert chunk[inside].tobytes() == expected.tobytes()
        given = np.zeros(stored.chunks, stored.values.dtype)
        assert decode(data, encoding, stored.chunks, filter_mask=mask, out=given) is given
        assert given.tobytes() == chunk.tobytes()
        slab = np.zeros(tuple(n + 3 for n in expected.shape), stored.values.dtype)
        target = slab[tuple(slice(1, 1 + n) for n in expected.shape)]
        prepare(encoding, stored.chunks, mask).place(data, inside, target)
        assert target.tobytes() == expected.tobytes()


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize(("shape", "chunks"), SHAPES, ids=str)
def test_lossless_filters(pipeline, shape, chunks, hdf5_dtype, make, hdf5):
    compare(hdf5(make(hdf5_dtype, shape), chunks, **PIPELINES[pipeline]))


@pytest.mark.parametrize("pipeline", ["blosc2", "bitshuffle-lz4", "zstd", "shuffle-zlib-fletcher32", "lz4-256"])
@pytest.mark.parametrize("dtype", ["u1", "<i2", ">f4", "<f8"])
def test_large_chunks(pipeline, dtype, make, hdf5):
    compare(hdf5(make(dtype, (300, 401)), (300, 401), **PIPELINES[pipeline]))


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_noise_that_does_not_compress(pipeline, hdf5):
    noise = np.random.default_rng(3).integers(0, 2**32, (50, 41), dtype=np.uint32)
    compare(hdf5(noise, (50, 41), **PIPELINES[pipeline]))


@pytest.mark.parametrize("dtype", ["i1", "u1", "<i2", ">i2", "<u4", ">i4", "<i8", ">u8", "<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("method", ["nn", "ec"])
@pytest.mark.parametrize("block", [8, 32])
@pytest.mark.parametrize(("shape", "chunks"), [((64,), (64,)), ((40, 50), (17, 33)), ((3000,), (3000,))], ids=str)
def test_szip(dtype, method, block, shape, chunks, make, hdf5):
    compare(hdf5(make(dtype, shape), chunks, compression="szip", compression_opts=(method, block)))


ZFP = {
    "reversible": hdf5plugin.Zfp(reversible=True),
    "rate": hdf5plugin.Zfp(rate=10.0),
    "accuracy": hdf5plugin.Zfp(accuracy=0.1),
    "precision": hdf5plugin.Zfp(precision=12),
    "expert": hdf5plugin.Zfp(minbits=1, maxbits=16657, maxprec=64, minexp=-1074),
}


@pytest.mark.parametrize("mode", ZFP)
@pytest.mark.parametrize("dtype", ["<i4", ">i4", "<f4", ">f4", "<f8", "<i8"])
@pytest.mark.parametrize(("shape", "chunks"), [((37,), (10,)), ((20, 33), (7, 11)), ((8, 9, 10), (8, 9, 10))], ids=str)
def test_zfp(mode, dtype, shape, chunks, make, hdf5):
    compare(hdf5(make(dtype, shape), chunks, **ZFP[mode]))
