"""What the tests of codecs share: chunks as other people's libraries write them."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import reject

from insitu.model import Codec, Encoding

NAMES = {
    1: "zlib",
    2: "shuffle",
    3: "fletcher32",
    4: "szip",
    5: "nbit",
    6: "scaleoffset",
    307: "bz2",
    32000: "lzf",
    32001: "blosc",
    32004: "hdf5_lz4",
    32008: "bitshuffle",
    32013: "zfp",
    32015: "zstd",
    32026: "blosc2",
}


def configuration(number: int, values: tuple[int, ...], itemsize: int) -> dict[str, Any]:
    if number == 2:
        return {"elementsize": values[0]}
    if number == 4:
        names = ("options_mask", "pixels_per_block", "bits_per_pixel", "pixels_per_scanline")
        return dict(zip(names, values, strict=True))
    if number == 32008:
        return {"elementsize": values[2], "blocksize": values[3], "cname": {2: "lz4", 3: "zstd"}.get(values[4], "none")}
    return {"cd_values": list(values)}


class Hdf5:
    """An HDF5 dataset in memory: what h5py reads, and the chunks as they are stored."""

    def __init__(self, data: np.ndarray[Any, Any], chunks: tuple[int, ...], **options: Any) -> None:
        self.file = io.BytesIO()
        with h5py.File(self.file, "w") as file:
            file.create_dataset("x", data=data, chunks=chunks, **options)
        # Opened again: h5py would show values from its cache, which lossy filters have not touched.
        self.reopened = h5py.File(self.file, "r")
        self.dataset = self.reopened["x"]
        try:
            self.values = self.dataset[...]
        except OSError:
            reject()  # HDF5 cannot read what it has just written (scale-offset of some floats on ARM): no oracle
        self.chunks = chunks

    @property
    def encoding(self) -> Encoding:
        plist = self.dataset.id.get_create_plist()
        codecs = []
        for index in range(plist.get_nfilters()):
            number, _, values, _ = plist.get_filter(index)
            name = NAMES.get(number, f"hdf5_filter_{number}")
            codecs.append(Codec(name, configuration(number, values, self.dataset.dtype.itemsize)))
        return Encoding(self.dataset.dtype, tuple(codecs))

    def stored(self) -> Iterator[tuple[bytes, int, np.ndarray[Any, Any]]]:
        """Each chunk's bytes and filter mask, and the values of the part that lies in the dataset."""
        for start in itertools.product(*(range(0, n, c) for n, c in zip(self.values.shape, self.chunks, strict=True))):
            mask, data = self.dataset.id.read_direct_chunk(start)
            box = tuple(slice(s, s + c) for s, c in zip(start, self.chunks, strict=True))
            yield data, mask, self.values[box]


@pytest.fixture(scope="session")
def hdf5() -> type[Hdf5]:
    return Hdf5


DTYPES = [
    "?", "i1", "u1", "<i2", ">u2", "<i4", ">i4", "<u8", ">i8", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8",
    "<c8", ">c16", "S3", "S7", "<U2", ">U3", "<M8[ns]", ">m8[s]", "V6",
    [("a", "<i2"), ("b", ">f8"), ("c", "S3")],
]  # fmt: skip


def sample(dtype: Any, shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    """Values of any type, smooth enough to compress."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape))
    if dtype.names:
        array = np.zeros(count, dtype)
        for name in dtype.names:
            array[name] = sample(dtype[name], (count,), seed)
        return array.reshape(shape)
    steps = np.cumsum(rng.integers(-3, 4, count))
    if dtype.kind in "iufc":
        with np.errstate(all="ignore"):
            return (steps / (4 if dtype.kind in "fc" else 1)).astype(dtype).reshape(shape)
    if dtype.kind == "b":
        return (steps % 2 == 0).reshape(shape)
    if dtype.kind in "Mm":
        return (steps * 1000).astype("<i8").astype(dtype.newbyteorder("=")).astype(dtype).reshape(shape)
    if dtype.kind in "SU":
        return np.array([str(abs(int(s)))[: dtype.itemsize] for s in steps]).astype(dtype).reshape(shape)
    return rng.integers(0, 5, (count, dtype.itemsize), dtype=np.uint8).reshape(-1).view(dtype).reshape(shape)


@pytest.fixture(params=DTYPES, ids=str)
def any_dtype(request: pytest.FixtureRequest) -> np.dtype[Any]:
    return np.dtype(request.param)


@pytest.fixture(params=[d for d in DTYPES if np.dtype(d).kind not in "UMm" and d != ">c16"], ids=str)
def hdf5_dtype(request: pytest.FixtureRequest) -> np.dtype[Any]:
    """Types that h5py can write."""
    return np.dtype(request.param)


@pytest.fixture(scope="session")
def make() -> Any:
    return sample
