"""URLs of references are resolved, and remote references cannot name local files."""

from __future__ import annotations

from pathlib import Path

import pytest

from insitu.errors import AccessError
from insitu.references.urls import UrlResolver, relative_to


@pytest.mark.parametrize(
    ("base", "url", "expected"),
    [
        ("s3://b/refs/x.json", "data/a.nc", "s3://b/refs/data/a.nc"), ("s3://b/refs/x.json", "../a.nc", "s3://b/a.nc"),
        ("s3://b/x.json", "../../../a.nc", "s3://b/a.nc"), ("https://h/r/x.json?v=1", "a b.nc", "https://h/r/a%20b.nc?v=1"),
        ("s3://b/x.json", "gs://c/a.nc", "gs://c/a.nc"), ("/refs/x.json", "s3://c/a.nc", "s3://c/a.nc"),
        ("/refs/x.json", "/data/a.nc", "/data/a.nc"), ("/refs/x.json", "file:///data/a.nc", "file:///data/a.nc"),
        ("/refs/x.json", "../data/a.nc", "/data/a.nc"),
    ],
)  # fmt: skip
def test_resolved(base: str, url: str, expected: str) -> None:
    assert UrlResolver(base).resolve(url) == expected


@pytest.mark.parametrize(
    "url", ["/etc/passwd", "file:///etc/passwd", "C:\\secret", "FILE:///etc/passwd", "simplecache::file:///etc/passwd"]
)
def test_remote_references_may_not_name_local_files(url: str) -> None:
    for base in ("https://example.org/x.json", "s3://b/x.json"):
        with pytest.raises(AccessError, match="allow_local"):
            UrlResolver(base).resolve(url)
        assert UrlResolver(base, allow_local=True).resolve(url) == url


def test_relative_to_the_file_or_to_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "refs").mkdir()
    (tmp_path / "data.nc").touch()
    monkeypatch.chdir(tmp_path)
    # Found where kerchunk ran, not beside the reference file.
    assert UrlResolver(str(tmp_path / "refs" / "x.json")).resolve("data.nc") == str(tmp_path / "data.nc")
    (tmp_path / "refs" / "data.nc").touch()
    assert UrlResolver(str(tmp_path / "refs" / "x.json")).resolve("data.nc") == str(tmp_path / "refs" / "data.nc")


def test_written_relative() -> None:
    assert relative_to("/d/a/x.nc", "/d/r.json") == "a/x.nc"
    assert relative_to("s3://b/a/x.nc", "s3://b/r/r.json") == "../a/x.nc"
    assert relative_to("s3://c/x.nc", "s3://b/r.json") == "s3://c/x.nc"
    assert relative_to("/d/x.nc", "s3://b/r.json") == "/d/x.nc"
