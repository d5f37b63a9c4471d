"""Run writers again and again, killed before each of their system calls, and look at what is left
each time.

`python die_everywhere.py LIBRARY`, with LIBRARY (made of `die_at_call.c`) in LD_PRELOAD. Each line of
standard input is a list in JSON: the folder, the work, the suffix of the target, and whether two
directories can be exchanged; the answer is a line of standard output. Every run is a forked child of
this process, which itself does nothing but import, so that no thread or event loop is inherited.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr

import insitu
from insitu.errors import NotFoundError, UnsupportedError
from insitu.formats.registry import installed_formats
from insitu.maintenance import append_tree as append
from insitu.references import directory_swap, open_references, save
from insitu.references.store import restore_previous

MOST = 400
"""Calls; a writer of these small stores that needs more has changed its nature."""


def write_file(path: Path, first: int, shift: int = 0) -> None:
    """One file of the archive: three times, in chunks of two; `shift` moves the bytes."""
    with h5py.File(path, "w", libver="latest") as file:
        if shift:
            file.create_dataset("before", data=np.zeros(shift))
        file.create_dataset("t", data=np.arange(first, first + 4.0), chunks=(2,)).dims[0].label = "time"
        file["time"] = np.arange(first, first + 4)
        file["time"].make_scale("time")
        file["t"].dims[0].attach_scale(file["time"])
        if shift:
            del file["before"]  # the same file as before, with its chunks in other places


def state(target: Path) -> Any:
    """What lies at a target; of a store also how many files it has, and what a rollback restores."""
    found = read_state(target)
    if found is None or target.suffix != ".insitu":
        return found
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / target.name
        shutil.copytree(target, copy)
        try:
            restore_previous(str(copy))
        except UnsupportedError:  # it was saved only once
            return [found, None]
        before = read_state(copy)
        restore_previous(str(copy))
        assert read_state(copy) == found, "a rollback cannot be undone"
        return [found, before]


def read_state(target: Path) -> Any:
    """Everything that saved references say of where the values are."""
    try:
        group = open_references(str(target))
    except NotFoundError:  # a repository without a version
        return None
    if group is None:
        return None
    said: list[Any] = []
    if target.suffix == ".insitu":
        said.append(len(json.loads((target / "root.json").read_text())["chunks"]))
    for tile in group.array("t").tiles:
        table = tile.chunks
        found = table.locate([np.arange(table.shape[0])])
        said += [
            (Path(table.sources[int(source)].url.removeprefix("file://")).name, int(offset), int(length))
            for source, offset, length in zip(found.source, found.offset, found.length, strict=True)
        ]
    return [list(group.array("t").shape), said]


def import_all(names: Iterable[str]) -> None:
    """Import the modules that can be imported by their names."""
    for name in sorted(names):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def look_up_libraries() -> None:
    """Find out once what each process finds out about its libraries, which takes a child longer than its work."""
    installed_formats()
    xr.Variable((), 0)


def count_threads() -> int:
    """How many threads this process has, those of libraries too."""
    return len(os.listdir("/proc/self/task"))


def run_forked(work: Callable[[], Any]) -> tuple[int, Any]:
    """The result of something that a forked child does, and how it ended (as `waitpid` says)."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(120)
        try:
            answer = json.dumps(work())
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        data = file.read()
    _, status = os.waitpid(child, 0)
    return status, json.loads(data) if data else None


def writers(folder: Path, suffix: str) -> dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]]:
    """What is there before, and what the writer does, by name."""
    one, two = folder / "one.nc", folder / "two.nc"

    def save_first(target: Path) -> None:
        save(insitu.scan(one, variables=["t"]), target)

    def command(target: Path, *words: Any) -> None:
        from typer.testing import CliRunner

        from insitu.cli import app

        os.environ["XDG_CACHE_HOME"] = str(target.parent / "cache")
        done = CliRunner().invoke(app, [*map(str, words)])
        if done.exit_code:
            raise RuntimeError(done.output) from done.exception

    def scan(target: Path, *words: str) -> None:
        command(target, "scan", one, two, "-o", target, "--concat-dim", "time", *words)

    def append_second(target: Path) -> int:
        return append(insitu.scan(two, variables=["t"]), target, "time").steps

    return {
        "scan": (lambda target: None, scan),
        "save-new": (lambda target: None, lambda target: save(insitu.scan(two, variables=["t"]), target, mode="x")),
        "scan-one": (lambda target: None, lambda target: command(target, "scan", one, "-o", target, "--variable", "t")),
        "drop": (scan, lambda target: command(target, "drop", target, two)),
        "rollback": (
            lambda target: (save_first(target), append_second(target))[0],
            lambda target: command(target, "rollback", target),
        ),
        "compact": (
            lambda target: (save_first(target), append_second(target))[0],
            lambda target: command(target, "compact", target),
        ),
        "convert": (
            lambda target: save(insitu.scan(two, variables=["t"]), target.with_suffix(".json")),
            lambda target: command(target, "convert", target.with_suffix(".json"), target),
        ),
        "save": (save_first, lambda target: save(insitu.scan(two, variables=["t"]), target)),
        "append": (save_first, append_second),
        "refresh": (save_first, lambda target: (write_file(one, 0, 50), insitu.refresh(target))[0]),
        "resume": (save_first, lambda target: scan(target, "--overwrite")),
    }


