"""`insitu info --html`: one file that shows everything and loads nothing, and in which texts stay texts.

Modules: cli/screen.py
"""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import insitu
from insitu.cli import app
from insitu.cli.html_report import html_report
from insitu.model.description import format_bytes

HOSTILE = "<script>alert(1)</script><img src=x onerror='alert(2)'>\"'&"


class Page(HTMLParser):
    """The elements and the text of a page; unbalanced elements are an error."""

    VOID = ("meta", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as opened:
        opened.attrs["title"] = HOSTILE
        variable = opened.create_dataset("cube", (6, 8, 9), "<i2", chunks=(1, 8, 9), compression="gzip")
        variable[:4] = 1
        variable.attrs["units"] = "K"
        variable.attrs["levels"] = np.arange(3)
        inner = opened.create_group("inner")
        inner.create_dataset(HOSTILE.replace("/", ""), data=np.arange(4.0))
        opened.create_dataset("number", data=3)
    return path


def write_report(file: Path, *options: str) -> Page:
    target = file.with_name("report.html")
    result = CliRunner().invoke(app, ["info", str(file), "--html", str(target), *options])
    assert result.exit_code == 0, result.output
    assert f"wrote {target}" in result.output.replace("\n", "")
    return Page(target.read_text(encoding="utf-8"))


def test_a_report_has_what_the_scan_found(file: Path) -> None:
    page = write_report(file)
    assert page.tags("title")
    for text in ("cube", "inner", "6, ", "int16", "zlib", "1×8×9", "2 never written", "units", "K", "0, 1, 2"):
        assert text in page.words
    with h5py.File(file) as opened:
        stored = opened["cube"].id.get_storage_size()
    assert "3 variables, " in page.words
    assert format_bytes(stored) in page.words
    pictures = page.tags("svg")
    assert len(pictures) == 2  # a number has no picture
    assert any("chunks along" in (picture["aria-label"] or "") for picture in pictures)


def test_texts_of_the_archive_are_never_markup(file: Path) -> None:
    page = write_report(file)
    assert HOSTILE in page.words
    assert not page.tags("script")
    assert not page.tags("img")
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")]


def test_nothing_is_loaded_from_anywhere(file: Path) -> None:
    page = write_report(file)
    text = file.with_name("report.html").read_text(encoding="utf-8")
    assert not page.tags("link")
    assert not re.search(r"(?:src|href|url)\s*[=(]", re.sub(re.escape("src=x onerror"), "", text))
    policy = [meta["content"] for meta in page.tags("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_only_one_group(file: Path) -> None:
    page = write_report(file, "--group", "inner")
    assert "cube" not in page.words


def test_a_mosaic_names_its_files(tmp_path: Path) -> None:
    for number in range(3):
        data = xr.DataArray(np.ones((2, 4), "f4"), dims=("time", "x"), coords={"time": [2 * number, 2 * number + 1]})
        data.to_dataset(name="v").to_netcdf(tmp_path / f"{number}.nc", engine="h5netcdf")
    group = insitu.Archive.open(f"{tmp_path}/*.nc").tree
    page = Page(html_report(group, "mosaic"))
    assert all(f"{number}.nc" in page.words for number in range(3))
    swatches = [span["style"] for span in page.tags("span") if span.get("class") == "file"]
    painted = {path["fill"] for path in page.tags("path")}
    assert len(swatches) >= 3
    assert {(style or "").removeprefix("background:") for style in swatches[:3]} <= painted


def test_what_cannot_be_read_is_in_the_report(file: Path) -> None:
    group = replace(insitu.scan(file, decode=False), problems={"bad <i>": "its type is <unknown>"})
    page = Page(html_report(group, "broken", [("v", "a note with <b>")]))
    assert "bad <i>: its type is <unknown>" in page.words
    assert "1 variable cannot be read" in page.words
    assert "a note with <b>" in page.words
    assert not page.tags("i")


def test_a_folder_that_is_not_there(file: Path) -> None:
    result = CliRunner().invoke(app, ["info", str(file), "--html", str(file.parent / "no" / "x.html")])
    assert result.exit_code != 0
    assert "writing failed" in result.output + str(result.exception or "")
