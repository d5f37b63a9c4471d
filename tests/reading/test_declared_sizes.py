"""Sizes that a file declares, larger than the address space, are errors of ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest

import insitu
from insitu.errors import CodecError, SelectionSizeError, TruncatedError

ZLIB = {"id": "zlib", "level": 1}
SHUFFLE = {"id": "shuffle", "elementsize": 8}
CODECS: dict[str, tuple[Any, Any]] = {
    "raw": (None, None),
    "zlib": (ZLIB, None),
    "lz4": ({"id": "lz4", "acceleration": 1}, None),
    "blosc": ({"id": "blosc", "cname": "lz4", "clevel": 1, "shuffle": 1}, None),
    "shuffle": (None, [SHUFFLE]),
    "shuffle, zlib": (ZLIB, [SHUFFLE]),
    "delta, zlib": (ZLIB, [{"id": "delta", "dtype": "<f8"}]),
}


def write(path: Path, shape: list[int], chunks: list[int], codecs: str = "raw", order: str = "C") -> str:
    compressor, filters = CODECS[codecs]
    (path / "v").mkdir(parents=True)
    document = {"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": "<f8", "order": order, "fill_value": 0}
    document |= {"compressor": compressor, "filters": filters}
    (path / ".zgroup").write_text('{"zarr_format": 2}')
    (path / "v" / ".zarray").write_text(json.dumps(document))
    (path / "v" / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": ["y", "x"]}')
    values: Any = np.arange(64.0).tobytes()
    (path / "v" / "0.0").write_bytes(numcodecs.get_codec(compressor).encode(values) if compressor else values)
    return str(path)


READERS: dict[str, Callable[[str], Any]] = {
    "read": lambda url: insitu.read(url, "v"),
    "a part": lambda url: insitu.read(url, "v", np.s_[0:2, 1]),
    "points": lambda url: insitu.read(url, "v", points=[[0, 1], [1, 2]]),
    "with a cache": lambda url: insitu.read(url, "v", cache=10**6),
    "reduce": lambda url: insitu.reduce(url, "v", "sum"),
    "dataset": lambda url: insitu.open_dataset(url).v.values,
    "mean": lambda url: insitu.open_dataset(url).v.mean("x").values,
    "Dask": lambda url: insitu.open_dataset(url, chunks={}).v.values,
}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("codecs", CODECS)
@pytest.mark.parametrize("chunks", [[2**40, 2**30], [2**31, 2**29]], ids=["overflow", "largest"])
def test_chunks_larger_than_the_address_space(tmp_path: Path, chunks: list[int], codecs: str, order: str) -> None:
    url = write(tmp_path / "a.zarr", [4, 4], chunks, codecs, order)
    for reader in READERS.values():
        with pytest.raises((CodecError, TruncatedError), match=r"memory|declared|truncated") as caught:
            reader(url)
        assert caught.value.place["variable"] == "v"


@pytest.mark.parametrize("points", [[[0, 1], slice(None)], [slice(None), [0, 1]]], ids=["rows", "columns"])
def test_points_larger_than_the_address_space(tmp_path: Path, points: list[Any]) -> None:
    url = write(tmp_path / "a.zarr", [2**61, 2**61], [2**40, 2**40])
    with pytest.raises(SelectionSizeError, match="more than the available memory"):
        insitu.read(url, "v", points=points)
