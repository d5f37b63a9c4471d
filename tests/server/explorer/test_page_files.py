"""The files that the explorer's page is made of: small, complete, nothing from elsewhere, no HTML from texts."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from script_modules import load_script
from server.explorer.conftest import ROOT

PAGE = ROOT / "src" / "insitu" / "server" / "explorer" / "page"
MODULES = sorted(PAGE.glob("*.js"))


def test_the_page_is_small() -> None:
    """With coastlines; finer ones are fetched when a map is zoomed."""
    compressed = {path.name: len(gzip.compress(path.read_bytes())) for path in PAGE.rglob("*") if path.is_file()}
    assert compressed.pop("countries-50m.json") < 250_000
    assert sum(compressed.values()) < 250_000


def test_nothing_comes_from_elsewhere() -> None:
    """No address of another host, but for the name of SVG's namespace, in what is ours."""
    for path in (*MODULES, PAGE / "index.html", PAGE / "style.css"):
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//cdn", text), path.name


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_texts_never_become_html(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser|srcdoc", text
    )


def test_the_policy_holds_for_the_document() -> None:
    """No script or style within it: `script-src 'self'; style-src 'self'` would refuse them."""
    text = (PAGE / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert "<style" not in text
    assert not re.search(r"\sstyle=|\son\w+=", text)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_modules_that_are_imported_are_there(path: Path) -> None:
    for name in re.findall(r'from "\./([^"]+)"', path.read_text(encoding="utf-8")):
        assert (PAGE / name).is_file()


def test_licences_of_all_libraries_are_there() -> None:
    licences = (PAGE / "vendor" / "LICENSES.txt").read_text(encoding="utf-8")
    pinned = json.loads((ROOT / "scripts" / "plotting" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    shipped = [
        path.removeprefix("node_modules/") for path, package in pinned.items() if path and not package.get("dev")
    ]
    assert len(shipped) > 8
    assert [name for name in shipped if f"{name} {pinned[f'node_modules/{name}']['version']}\n" not in licences] == []
    assert "resolved" not in json.dumps(pinned)  # no address of a registry


def test_types_that_cannot_be_checked_are_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make check` says so where npm is missing, and goes on."""
    script = load_script("page")
    monkeypatch.setattr(script, "WORK", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert script.check_types() == 0
    assert "are not checked" in capsys.readouterr().out


@pytest.mark.browser
@pytest.mark.slow
def test_types_that_contradict_are_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script("page")
    page = tmp_path / "page"
    page.mkdir()
    (page / "wrong.js").write_text("/** @param {number} at */\nexport const next = (at) => at.length;\n")
    (tmp_path / "tsconfig.json").write_text(
        (script.PINS / "tsconfig.json").read_text().replace("../../src/insitu/server/explorer/page", page.as_posix())
    )
    try:
        script.install(script.WORK)
    except (OSError, subprocess.SubprocessError) as problem:
        pytest.skip(f"TypeScript cannot be installed here: {problem}")
    for name in ("package-lock.json", "package.json"):
        (tmp_path / name).write_bytes((script.PINS / name).read_bytes())
    monkeypatch.setattr(script, "PINS", tmp_path)
    assert script.check_types() == 1


@pytest.mark.browser
@pytest.mark.slow
def test_the_bundle_is_what_the_pinned_versions_give(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("no npm here")
    script = load_script("page")
    try:
        files = script.bundle(tmp_path)
    except (OSError, subprocess.SubprocessError) as problem:
        pytest.skip(f"the plotting libraries cannot be installed here: {problem}")
    assert {name for name in files if files[name] != (PAGE / "vendor" / name).read_bytes()} == set()
