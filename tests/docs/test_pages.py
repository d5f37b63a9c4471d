"""The documentation does what it says: its pages run, its links lead somewhere, its names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import insitu
from docs.running import blocks, run_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", ["tutorial.md", "howto/formulas.md"])
def test_a_page_runs(page: str, tmp_path: Path) -> None:
    pytest.importorskip("netCDF4")
    pytest.importorskip("starlette")
    pytest.importorskip("dask")
    assert len(blocks(DOCS / page)) > 10
    run_page(DOCS / page, tmp_path)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_names_exist(page: Path) -> None:
    """Every `insitu.name(` that a page shows is a public name."""
    text = page.read_text(encoding="utf-8")
    for name in set(re.findall(r"(?<!\.)\binsitu\.([a-z_]+)\(", text)):
        assert hasattr(insitu, name), f"{page.name}: insitu.{name}"


def test_every_verb_is_in_the_reference() -> None:
    import typer.main

    from insitu.cli import app

    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    command = typer.main.get_command(app)
    for name, verb in command.commands.items():  # type: ignore[attr-defined]
        assert f"## insitu {name}" in text, name
        for option in verb.params:
            for spelled in option.opts:
                if spelled.startswith("--"):
                    assert f"`{spelled}" in text or f"{spelled}`" in text, f"{name} {spelled}"
