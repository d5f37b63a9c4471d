from __future__ import annotations

import io
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from script_modules import load_script

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load_script("native_sources")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "TARGET", tmp_path / "native_sources")
    return module


def write_archive(path: Path, names: list[str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            about = tarfile.TarInfo(name)
            about.size = len(name)
            archive.addfile(about, io.BytesIO(name.encode()))
    return path


def test_only_decompressors_and_the_licence_are_unpacked(script: Any, tmp_path: Path) -> None:
    zstd = next(library for library in script.LIBRARIES if library.name == "zstd")
    top, folder = "backports_zstd-9", "backports_zstd-9/src/c/zstd/lib"
    names = [f"{folder}/zstd.h", f"{folder}/decompress/huf.S", f"{folder}/compress/x.c", f"{folder}/../../evil.c"]
    script.unpack(write_archive(tmp_path / "a.tar.gz", [*names, f"{top}/LICENSE_zstd.txt"]), zstd)
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} - {"a.tar.gz"}
    assert found == {"LICENSE.zstd", "native_sources/zstd/zstd.h", "native_sources/zstd/decompress/huf.S"}


def test_an_archive_of_another_layout_is_refused(script: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="layout"):
        script.unpack(write_archive(tmp_path / "a.tar.gz", ["x/README"]), script.LIBRARIES[0])


def test_without_an_index_nothing_is_left(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "download", lambda folder: False)
    assert script.install() == 1
    assert not (tmp_path / "native_sources").exists()


def test_every_archive_is_pinned_by_a_checksum(script: Any) -> None:
    pins = [line for line in script.PINS.read_text().splitlines() if not line.startswith("#")]
    assert len(pins) == len(script.LIBRARIES)
    assert all("==" in pin and "--hash=sha256:" in pin for pin in pins)
