"""What `advise` says of a read is what `insitu.trace` and the statistics then count.

Modules: copying/sized_chunks.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.copying.advise import PLACES, PatternCost, sample_places
from insitu.errors import SelectionError, UnsupportedError, VariableError
from insitu.reading import ReadStatistics
from insitu.sources.throttle import HostThrottle
from served_folder import ServedFolder

SHAPE = (72, 36, 40)
CHOSEN = {"time": 10, "lat": 16, "lon": 16}
PATTERNS = ["maps", "series", "boxes", {"lat": 1, "lon": 1}, {"time": 5, "lat": 7}]


def write(path: Path, begin: int, shape: tuple[int, ...], **encoding: Any) -> None:
    """Write two variables that compress alike everywhere, and a small one."""
    rng = np.random.default_rng(begin)
    dims = ("time", "lat", "lon")
    xr.Dataset(
        {
            "tas": (dims, rng.random(shape, "f4")),
            "pr": (dims, rng.integers(0, 9, shape).astype("i2")),
            "orog": (("lat", "lon"), np.zeros(shape[1:], "i1")),
        },
        coords={"time": (("time",), begin + np.arange(shape[0]), {"units": "days since 2000-01-01"})},
    ).to_netcdf(path, engine="netcdf4", encoding={"tas": encoding, "pr": encoding})


@pytest.fixture(params=["maps", "boxes", "contiguous", "chunks uncompressed", "months", "months in boxes"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Archives of one shape, cut differently."""
    packed = {"zlib": True, "complevel": 1, "shuffle": True}
    if request.param.startswith("months"):
        cut = {"chunksizes": (1, 36, 40) if request.param == "months" else (9, 16, 16), **packed}
        begin = 0
        for length in (31, 28, 13):
            write(tmp_path / f"{begin:02}.nc", begin, (length, *SHAPE[1:]), **cut)
            begin += length
        return f"{tmp_path}/*.nc"
    encodings: dict[str, dict[str, Any]] = {
        "maps": {"chunksizes": (1, 36, 40), **packed},
        "boxes": {"chunksizes": (10, 16, 16), **packed},
        "contiguous": {"contiguous": True},
        "chunks uncompressed": {"chunksizes": (10, 16, 16)},
    }
    write(tmp_path / "a.nc", 0, SHAPE, **encodings[request.param])
    return f"{tmp_path}/a.nc"


def count(opened: insitu.Archive, row: PatternCost) -> tuple[float, float, float]:
    """What is counted when the reads of a row are done: chunks, requests, bytes."""
    shape = opened.array(row.variable).shape
    places = sample_places(shape, row.box)
    tally = ReadStatistics()
    with insitu.trace() as cost:
        for place in places:
            at = tuple(slice(first, first + size) for first, size in zip(place, row.box, strict=True))
            assert opened.read(row.variable, at, tally=tally).shape == row.box
    return tally.chunks / len(places), cost.requests / len(places), cost.bytes / len(places)


def test_of_archives_as_they_are(archive: str) -> None:
    is_mosaic = archive.endswith("*.nc")  # its small variable is repeated in time
    opened = insitu.Archive.open(archive)
    found = opened.advise(["tas", "pr"] if is_mosaic else None, PATTERNS, chunks=[])
    assert [row.variable for row in found.rows] == ["tas"] * 5 + ["pr"] * 5  # not the small one
    for row in found.rows:
        assert (row.touched, row.requests, row.bytes_fetched) == pytest.approx(count(opened, row), rel=0.1)
        assert row.bytes_wanted == np.prod(row.box) * (4 if row.variable == "tas" else 2)


@pytest.mark.parametrize(
    ("chunks", "codec"), [("series", "zlib:1"), ("maps", "none"), ("both", "zlib:1"), (CHOSEN, "none")], ids=str
)
def test_of_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, chunks: Any) -> None:
    """What is said of a copy before it is made is counted once it is; and said of it, too."""
    monkeypatch.setattr("insitu.copying.choose_chunks.CHUNK_BYTES", 16 << 10)
    write(tmp_path / "a.nc", 0, SHAPE, chunksizes=(8, 18, 20), zlib=True, complevel=1, shuffle=True)
    source, target = insitu.Archive.open(str(tmp_path / "a.nc")), str(tmp_path / "b.zarr")
    source.copy(target, chunks=chunks, codec=codec)
    rows = source.advise("tas", PATTERNS, chunks=[chunks], codec=codec).rows
    before = [row for row in rows if row.grid != "as it is"]
    made_of_it = insitu.Archive.open(target)
    after = made_of_it.advise("tas", PATTERNS, chunks=[]).rows
    assert len(before) == len(after) == len(PATTERNS)
    for row, made in zip(before, after, strict=True):
        assert row.chunks == made.chunks
        counted = count(made_of_it, row)
        assert (row.touched, row.requests, row.bytes_fetched) == pytest.approx(counted, rel=0.1)
        assert (made.touched, made.requests, made.bytes_fetched) == pytest.approx(counted, rel=0.1)


