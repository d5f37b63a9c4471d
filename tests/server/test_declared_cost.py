"""Requests that declare absurd things: answered at once, never with 500, within the memory that the
server was given; and their work ends.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import cbor2
import h5py
import numpy as np
import psutil
import pytest

from insitu.reading.thread_pools import count_cores
from server.serving import Answer, Server, serving
from waiting import wait_until

VALUES = np.arange(10_000, dtype="f4").reshape(100, 100)
FLAT = np.arange(64, dtype="<i4")
MEMORY = 0.25
"""GiB that the server has."""
ALLOWED = 640 << 20
"""Bytes that its process may have in all: Python and the libraries (160 MB), the memory, the cache
(64 MB), and what malloc keeps.
"""
SECONDS = 4.0
"""That a request may take there."""
PLAIN_REQUESTS = 500
"""What their time of the processor is worth, a request may take beyond its own."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("declared")
    (found / "x").write_bytes(FLAT.tobytes())
    with h5py.File(found / "a.h5", "w") as file:
        file.create_dataset("x", data=VALUES, chunks=(10, 10), compression="gzip")
        file.create_dataset("empty", shape=(1 << 20, 1 << 20), chunks=(1024, 1024), dtype="f4")
        file.create_dataset("tiny", shape=(1 << 22,), chunks=(1,), dtype="i1")
    return found


