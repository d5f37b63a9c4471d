"""Every filter becomes the codec that undoes it."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from insitu.formats.hdf5.structures.pipeline import Filter, filter_codec, parse_filters


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_pipelines(tmp_path: Path, scan, libver) -> None:
    path = tmp_path / "x.h5"
    how = {
        "zlib": {"compression": "gzip", "compression_opts": 7},
        "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
        "lzf": {"compression": "lzf"},
        "scaleoffset": {"scaleoffset": 2},
    }
    with h5py.File(path, "w", libver=libver) as file:
        for name, options in how.items():
            file.create_dataset(name, data=np.arange(100, dtype="i4"), chunks=(25,), **options)
    chains = {name: array.tiles[0].encodings[0].codecs for name, array in scan(path).arrays.items()}
    names = {name: [codec.name for codec in codecs] for name, codecs in chains.items()}
    assert names["all"] == ["shuffle", "zlib", "fletcher32"]
    assert chains["zlib"][0].configuration == {"level": 7}
    assert chains["all"][0].configuration == {"elementsize": 4}
    assert names["lzf"] == ["lzf"]
    assert names["scaleoffset"] == ["scaleoffset"]


# The filters of other people, with the client values that they store.
REGISTERED = {
    307: ((9,), "bz2", {"level": 9}),
    32001: ((2, 2, 4, 100, 5, 1, 5), "blosc", {"typesize": 4, "clevel": 5, "shuffle": 1, "cname": "zstd"}),
    32004: ((0,), "hdf5_lz4", {}),
    32008: ((0, 5, 4, 0, 2), "bitshuffle", {"elementsize": 4, "blocksize": 0, "cname": "lz4"}),
    32013: ((1, 2), "zfp", {"cd_values": [1, 2]}),
    32015: ((3,), "zstd", {"level": 3}),
    32026: ((1, 2), "blosc2", {"cd_values": [1, 2]}),
}


@pytest.mark.parametrize("number", REGISTERED)
def test_registered_filters(number: int) -> None:
    values, name, configuration = REGISTERED[number]
    codec = filter_codec(Filter(number, "", values), 4)
    assert (codec.name, codec.configuration) == (name, configuration)


def test_szip() -> None:
    codec = filter_codec(Filter(4, "szip", (141, 32, 32, 256)), 4)
    assert (codec.name, codec.configuration["bits_per_pixel"]) == ("szip", 32)


def test_unknown_filters_name_themselves() -> None:
    codec = filter_codec(Filter(32999, "my filter", (1, 2)), 4)
    assert codec.name == "hdf5_filter_32999"
    assert codec.configuration == {"cd_values": [1, 2], "name": "my filter"}


def test_version_1_pads_and_version_2_does_not() -> None:
    first = bytes([1, 1]) + bytes(6) + bytes([1, 0, 8, 0, 1, 0, 1, 0]) + b"deflate\0" + bytes([6, 0, 0, 0, 0, 0, 0, 0])
    assert parse_filters(first) == (Filter(1, "deflate", (6,)),)
    second = bytes([2, 1, 1, 0, 1, 0, 1, 0, 6, 0, 0, 0])
    assert parse_filters(second) == (Filter(1, "", (6,)),)
