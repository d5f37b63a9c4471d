"""What does it cost to know the mean of 1 GB that lies elsewhere?

The file is on a web server, an `insitu serve` beside it (it knows the URL's folder). Clients reach
both over the loopback as it is, and over a link of 100 Mbit/s with 20 ms: (a) xarray with h5netcdf
and fsspec; (b) zarr over kerchunk references; (c) PyActiveStorage with our server, one request a
chunk; (d) insitu, `open_dataset(url, active=…)`; (e) insitu, the same without a server. Also what
the server's processor did for (d), request, metadata and all, beside decoding the same chunks
alone.

    python bench/active.py [--quick] [--peers PYTHON]      # an interpreter that has the peers; by
    default this one
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from archives import archive
from latency_server import LatencyServer
from machine import describe
from throttle import Throttle

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "scripts"), str(HERE.parent / "tests")]

active_storage = import_module("active_storage")
serving = import_module("server.serving").serving

RATE, DELAY = 100e6, 0.02

CLIENTS = {
    "a: xarray, h5netcdf, fsspec": (
        "import fsspec, xarray, sys; f = fsspec.open(sys.argv[1]).open(); "
        "print(float(xarray.open_dataset(f, engine='h5netcdf').t.mean()))"
    ),
    "b: zarr over references": (
        "import xarray, sys; print(float(xarray.open_dataset('reference://', engine='zarr', chunks=None, "
        "backend_kwargs=dict(consolidated=False, storage_options=dict(fo=sys.argv[3], remote_protocol='http', "
        "remote_options={'asynchronous': True}, asynchronous=True))).t.mean()))"
    ),
    "c: PyActiveStorage + insitu serve": (
        "import sys; from activestorage.active import Active; "
        "a = Active(sys.argv[1], 't', interface_type='https', storage_options={}, active_storage_url=sys.argv[2]); "
        "a._version = 2; a.method = 'mean'; r = a[:, :, :]; print('\\n' + str(float(r.ravel()[0])))"
    ),
    "d: insitu, active=": (
        "import insitu, sys; print(float(insitu.open_dataset(sys.argv[1], active=sys.argv[2], "
        "active_required=True).t.mean()))"
    ),
    "d': insitu reduce --active (the server finds the variable)": (
        "import sys; from insitu.active.client import Active; from insitu.reducing import ReductionQuery; "
        "print(float(Active(sys.argv[2], True).reduce_url(sys.argv[1], 't', ReductionQuery.of('mean'))[0]['mean']))"
    ),
    "e: insitu, read here": "import insitu, sys; print(float(insitu.open_dataset(sys.argv[1]).t.mean()))",
}

DECODING = """
import os, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import insitu
from insitu.codecs import prepare
from insitu.reading.thread_pools import count_cores
array = insitu.scan(sys.argv[1]).array("t")
tile = array.tiles[0]
rows = tile.chunks.locate(np.ix_(*(np.arange(n) for n in tile.chunks.shape)))
shape = tuple(axis.size for axis in tile.axes)
decoder = prepare(tile.encodings[0], shape)
file = os.open(sys.argv[1], os.O_RDONLY)
kept = threading.local()

def decode(offset, length):
    if not hasattr(kept, "out"):
        kept.out = np.empty(shape, "f4")
    decoder(os.pread(file, length, offset), kept.out)

with ThreadPoolExecutor(count_cores() + 1) as pool:
    for _ in range(2):  # the first time memory comes from the system
        begin = time.process_time()
        list(pool.map(decode, rows.offset.ravel().tolist(), rows.length.ravel().tolist()))
        seconds = time.process_time() - begin
print(seconds)
"""
"""Decoding alone, at its best: the server's decoder, on as many threads, into arrays that stay, in
a process that has done it before.
"""

ROUNDS = 5
"""Of the server and of decoding alone, one after the other, so that both find the same machine;
medians are compared.
"""


def interpreter(name: str, peers: str) -> str:
    if name[0] == "c":
        return str(active_storage.python() or peers)
    return peers if name[0] in "ab" else sys.executable


def run(name: str, peers: str, *arguments: str) -> tuple[float, float] | str:
    """The mean and the seconds; or why there are none."""
    begin = time.perf_counter()
    done = subprocess.run(
        [interpreter(name, peers), "-W", "ignore", "-c", CLIENTS[name], *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    seconds = time.perf_counter() - begin
    if done.returncode:
        return done.stderr.strip().splitlines()[-1][:150] if done.stderr.strip() else "failed"
    return float(done.stdout.strip().splitlines()[-1]), seconds


IMPORTS = {
    "a": "import fsspec.implementations.http, h5netcdf, xarray; xarray.backends.list_engines()",
    "b": "import fsspec.implementations.http, zarr, xarray; xarray.backends.list_engines()",
    "c": "import activestorage.active",
    "d": "import insitu.active.client, insitu.xarray_bridge.opening, cbor2, xarray; xarray.Variable('x', [0.0])",
    "d'": "import insitu.active.client, insitu.reducing, cbor2",
    "e": "import insitu.xarray_bridge.opening, xarray; xarray.Variable('x', [0.0])",
}


def startup(name: str, peers: str) -> float:
    """Seconds that importing takes: not the link's doing."""
    begin = time.perf_counter()
    subprocess.run(
        [interpreter(name, peers), "-W", "ignore", "-c", IMPORTS[name.partition(":")[0].split()[0]]],
        capture_output=True,
        check=False,
        timeout=120,
    )
    return time.perf_counter() - begin


