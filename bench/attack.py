"""How much slower are healthy requests while a server is attacked in every way at once?

One server with two workers: first healthy clients alone, then beside attackers (a process of their own) that send
CBOR that refers to itself, numbers and lists without end, images that claim to be huge, archives that declare 2⁵⁰
chunks, and that read nothing of what they ask for. Printed: the slowest of a hundred healthy requests in both, their
ratio (it should be at most 3), the memory of the largest worker beside what the server says that it may take, and what
the attackers were answered (nothing but 4xx and 503; 200 where an archive is only described).

    python bench/attack.py [--minutes 10] [--quiet 60] [--clients 4]
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import threading
from importlib import import_module
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tests")]
serving = import_module("server.serving").serving
attackers = import_module("server.attackers")

OPTIONS = ("--workers", "2")


def attack(url: str, folder: str, stop: Event, results: Any) -> None:
    """Attack until told to stop; runs in a process of its own."""
    found = attackers.Attackers(url, Path(folder))
    working = threading.Thread(target=found.run)
    working.start()
    stop.wait()
    found.stopped.set()
    working.join()
    results.put((found.statuses, found.ended, found.problems))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--quiet", type=float, default=60, help="seconds without attackers")
    parser.add_argument("--clients", type=int, default=4, help="healthy clients")
    options = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        folder, log = Path(name) / "files", Path(name) / "log"
        folder.mkdir()
        attackers.write_files(folder)
        with serving([folder], log, *OPTIONS) as server, attackers.MemoryWatch(server.process.pid) as memory:
            attackers.HealthyClients(server.url, folder, options.clients).run(3)  # what is imported at first use
            quiet = attackers.HealthyClients(server.url, folder, options.clients)
            quiet.run(options.quiet, least=100)
            stop, results = spawn.Event(), spawn.Queue()
            process = spawn.Process(target=attack, args=(server.url, str(folder), stop, results))
            process.start()
            loud = attackers.HealthyClients(server.url, folder, options.clients)
            loud.run(60 * options.minutes, least=100)
            stop.set()
            statuses, ended, problems = results.get()
            process.join()
            stated = attackers.stated_bytes(log)
    for label, clients in (("quiet", quiet), ("under attack", loud)):
        print(
            f"{label}: {len(clients.seconds):,} answers, half within {1000 * clients.percentile(0.5):.1f} ms, "
            f"99 of 100 within {1000 * clients.percentile(0.99):.1f} ms, refused: {dict(clients.refused)}, "
            f"wrong: {len(clients.problems)}"
        )
    print(f"ratio of the slowest in a hundred: {loud.percentile(0.99) / quiet.percentile(0.99):.2f}")
    print(f"largest worker: {memory.largest >> 20} MiB of {stated >> 20} MiB stated")
    for kind, counted in statuses.items():
        print(f"{kind}: {dict(counted)}")
    print(f"slow connections that were ended: {ended}")
    for problem in [*quiet.problems, *loud.problems, *problems][:10]:
        print(problem)


if __name__ == "__main__":
    main()
