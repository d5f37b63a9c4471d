"""Which chunks and codecs does a target get?

Modules: copying/choose_codecs.py, copying/encode.py
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from insitu.codecs.chain import decode
from insitu.copying.choose_chunks import check_chunks, choose_chunks, choose_shards
from insitu.copying.choose_codecs import choose_codecs
from insitu.copying.encode import ObjectEncoder
from insitu.errors import SelectionError, UnsupportedError
from insitu.model import Encoding

DIMS = ("time", "lat", "lon")
SHAPE = (3650, 180, 360)


def test_words_say_what_the_chunks_are_for() -> None:
    series = choose_chunks("series", DIMS, SHAPE, 4, (1, 180, 360), "time")
    maps = choose_chunks("maps", DIMS, SHAPE, 4, (1, 180, 360), "time")
    both = choose_chunks("both", DIMS, SHAPE, 4, (1, 180, 360), "time")
    assert series[0] == 3650
    assert maps == (1, 180, 360)  # a map touches no other one
    assert choose_chunks("maps", DIMS, (3650, 40, 80), 4, None, "time") == (20, 40, 80)  # small ones: 256 kB
    assert math.prod(choose_chunks("maps", DIMS, (3650, 1800, 3600), 4, None, "time")) <= (2 << 20) / 4  # large ones
    of_series = SHAPE[0] / both[0]
    of_map = math.prod(SHAPE[1:]) / math.prod(both[1:])
    assert of_series == pytest.approx(of_map, rel=0.2)


@settings(deadline=None)
@given(
    st.sampled_from(["series", "maps", "both", "auto", None]),
    st.lists(st.integers(0, 5000), min_size=1, max_size=4),
    st.sampled_from([1, 2, 4, 8, 16]),
)
def test_chunks_lie_within_the_array(word: str | None, shape: list[int], itemsize: int) -> None:
    dims = ("member", "time", "y", "x")[: len(shape)]
    found = choose_chunks(word, dims, shape, itemsize, None, "time")
    assert all(1 <= size <= max(length, 1) for size, length in zip(found, shape, strict=True))
    assert math.prod(found) * itemsize <= 4 << 20


def test_lengths_by_dimension() -> None:
    assert choose_chunks({"time": 365, "lat": -1}, DIMS, SHAPE, 4, (1, 90, 90), "time") == (365, 180, 90)
    assert choose_chunks({"time": 9999}, DIMS, SHAPE, 4, (1, 90, 90), "time") == (3650, 90, 90)
    assert choose_chunks("auto", DIMS, SHAPE, 4, (10, 90, 90), "time") == (10, 90, 90)  # of a usual size


@pytest.mark.parametrize("length", [0, -2, True, 1.5])
def test_lengths_that_are_not_possible(length: object) -> None:
    with pytest.raises(SelectionError, match=r"along 'time' are not possible"):
        check_chunks({"time": length}, {"time": 10})  # type: ignore[dict-item]


def test_unknown_dimensions_and_words() -> None:
    with pytest.raises(SelectionError, match=r"'depth', which is no dimension .* There are: time"):
        check_chunks({"depth": 1}, {"time": 10})
    with pytest.raises(UnsupportedError, match="series, maps"):
        check_chunks("columns", {"time": 10})


def test_shards_are_whole_chunks() -> None:
    assert choose_shards({"time": 365}, DIMS, SHAPE, (73, 20, 20)) == (365, 20, 20)
    assert choose_shards({"time": -1}, DIMS, SHAPE, (73, 20, 20)) == (3650, 20, 20)
    with pytest.raises(UnsupportedError, match="cannot be divided into chunks of 73"):
        choose_shards({"time": 100}, DIMS, SHAPE, (73, 20, 20))


@pytest.mark.parametrize("target", ["zarr2", "zarr3", "netcdf"])
@pytest.mark.parametrize("text", ["zstd", "zstd:9", "zlib:1", "blosc:lz4", "blosc:zstd:7", "none"])
@pytest.mark.parametrize("dtype", ["<f4", "<i2", "u1", "<c16", "S5"])
def test_what_is_encoded_decodes_to_the_same(target: str, text: str, dtype: str) -> None:
    if target == "netcdf" and text.startswith("blosc"):
        pytest.skip("HDF5 has no Blosc of its own")
    values = np.arange(60).astype(dtype).reshape(3, 20)
    encoding = Encoding(values.dtype, choose_codecs(text, values.dtype, target))
    for part in (values, values[:2, :7]):
        data = ObjectEncoder(encoding, (3, 20))(part)
        back = decode(data, encoding, (3, 20))
        np.testing.assert_array_equal(back[tuple(map(slice, part.shape))], part)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("lzma", "no codec 'lzma'"),
        ("zstd:99", "levels of zstd are 1 to 22"),
        ("zstd:", "levels of zstd"),
        ("none:3", "no codec"),
        ("blosc:snappy", "no codec"),
        ("zlib:4:4", "no codec"),
    ],
)
def test_codecs_that_do_not_exist(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        choose_codecs(text, np.dtype("f4"), "zarr3")


def test_codecs_that_a_target_or_type_cannot_have() -> None:
    with pytest.raises(UnsupportedError, match="have no Blosc"):
        choose_codecs("blosc:lz4", np.dtype("f4"), "netcdf")
