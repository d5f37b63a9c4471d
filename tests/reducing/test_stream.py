"""Streaming: every chunk once, on threads, the same bits each time; what nobody wrote costs
nothing; errors say where.

Modules: model/gaps.py, reducing/kernel_statistics.py
"""

from __future__ import annotations

import tracemalloc
import zlib
from dataclasses import replace
from typing import Any

import numcodecs
import numpy as np
import pytest

from asking import same_bits
from insitu import reducing
from insitu.codecs import Decoder, prepare
from insitu.codecs.linked_libraries import linked_libraries
from insitu.errors import CodecError, ModelError, SelectionError, UnsupportedError
from insitu.model import (
    UNWRITTEN,
    Axis,
    Codec,
    Columns,
    Encoding,
    Packing,
    PackingKind,
    Packings,
    Source,
    Tile,
    VirtualArray,
    concatenate,
)
from insitu.model.gaps import fill_gaps_with_absent
from insitu.reading import ReadContext, ReadStatistics, SourcePool
from insitu.reading import task_batches as reading_run
from insitu.reducing import ReductionQuery, kernel_statistics, reduce_chunks
from insitu.sources import MemorySource
from mosaics import Case


def compressed(
    values: np.ndarray, chunks: tuple[int, ...], url: str = "file", damage: int | None = None, level: int = 6
) -> Case:
    """A file of shuffled zlib chunks."""
    grid = tuple(-(-n // c) for n, c in zip(values.shape, chunks, strict=True))
    size = values.dtype.itemsize
    blocks = []
    for cell in np.ndindex(*grid):
        part = values[tuple(slice(i * c, (i + 1) * c) for i, c in zip(cell, chunks, strict=True))]
        part = np.pad(part, [(0, c - n) for c, n in zip(chunks, part.shape, strict=True)], constant_values=99)
        blocks.append(zlib.compress(part.reshape(-1).view(np.uint8).reshape(-1, size).T.tobytes(), level))
    if damage is not None:
        blocks[damage] = blocks[damage][:-3] + b"xyz"
    lengths = np.array([len(block) for block in blocks])
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    tile = Tile(
        tuple(Axis.regular(n, c) for n, c in zip(values.shape, chunks, strict=True)),
        (Encoding(values.dtype, (Codec("shuffle", {"elementsize": size}), Codec("zlib"))),),
        Columns(grid, (Source(url),), np.asarray(0), offsets.reshape(grid), lengths.reshape(grid)),
    )
    dims = tuple("abcdef"[: values.ndim])
    return Case(VirtualArray.of(tile, dims=dims), values, {url: b"".join(blocks)})


def answers(
    case: Case, methods: list[str], axes: Any = None, key: Any = ..., tally: ReadStatistics | None = None, **rules: Any
) -> Any:
    opened = SourcePool(opener=lambda source: MemorySource(case.disk[source.url]))
    query = ReductionQuery.of(methods, axes, key, **rules)
    return reducing.compute_statistics(case.array, query, ReadContext("t", sources=opened, tally=tally))


def check(case: Case, key: Any = ..., values: np.ndarray | None = None) -> None:
    values = case.values if values is None else values
    for axes in (None, (0,), (1, 2), (2,), (0, 1)):
        found = answers(case, ["sum", "mean", "min", "max", "std", "count"], axes, key)
        wide = values.astype("f8")
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(found["sum"], np.nansum(wide, axes), rtol=1e-5)
            np.testing.assert_allclose(found["mean"], np.nanmean(wide, axes), rtol=1e-5)
            np.testing.assert_allclose(found["std"], np.nanstd(wide, axes), rtol=1e-4)
            np.testing.assert_array_equal(found["min"], np.nanmin(values, axes))
            np.testing.assert_array_equal(found["max"], np.nanmax(values, axes))
            np.testing.assert_array_equal(found["count"], np.sum(~np.isnan(values), axes))
        flat = np.moveaxis(values, axes or (0, 1, 2), range(-len(axes or (0, 1, 2)), 0))
        flat = flat.reshape(*flat.shape[: values.ndim - len(axes or (0, 1, 2))], -1)
        where = answers(case, ["argmin", "argmax"], axes, key)
        np.testing.assert_array_equal(where["argmin"], np.nanargmin(flat, -1))
        np.testing.assert_array_equal(where["argmax"], np.nanargmax(flat, -1))


@pytest.fixture
def field() -> np.ndarray:
    random = np.random.default_rng(5)
    values = (280 + random.standard_normal((13, 70, 90))).astype("f4")
    values[random.random(values.shape) < 0.05] = np.nan
    return values


@pytest.mark.parametrize("chunks", [(1, 70, 90), (13, 7, 9), (4, 32, 32), (2, 3, 80), (13, 70, 90)])
def test_chunks_of_any_shape_on_threads(
    field: np.ndarray, chunks: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_run, "BATCH_BYTES", 20_000)
    case = compressed(field, chunks)
    check(case)
    check(case, np.s_[1:12:3, ::-1, 5:80], field[1:12:3, ::-1, 5:80])
    rows = np.array([3, 1, 60, 2])
    check(case, np.s_[:, rows], field[:, rows])


def test_every_chunk_once(field: np.ndarray) -> None:
    case, tally = compressed(field, (4, 32, 32)), ReadStatistics()
    answers(case, ["mean", "std", "min", "argmax"], (0,), tally=tally)
    assert tally.chunks == 4 * 3 * 3
    assert tally.bytes_fetched == len(case.disk["file"])


def test_the_same_bits_each_time(field: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_run, "BATCH_BYTES", 5_000)
    case = compressed(field, (2, 16, 16))
    for axes in (None, (0,), (1, 2)):
        first = answers(case, ["mean", "std", "sum"], axes, skipna=True)
        for _ in range(5):
            again = answers(case, ["mean", "std", "sum"], axes, skipna=True)
            assert all(first[method].tobytes() == again[method].tobytes() for method in first)


def test_a_damaged_chunk_is_named(field: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_run, "BATCH_BYTES", 20_000)
    case = compressed(field, (2, 16, 16), damage=40)
    for axes in (None, (0,)):
        with pytest.raises(CodecError) as caught:
            answers(case, ["mean"], axes)
        assert caught.value.place["chunk"] == np.unravel_index(40, (7, 5, 6))
        assert caught.value.place["variable"] == "t"


def test_never_written_chunks_cost_nothing() -> None:
    grid = (1000, 1000)
    tile = Tile(
        (Axis.regular(100_000, 100), Axis.regular(99_950, 100)),
        (Encoding(np.dtype("<i2"), (Codec("zlib"),), None, np.int16(3).tobytes()),),
        Columns.of_unwritten(grid),
    )
    case = Case(VirtualArray.of(tile, dims=("a", "b")), np.zeros(0), {})
    found = answers(case, ["sum", "mean", "std", "min", "count", "argmax", "any", "all"])
    size = 100_000 * 99_950
    expected = {"sum": 3 * size, "mean": 3, "std": 0, "min": 3, "count": size, "argmax": 0, "any": True, "all": True}
    assert {name: value.item() for name, value in found.items()} == expected
    rows = answers(case, ["sum"], 1, np.s_[::1000, 7:50:2])["sum"]
    np.testing.assert_array_equal(rows, np.full(100, 3 * 22))


def test_gaps_are_absent() -> None:
    one = compressed(np.ones((2, 3), "f4"), (2, 3), "one")
    other = compressed(np.full((3, 2), 5, "f4"), (3, 2), "other")
    array = replace(
        one.array, shape=(5, 6), tiles=one.array.tiles + other.array.tiles, origins=np.array([[0, 0], [2, 4]])
    )
    values = np.full((5, 6), np.nan, "f4")
    values[:2, :3], values[2:, 4:] = 1, 5
    case = Case(array, values, one.disk | other.disk)
    whole = fill_gaps_with_absent(array)
    assert sum(int(np.prod(tile.shape)) for tile in whole.tiles) == 30
    assert fill_gaps_with_absent(whole) is whole
    for skipna in (True, False):
        for axes in (None, (0,), (1,)):
            found = answers(case, ["mean", "count", "sum", "max"], axes, skipna=skipna)
            mean, total = (np.nanmean, np.nansum) if skipna else (np.mean, np.sum)
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(found["sum"], total(values, axes))
                if skipna and axes is not None:
                    assert np.isnan(found["mean"]).sum() == (1 if axes == (0,) else 0)
                else:
                    np.testing.assert_allclose(found["mean"], mean(values, axes))
            np.testing.assert_array_equal(found["count"], (~np.isnan(values)).sum(axes))
    assert answers(case, ["argmin"], skipna=False)["argmin"] == 3  # the first place that nobody covers
    whole_numbers = replace(array, dtype=np.dtype("i4"), fill_value=None)
    with pytest.raises(ModelError, match="no value that means absent"):
        answers(Case(whole_numbers, values, case.disk), ["sum"])
    assert answers(Case(replace(whole_numbers, fill_value=np.int32(-1)), values, case.disk), ["sum"])["sum"] == 36 - 18


def test_files_that_are_packed_differently() -> None:
    parts, expected = [], []
    for number, scale in enumerate([0.5, 0.25]):
        stored = np.arange(24, dtype="i2").reshape(4, 6)
        stored[number, 2] = -9
        case = compressed(stored, (2, 4), f"file-{number}")
        kind = PackingKind(dtype="float32", scale_dtype="float32")
        packings = Packings.of([Packing(scale=scale, missing=(np.int16(-9),), kind=kind)])
        tile = replace(case.array.tiles[0], packings=packings)
        if number:  # a chunk that this file never wrote: its own fill value, through its own packing
            source = np.zeros((2, 2), np.int64)
            source[1, 1] = UNWRITTEN
            tile = replace(
                tile,
                chunks=replace(tile.chunks, source=source),
                encodings=(replace(tile.encodings[0], fill=np.int16(8).tobytes()),),
            )
            stored[2:, 4:] = 8
        parts.append((replace(case.array, tiles=(tile,), dtype=np.dtype("f4")), case.disk))
        values = stored.astype("f4") * np.float32(scale)
        values[stored == -9] = np.nan
        expected.append(values)
    values = np.concatenate(expected)
    case = Case(concatenate([array for array, _ in parts], 0), values, parts[0][1] | parts[1][1])
    for axes in (None, 0, 1):
        found = answers(case, ["mean", "max", "count", "std"], axes)
        np.testing.assert_allclose(found["mean"], np.nanmean(values, axes), rtol=1e-6)
        np.testing.assert_allclose(found["std"], np.nanstd(values, axes), rtol=1e-6)
        np.testing.assert_array_equal(found["max"], np.nanmax(values, axes))
        np.testing.assert_array_equal(found["count"], (~np.isnan(values)).sum(axes))
    assert answers(case, ["argmax"])["argmax"] == np.nanargmax(values)


def test_memory_is_that_of_some_chunks() -> None:
    values = np.zeros((64, 512, 512), "f4")  # 64 MiB
    case = compressed(values, (4, 512, 512))
    answers(case, ["mean"])  # threads and their buffers exist from here on
    tracemalloc.start()
    try:
        answers(case, ["mean", "min", "max"])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


def test_what_cannot_be_asked(field: np.ndarray) -> None:
    case = compressed(field, (13, 70, 90))
    with pytest.raises(SelectionError, match="axis 3"):
        answers(case, ["sum"], 3)
    with pytest.raises(np.exceptions.AxisError, match="twice"):
        answers(case, ["sum"], (0, -3))
    with pytest.raises(UnsupportedError, match="'mode' is not a known reduction"):
        answers(case, ["mode"])
    with pytest.raises(ValueError, match="cannot compute min"):
        answers(case, ["min"], None, np.s_[:0])


def packed_like(case: Case, *missing: float) -> Case:
    """The same file with numbers that stand for missing."""
    tile = case.array.tiles[0]
    packing = Packing(
        missing=tuple(np.float32(value) for value in missing), kind=PackingKind(dtype="<f4", masked="<f4")
    )
    values = np.where(np.isin(case.values, np.float32(missing)), np.float32(np.nan), case.values)
    array = VirtualArray.of(replace(tile, packings=Packings.of([packing])), dims=case.array.dims)
    return Case(array, values, case.disk)


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("missing", [(), (1e20,), (1e20, -9.0), (1e20, -9.0, -8.0)])
@pytest.mark.parametrize(
    "key", [np.s_[:], np.s_[3:11], np.s_[5, :, :], np.s_[:, 20:60], np.s_[::2], np.s_[2:3, 5:9, 7]]
)
def test_with_the_kernel_and_without(
    field: np.ndarray, kernel: bool, missing: tuple[float, ...], key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kernel:
        monkeypatch.setattr(reduce_chunks.ChunkKernel, "of", lambda reduction: None)
    monkeypatch.setattr(reduce_chunks, "FUSED_BYTES", 0)
    monkeypatch.setattr(reduce_chunks, "BLOCK_BYTES", 1)
    random = np.random.default_rng(1)
    for value in missing:
        field[random.random(field.shape) < 0.1] = value
    case = compressed(field, (5, 70, 30))
    if missing:
        case = packed_like(case, *missing)
    wide = case.values[key].astype("f8")
    for skipna in (True, False):
        found = answers(case, ["sum", "mean", "min", "max", "std", "count"], None, key, skipna=skipna)
        lost = not skipna and bool(np.isnan(wide).any())
        for method, of in {
            "sum": np.nansum,
            "mean": np.nanmean,
            "min": np.nanmin,
            "max": np.nanmax,
            "std": np.nanstd,
        }.items():
            expected = np.nan if lost else of(wide)
            np.testing.assert_allclose(found[method], expected, rtol=1e-6, err_msg=f"{method} {skipna}")
        assert found["count"] == np.sum(~np.isnan(wide))


def test_the_kernel_is_used_where_it_can_be(field: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernel_statistics.load_kernel() is None:
        pytest.skip("the C extension was not built")
    used: list[Any] = []
    made = reduce_chunks.ChunkKernel.to_partial
    monkeypatch.setattr(reduce_chunks, "BLOCK_BYTES", 1)
    monkeypatch.setattr(
        reduce_chunks.ChunkKernel, "to_partial", lambda self, *how: used.append(how) or made(self, *how)
    )
    case = compressed(field, (5, 70, 30))
    answers(case, ["mean"])
    assert len(used) == 9
    answers(case, ["mean"], None, np.s_[3])  # an axis that is taken at one place is none to keep
    assert len(used) == 12
    answers(case, ["mean"], (0,))
    answers(case, ["argmax"])
    assert len(used) == 12


@pytest.mark.parametrize("codec", ["zlib", "zstd"])
def test_linked_libraries_decompress_and_measure_in_one_call(
    field: np.ndarray, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if codec not in linked_libraries():
        pytest.skip("the kernels were built without libraries")
    monkeypatch.setattr(reduce_chunks, "BLOCK_BYTES", 1)
    field[1, 2:5, 3] = np.nan
    compress = zlib.compress if codec == "zlib" else lambda data: bytes(numcodecs.Zstd().encode(data))
    data = [compress(part.tobytes()) for part in (field, field * 2)]
    for shape in (field.shape, (field.size,)):
        decoder = prepare(Encoding(field.dtype, (Codec(codec),)), shape)
        found = decoder.measure([*data, b"damaged", data[0]], (0, field.size), (), 3)
        assert len(found) == 2  # up to the damaged one
        expected = field[~np.isnan(field)].astype("f8")
        for factor, (total, valid, least, most, squares) in enumerate(found, 1):
            assert valid == expected.size
            np.testing.assert_allclose(
                [total, least, most],
                np.array([1, 1, 1]) * factor * [expected.sum(), expected.min(), expected.max()],
                rtol=1e-6,
            )
            np.testing.assert_allclose(squares, factor**2 * ((expected - expected.mean()) ** 2).sum(), rtol=1e-5)
        assert replace(decoder, batch_codec=None).measure(data, (0, field.size), (), 3) == []


def test_values_are_the_same_without_linked_libraries(field: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce_chunks, "BLOCK_BYTES", 1)
    methods = ["sum", "mean", "min", "max", "std", "count"]
    case = compressed(field, (5, 70, 30))
    linked = answers(case, methods)
    monkeypatch.setattr(Decoder, "measure", lambda self, *how: [])
    assert {name: value.tobytes() for name, value in answers(case, methods).items()} == {
        name: value.tobytes() for name, value in linked.items()
    }


def test_a_damaged_chunk_is_named_with_the_kernel(field: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce_chunks, "BLOCK_BYTES", 1)
    with pytest.raises(CodecError) as caught:
        answers(compressed(field, (5, 70, 30), damage=4), ["mean"])
    assert caught.value.place["chunk"] == (1, 0, 1)


@pytest.mark.parametrize("files", [1, 3, 40])
def test_neither_distance_nor_compression_changes_a_bit(files: int) -> None:
    random = np.random.default_rng(files)
    parts = [random.normal(280, 10, (120 // files, 90, 60)) for _ in range(files)]

    def joined(prefix: str, level: int) -> Case:
        cases = [compressed(part, (4, 30, 60), f"{prefix}{n}", level=level) for n, part in enumerate(parts)]
        disk = {name: data for case in cases for name, data in case.disk.items()}
        return Case(concatenate([case.array for case in cases], "a"), np.concatenate(parts), disk)

    for axes in (None, 0, (1, 2), (0, 2)):
        near, far, stored = (
            answers(joined(prefix, level), ["sum", "mean", "std", "prod"], axes)
            for prefix, level in (("/here/", 6), ("https://there/", 6), ("https://there/", 0))
        )
        for name, found in near.items():
            assert same_bits(found, far[name]), name
            assert same_bits(found, stored[name]), name
