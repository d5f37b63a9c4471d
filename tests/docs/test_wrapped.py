"""Prose of the documents is wrapped, and wrapping changes nothing of what a page says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONG = " ".join(["word"] * 30)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wrap_documents", ROOT / "scripts" / "wrap_documents.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_document_is_wrapped(script: ModuleType) -> None:
    documents = [path for pattern in script.PATTERNS for path in ROOT.glob(pattern) if "_build" not in path.parts]
    assert len(documents) > 30
    assert [
        str(path)
        for path in documents
        if script.wrap(path.read_text(encoding="utf-8")) != path.read_text(encoding="utf-8")
    ] == []


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{LONG}\n```",
        f"- item\n\n  ```\n  {LONG}\n  ```",
        f"# {LONG}",
        f"| {LONG} |\n|---|\n| {LONG} |",
        f"---\ntitle: {LONG}\n---\n",
        f"[name]: {LONG}",
        f"    {LONG}",
        f"{LONG}  \n{LONG}",
        f":::{{note}}\n{LONG}\n:::",
        "short\nlines\n\n- of a list\n  stay\n",
    ],
)
def test_what_stays_as_it_is(script: ModuleType, text: str) -> None:
    assert script.wrap(text) == text


@pytest.mark.parametrize(
    ("text", "wrapped"),
    [
        (LONG, [" ".join(["word"] * 20), " ".join(["word"] * 10)]),
        (f"- {LONG}", ["- " + " ".join(["word"] * 19), "  " + " ".join(["word"] * 11)]),
        (f"1. a\n   - {LONG}", ["1. a", "   - " + " ".join(["word"] * 19), "     " + " ".join(["word"] * 11)]),
        (f"- a\n\n  {LONG}\n\n{LONG}", None),
        (f"{'w' * 95} `insitu info a.nc`", ["w" * 95, "`insitu info a.nc`"]),
        (f"{'w' * 95} [a link of words](https://example.org)", ["w" * 95, "[a link of words](https://example.org)"]),
        (f"{'w' * 98} - as a dash {LONG}", None),
        (f"{'w' * 98} 2020. And {LONG}", None),
    ],
)
def test_how_prose_is_wrapped(script: ModuleType, text: str, wrapped: list[str] | None) -> None:
    found = script.wrap(text)
    assert found.split() == text.split()
    assert script.wrap(found) == found
    lines = found.split("\n")
    assert wrapped is None or lines == wrapped
    assert all(len(line) <= script.WIDTH or line.split()[-1] in ("-", "2020.") for line in lines)
    assert not any(line.startswith(("- as", "2020.")) for line in lines)
