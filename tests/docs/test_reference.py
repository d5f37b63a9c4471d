"""The reference is complete: every public name has its entry there, and a docstring to fill it.

Modules: xarray_bridge/array_accessor.py
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import xarray as xr

import insitu
import insitu.xarray_bridge.accessor
import insitu.xarray_bridge.array_accessor  # both register themselves
from insitu.cli import VERBS, load_verb
from insitu.reducing.statistics import STATISTICS

DOCS = Path(__file__).parents[2] / "docs"
ENTRY = re.compile(r"^\.\. auto(\w+):: (\S+)\n((?:   :.*\n)*)", re.MULTILINE)


def entries() -> dict[str, tuple[str, list[str]]]:
    """Each name of the page, with the kind of its entry and the options."""
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    return {found[2]: (found[1], found[3].split()) for found in ENTRY.finditer(text)}


def named(path: str) -> Any:
    """What a dotted name stands for."""
    try:
        return import_module(path)
    except ModuleNotFoundError:
        above, _, name = path.rpartition(".")
        return getattr(named(above), name)


def qualified(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def test_every_public_name_has_an_entry() -> None:
    found = {name.removeprefix("insitu.") for name in entries() if name.count(".") == 1}
    assert found == set(insitu.__all__)


@pytest.mark.parametrize("owner", [xr.Dataset, xr.DataArray], ids=["ds.insitu", "da.insitu"])
def test_the_accessors_have_entries(owner: Any) -> None:
    kind, options = entries()[qualified(owner.insitu)]
    assert kind == "class"
    assert ":members:" in options


@pytest.mark.parametrize("path", entries())
def test_an_entry_has_something_to_show(path: str) -> None:
    """Sphinx leaves out members without a docstring, without a word: there must be none."""
    kind, options = entries()[path]
    value = named(path)
    assert inspect.getdoc(value)
    if kind == "class":
        # All of them: a list of some would have to be kept up by hand.
        assert options in ([":members:"], [":members:", ":inherited-members:"])
        members = {name for name in vars(value) if not name.startswith("_") and callable(getattr(value, name))}
        members |= {name for name, member in vars(value).items() if isinstance(member, property) and name[0] != "_"}
        assert [name for name in sorted(members) if not inspect.getdoc(inspect.getattr_static(value, name))] == []


def test_every_error_has_an_entry() -> None:
    kind, options = entries()["insitu.errors"]
    assert kind == "module"
    assert ":members:" in options
    assert [name for name in insitu.errors.__all__ if not vars(getattr(insitu.errors, name)).get("__doc__")] == []
    others = {
        name
        for name, value in vars(insitu.errors).items()
        if inspect.isclass(value) and value.__module__ == "insitu.errors" and name not in insitu.errors.__all__
    }
    assert {f"insitu.errors.{name}" for name in others} <= set(entries())


def test_lists_of_statistics_are_those_of_the_table() -> None:
    plain = set(STATISTICS.names(lambda statistic: statistic.is_plain))
    weighted = set(STATISTICS.names(lambda statistic: statistic.weighted))
    api = (DOCS / "http-api.md").read_text(encoding="utf-8")
    rows = {
        name: re.search(rf"^\| `{name}` \|.*`([a-z_ ]+)` \|$", api, re.MULTILINE) for name in ("methods", "weights")
    }
    listed = {name: set(row[1].split()) for name, row in rows.items() if row is not None}
    assert listed == {"methods": plain, "weights": weighted}
    assert plain <= set(re.findall(r"`(\w+)`", str(insitu.reduce.__doc__)))
    limits = (DOCS / "limits.md").read_text(encoding="utf-8")
    streamed = next(line for line in limits.splitlines() if line.startswith("| **streams**"))
    sketches = set(STATISTICS.names(lambda statistic: statistic.is_sketch))
    assert plain - sketches <= set(re.findall(r"`(\w+)`", streamed))


def test_every_verb_has_an_entry() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^## insitu (\S+)$", text, re.MULTILINE)) == sorted(VERBS)


@pytest.mark.parametrize("name", VERBS)
def test_every_option_has_an_entry(name: str) -> None:
    """The table of a verb names its options, and no others."""
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## insitu {name}\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `-")]
    options = [
        {*option.opts, *option.secondary_opts}
        for option in load_verb(name).params
        if option.param_type_name == "option"
    ]
    assert {spelled for row in rows for spelled in re.findall(r"--[a-z-]+", row)} == {
        spelled for spellings in options for spelled in spellings if spelled.startswith("--")
    }
