"""How do stores of a hundred million chunks, hundreds of appends and large Icechunk repositories
behave, and how does that grow?

    python bench/scale_store.py [--quick] [--case chunks|layouts|far|appends|icechunk]

`chunks` writes synthetic stores of 10⁵ … 10⁸ chunks once (350 MB for the largest) into the folder of the
archives; 10⁹ too (3.5 GB) with `INSITU_BENCH_BILLION=1`. Every figure is processor seconds, measured in a
process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import machine
from archives import folder
from growth import exponent
from latency_server import LatencyServer
from table import Contestant, Result, arguments, compete

Work = Callable[[], Any]
STEPS = 2000
"""Length of the first axis of the synthetic stores: steps of time."""
SOURCES = 10_000


# Stores of many chunks


class Computed:
    """A table of any size that takes no memory."""

    def __init__(self, shape: tuple[int, ...], sources: Any) -> None:
        self.shape, self.sources = shape, sources

    def locate(self, cells: Any) -> Any:
        from insitu.model import ChunkLocations

        number = np.ravel_multi_index(tuple(np.broadcast_arrays(*cells)), self.shape).reshape(-1)
        per = -(-int(np.prod(self.shape)) // len(self.sources))
        noise = (number.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        noise = (noise ^ (noise >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        noise = ((noise ^ (noise >> np.uint64(32))) % np.uint64(2**31)).astype(np.int64)
        zero = np.zeros(len(number), np.int64)
        return ChunkLocations(
            number // per, 8192 + (number % per) * 50_000 + noise % 700, 40_000 + noise % 9000, zero, zero, zero, b""
        )


def synthetic_group(count: int) -> Any:
    """Return a tree of one array of `count` chunks."""
    from insitu.model import Axis, Encoding, Source, Tile, VirtualArray, VirtualGroup

    shape = (STEPS, count // STEPS)
    sources = tuple(Source(f"https://data.example.org/archive/v1/file-{n:06d}.nc", 10**9, "e") for n in range(SOURCES))
    axes = (Axis.regular(shape[0], 1), Axis.regular(shape[1], 1))
    array = VirtualArray.of(Tile(axes, (Encoding(np.dtype("f4")),), Computed(shape, sources)), dims=("t", "x"))
    return VirtualGroup({"a": array})


def store_of(count: int, page_rows: int | None = 0) -> Path:
    """Return the synthetic store of `count` chunks, written first if it is not there.

    `page_rows` is another number of rows in a page than the usual one; None: no page index.
    """
    from insitu.references import save
    from insitu.references.store import table_writer

    target = folder() / (f"scale-{count}.insitu" if page_rows == 0 else f"scale-{count}-pages-{page_rows}.insitu")
    if not (target / "root.json").exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        usual = table_writer.PAGE_ROWS
        table_writer.PAGE_ROWS = usual if page_rows == 0 else page_rows  # type: ignore[assignment]
        save(synthetic_group(count), target)
        table_writer.PAGE_ROWS = usual
    return target


def open_chunks(target: str) -> Any:
    """Return the chunk table of the array in a store."""
    from insitu.references import open_references

    group = open_references(target)
    assert group is not None
    return group.arrays["a"].tiles[0].chunks


def random_cells(shape: Sequence[int], count: int = 1000) -> list[Any]:
    """Return cells at random places."""
    rng = np.random.default_rng(21)
    return [rng.integers(0, length, count) for length in shape]


def total_offset(chunks: Any, cells: Any) -> int:
    """Return a number that depends on all of the cells' rows."""
    found = chunks.locate(cells)
    return int(np.sum(found.offset) + np.sum(found.length) + np.sum(found.source))


def open_store(target: str) -> Work:
    """Open a store."""
    import insitu.references  # noqa: F401

    return lambda: open_chunks(target).shape[0]


