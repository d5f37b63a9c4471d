"""`--memory`: what a server says that it may take is what it takes, at most."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from forked_commands import CODE
from insitu.active.wire import values_from_wire
from insitu.expressions.boxes import iterate_boxes
from insitu.expressions.cost import cost
from insitu.expressions.element_operations import combine
from insitu.expressions.node_table import NodeTable
from insitu.expressions.nodes import Stored
from insitu.model import Axis, Codec, Columns, Encoding, Tile, VirtualArray
from insitu.reducing.expression_values import reduction_memory
from insitu.reducing.reductions import ReductionRules
from insitu.server.error_responses import RequestTooLargeError
from insitu.server.job_memory import job_memory
from insitu.server.jobs import BatchJob
from insitu.server.settings import Limits
from ports import free_port
from server.serving import Answer, Server, serving
from waiting import LONG

ROWS, COLUMNS = 12, 1 << 22
"""Chunks of 32 MiB, one for each row."""
OPTIONS = ("--memory", "0.25", "--max-chunk", "64", "--cache", "0.0625")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("folder")
    values = np.add.outer(np.arange(ROWS), np.arange(COLUMNS) % 7).astype("<f8")
    with h5py.File(found / "a.h5", "w") as file:
        file.create_dataset("t", data=values, chunks=(1, COLUMNS), compression="gzip", compression_opts=1)
    values[0].tofile(found / "raw")
    return found


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving([folder], tmp_path_factory.mktemp("log") / "serve.log", *OPTIONS, forked=False) as running:
        yield running


def stated_bytes(server: Server) -> int:
    """What the log says that a worker may take."""
    (found,) = re.findall(r"memory: at most 1 x (\d+) MiB: ", server.log.read_text())
    return int(found) << 20


@pytest.mark.parametrize("memory", [1 << 30, 1 << 28, 1 << 27, 100 << 20, 1 << 26, 1 << 24])
def test_memory_does_not_change_what_is_added_together(memory: int) -> None:
    """Formulas are reduced in the boxes of a client, or refused: then the client reduces them."""
    tile = Tile(
        (Axis.regular(64, 1), Axis.regular(COLUMNS, COLUMNS)),
        (Encoding(np.dtype("<i2"), (Codec("zlib", {}),)),),
        Columns.of_unwritten((64, 1)),
    )
    stored = Stored(VirtualArray.of(tile, dims=("row", "column")))
    formula = combine("multiply", combine("add", stored, 1), np.float64(2))
    assert formula is not None
    job = BatchJob(NodeTable((), (), ()), None, ("sum",), None, None, ReductionRules(), False, None, None, False)
    limits = Limits(memory=memory, chunk=1 << 30)
    try:
        found = job_memory(limits, job, formula, cost(formula)).boxes
    except RequestTooLargeError:
        assert memory < 4 * 8 * COLUMNS
        return
    assert list(iterate_boxes(formula, found)) == list(iterate_boxes(formula, reduction_memory()))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_the_sum_that_is_stated_holds(server: Server, folder: Path) -> None:
    job = {"url": str(folder / "a.h5"), "variable": "t"}
    raw = {"interface_type": "file", "url": f"file://{folder}/raw", "dtype": "float64", "shape": [COLUMNS]}
    requests: list[tuple[str, Any]] = [
        ("/reduce", {"jobs": [{**job, "methods": ["mean", "std"]}]}),
        ("/reduce", {"jobs": [{**job, "methods": ["max"], "axes": [0]}]}),
        ("/reduce", {"jobs": [{**job, "methods": ["median"], "selection": [{"slice": [0, 4]}], "axes": [0]}]}),
        ("/read", {"jobs": [job]}),
        ("/v2/select", raw),
        ("/v2/sum", raw),
    ]
    answers: list[tuple[str, Answer]] = []

    def ask(path: str, body: Any) -> None:
        answers.append((path, server.post(path, body)))

    threads = [threading.Thread(target=ask, args=requests[number % len(requests)]) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status for _, answer in answers} <= {200, 413, 429}
    assert all(any(answer.status == 200 for route, answer in answers if route == path) for path, _ in requests)
    assert server.peak_bytes() <= stated_bytes(server)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_chunks_as_large_as_the_memory_are_decoded_one_by_one(tmp_path: Path) -> None:
    """There is memory for one chunk, and there are threads for more."""
    rows, columns = 3, 248 << 17
    encoded = zlib.compress((np.arange(columns) % 7).astype("<f8").tobytes(), 1)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        stored = file.create_dataset("t", (rows, columns), "<f8", chunks=(1, columns), compression="gzip")
        for row in range(rows):
            stored.id.write_direct_chunk((row, 0), encoded)
    array = {"url": str(tmp_path / "a.h5"), "variable": "t"}
    doubled = {"operation": "add", "arguments": [{"node": 0}, {"node": 0}]}
    formula = {"arrays": [array], "nodes": [{"array": 0}, doubled]}
    options = ("--memory", "0.25", "--max-chunk", "256", "--cache", "0.0625")
    with serving([tmp_path], tmp_path / "serve.log", *options, forked=False) as running:
        some = [{"slice": [0, rows]}, {"slice": [0, 2 << 20]}]  # of each chunk: it is decoded for each box
        for job, largest in ((array, 6.0), ({"expression": formula, "selection": some}, 12.0)):
            found = running.post("/reduce", {"jobs": [{**job, "methods": ["max", "mean"]}]})
            assert found.status == 200, found.body[:300]
            assert values_from_wire(found.items[0]["values"]["max"]) == largest
            assert running.peak_bytes() <= stated_bytes(running)


def start(*options: str) -> tuple[int, str]:
    """Start a server that refuses to; its exit code and what it says."""
    command = [sys.executable, "-c", CODE, "serve", "--port", str(free_port()), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    return done.returncode, done.stderr


def test_less_memory_than_one_chunk_is_refused() -> None:
    code, output = start("--memory", "0.25")
    assert code != 0
    for word in ("--memory 0.25", "--max-chunk, 512", "--memory 0.5", "--max-chunk 256"):
        assert word in " ".join(output.split())
    code, output = start("--memory", "1", "--workers", "4")
    assert code != 0
    assert "--memory 2 or --max-chunk 256" in " ".join(output.split())
