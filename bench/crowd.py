"""Does the server stay right, and within its memory, when two hundred clients ask at once?

Each asks again and again and knows every answer: chunks (`/v2`), whole variables (`/reduce`), URLs
that are refused, bodies that are no JSON. Told: answers, wrong ones, those told to come again, the
time of the slowest in a hundred, the server's largest memory.

    python bench/crowd.py [--seconds 60] [--clients 200] [--workers 1]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from importlib import import_module
from pathlib import Path

import h5py
import numpy as np
import psutil

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests")]
serving = import_module("server.serving").serving
crowd = import_module("service.test_crowd")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with h5py.File(folder / "a.h5", "w") as file:
            for number in range(8):
                values = np.full((40, 50), number + 1, "f4")
                file.create_dataset(f"v{number}", data=values, chunks=(10, 50), compression="gzip")
        for number in range(50):
            (folder / f"chunk-{number}").write_bytes(np.full(100, number, "<i4").tobytes())
        how = ("--memory", "0.25", "--max-chunk", "32", "--workers", str(options.workers), "--log-level", "warning")
        with serving([folder], folder / "log", *how) as server:
            wrong: list[object] = []
            done: list[float] = []
            largest = [0]
            stop = threading.Event()

            def watch() -> None:
                process = psutil.Process(server.process.pid)
                while not stop.wait(0.2):
                    largest[0] = max(largest[0], sum(p.memory_info().rss for p in [process, *process.children()]))

            watching = threading.Thread(target=watch)
            watching.start()
            visits = [
                threading.Thread(target=crowd.visit, args=(server, folder, i, options.seconds, wrong, done))
                for i in range(options.clients)
            ]
            begin = time.perf_counter()
            for visit in visits:
                visit.start()
            for visit in visits:
                visit.join()
            seconds = time.perf_counter() - begin
            stop.set()
            watching.join()
    slow = np.percentile(done, [50, 99]) if done else (float("nan"),) * 2
    print(
        f"{len(done):,} right answers in {seconds:.0f} s ({len(done) / seconds:.0f} a second), {len(wrong)} "
        "wrong or lost"
    )
    print(
        f"half within {1000 * slow[0]:.0f} ms, 99 of 100 within {1000 * slow[1]:.0f} ms; at most "
        f"{largest[0] / 2**20:.0f} MiB"
    )
    for item in wrong[:5]:
        print(item)


if __name__ == "__main__":
    main()