def locate_first(target: str) -> Work:
    """Find one chunk of an open store."""
    chunks = open_chunks(target)
    return lambda: total_offset(chunks, [np.array([STEPS - 2]), np.array([chunks.shape[1] // 2])])


def locate_random(target: str, again: bool = False) -> Work:
    """Find a thousand chunks at random places of an open store; or the same ones a second time."""
    chunks = open_chunks(target)
    cells = random_cells(chunks.shape)
    if again:
        total_offset(chunks, cells)
    return lambda: total_offset(chunks, cells)


def locate_series(target: str) -> Work:
    """Find the chunks of one place at all steps of an open store."""
    chunks = open_chunks(target)
    place = np.full(STEPS, chunks.shape[1] // 3)
    return lambda: total_offset(chunks, [np.arange(STEPS), place])


def locate_all(target: str) -> Work:
    """Find a million neighbouring chunks of an open store."""
    chunks = open_chunks(target)
    count = min(1_000_000, chunks.shape[0] * chunks.shape[1])
    cells = np.unravel_index(np.arange(count), chunks.shape)
    return lambda: total_offset(chunks, cells)


QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "open": ("open_store", {}),
    "one chunk": ("locate_first", {}),
    "1,000 random chunks": ("locate_random", {}),
    "the same again": ("locate_random", {"again": True}),
    f"a point at {STEPS:,} steps": ("locate_series", {}),
    "a million neighbours": ("locate_all", {}),
}


def measure_chunks(quick: bool, rounds: int) -> None:
    """Print how stores of many chunks answer."""
    counts = [10**5, 10**6] if quick else [10**5, 10**6, 10**7, 10**8]
    if os.environ.get("INSITU_BENCH_BILLION"):
        counts.append(10**9)
    rows: dict[str, list[Result]] = {name: [] for name in QUESTIONS}
    sizes = []
    for count in counts:
        target = store_of(count)
        sizes.append(sum(path.stat().st_size for path in target.iterdir()) / count)
        contestants = [
            Contestant(name, f"scale_store:{call}", {"target": str(target), **given})
            for name, (call, given) in QUESTIONS.items()
        ]
        for result in compete(contestants, rounds=rounds):
            rows[result.name].append(result)
    print("\n## an insitu store of many chunks (processor seconds; memory at most)\n")
    print_growth(counts, rows, "chunks")
    print("\nBytes a chunk: " + ", ".join(f"{size:.2f}" for size in sizes) + ".")


def measure_layouts(quick: bool, rounds: int) -> None:
    """Print how the size of pages changes size and speed."""
    count = 10**6 if quick else 10**7
    print(f"\n## pages of different sizes, {count:,} chunks (processor seconds; memory at most)\n")
    print(f"| rows of a page | bytes a chunk | {' | '.join(QUESTIONS)} |")
    print("|---|---|" + "---|" * len(QUESTIONS))
    for page_rows in (None, 256, 1024, 4096):
        target = store_of(count, page_rows)
        size = sum(path.stat().st_size for path in target.iterdir()) / count
        contestants = [
            Contestant(name, f"scale_store:{call}", {"target": str(target), **given})
            for name, (call, given) in QUESTIONS.items()
        ]
        cells = [
            f"{statistics.median(result.processor):.4f} s; {max(result.peak) / 1e6:.0f} MB"
            for result in compete(contestants, rounds=rounds)
        ]
        print(f"| {page_rows or 'no page index'} | {size:.2f} | {' | '.join(cells)} |")
        shutil.rmtree(target)


# The same from far away


def locate_far(target: str, question: str) -> Work:
    """Find chunks of a store behind a slow line; the answer is what that costs."""
    import insitu

    work = globals()[question](target)

    def measured() -> str:
        with insitu.trace() as cost:
            work()
        return f"{cost.waves} round trips, {cost.requests:,} requests, {cost.bytes / 1e6:.2f} MB"

    return measured


def measure_far(quick: bool, rounds: int) -> None:
    """Print what chunks cost behind 50 ms."""
    count = 10**6 if quick else 10**8
    target = store_of(count)
    print(f"\n## an insitu store of {count:,} chunks behind 50 ms a request\n")
    print("| | seconds | |\n|---|---|---|")
    with LatencyServer(folder(), 0.05) as server:
        url = f"{server.url}/{target.name}"
        contestants = [
            Contestant(name, "scale_store:locate_far", {"target": url, "question": call})
            for name, call in (
                ("one chunk", "locate_first"),
                ("1,000 random chunks", "locate_random"),
                (f"a point at {STEPS:,} steps", "locate_series"),
            )
        ]
        for result in compete(contestants, rounds=rounds, timeout=300):
            seconds = f"{result.median:.2f}" if result.seconds else result.error
            print(f"| {result.name} | {seconds} | {str(result.answer).strip(chr(39))} |")


# Many small appends


def append_many(count: int, target: str) -> Work:
    """Append files of one step each, one at a time, as `insitu append` does."""
    import insitu

    shutil.rmtree(target, ignore_errors=True)
    Path(target).mkdir(parents=True)
    files = [write_step(Path(target) / f"step-{number:05d}.nc", number) for number in range(count + 1)]
    store = str(Path(target) / "archive.insitu")
    insitu.open_mfdataset(files[:1]).insitu.save(store)
    archive = insitu.Archive.open(store)

    def work() -> int:
        for file in files[1:]:
            archive.append(file)
        return count

    return work


def write_step(path: Path, number: int) -> str:
    """Write a NetCDF file of one step."""
    import h5netcdf

    with h5netcdf.File(path, "w") as file:
        file.dimensions = {"time": 1, "y": 20, "x": 20}
        time_ = file.create_variable("time", ("time",), "f8", data=np.array([float(number)]))
        time_.attrs["units"] = "days since 2000-01-01"
        data = np.full((1, 20, 20), number, "f4")
        file.create_variable("tas", ("time", "y", "x"), "f4", data=data, chunks=(1, 10, 10))
    return str(path)


def measure_appends(quick: bool, rounds: int) -> None:
    """Print what many small appends cost."""
    counts = [25, 50] if quick else [50, 100, 200, 400]
    results, files = [], []
    for count in counts:
        target = folder() / "scale-appends"
        given = {"count": count, "target": str(target)}
        results += compete([Contestant("appends", "scale_store:append_many", given)], rounds=1, timeout=600)
        document = json.loads((target / "archive.insitu" / "root.json").read_text())
        files.append(f"{len(document['chunks'])} + {len(document['sources'])}")
        shutil.rmtree(target)
    print("\n## small appends, one after the other (processor seconds in total)\n")
    print_growth(counts, {"appends of one step": results}, "appends")
    print("\nFiles of rows and of sources afterwards: " + ", ".join(files) + ".")


# Icechunk


def write_repository(count: int, target: Path) -> None:
    """Write an Icechunk repository of `count` virtual chunks."""
    from insitu.model import Axis, Columns, Encoding, Source, Tile, VirtualArray, VirtualGroup
    from insitu.references import save

    shape = (count // 1000, 1000)
    file = target.with_suffix(".bin")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(np.arange(4 * 1000, dtype="f4").tobytes())
    offset = (np.arange(count, dtype=np.int64) % 1000 * 16).reshape(shape)
    table = Columns(shape, (Source(str(file)),), np.zeros(shape, np.int64), offset, np.full(shape, 16, np.int64))
    axes = (Axis.regular(shape[0], 1), Axis.regular(shape[1] * 4, 4))
    array = VirtualArray.of(Tile(axes, (Encoding(np.dtype("<f4")),), table), dims=("t", "x"))
    save(VirtualGroup({"a": array}), target)


def first_chunk_of_repository(target: str) -> Work:
    """Open a repository and read one chunk."""
    import icechunk  # noqa: F401
    import zarr  # noqa: F401

    from insitu import read
    from insitu.references import open_references

    def work() -> float:
        group = open_references(target)
        assert group is not None
        return float(read(group.arrays["a"], selection=(5, slice(8, 12)))[1])

    return work


def measure_icechunk(quick: bool, rounds: int) -> None:
    """Print how long the first chunk of a repository takes."""
    counts = [10**4, 10**5] if quick else [10**4, 10**5, 10**6]
    results = []
    for count in counts:
        target = folder() / f"scale-{count}.icechunk"
        if not target.exists():
            write_repository(count, target)
        results += compete(
            [Contestant("first", "scale_store:first_chunk_of_repository", {"target": str(target)})], rounds=rounds
        )
    print("\n## the first chunk of an Icechunk repository (processor seconds; memory at most)\n")
    print_growth(counts, {"open, first chunk": results}, "virtual chunks")


# Tables


def print_growth(counts: Sequence[int], rows: dict[str, list[Result]], what: str) -> None:
    """Print processor seconds and peak memory for each count, and the exponent of the growth at the end."""
    print(f"| | {' | '.join(f'{count:,} {what}' for count in counts)} | growth |")
    print("|---|" + "---|" * (len(counts) + 1))
    for name, results in rows.items():
        cells, seconds = [], []
        for result in results:
            if not result.seconds:
                cells.append(f"failed: {result.error}")
                continue
            seconds.append(statistics.median(result.processor))
            cells.append(f"{seconds[-1]:.4f} s; {max(result.peak) / 1e6:.0f} MB")
        grown = f"n^{exponent(counts[-2:], seconds[-2:]):.2f}" if len(seconds) == len(counts) else ""
        print(f"| {name} | {' | '.join(cells)} | {grown} |")


CASES = {
    "chunks": measure_chunks,
    "layouts": measure_layouts,
    "far": measure_far,
    "appends": measure_appends,
    "icechunk": measure_icechunk,
}


def main() -> None:
    """Run the cases that were asked for."""
    options = arguments(__doc__)
    print(machine.describe())
    for case in options.case or CASES:
        CASES[case](options.quick, options.rounds)


if __name__ == "__main__":
    main()
