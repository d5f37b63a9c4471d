"""Stop a writer before each of its system calls, and look at what a kill would leave there.

`python die_everywhere.py LIBRARY`, with LIBRARY (made of `die_at_call.c`) in LD_PRELOAD. Each line of
standard input is a list in JSON: the folder, the work, the suffix of the target, and whether two
directories can be exchanged; the answer is a line of standard output. Every run is a forked child of
this process, which itself does nothing but import, so that no thread or event loop is inherited.

What a process has written is there for others when it is killed, and nothing else: so the files are
copied while the writer stands still, and each state is opened once, however many calls (of `fsync`,
or of files that are only opened) leave it. That took 290 s of processor time when the writer was
killed, and run from the start, before each call; the first, the middle and the last call still are.
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

HANGS = 900
"""Seconds after which a child is ended."""
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
    facts: list[Any] = []
    if (target / "native").is_dir():  # parts are pinned, or were about to be: the values are those of the files
        assert insitu.read(group, "t").tolist() == [0.0, 1.0, 2.0, 3.0]
    if target.suffix == ".insitu":
        facts.append(len(json.loads((target / "root.json").read_text())["chunks"]))
    for tile in group.array("t").tiles:
        table = tile.chunks
        found = table.locate([np.arange(table.shape[0])])
        facts += [
            (Path(table.sources[int(source)].url.removeprefix("file://")).name, int(offset), int(length))
            for source, offset, length in zip(found.source, found.offset, found.length, strict=True)
        ]
    return [list(group.array("t").shape), facts]


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
        signal.alarm(HANGS)
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

    def save_and_pin(target: Path) -> None:
        save_first(target)
        pin(target)

    def pin(target: Path) -> None:
        command(target, "pin", target, "t", "--chunks", "time=3")

    return {
        "scan": (lambda target: None, scan),
        "pin": (save_first, pin),
        "unpin": (save_and_pin, lambda target: command(target, "unpin", target)),
        "unpin-compact": (
            lambda target: (save_and_pin(target), command(target, "unpin", target))[0],
            lambda target: command(target, "compact", target),
        ),
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
    target = folder / "target" / f"x{suffix}"

    def prepare() -> None:
        """Put the state before at the target."""
        shutil.rmtree(target.parent, ignore_errors=True)
        shutil.copytree(folder / "before", target.parent)
        if work == "refresh":
            write_file(folder / "one.nc", 0)
            os.utime(folder / "one.nc", ns=(10**18, 10**18))

    def act_with(arm: Callable[[], Any]) -> int:
        if work == "refresh":
            write_file(folder / "one.nc", 0, 50)
        if not can_exchange:
            directory_swap._exchange = lambda path, other: False  # type: ignore[assignment]
        arm()
        act(target)
        return int(calls.calls())

    def open_and_repeat() -> tuple[Any, Any]:
        """The state that was left, and that after the work is done again, if it can be: None if not.

        Whatever was left lying around is in nobody's way.
        """
        found = json.loads(json.dumps(state(target)))  # as it comes out of another process
        if found != old and work in ("append", "drop", "rollback", "save-new", "convert", "unpin-compact"):
            return found, None
        act(target)
        return found, state(target)

    def judge(call: int) -> str:
        """Whether the old state lies at the target or the new one, when the writer got as far as this call."""
        if suffix == ".parq" and not new_target and can_exchange:
            assert (target / ".zmetadata").exists(), f"call {call}: others find nothing at the path"
        status, left = run_forked(open_and_repeat)
        assert status == 0, f"call {call}: what is left cannot be opened, or the work not be done again"
        found, done = left
        assert found in (old, new), f"call {call}: {found} is neither the old nor the new state"
        assert done is None or done == new or old not in (None, done), f"call {call}: done again it gives {done}"
        return "old" if found == old else "new"

    write_file(folder / "one.nc", 0)
    os.utime(folder / "one.nc", ns=(10**18, 10**18))
    write_file(folder / "two.nc", 4)
    (folder / "before").mkdir()
    assert run_forked(lambda: before(folder / "before" / f"x{suffix}"))[0] == 0
    old = run_forked(lambda: state(folder / "before" / f"x{suffix}"))[1]
    prepare()
    status, modules = run_forked(lambda: (act_with(lambda: None), state(target), sorted(sys.modules))[-1])
    assert status == 0, "the writer fails by itself"
    asynchronous = [name for name in modules if name.startswith(("icechunk", "zarr"))]
    import_all(set(modules) - set(asynchronous))  # once here, and not in every child
    threads = count_threads()
    import_all(asynchronous)
    assert count_threads() == threads, "an import starts a thread, which does not survive a fork"
    look_up_libraries()
    gc.freeze()  # a child that marks all these objects as seen would copy the pages that hold them
    prepare()
    status, total = run_forked(lambda: act_with(lambda: calls.die_at(-1)))
    assert status == 0, "the writer fails by itself"
    new = run_forked(lambda: state(target))[1]
    new_target = work in ("scan", "scan-one", "save-new", "convert")
    assert (old is None) == new_target
    assert new not in (old, None)
    assert 3 < total < MOST, total
    prepare()
    changed = [target.parent, *([folder / "one.nc"] if work == "refresh" else [])]
    states = copy_at_every_stop(lambda: act_with(calls.stop_at_calls), changed, folder / "copies")
    seen = {"old": 0, "new": 0}
    for call, (copies, count) in states.items():
        shutil.rmtree(target.parent)
        for copy, place in zip(copies, changed, strict=True):
            os.replace(copy, place)
        seen[judge(call)] += count
    for call in {0, total // 2, total - 1}:
        prepare()
        status, _ = run_forked(lambda call=call: act_with(lambda: calls.die_at(call)))
        assert os.WIFSIGNALED(status), f"call {call}: the writer went on"
        judge(call)
    return {"calls": total, **seen}


def copy_at_every_stop(work: Callable[[], Any], places: list[Path], folder: Path) -> dict[int, tuple[list[Path], int]]:
    """Run a writer that stops before each of its calls. Return copies of the files that it changes, by the first call
    that finds them so, and how many calls do.
    """
    states: dict[int, tuple[list[Path], int]] = {}
    last: tuple[int, Any] = (-1, None)
    child = os.fork()
    if not child:
        signal.alarm(HANGS)
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    call = 0
    while os.WIFSTOPPED(status := os.waitpid(child, os.WUNTRACED)[1]):
        found = [read_tree(place) for place in places]
        if found != last[1]:
            last = call, found
            copies = [folder / str(call) / place.name for place in places]
            for place, copy in zip(places, copies, strict=True):
                copy_place(place, copy)
            states[call] = copies, 0
        states[last[0]] = states[last[0]][0], states[last[0]][1] + 1
        call += 1
        os.kill(child, signal.SIGCONT)
    assert status == 0, "the writer fails by itself"
    return states


def read_tree(place: Path) -> dict[str, bytes | None]:
    """The bytes of a file, or of each file of a folder; None stands for a folder."""
    found = [place, *place.rglob("*")]
    return {str(path): None if path.is_dir() else path.read_bytes() for path in found}


def copy_place(place: Path, copy: Path) -> None:
    """Copy a file or a folder, with its times."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir():
        shutil.copytree(place, copy)
    else:
        shutil.copy2(place, copy)


if __name__ == "__main__":
    main()
