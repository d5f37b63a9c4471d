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


@pytest.mark.parametrize(
    "page", [page for page in (DOCS / "gallery").glob("*.md") if page.stem != "index"], ids=lambda page: page.stem
)
def test_a_notebook_runs(page: Path, tmp_path: Path) -> None:
    for needed in ("matplotlib", "netCDF4", "starlette", "dask", *(["kerchunk"] if page.stem == "kerchunk" else [])):
        pytest.importorskip(needed)
    cells = [text for _, text in blocks(page)]
    assert len(cells) == page.read_text(encoding="utf-8").count("```{code-cell}") > 5
    assert any("xr.testing.assert_" in text for text in cells)  # its results are compared with xarray's
    assert any("plt." in text for text in cells)
    run_page(page, tmp_path)


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
