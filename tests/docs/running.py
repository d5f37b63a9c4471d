"""Run a page of the documentation: its Python blocks (of a notebook: its cells) and its commands, those within
sentences too, one after another in an empty folder.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlencode

from forked_commands import ADDRESS, forking_address, run_command, write_program
from ports import free_port
from waiting import LONG, wait_until

FENCE = re.compile(r"^```(?:\{code-cell\} )?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUNNABLE = ("python", "console", "sh")
"""Languages of the blocks that are meant to be run."""
SENTENCE = re.compile(r"`(insitu [a-z][^`]*)`")
QUOTED = re.compile(r"'[^']*'|\"[^\"$`\\]*\"|(?<=\s)#.*")
NEEDS_SHELL = re.compile(r"[\n|&;<>$`(){}*?~\\\[]")
"""Characters that mean more to a shell than to `shlex`, outside quotes and comments."""
COMMENT = re.compile(r"#.*?(?:`(insitu [a-z][^`\n]*)`|\bor: (insitu [^\n]*))")


@dataclass(frozen=True)
class Step:
    """A Python block, or one command with what it is shown to print."""

    kind: str
    text: str
    shown: tuple[str, ...] = ()


def blocks(page: Path) -> list[tuple[str, str]]:
    """The languages and texts of the blocks that are meant to be run."""
    found = FENCE.finditer(page.read_text(encoding="utf-8"))
    return [(block[1], block[2]) for block in found if block[1] in RUNNABLE]


def steps(text: str) -> list[Step]:
    """What a page tells its reader to run, in its order: blocks, the commands in their comments after them, and
    commands within sentences.
    """
    found: list[Step] = []
    end = 0
    for block in FENCE.finditer(text):
        found += _commands_in(SENTENCE, text[end : block.start()])
        found += _steps_of_block(block[1], block[2])
        if block[1] in RUNNABLE:
            found += _commands_in(COMMENT, block[2])
        end = block.end()
    return [*found, *_commands_in(SENTENCE, text[end:])]


def _commands_in(pattern: re.Pattern[str], text: str) -> list[Step]:
    return [
        Step("command", " ".join(next(filter(None, command.groups())).split())) for command in pattern.finditer(text)
    ]


def _steps_of_block(language: str, text: str) -> list[Step]:
    if language == "python":
        return [Step("python", text)]
    if language == "sh":  # a loop goes on until its `done`
        return [Step("command", line.strip()) for line in re.split(r"\n(?![ \t]|done)", text) if line.strip()]
    if language == "console":
        return [
            Step("command", command, tuple(shown))
            for command, *shown in (part.splitlines() for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:])
        ]
    return []


def as_program(parts: Iterable[Step], places: Mapping[str, str]) -> str:
    """Steps as one Python program: commands become calls. Places are patterns, and what stands in for them."""
    lines = ["from docs.running import command"]
    for step in parts:
        text, shown = (_replace_places(each, places) for each in (step.text, "\n".join(step.shown)))
        lines.append(text if step.kind == "python" else f"command({text!r}, {shown.splitlines()!r})")
    return "\n".join(lines)


def _replace_places(text: str, places: Mapping[str, str]) -> str:
    for pattern, place in places.items():
        text = re.sub(pattern, place, text)
    return text


# -- in the process of the page


@dataclass
class _Server:
    process: subprocess.Popen[str]
    url: str


_servers: list[_Server] = []


def command(text: str, shown: Sequence[str] = ()) -> None:
    """Run a command, and look for what it is shown to print; a server is waited for until it answers."""
    if text.endswith("&") or (re.search(r"\binsitu (serve|explore)\b", text) and "--help" not in text):
        _start_server(text.removesuffix("&"))
        return
    if text.startswith("insitu ") and not NEEDS_SHELL.search(QUOTED.sub("", text)):
        done = run_command(shlex.split(text, comments=True)[1:])
    else:
        done = subprocess.run(text, shell=True, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    printed = " ".join(done.stdout.split())
    for line in shown:
        assert " ".join(line.split()) in printed, f"{line!r} is not in what {text!r} prints:\n{done.stdout}"


def _start_server(text: str) -> None:
    """Start a server in the place of the one before, and wait until it answers."""
    end_servers()
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(["sh", "-c", f"exec env {text}"], stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        if "insitu explore" in text:  # it says where it listens, and tells the browser
            url = process.stdout.readline().strip()
            assert url, f"{text}\n{_content(log)}"
            opened = Path(os.environ["OPENED_IN_BROWSER"])
            wait_until(lambda: opened.exists() and opened.read_text() == url, "no browser was opened")
        else:
            port = re.search(r"--port (\d+)", text)
            url = f"http://127.0.0.1:{port[1] if port else os.environ['INSITU_SERVE_PORT']}"
        _servers.append(_Server(process, url.rstrip("/")))
        until = time.monotonic() + LONG
        while True:
            assert process.poll() is None, f"the server ended: {text}\n{_content(log)}"
            assert time.monotonic() < until, f"the server does not answer: {text}\n{_content(log)}"
            try:
                ask("/health")
                return
            except OSError:
                time.sleep(0.1)


def _content(log: IO[str]) -> str:
    log.seek(0)
    return log.read()


def ask(path: str) -> bytes:
    """What the server that was started last answers."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(_servers[-1].url + path, timeout=LONG) as answer:
        found: bytes = answer.read()
    return found