def main() -> None:
    library = sys.argv[1]
    warnings.simplefilter("ignore", DeprecationWarning)  # forks of a process with threads: there are none
    calls: Any = ctypes.CDLL(library)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what writers print is no answer
    for line in sys.stdin:
        place, *words = json.loads(line)
        try:
            answer: dict[str, Any] = kill_at_every_call(calls, Path(place), *words)
        except Exception:
            answer = {"failed": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


def kill_at_every_call(calls: Any, folder: Path, work: str, suffix: str, can_exchange: bool = True) -> dict[str, int]:
    """Return how many calls a writer made, and how many of the kills left the old state and the new one."""
    before, act = writers(folder, suffix)[work]

    def prepare(name: str) -> Path:
        """A copy of the state before, in a folder of its own."""
        target = folder / name / f"x{suffix}"
        shutil.rmtree(target.parent, ignore_errors=True)
        shutil.copytree(folder / "before", target.parent)
        if work == "refresh":
            write_file(folder / "one.nc", 0)
            os.utime(folder / "one.nc", ns=(10**18, 10**18))
        return target

    def act_and_die(target: Path, call: int) -> int:
        if work == "refresh":
            write_file(folder / "one.nc", 0, 50)
        if not can_exchange:
            directory_swap._exchange = lambda path, other: False  # type: ignore[assignment]
        calls.die_at(call)
        act(target)
        return int(calls.calls())

    def open_and_repeat(target: Path) -> tuple[Any, Any]:
        """The state that was left, and that after the work is done again, if it can be: None if not.

        Whatever was left lying around is in nobody's way.
        """
        found = json.loads(json.dumps(state(target)))  # as it comes out of another process
        if found != old and work in ("append", "drop", "rollback", "save-new", "convert"):
            return found, None
        act(target)
        return found, state(target)

    write_file(folder / "one.nc", 0)
    os.utime(folder / "one.nc", ns=(10**18, 10**18))
    write_file(folder / "two.nc", 4)
    (folder / "before").mkdir()
    assert run_forked(lambda: before(folder / "before" / f"x{suffix}"))[0] == 0
    old = run_forked(lambda: state(folder / "before" / f"x{suffix}"))[1]
    target = prepare("first")
    status, modules = run_forked(lambda: (act_and_die(target, -1), state(target), sorted(sys.modules))[-1])
    assert status == 0, "the writer fails by itself"
    asynchronous = [name for name in modules if name.startswith(("icechunk", "zarr"))]
    import_all(set(modules) - set(asynchronous))  # once here, and not in every child
    threads = count_threads()
    import_all(asynchronous)
    assert count_threads() == threads, "an import starts a thread, which does not survive a fork"
    look_up_libraries()
    gc.freeze()  # a child that marks all these objects as seen would copy the pages that hold them
    target = prepare("whole")
    status, total = run_forked(lambda: act_and_die(target, -1))
    assert status == 0, "the writer fails by itself"
    new = run_forked(lambda: state(target))[1]
    new_target = work in ("scan", "scan-one", "save-new", "convert")
    assert (old is None) == new_target
    assert new not in (old, None)
    assert 3 < total < MOST, total
    seen = {"old": 0, "new": 0}
    for call in range(total):
        target = prepare("killed")
        status, _ = run_forked(lambda target=target, call=call: act_and_die(target, call))
        assert os.WIFSIGNALED(status), f"call {call}: the writer went on"
        if suffix == ".parq" and not new_target and can_exchange:
            assert (target / ".zmetadata").exists(), f"call {call}: others find nothing at the path"
        status, left = run_forked(lambda target=target: open_and_repeat(target))
        assert status == 0, f"call {call}: what is left cannot be opened, or the work not be done again"
        found, done = left
        assert found in (old, new), f"call {call}: {found} is neither the old nor the new state"
        seen["old" if found == old else "new"] += 1
        assert done is None or done == new or old not in (None, done), f"call {call}: done again it gives {done}"
    return {"calls": total, **seen}


if __name__ == "__main__":
    main()
