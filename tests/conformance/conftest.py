"""Marks that the tests of other projects carry, and strict expected failures for what the table of
exceptions names.
"""

from __future__ import annotations

import re
import warnings
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import xarray

from conformance.exceptions import NOT_RUN, reason_for

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


def _is_fixture(value: Any) -> bool:
    # The second is what pytest up to 8.3 makes of a fixture.
    return type(value).__name__ == "FixtureFunctionDefinition" or hasattr(value, "_pytestfixturefunction")


# The fixtures that xarray's tests ask for.
globals().update({name: value for name, value in vars(xarray_fixtures).items() if _is_fixture(value)})
