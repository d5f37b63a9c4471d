"""`--every-package`: fail unless the selected tests call functions of every package of insitu.

This keeps `make quick` honest: a package without a test in the quick selection is named at the end, and the run fails. What
counts is a function that was called in the test processes; importing a module does not count.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import insitu

ROOT = Path(insitu.__file__).resolve().parent
_codes: set[CodeType] = set()
_from_workers: set[tuple[str, str]] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(
        "--every-package", action="store_true", help="fail unless functions of every package of insitu are called"
    )


def _is_wanted(config: pytest.Config) -> bool:
    return bool(config.getoption("every_package")) and not config.getoption("collectonly")


def _note(frame: FrameType, event: str, argument: Any) -> None:
    _codes.add(frame.f_code)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Note every function that is called from now on, in all threads."""
    if _is_wanted(session.config):
        threading.settrace(_note)
        sys.settrace(_note)


def packages() -> set[str]:
    """Return the packages of insitu, as paths below it; "." is insitu itself."""
    return {path.parent.relative_to(ROOT).as_posix() for path in ROOT.rglob("__init__.py")}


def _called() -> set[tuple[str, str]]:
    """Return package and name of each function of insitu that was called here."""
    found = set()
    for code in _codes:
        path = Path(code.co_filename)
        if code.co_flags & inspect.CO_OPTIMIZED and path.is_relative_to(ROOT):
            found.add((path.parent.relative_to(ROOT).as_posix(), f"{path.name}:{code.co_qualname}"))
    return found


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over what a worker has seen."""
    _from_workers.update(map(tuple, getattr(node, "workeroutput", {}).get("called", ())))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop noting; in the main process, fail if a package is missing."""
    if not _is_wanted(session.config):
        return
    sys.settrace(None)
    threading.settrace(None)  # type: ignore[arg-type]
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["called"] = sorted(_called())
        return
    counted = Counter(package for package, _ in _called() | _from_workers)
    session.config.stash[_COUNTED] = counted
    if packages() - counted.keys() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


_COUNTED = pytest.StashKey[Counter[str]]()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say how many functions of each package were called."""
    counted = config.stash.get(_COUNTED, None)
    if counted is None:
        return
    terminalreporter.section("functions called, by package", sep="-")
    terminalreporter.line(", ".join(f"{name} {counted[name]}" for name in sorted(packages()) if counted[name]))
    missing = sorted(packages() - counted.keys())
    if missing:
        terminalreporter.line(f"NO TEST of this selection calls a function of: {', '.join(missing)}", red=True)