@pytest.mark.parametrize("word", ["maps", "series", "both", "auto"])
@pytest.mark.parametrize("seed", range(2))
def test_of_random_archives_and_their_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, word: str
) -> None:
    """Files that are cut and compressed differently, boxes of any size, and the chunks that a word chooses."""
    rng = np.random.default_rng([seed, *word.encode()])
    monkeypatch.setattr("insitu.copying.choose_chunks.CHUNK_BYTES", int(rng.integers(4, 24)) << 10)
    monkeypatch.setattr("insitu.copying.choose_chunks.MAPS_BYTES", int(rng.integers(1, 4)) << 10)
    field, begin = rng.integers(5, 30, 2).tolist(), 0
    for _ in range(rng.integers(1, 4)):
        shape = (int(rng.integers(1, 30)), *field)
        cut = {"chunksizes": tuple(int(rng.integers(1 + length // 4, length + 1)) for length in shape)}
        way = [{"contiguous": True}, cut, {**cut, "zlib": True, "complevel": 1}][int(rng.integers(0, 3))]
        write(tmp_path / f"{begin:03}.nc", begin, shape, **way)
        begin += shape[0]
    source = insitu.Archive.open(f"{tmp_path}/*.nc")
    sizes = dict(zip(("time", "lat", "lon"), (begin, *field), strict=True))
    boxes = [
        {dim: int(rng.integers(1, length + 1)) for dim, length in sizes.items() if rng.random() < 0.7} for _ in range(2)
    ]
    rows = source.advise("tas", ["maps", "series", *filter(None, boxes)], chunks=[word], codec="none").rows
    source.copy(tmp_path / "copy.zarr", variables=["tas"], chunks=word, codec="none")
    copies = {"as it is": source, word: insitu.Archive.open(tmp_path / "copy.zarr")}
    assert {row.grid for row in rows} == set(copies)
    for row in rows:
        found = (row.touched, row.requests, row.bytes_fetched)
        assert found == pytest.approx(count(copies[row.grid], row), rel=0.1), row


def test_of_an_archive_far_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a latency: what is learned of the server between plan and read changes how ranges are joined."""
    monkeypatch.setattr(HostThrottle, "record_latency", lambda *_: None)
    monkeypatch.setattr(HostThrottle, "record_transfer", lambda *_: None)
    write(tmp_path / "a.nc", 0, SHAPE, chunksizes=(1, 36, 40), zlib=True, complevel=1)
    with ServedFolder(tmp_path) as site:
        opened = insitu.Archive.open(f"{site.url}/a.nc")
        for row in opened.advise("tas", PATTERNS, chunks=[]).rows:
            assert (row.touched, row.requests, row.bytes_fetched) == pytest.approx(count(opened, row), rel=0.1)


def test_of_long_uncompressed_ranges(tmp_path: Path) -> None:
    """They are read straight into the output, neighbours too, each to its place."""
    values = np.zeros((20, 100, 200))
    xr.Dataset({"x": (("time", "lat", "lon"), values)}).to_netcdf(
        tmp_path / "a.nc", encoding={"x": {"chunksizes": (1, 100, 200)}}
    )
    opened = insitu.Archive.open(f"{tmp_path}/a.nc")
    for row in opened.advise("x", [{"time": 6}, {"lat": 50}, {"lon": 2}], chunks=[]).rows:
        assert (row.touched, row.requests, row.bytes_fetched) == pytest.approx(count(opened, row), rel=0.1)


def test_of_one_variable_and_its_price(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", 0, SHAPE, chunksizes=(1, 36, 40), zlib=True)
    found = insitu.Archive.open(str(tmp_path / "a.nc")).advise("orog", [{"lat": 1}], price=0.09)
    assert {row.variable for row in found.rows} == {"orog"}
    assert [row.grid for row in found.rows] == ["as it is", "series", "maps", "both"]
    for row in found.rows:
        assert row.cost == pytest.approx(row.bytes_fetched / 1e9 * 0.09)
        assert row.seconds > 0
    assert "estimate" in str(found)
    assert found.as_dict()["rows"][0]["box"] == [1, 40]


@pytest.mark.parametrize(
    ("problem", "how"),
    [
        (VariableError, {"variables": "nothing"}),
        (SelectionError, {"patterns": [{"depth": 1}]}),
        (SelectionError, {"patterns": [{"lat": 0}]}),
        (SelectionError, {"chunks": [{"depth": 1}]}),
        (UnsupportedError, {"patterns": ["spheres"]}),
        (UnsupportedError, {"chunks": ["spheres"]}),
        (UnsupportedError, {"price": -1.0}),
    ],
    ids=str,
)
def test_what_is_not_possible(tmp_path: Path, problem: type[Exception], how: dict[str, Any]) -> None:
    write(tmp_path / "a.nc", 0, (2, 3, 4))
    with pytest.raises(problem):
        insitu.Archive.open(str(tmp_path / "a.nc")).advise(**how)


@pytest.mark.parametrize(("shape", "box"), [((5000, 180, 360), (1, 180, 360)), ((5000, 180, 360), (5000, 1, 1))])
def test_places_are_spread_evenly(shape: tuple[int, ...], box: tuple[int, ...]) -> None:
    places = np.array(sample_places(shape, box))
    assert len(np.unique(places, axis=0)) == len(places) == PLACES
    for along, length, size in zip(places.T, shape, box, strict=True):
        assert (along.min(), along.max()) == (0, length - size)
        if length > size:
            steps = np.diff(np.sort(along))
            assert steps.max() - steps.min() <= 1
