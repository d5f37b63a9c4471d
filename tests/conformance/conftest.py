"""Marks that the tests of other projects carry, and strict expected failures for what the table of
exceptions names.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import xarray
from _pytest.runner import runtestprotocol

from conformance.exceptions import LEFT_OUT, NOT_RUN, VARYING, reason_for, reason_for_computing
from conformance.virtual_numbers import virtual_numbers

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import xarray.tests.conftest as xarray_fixtures

# xarray's tests change settings of the whole process, in which our other tests run too: files that
# these leave open would make any later test fail.
xarray.set_options(warn_for_unclosed_files=False)
with suppress(ImportError):
    import dask

    dask.config.config.pop("scheduler", None)


def pytest_configure(config: pytest.Config) -> None:
    # Unknown marks are errors here, and every version of xarray has its own: take their names from
    # its text.
    known = {re.split(r"[:(]", line)[0].strip() for line in config.getini("markers")}
    for name in sorted(_marks() - known):
        config.addinivalue_line("markers", f"{name}: used by xarray's tests")


def _marks() -> set[str]:
    spec = find_spec("xarray")
    folder = Path(spec.origin).parent / "tests" if spec and spec.origin else Path()
    texts = [path.read_text("utf-8") for path in (folder / "__init__.py", *folder.glob("test_*.py"))]
    return {name for text in texts for name in re.findall(r"pytest\.mark\.(\w+)", text)}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {item for item in items if item.getparent(XarrayModule) and _is_left_out(item)}
    config.hook.pytest_deselected(items=[*left_out])
    items[:] = [item for item in items if item not in left_out]
    for item in items:
        functions = getattr(getattr(item, "cls", None), "open_functions", None)
        if functions is not None:
            reason = reason_for(functions.name, item.cls.parent, item.name)
        else:
            test = _test_of_computing(item)
            reason = reason_for_computing(test) if test else None
        if reason is not None:
            mark = pytest.mark.xfail(reason=reason, strict=reason not in VARYING, run=reason not in NOT_RUN)
            item.add_marker(mark)


def _test_of_computing(item: pytest.Item) -> str:
    """Return the module of xarray, the class and the test; "" of another test."""
    return item.nodeid.partition("::")[2] if item.getparent(XarrayModule) else ""


def _is_left_out(item: pytest.Item) -> bool:
    """Return whether a test of computing takes Dask arrays, or long."""
    name, _, parameters = _test_of_computing(item).partition("[")
    return "dask" in f"{name.rpartition('::')[2]}[{parameters}" or name in LEFT_OUT


def _is_fixture(value: Any) -> bool:
    # The second is what pytest up to 8.3 makes of a fixture.
    return type(value).__name__ == "FixtureFunctionDefinition" or hasattr(value, "_pytestfixturefunction")


# The fixtures that xarray's tests ask for.
globals().update({name: value for name, value in vars(xarray_fixtures).items() if _is_fixture(value)})


class TestsOfComputing(pytest.Module):
    """The modules of xarray's tests that a file names."""

    def collect(self) -> Iterator[pytest.Module]:
        for name in self.obj.MODULES:
            if find_spec(f"xarray.tests.{name}") is not None:
                yield XarrayModule.from_parent(self, path=self.path, name=name, nodeid=f"{self.nodeid}::{name}")


class XarrayModule(pytest.Module):
    """A module of xarray's tests."""

    def _getobj(self) -> ModuleType:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(f"xarray.tests.{self.name}")


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if module_path.name != "test_xarray_computing.py":
        return None
    made: pytest.Module = TestsOfComputing.from_parent(parent, path=module_path)
    made.add_marker(pytest.mark.filterwarnings("ignore"))
    return made


def _skipped(item: pytest.Item, report: pytest.TestReport) -> pytest.TestReport:
    report.outcome = "skipped"
    report.longrepr = (str(item.path), 0, "Skipped: does not pass with NumPy's arrays either")
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test of computing with virtual arrays; only if it fails, with NumPy's as well."""
    if item.getparent(XarrayModule) is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    # Python's own form of a traceback: pytest's parses the long modules of xarray anew for each of hundreds of
    # expected failures, which takes half a second each.
    item.repr_failure = lambda excinfo: str(excinfo.getrepr(style="native"))  # type: ignore[method-assign]
    with virtual_numbers():
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if any(report.failed for report in reports) and reason_for_computing(_test_of_computing(item)) is None:
        item._initrequest()  # its fixtures are made anew
        plain = runtestprotocol(item, log=False, nextitem=nextitem)
        if not all(report.passed for report in plain):
            reports = [_skipped(item, reports[-1])]
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
