"""`--quick`: few examples of each property, no network, and a failure unless the selected tests
call functions of every package of insitu.

The last keeps `make quick` honest: a package without a test in `tests/quick.txt` is named at the
end, and the run fails. What counts is a function that was called in the test processes; importing a
module does not count. Only the first case of each test function is watched, and no property:
watching makes Python code about twice as slow.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from hypothesis import settings

import insitu

ROOT = Path(insitu.__file__).resolve().parent
EXAMPLES = 10
_codes: set[CodeType] = set()
_watched: set[tuple[Path, str]] = set()
_from_workers: set[tuple[str, str]] = set()
_COUNTED = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    text = "few examples of each property; fail unless functions of every package of insitu are called"
    parser.addoption("--quick", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse connections that leave this machine; servers in the test's own process are no network."""
    if config.getoption("quick"):
        sys.addaudithook(_refuse_network)


def _refuse_network(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        host = str(arguments[1][0])
        if not host.startswith("127.") and host not in ("::1", "localhost"):
            raise RuntimeError(
                f"a test of the quick selection connects to {host}: mark it `servers`, or use a server of its own"
            )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let each property try few examples."""
    if not config.getoption("quick"):
        return
    for item in items:
        function = getattr(item, "function", None)
        if hasattr(function, "hypothesis"):
            own = getattr(function, "_hypothesis_internal_use_settings", None) or settings.default
            few = min(EXAMPLES, own.max_examples)
            function._hypothesis_internal_use_settings = settings(own, max_examples=few)  # type: ignore[union-attr]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note the functions that the first case of a test calls, in all threads that it starts."""
    function = getattr(item, "function", None)
    key = (item.path, getattr(item, "originalname", item.name))
    if not item.config.getoption("quick") or hasattr(function, "hypothesis") or key in _watched:
        return (yield)
    _watched.add(key)
    threading.settrace(_note)
    sys.settrace(_note)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]


def _note(frame: FrameType, event: str, argument: Any) -> None:
    _codes.add(frame.f_code)


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
    """Fail if a package is missing."""
    if not session.config.getoption("quick") or session.config.getoption("collectonly"):
        return
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["called"] = sorted(_called())
        return
    counted = Counter(package for package, _ in _called() | _from_workers)
    session.config.stash[_COUNTED] = counted
    if packages() - counted.keys() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say how many functions of each package were called."""
    counted = config.stash.get(_COUNTED, None)
    if counted is None:
        return
    terminalreporter.section("functions called, by package", sep="-")
    terminalreporter.line(", ".join(f"{name} {counted[name]}" for name in sorted(packages()) if counted[name]))
    missing = sorted(packages() - counted.keys())
    if missing:
        terminalreporter.line(f"no test of this selection calls a function of: {', '.join(missing)}", red=True)
