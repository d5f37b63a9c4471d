"""How is a page of the documentation run? Its Python blocks (of a notebook: its cells) one after
another, its commands in a shell, in an empty folder.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from waiting import LONG

BLOCK = re.compile(r"^```(?:\{code-cell\} )?(python|console|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    """The kinds and texts of the blocks that are meant to be run."""
    return [(found[1], found[2]) for found in BLOCK.finditer(page.read_text(encoding="utf-8"))]


def as_program(texts: list[tuple[str, str]], port: int, places: Mapping[str, str]) -> str:
    """Blocks of a page as one Python program: commands become calls, what they are shown to print is
    looked for in what they print.
    """
    lines = ["from docs.running import command"]
    for kind, text in texts:
        for shown_place, place in places.items():
            text = text.replace(shown_place, place)
        text = text.replace("8080", str(port))
        if kind == "python":
            lines.append(text)
            continue
        if kind == "sh":
            lines += [f"command({line!r}, [])" for line in text.splitlines() if line]
            continue
        shown: list[str] = []
        call = ""
        for line in [*text.splitlines(), "$ "]:
            if not line.startswith("$ "):
                shown.append(line)
                continue
            if call:
                lines.append(f"command({call!r}, {shown!r})")
            call, shown = line[2:], []
    return "\n".join(lines)


def command(text: str, shown: list[str]) -> None:
    """Run a command; one that ends in & is waited for until it answers."""
    if text.endswith("&"):
        port = re.search(r"--port (\d+)", text)
        process = subprocess.Popen(text[:-1].split(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        BEHIND.append(process)
        assert port is not None
        wait(int(port[1]), process)
        return
    done = subprocess.run(text, shell=True, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    printed = " ".join(done.stdout.split())
    for line in shown:
        assert " ".join(line.split()) in printed, f"{line!r} is not in what {text!r} prints:\n{done.stdout}"


BEHIND: list[subprocess.Popen[bytes]] = []


def wait(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until a server answers."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        assert process.poll() is None, "the server ended"
        try:
            with direct.open(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the server does not answer")


@contextmanager
def free_port() -> Iterator[int]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    yield port


def run_page(page: Path, folder: Path) -> None:
    """Run a page in a folder, in a process of its own."""
    run_blocks(blocks(page), folder)


def run_blocks(texts: list[tuple[str, str]], folder: Path, places: Mapping[str, str] | None = None) -> None:
    """Run blocks of a page in a folder, in a process of their own.

    Parameters
    ----------
    texts
        The blocks.
    folder
        Where they are run.
    places
        What stands in for the places that the blocks name: servers and buckets that no test has.
    """
    with free_port() as port:
        program = as_program(texts, port, places or {})
    ending = "\nimport docs.running\nfor process in docs.running.BEHIND:\n    process.terminate(); process.wait(900)\n"
    guarded = "try:\n    exec(compile(program, 'page', 'exec'), {'__name__': 'page'})\nfinally:\n" + "\n".join(
        f"    {line}" for line in ending.strip().splitlines()
    )
    code = f"program = {program!r}\n{guarded}"
    tests = str(Path(__file__).parents[1])
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([tests, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]),
        "XDG_CACHE_HOME": str(folder / ".cache"),
        "MPLBACKEND": "Agg",
        "no_proxy": "*",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=LONG, env=environment
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
