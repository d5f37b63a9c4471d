"""What do reductions cost on a Dask cluster, beside the streaming of one process?

    python bench/scale_dask.py [--quick]

The archive has 20,000 chunks of 256 KiB (float32, deflate) in one file, in the page cache. Processor
seconds are those of the client, the scheduler and all workers together; a cluster with more workers
than cores shows what it costs to have them, not how fast they are. A file of a million chunks, a hole
in the disk, shows what the client does before anything is computed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import h5py
import numpy as np
from distributed import Client, LocalCluster

import insitu
import machine
from growth import exponent
from insitu.engines.dask import make_graph
from insitu.expressions.nodes import Stored
from insitu.reducing.expression_values import ExpressionValues
from insitu.reducing.portions import cut_portions
from insitu.xarray_bridge.opening import to_dask_dataset

SIDE = 256
CHUNKS = 20_000
MILLION = 1_000_000
MANY_TASKS = 2_000
"""With more chunks, a block for each of them takes minutes."""


def write_archive(path: Path, chunks: int) -> Path:
    """Write a file of many compressed chunks, a few of them again and again."""
    rng = np.random.default_rng(1)
    packed = [zlib.compress(np.round(rng.normal(280, 3, (SIDE, SIDE)), 1).astype("f4").tobytes(), 1) for _ in range(16)]
    with h5py.File(path, "w", libver="latest") as file:
        data = file.create_dataset("tas", (chunks, SIDE, SIDE), "f4", chunks=(1, SIDE, SIDE), compression="gzip")
        for number in range(chunks):
            data.id.write_direct_chunk((number, 0, 0), packed[number * 7 % 16])
    return path


def write_hole(path: Path, chunks: int) -> Path:
    """Write a file of many chunks that take no disk: they are allocated, and never written."""
    with h5py.File(path, "w", libver="latest") as file:
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        how.set_chunk((1, SIDE, SIDE))
        how.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        how.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        space = h5py.h5s.create_simple((chunks, SIDE, SIDE))
        h5py.h5d.create(file.id, b"tas", h5py.h5t.IEEE_F32LE, space, how)
    return path


@contextmanager
def cluster(workers: int, threads: int = 1) -> Iterator[Client]:
    """Start workers that have imported what they need."""
    with (
        LocalCluster(n_workers=workers, threads_per_worker=threads, dashboard_address="127.0.0.1:0") as started,
        Client(started) as client,
    ):
        client.wait_for_workers(workers)
        client.run(lambda: __import__("insitu").open_dataset)
        yield client


def worker_seconds(client: Client | None) -> float:
    """Return the processor seconds of all workers so far."""
    return 0.0 if client is None else float(sum(client.run(time.process_time).values()))


def worker_peak(client: Client | None) -> float:
    """Return the largest memory of a worker so far, or of this process, in bytes."""

    def peak() -> int:
        # Not `getrusage`: a new process begins with the peak of the one that started it.
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))

    return float(peak() if client is None else max(client.run(peak).values()))


def measure(name: str, client: Client | None, work: Callable[[], Any]) -> tuple[str, float, float, float, Any]:
    """Return what some work took: seconds, processor seconds, memory, and what it found."""
    there, here, began = worker_seconds(client), time.process_time(), time.perf_counter()
    found = work()
    wall, cpu = time.perf_counter() - began, time.process_time() - here
    return name, wall, cpu + worker_seconds(client) - there, worker_peak(client), found


def show_means(path: Path, workers: tuple[int, ...]) -> None:
    """Print what the mean over time costs, in every way."""
    virtual = insitu.open_dataset(path, cache=False).tas
    first = virtual.dims[0]

    def blocks(limit: str | int = "128MiB") -> Any:
        with dask.config.set({"array.chunk-size": limit}):
            return insitu.open_dataset(path, cache=False, chunks={}).tas.mean(first).compute().values

    rows = [measure("streaming, no Dask", None, lambda: virtual.mean(first).values)]
    rows.append(measure("`chunks={}`, Dask's threads", None, blocks))
    for count in workers:
        with cluster(count) as client:
            rows.append(measure(f"`chunks={{}}`, {count} workers", client, blocks))
        if virtual.shape[0] <= MANY_TASKS:
            with cluster(count) as client:
                one = measure(f"a block for each chunk, {count} workers", client, lambda: blocks(1))
            rows.append(one)
        with cluster(count) as client, insitu.options(engine=client):
            rows.append(measure(f"`engine=client`, {count} workers", client, lambda: virtual.mean(first).values))
    print(f"\n## The mean over time of {virtual.nbytes / 1e9:.2f} GB in {virtual.shape[0]:,} chunks\n")
    print("| how | seconds | processor seconds | of streaming | memory of a worker | same bits |")
    print("|---|---:|---:|---:|---:|---|")
    for name, wall, cpu, peak, found in rows:
        same = "yes" if np.array_equal(found, rows[0][4]) else f"to {np.abs(found - rows[0][4]).max():.1e}"
        print(f"| {name} | {wall:.1f} | {cpu:.1f} | {cpu / rows[0][2]:.2f} | {peak / 1e6:,.0f} MB | {same} |")


def show_submission(folder: Path, sizes: tuple[int, ...]) -> None:
    """Print what the client does before anything is computed."""
    print("\n## From an open file to a submitted graph: the mean of everything, processor seconds of the client\n")
    print("| chunks | open | `chunks={}` | tasks | `engine=client` | tasks |")
    print("|---:|---:|---:|---:|---:|---:|")
    seconds = []
    with cluster(1) as client:
        for size in sizes:
            path = write_hole(folder / "hole.h5", size)
            began = time.process_time()
            virtual = insitu.open_dataset(path, cache=False)
            opened = time.process_time()
            mean = to_dask_dataset(virtual, {}).tas.mean().data
            future = client.compute(mean)
            submitted = time.process_time()
            client.cancel(future)
            array = virtual.tas.variable.data.array
            planned = time.process_time()
            regions = cut_portions(ExpressionValues(Stored(array)), (0, 1, 2), 16)
            future = client.get(
                *make_graph(_Nothing(array), [region.boxes for region in regions], f"nothing{size}"), sync=False
            )
            sent = time.process_time()
            client.cancel(future)
            counts = [len(dict(mean.__dask_graph__())), sum(len(region.boxes) for region in regions)]
            times = [opened - began, submitted - opened, sent - planned]
            print(f"| {size:,} | {times[0]:.2f} | {times[1]:.2f} | {counts[0]:,} | {times[2]:.2f} | {counts[1]:,} |")
            seconds.append(times[1])
            path.unlink()
    if len(sizes) > 1:
        print(f"\nSubmitting `chunks={{}}` grows as chunks^{exponent(sizes, seconds):.2f}.")


@dataclass(frozen=True)
class _Nothing:
    """A job with a table of chunks that computes nothing."""

    array: Any
    name: str = "nothing"

    def fold_portion(self, box: Any) -> int:
        return 0

    def merge(self, states: Any) -> int:
        return 0


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    print(machine.describe())
    with tempfile.TemporaryDirectory(prefix="insitu-scale-") as folder:
        path = Path(folder)
        show_means(write_archive(path / "many.h5", 2_000 if quick else CHUNKS), (2,) if quick else (1, 2, 4))
        show_submission(path, (10_000, 100_000) if quick else (10_000, 100_000, MILLION))


if __name__ == "__main__":
    os.environ.setdefault("INSITU_SCAN_CACHE", "off")
    main()