def explored_variables() -> set[str]:
    """The variables of the archive that the explorer's page shows first."""
    assert b"<html" in ask("/").lower()
    query = urlencode({"url": json.loads(ask("/explorer/api/server"))["open"]})
    groups = json.loads(ask(f"/explorer/api/archive?{query}"))["groups"]
    return {variable["path"] for group in groups for variable in group["variables"]}


def end_servers() -> None:
    """End the servers that commands have started."""
    while _servers:
        process = _servers.pop().process
        process.terminate()
        process.communicate(timeout=LONG)


# -- in the process of the tests


def run_page(page: Path, folder: Path) -> None:
    """Run the blocks of a page in a folder, in a process of their own."""
    run_steps([step for language, text in blocks(page) for step in _steps_of_block(language, text)], folder)


def run_steps(
    parts: Sequence[Step],
    folder: Path,
    places: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run steps of a page in a folder, in a process of their own.

    Parameters
    ----------
    parts
        The steps.
    folder
        Where they are run.
    places
        Patterns of places that the steps name and no test has, such as hosts, and what stands in for them. The port
        8080 is always another one, also where no command names it.
    environment
        Variables of the process, beside those of this one without credentials.
    """
    port = free_port()
    program = as_program(parts, {**(places or {}), "8080": str(port)})
    tests = str(Path(__file__).parents[1])
    code = (
        f"import sys\nsys.path.append({tests!r})\nimport docs.running, plain_xarray\n"
        # numbagg compiles each function in each process: half a minute for the median of a page's comparison.
        f"plain_xarray.leave_libraries_out()\nprogram = {program!r}\ntry:\n"
        "    exec(compile(program, 'page', 'exec'), {'__name__': 'page'})\nfinally:\n    docs.running.end_servers()\n"
    )
    opened, programs = folder / ".browser", folder / ".bin"
    write = f"import pathlib, sys; pathlib.Path({str(opened)!r}).write_text(sys.argv[1])"
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "AZURE_", "GOOGLE_", "OTEL_")) and name != "INSITU_SCAN_CACHE"
    }
    whole = {
        **inherited,
        "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "XDG_CACHE_HOME": str(folder / ".cache"),
        "BROWSER": f"{shlex.join([sys.executable, '-c', write])} %s",
        "OPENED_IN_BROWSER": str(opened),
        "INSITU_SERVE_PORT": str(port),
        "MPLBACKEND": "Agg",
        "no_proxy": "*",
        **({ADDRESS: address.lstrip("\0")} if (address := forking_address()) is not None else {}),
        **(environment or {}),
    }
    programs.mkdir()
    if address is not None:
        write_program(programs / "insitu")
    done = run_command([], code=code, folder=folder, environment=whole)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