def references(path: Path, url: str, peers: str) -> str:
    target = path.with_suffix(".active.json")
    code = (
        "import sys, json; from kerchunk.hdf import SingleHdf5ToZarr; "
        "json.dump(SingleHdf5ToZarr(open(sys.argv[1], 'rb'), sys.argv[2], inline_threshold=300).translate(), "
        "open(sys.argv[3], 'w'))"
    )
    subprocess.run([peers, "-W", "ignore", "-c", code, str(path), url, str(target)], capture_output=True, check=False)
    return str(target)


def decoding(path: Path) -> float:
    """Seconds of processor that decoding alone takes."""
    command = [sys.executable, "-c", DECODING, str(path)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def processor(pid: int) -> float:
    process = psutil.Process(pid)
    return sum(sum(p.cpu_times()[:2]) for p in [process, *process.children(recursive=True)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small file")
    parser.add_argument(
        "--peers", default=sys.executable, help="an interpreter that has fsspec, h5netcdf, kerchunk, zarr"
    )
    parser.add_argument("--only", default="abcde", help="letters of the clients")
    options = parser.parse_args()
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[1] / "src"))
    path = archive("zlib", quick=options.quick)
    print(describe())
    print("\n## The mean of a file that lies elsewhere, with a server beside it and without\n")
    print(f"{path.stat().st_size:,} bytes; {RATE / 1e6:.0f} Mbit/s and {1000 * DELAY:.0f} ms where throttled.\n")
    effort: list[tuple[float, float]] = []
    found: dict[tuple[str, str], dict[str, float]] = {}
    print("| | link | seconds | bytes | requests | mean |\n|---|---|---:|---:|---:|---:|")
    with LatencyServer(path.parent, 0.0) as storage:
        port = int(urlsplit(storage.url).port or 0)
        for link, rate, delay in (("loopback", None, 0.0), ("throttled", RATE, DELAY)):
            with ExitStack() as stack:
                first = stack.enter_context(Throttle([port], rate, delay))
                place = f"http://127.0.0.1:{first.ports[0]}"
                how = ("--cache", "0", "--log-level", "warning")
                server = stack.enter_context(serving([f"{place}={path.parent}"], path.with_suffix(".log"), *how))
                second = stack.enter_context(Throttle([int(urlsplit(server.url).port or 0)], rate, delay))
                url, near = f"{place}/{path.name}", f"http://127.0.0.1:{second.ports[0]}"
                made = references(path, url, options.peers)
                run(
                    "d': insitu reduce --active (the server finds the variable)", options.peers, url, near
                )  # the server's own imports
                for name in CLIENTS:
                    if name[0] not in options.only:
                        continue
                    imports = startup(name, options.peers)
                    first.counted(), second.counted()
                    before = processor(server.process.pid)
                    outcome = run(name, options.peers, url, near, made)
                    cpu = processor(server.process.pid) - before
                    moved = [first.counted(), second.counted()]
                    if isinstance(outcome, str):
                        print(f"| {name} | {link} | failed: {outcome.replace('|', '/')} | | | |")
                        continue
                    row = {
                        "seconds": outcome[1] - imports, "bytes": sum(m["up"] + m["down"] for m in moved),
                        "requests": sum(m["requests"] for m in moved), "cpu": cpu,
                    }  # fmt: skip
                    found[name, link] = row
                    print(
                        f"| {name} | {link} | {row['seconds']:.2f} | {row['bytes']:,.0f} | {row['requests']:.0f} | "
                        f"{outcome[0]:.6f} |"
                    )
                for _ in range(ROUNDS if link == "loopback" and "d" in options.only else 0):
                    before = processor(server.process.pid)
                    run("d: insitu, active=", options.peers, url, near)
                    effort.append((processor(server.process.pid) - before, decoding(path)))
    verdicts(found, effort, path.stat().st_size)
    (path.parent / "active.results.json").write_text(
        json.dumps({" | ".join(key): row for key, row in found.items()}, indent=1)
    )


def verdicts(found: dict[tuple[str, str], dict[str, float]], effort: list[tuple[float, float]], size: int) -> None:
    """What was promised, and what came."""
    by = {(name[:2].strip(":"), link): row for (name, link), row in found.items()}
    best = by.get(("d", "throttled"))
    if best is None:
        return
    print(f"\n- (d) moved 1/{size / best['bytes']:,.0f} of the file's bytes (promised: less than 1/10,000)")
    for other in "ab":
        if (row := by.get((other, "throttled"))) is not None:
            print(f"- (d) was {row['seconds'] / best['seconds']:.1f} times as fast as ({other}) (promised: 10)")
    if (row := by.get(("c", "throttled"))) is not None:
        print(f"- (d) made {row['requests'] / best['requests']:.1f} times fewer requests than (c) (promised: 5)")
    if effort:
        server, alone = (statistics.median(column) for column in zip(*effort, strict=True))
        print(
            f"- the server's processor: {server:.2f} s, {server / alone:.2f} times that of decoding "
            f"alone, {alone:.2f} s (promised: 1.3)"
        )


if __name__ == "__main__":
    main()