class Watched:
    """A server, and the most memory that its process has had."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.process = psutil.Process(server.process.pid)
        self.most = 0
        self.plain = 0.0
        """Seconds of the processor for so many plain requests."""
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while not self.ended.wait(0.01):
            try:
                self.most = max(self.most, self.process.memory_info().rss)
            except psutil.Error:
                return

    def processor_seconds(self) -> float:
        """What the server has computed so far."""
        used = self.process.cpu_times()
        return float(used.user + used.system)


@pytest.fixture(scope="module")
def watched(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    log = tmp_path_factory.mktemp("log") / "serve.log"
    options = ("--memory", str(MEMORY), "--cache", "0.0625", "--max-chunk", "64", "--timeout", str(SECONDS))
    with serving([folder], log, *options, forked=False) as running:
        found = Watched(running)
        for _ in range(2):  # the first time something is imported
            begun = found.processor_seconds()
            for _ in range(PLAIN_REQUESTS):
                assert running.get(f"/zarr{folder}/a.h5!/x/c/0/0").status == 200
        found.plain = found.processor_seconds() - begun
        yield found
        found.ended.set()
        found.thread.join()


def column(shape: list[int], value: int = 0) -> dict[str, Any]:
    return {"shape": shape, "all": value}


def table(
    shape: list[int],
    chunks: list[int],
    dtype: Any = "<i4",
    *,
    source: int = -2,
    length: int = 0,
    url: str = "x",
    **more: Any,
) -> dict[str, Any]:
    """An array that travels: never written, or each chunk at the begin of an object."""
    grid = [-(-n // c) for n, c in zip(shape, chunks, strict=True)]
    tile = {
        "grid": grid,
        "axes": [[n, c, False] for n, c in zip(shape, chunks, strict=True)],
        "packings": None,
        "inline": b"",
        "encodings": [{"dtype": dtype, "codecs": [], "order": None, "fill": None}],
        "layout": list(range(len(shape))),
        "source": column(grid, source),
        "offset": column(grid),
        "length": column(grid, length),
        "filter_mask": column(grid),
        "encoding": column(grid),
        "packing": column(grid),
        **more,
    }
    return {
        "shape": shape, "dtype": dtype, "fill": None, "origins": column([1, len(shape)]), "tiles": [tile],
        "sources": [[url, None, None, None, False]],
    }  # fmt: skip


def encodings(codecs: list[Any], dtype: str = "<i4") -> list[dict[str, Any]]:
    return [{"dtype": dtype, "codecs": codecs, "order": None, "fill": None}]


@cache
def make_bomb() -> dict[str, Any]:
    """256 MiB of zeros; to deflate them takes a second."""
    return {"shape": [1 << 25], "kind": "<i8", "deflated": zlib.compress(bytes(8 << 25), 9)}


ZEROS = {"index": [0] * 10**6}
MANY = {"take": column([1 << 26])}
SELECTIONS: dict[str, tuple[str, Any]] = {
    "10⁶ zeros": ("x", [ZEROS]),
    "10⁶ zeros twice": ("x", [ZEROS, ZEROS]),
    "2²⁶ zeros": ("x", [MANY]),
    "2²⁶ zeros twice": ("empty", [MANY, MANY]),
    "a step of -2⁶³": ("x", [{"slice": [None, None, -(2**63)]}]),
    "a step of 2⁶³-1": ("x", [{"slice": [2**63 - 1, -(2**63), 2**63 - 1]}]),
    "everywhere -2⁶³": ("x", [{"slice": [-(2**63)] * 3}] * 2),
    "an exact step of 2⁶²": ("x", [[0, 2**62, 1]]),
    "an index of 5,000 digits": ("x", [10**5000]),
    "a slice of 5,000 digits": ("x", [{"slice": [10**5000]}]),
    "a terabyte that nobody wrote": ("empty", None),
    "4 million chunks": ("tiny", None),
    "4 million chunks backwards": ("tiny", [{"slice": [None, None, -1]}]),
}
TABLES: dict[str, Callable[[], dict[str, Any]]] = {
    "shape 2⁶²": lambda: table([1 << 62], [1 << 62]),
    "shape 2⁶² in chunks": lambda: table([1 << 62], [1 << 40]),
    "shape 2³¹ x 2³¹": lambda: table([1 << 31, 1 << 31], [1 << 31, 1 << 31]),
    "shape 2⁶² x 2⁶²": lambda: table([1 << 62, 1 << 62], [1 << 62, 1 << 62]),
    "no tiles": lambda: {**table([1 << 60], [1 << 60]), "tiles": [], "origins": column([0, 1])},
    "a raw chunk of 2⁶² bytes": lambda: table([1 << 62], [1 << 62], "|i1", source=0, length=1 << 62),
    "a raw chunk of 2⁴⁰ bytes": lambda: table([1 << 40], [1 << 40], "|i1", source=0, length=1 << 40),
    "|S2147483647": lambda: table([4], [4], "|S2147483647"),
    "<U536870911": lambda: table([4], [4], "<U536870911"),
    "|S2147483647 of an object": lambda: table([4], [4], "|S2147483647", source=0, length=100),
    "a structure of gigabytes": lambda: table([4], [4], [["a", "<i4", [1 << 14, 1 << 14]]]),
    "2²⁰ cells": lambda: table([1 << 20], [1]),
    "2²⁶ cells": lambda: table([1 << 26], [1]),
    "deflated zeros": lambda: table([1 << 25], [1], offset=make_bomb(), length=make_bomb()),
    "10,000 codecs": lambda: table(
        [4], [4], source=0, length=16, encodings=encodings([["shuffle", {"elementsize": 4}]] * 10**4)
    ),
    "a codec of a megabyte": lambda: table(
        [4], [4], source=0, length=16, encodings=encodings([["zlib", {"x": "y" * 10**6}]])
    ),
    "a chunk of half a gigabyte": lambda: table(
        [1 << 27], [1 << 27], source=0, length=64, encodings=encodings([["zlib", {}]])
    ),
}
RULES: dict[str, dict[str, Any]] = {
    "groups without end": {"groups": {"axis": 0, "codes": [0] * 100, "count": (1 << 31) - 1}},
    "10⁷ groups": {"groups": {"axis": 0, "codes": [0] * 100, "count": 10**7}},
    "weights of 2⁴⁰": {"methods": ["mean"], "weights": {"0": {"dtype": "<f8", "shape": [1 << 40], "data": b""}}},
    "weights of objects": {"methods": ["mean"], "weights": {"0": {"dtype": "|O", "shape": [1 << 28], "items": 1.0}}},
    "10⁶ quantiles of each": {"methods": ["quantile"], "q": [0.5] * 10**6, "axes": [0]},
    "min_count without end": {"min_count": float("inf")},
    "ddof of 65 bits": {"methods": ["std"], "ddof": 2**64},
    "10⁶ axes": {"axes": [0] * 10**6},
    "an axis of 64 bits": {"axes": [2**63]},
    "medians of 10⁶ rows": {"methods": ["median"], "selection": [ZEROS], "axes": [1]},
}
BODIES: dict[str, tuple[bytes, str]] = {
    "lists in lists": (b"\x81" * 100_000, "application/cbor"),
    "4 million lists": (b"\x9a" + (4 << 20).to_bytes(4, "big") + b"\x80" * (4 << 20), "application/cbor"),
    "2⁶³ items": (b"\x9b\x7f" + b"\xff" * 7, "application/cbor"),
    "2³⁶ bytes": (b"\x5b\x00\x00\x00\x10\x00\x00\x00\x00", "application/cbor"),
    "4 million JSON lists": (b"[" + b"[]," * 4_000_000 + b"[]]", "application/json"),
    "5,000 digits": (b'{"jobs": [{"selection": [' + b"9" * 5000 + b"]}]}", "application/json"),
    "a decimal": (cbor2.dumps({"jobs": cbor2.CBORTag(4, [10**9, 1])}), "application/cbor"),
    "a fraction of nothing": (cbor2.dumps({"jobs": cbor2.CBORTag(30, [1, 0])}), "application/cbor"),
    "a name of 4 MB": (cbor2.dumps({"jobs": [{"url": "x", "variable": "y" * (4 << 20), "methods": ["sum"]}]}), ""),
}
CHUNKS: dict[str, dict[str, Any]] = {
    "shape 2⁶²": {"shape": [1 << 62]},
    "size 2⁶²": {"size": 1 << 62},
    "offset 2⁶²": {"offset": 1 << 62},
    "the end of 2⁶³": {"offset": (1 << 63) - 8, "size": 8},
    "a stride of -2⁶³": {"shape": [64], "selection": [[0, 64, -(2**63)]]},
    "all of 64 bits": {"shape": [64], "selection": [[-(2**63), 2**63 - 1, 1]]},
    "10,000 filters": {"shape": [64], "filters": [{"id": "shuffle", "element_size": 4}] * 10_000},
    "elements of 2⁶² bytes": {"filters": [{"id": "shuffle", "element_size": 1 << 62}]},
    "a long configuration": {"shape": [64], "size": 64, "compression": {"id": "blosc", "x": "y" * 10**6}},
}


def assert_healthy(watched: Watched, answer: Answer, begun: float) -> None:
    """Assert that a response is no failure of the server, and that the server is idle and small
    again.
    """
    assert answer.status not in (0, 500), answer.body[:300]
    assert len(answer.body) < 1 << 20 or answer.status == 200
    wait_until(lambda: watched.server.metrics()["insitu_running"] == 0, "the work goes on although its time is up")
    # Until the time of a request is up all cores may compute; then each may end its step.
    allowed = SECONDS * count_cores() + 4 * watched.plain
    assert watched.processor_seconds() - begun < allowed
    assert watched.most < ALLOWED, f"{watched.most >> 20} MB"


def post(watched: Watched, path: str, body: bytes, kind: str) -> None:
    begun = watched.processor_seconds()
    answer = watched.server.ask("POST", path, body, {"Content-Type": kind})
    assert_healthy(watched, answer, begun)


@pytest.mark.parametrize("route", ["reduce", "read"])
@pytest.mark.parametrize("name", SELECTIONS)
def test_selections(watched: Watched, folder: Path, route: str, name: str) -> None:
    variable, selection = SELECTIONS[name]
    job = {"url": str(folder / "a.h5"), "variable": variable, "selection": selection}
    job |= {"methods": ["sum"]} if route == "reduce" else {}
    post(watched, f"/{route}", cbor2.dumps({"jobs": [job]}), "application/cbor")


@pytest.mark.parametrize("route", ["reduce", "read"])
@pytest.mark.parametrize("name", TABLES)
def test_tables(watched: Watched, folder: Path, route: str, name: str) -> None:
    array = {**TABLES[name](), "sources": [[str(folder / "x"), None, None, None, False]]}
    job = {"array": array} | ({"methods": ["sum"]} if route == "reduce" else {})
    post(watched, f"/{route}", cbor2.dumps({"jobs": [job]}), "application/cbor")


@pytest.mark.parametrize("name", RULES)
def test_rules(watched: Watched, folder: Path, name: str) -> None:
    job = {"url": str(folder / "a.h5"), "variable": "x", "methods": ["sum"], **RULES[name]}
    post(watched, "/reduce", cbor2.dumps({"jobs": [job]}), "application/cbor")


@pytest.mark.parametrize("route", ["read", "scan"])
@pytest.mark.parametrize("name", BODIES)
def test_bodies(watched: Watched, route: str, name: str) -> None:
    post(watched, f"/{route}", *BODIES[name])


@pytest.mark.parametrize("operation", ["sum", "select"])
@pytest.mark.parametrize("name", CHUNKS)
def test_chunks(watched: Watched, folder: Path, operation: str, name: str) -> None:
    request = {"interface_type": "file", "url": f"file://{folder}/x", "dtype": "int32", **CHUNKS[name]}
    post(watched, f"/v2/{operation}", json.dumps(request).encode(), "application/json")


@pytest.mark.parametrize("key", ["x/c/0/0", "x/c/" + "9" * 4000 + "/0", "empty/c/0/0", "tiny/c/0", "zarr.json"])
def test_ranges_of_chunks(watched: Watched, folder: Path, key: str) -> None:
    for wanted in ("bytes=0-" + "9" * 5000, f"bytes=-{2**63}", "bytes=" + "9" * 5000 + "-"):
        begun = watched.processor_seconds()
        answer = watched.server.get(f"/zarr{folder}/a.h5!/{key}", {"Range": wanted})
        assert_healthy(watched, answer, begun)


def test_what_is_not_absurd_is_right(folder: Path, tmp_path: Path) -> None:
    read = {"url": str(folder / "a.h5"), "variable": "x", "selection": [{"slice": [None, None, -(2**63)]}]}
    reduced = {"array": table([4, 6], [2, 3], source=0, length=24), "methods": ["sum"]}
    reduced["array"]["sources"][0][0] = str(folder / "x")
    kind = {"Content-Type": "application/cbor"}
    with serving([folder], tmp_path / "log") as server:
        answer = server.ask("POST", "/read", cbor2.dumps({"jobs": [read]}), kind)
        assert (np.frombuffer(answer.items[1], "<f4") == VALUES[:: -(2**62)].ravel()).all()
        answer = server.ask("POST", "/reduce", cbor2.dumps({"jobs": [reduced]}), kind)
        assert np.frombuffer(answer.items[0]["values"]["sum"]["data"], "<i4")[0] == 4 * FLAT[:6].sum()
