"""Random arrays, types, codecs, selections, axes and missing rules: NumPy's masked arrays, here and
on a server; and the founding contract.

Modules: storage.py
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from insitu import storage
from insitu.active.answer import answer_array
from insitu.active.client import Active
from insitu.errors import CodecError, InsituError, ModelError, NotFoundError, SelectionError, TruncatedError
from insitu.model import Axis, Codec, Columns, Encoding, Packing, PackingKind, Packings, Source, Tile, VirtualArray
from insitu.reducing import ReductionQuery, compute_statistics, reduce_chunks
from insitu.storage import StoredChunk
from served_folder import ServedFolder
from server.serving import Server, serving

CHAINS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "zlib": [{"id": "zlib"}],
    "shuffle zlib": [{"id": "shuffle"}, {"id": "zlib"}],
    "shuffle": [{"id": "shuffle"}],
    "gzip": [{"id": "gzip"}],
    "shuffle zstd": [{"id": "shuffle"}, {"id": "zstd"}],
    "blosc": [{"id": "blosc"}],
    "lz4": [{"id": "lz4"}],
    "bz2": [{"id": "bz2"}],
    "lzma": [{"id": "lzma"}],
    "fletcher32": [{"id": "shuffle"}, {"id": "zlib"}, {"id": "fletcher32"}],
    "crc32": [{"id": "zlib"}, {"id": "crc32"}],
}
METHODS = ["count", "sum", "min", "max", "mean", "std", "any"]


def steps_of(chain: str, itemsize: int) -> list[dict[str, Any]]:
    return [{**step, "elementsize": itemsize} if step["id"] == "shuffle" else step for step in CHAINS[chain]]


def encoded(values: np.ndarray, chain: str) -> bytes:
    data: Any = np.ascontiguousarray(values).tobytes()
    for step in steps_of(chain, values.itemsize):
        data = bytes(numcodecs.get_codec(step).encode(np.frombuffer(data, "u1")))
    return bytes(data)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("everywhere")
    return found


@pytest.fixture(scope="module")
def server(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving([root], tmp_path_factory.mktemp("log") / "log") as running:
        yield running


def stored(path: Path, values: np.ndarray, cut: tuple[int, ...], chain: str, packing: Packing | None) -> VirtualArray:
    """A file of encoded chunks, padded at the edges, and the array that it holds."""
    grid = tuple(-(-n // c) for n, c in zip(values.shape, cut, strict=True))
    blocks = []
    for cell in np.ndindex(*grid):
        part = values[tuple(slice(i * c, (i + 1) * c) for i, c in zip(cell, cut, strict=True))]
        part = np.pad(part, [(0, c - n) for c, n in zip(cut, part.shape, strict=True)], constant_values=1)
        blocks.append(encoded(part, chain))
    path.write_bytes(b"".join(blocks))
    lengths = np.array([len(block) for block in blocks])
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    codecs = tuple(
        Codec(step["id"], {k: v for k, v in step.items() if k != "id"}) for step in steps_of(chain, values.itemsize)
    )
    stat = path.stat()
    tile = Tile(
        tuple(Axis.regular(n, c) for n, c in zip(values.shape, cut, strict=True)),
        (Encoding(values.dtype, codecs),),
        Columns(grid, (Source(str(path), stat.st_size),), np.asarray(0), offsets.reshape(grid), lengths.reshape(grid)),
        **({} if packing is None else {"packings": Packings.of([packing])}),
    )
    return VirtualArray.of(tile, dims=tuple("abcd"[: values.ndim]))


@st.composite
def cases(draw: Any) -> dict[str, Any]:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    dtype = np.dtype(draw(st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "f4", "f8"])))
    dtype = dtype.newbyteorder(draw(st.sampled_from("<>")))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = rng.integers(0, 40, shape).astype(dtype)
    missing = draw(st.sampled_from(["none", "nan", "one", "two", "scaled"]))
    if missing == "nan" and dtype.kind == "f":
        values[rng.random(shape) < 0.3] = np.nan
    selection: list[Any] = []
    for length in shape:
        how = draw(st.sampled_from(["all", "slice", "step", "index", "marks", "one"]))
        first, last = sorted((draw(st.integers(0, length - 1)), draw(st.integers(1, length))))
        selection.append(
            {
                "all": slice(None),
                "slice": slice(min(first, length - 1), max(last, first + 1)),
                "step": slice(None, None, draw(st.sampled_from([2, 3, -1, -2]))),
                "index": rng.integers(-length, length, draw(st.integers(1, 5))),
                "marks": np.arange(length) % 2 == 0,
                "one": int(rng.integers(-length, length)),
            }[how]
        )
    return {
        "values": values,
        "cut": tuple(draw(st.integers(1, n)) for n in shape),
        "chain": draw(st.sampled_from(sorted(CHAINS))),
        "missing": missing,
        "selection": tuple(selection),
        "axes": draw(st.none() | st.permutations(range(4)).map(lambda p: p[:2])),
        "skipna": draw(st.sampled_from([True, False, None])),
        "fused": draw(st.booleans()),
    }


def packed(case: dict[str, Any]) -> tuple[Packing | None, np.ma.MaskedArray]:
    """How the values are packed, and what they mean."""
    values = case["values"]
    rule = case["missing"]
    real = values.dtype.type
    if rule in ("none", "nan"):
        wide = values.astype(values.dtype.newbyteorder("="))
        return None, np.ma.masked_array(wide, np.isnan(wide) if wide.dtype.kind == "f" else np.zeros(wide.shape, bool))
    decoded = np.dtype("f4" if values.dtype.itemsize < 4 or values.dtype.str[1:] == "f4" else "f8")
    gone = {"one": (7,), "two": (7, 20), "scaled": (7,)}[rule]
    kind = PackingKind(dtype=decoded.str, masked=decoded.str, scaled=decoded.str if rule == "scaled" else None)
    factors = {"scale": 0.5, "offset": 10.0} if rule == "scaled" else {}
    packing = Packing(missing=tuple(real(value) for value in gone), kind=kind, **factors)
    wide = values.astype(decoded)
    meant = wide * 0.5 + 10 if rule == "scaled" else wide
    return packing, np.ma.masked_array(meant.astype(decoded), np.isin(values, gone))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_everywhere_the_same(root: Path, server: Server, monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]) -> None:
    with monkeypatch.context() as patch:
        if case["fused"]:
            patch.setattr(reduce_chunks, "BLOCK_BYTES", 1)
            patch.setattr(reduce_chunks, "FUSED_BYTES", 0)
        packing, expected = packed(case)
        array = stored(root / "case", case["values"], case["cut"], case["chain"], packing)
        if packing is not None:
            array = VirtualArray(array.shape, expected.dtype, array.dims, array.tiles, array.origins)
        part = expected
        for axis in reversed(range(expected.ndim)):
            part = part[(slice(None),) * axis + (case["selection"][axis],)]
        part = np.ma.asarray(part)
        axes = None if case["axes"] is None else [axis for axis in case["axes"] if axis < part.ndim]
        if axes == [] or not part.ndim:
            axes = None
        query = ReductionQuery.of(METHODS, axes, case["selection"], skipna=case["skipna"])
        here = compute_statistics(array, query)
        there = answer_array(array, query, active=Active(server.url, required=True))
    along = tuple(range(part.ndim)) if axes is None else tuple(axes)
    check(here, part, along, case["skipna"])
    for method in METHODS:
        assert there[method].dtype == here[method].dtype
        # By another kernel, and of chunks that a server has kept: then squares are added in another
        # order.
        loose = 1e-6 if there[method].dtype == "f4" else 1e-13
        np.testing.assert_allclose(
            there[method], here[method], rtol=loose if method in ("mean", "std") else 0, err_msg=method
        )


def check(found: dict[str, np.ndarray], part: Any, along: tuple[int, ...], skipna: bool | None) -> None:
    mask = np.ma.getmaskarray(part)
    wide = np.ma.masked_array(part.data.astype("f8"), mask)
    np.testing.assert_array_equal(found["count"], np.sum(~mask, axis=along))
    lost = mask.any(axis=along) if skipna is False else mask.all(axis=along)
    for method in ("min", "max", "mean", "std"):
        expected = np.where(
            lost, np.nan, np.ma.filled(np.ma.asarray(getattr(np.ma, method)(wide, axis=along)).astype("f8"), np.nan)
        )
        np.testing.assert_allclose(found[method].astype("f8"), expected, rtol=1e-5, atol=1e-4, err_msg=method)
    total = np.where(
        skipna is False and mask.any(axis=along), np.nan, np.ma.filled(np.ma.asarray(np.ma.sum(wide, axis=along)), 0)
    )
    np.testing.assert_allclose(found["sum"].astype("f8"), total, rtol=1e-5)


@pytest.fixture(scope="module")
def web(root: Path) -> Iterator[str]:
    with ServedFolder(root) as site:
        yield site.url


@pytest.fixture(params=["here", "there", "from the web"])
def place(request: Any, root: Path, server: Server, web: str) -> tuple[str, Active | None]:
    """Where the objects lie, and who decodes them."""
    if request.param == "from the web":
        return f"{web}/", None
    return f"{root}/", Active(server.url) if request.param == "there" else None


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("dtype", ["<f4", ">i2", "<f8", "u1"])
def test_the_contract_with_every_codec(root: Path, place: tuple[str, Active | None], chain: str, dtype: str) -> None:
    values = (np.arange(60) * 4 % 251).astype(dtype).reshape(6, 10)
    data = encoded(values, chain)
    name = f"chunk-{chain.replace(' ', '-')}-{dtype[-2:]}"
    (root / name).write_bytes(b"head" + data + b"tail")
    active, encoding = place[1], {"dtype": dtype, "codecs": steps_of(chain, values.itemsize)}
    chunk = StoredChunk(place[0] + name, 4, len(data), encoding, (6, 10))
    flat = values.ravel()
    np.testing.assert_array_equal(storage.read(chunk, active=active), values)
    spans = [(50, 4), (2, 3), (2, 1), (7, 0)]
    expected = np.concatenate([flat[first : first + many] for first, many in spans])
    np.testing.assert_array_equal(storage.read(chunk, spans, active=active), expected)
    assert storage.read(chunk, [], active=active).shape == (0,)
    assert storage.reduce(chunk, ReductionQuery.of("sum"), spans, active=active)["sum"] == expected.astype("f8").sum()
    query = ReductionQuery.of(["max", "count", "histogram"], axes=1, edges=[0, 100, 300])
    several = storage.reduce(chunk, query, active=active)
    np.testing.assert_array_equal(several["max"], values.max(1))
    np.testing.assert_array_equal(several["count"], [10] * 6)
    np.testing.assert_array_equal(several["histogram"], [(values < 100).sum(1), (values >= 100).sum(1)])


def test_the_contract_says_what_is_wrong(root: Path, place: tuple[str, Active | None]) -> None:
    values = np.arange(12, dtype="<i4")
    data = encoded(values, "zlib")
    (root / "x").write_bytes(data)
    (root / "plain").write_bytes(values.tobytes())
    url, active = f"{place[0]}x", place[1]
    zlib = {"dtype": "<i4", "codecs": [{"id": "zlib"}]}
    for spans in ([(11, 2)], [(-1, 1)], [(0, -1)], [(13, 0)], [(2**62, 2**62)]):
        with pytest.raises(SelectionError, match="outside of a chunk of 12"):
            storage.read(StoredChunk(url, 0, len(data), zlib, (3, 4)), spans, active=active)
    with pytest.raises(CodecError):  # cut off
        storage.read(StoredChunk(url, 0, len(data) - 5, zlib, (12,)), active=active)
    with pytest.raises(CodecError):  # more than was said
        storage.read(StoredChunk(url, 0, len(data), zlib, (11,)), active=active)
    nonsense = {"dtype": "<i4", "codecs": [{"id": "nonsense"}]}
    with pytest.raises(InsituError, match="nonsense"):
        storage.read(StoredChunk(url, 0, len(data), nonsense, (12,)), active=active)
    with pytest.raises(ModelError, match="how many elements"):
        storage.read(StoredChunk(url, 0, len(data), zlib), active=active)
    with pytest.raises(ModelError, match="must not be negative"):
        storage.read(StoredChunk(url, -4, 8, "<i4"), active=active)
    with pytest.raises(ModelError, match="needs an id"):
        storage.read(StoredChunk(url, 0, 8, {"dtype": "<i4", "codecs": [{"level": 4}]}), active=active)
    with pytest.raises(ModelError, match="unknown: offset"):
        storage.read(StoredChunk(url, 0, 8, {"dtype": "<i4", "offset": 4}), active=active)
    np.testing.assert_array_equal(
        storage.read(StoredChunk(f"{place[0]}plain", 8, 16, "<i4"), active=active), values[2:6]
    )
    if active is None:
        with pytest.raises(TruncatedError):
            storage.read(StoredChunk(f"{place[0]}plain", 40, 16, "<i4"))
        with pytest.raises(NotFoundError):
            storage.read(StoredChunk(f"{place[0]}nothing", 0, 8, "<i4"))
    chunk = StoredChunk(f"{place[0]}plain", 0, 48, "<i4")
    spread = storage.reduce(chunk, ReductionQuery.of("std"), [(3, 5)], active=active)["std"]
    assert math.isclose(spread, values[3:8].std())
