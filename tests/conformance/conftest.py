"""Marks that the tests of other projects carry, and strict expected failures for what the table of exceptions names."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import xarray.tests.conftest as xarray_fixtures

from conformance.exceptions import NOT_RUN, reason_for


def pytest_configure(config: pytest.Config) -> None:
    # Unknown marks are errors here, and every version of xarray has its own: take their names from its text.
    known = {re.split(r"[:(]", line)[0].strip() for line in config.getini("markers")}
    for name in sorted(_marks() - known):
        config.addinivalue_line("markers", f"{name}: used by xarray's tests")


def _marks() -> set[str]:
    spec = find_spec("xarray")
    folder = Path(spec.origin).parent / "tests" if spec and spec.origin else Path()
    texts = [path.read_text("utf-8") for path in (folder / "__init__.py", *folder.glob("test_backends*.py"))]
    return {name for text in texts for name in re.findall(r"pytest\.mark\.(\w+)", text)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        door = getattr(getattr(item, "cls", None), "door", None)
        if door is None:
            continue
        reason = reason_for(door.name, item.cls.parent, item.name)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True, run=reason not in NOT_RUN))


# Fixtures that xarray's tests ask for.
globals().update(
    {
        name: getattr(xarray_fixtures, name)
        for name in ("time_unit", "use_dask", "simple_datatree", "create_test_datatree")
        if hasattr(xarray_fixtures, name)
    }
)
