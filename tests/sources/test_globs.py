"""Patterns that name files: here, in buckets, and on web servers that list their folders.

Modules: sources/listing.py
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from insitu.errors import NotFoundError, SourceError
from insitu.sources import MemorySource, expand_urls
from insitu.sources.globs import is_glob


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("a/x1.nc", "a/x2.nc", "a/deep/x3.nc", "b/y.nc", "b/notes.md", "odd[1].nc", "store.zarr/zarr.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_globs(folder):
    assert expand_urls("a/*.nc") == ["a/x1.nc", "a/x2.nc"]
    assert expand_urls("**/x?.nc") == ["a/deep/x3.nc", "a/x1.nc", "a/x2.nc"]
    assert expand_urls("{b,a}/[xy]*.nc") == ["b/y.nc", "a/x1.nc", "a/x2.nc"]
    assert expand_urls(f"file://{folder}/b/*.nc") == [str(folder / "b" / "y.nc")]
    assert expand_urls(Path("a/*1.nc")) == ["a/x1.nc"]
    with pytest.raises(NotFoundError, match="no file matches"):
        expand_urls("*.grib")


def test_names_are_names(folder):
    assert expand_urls("odd[1].nc") == ["odd[1].nc"]
    assert expand_urls("not/there.nc") == ["not/there.nc"]
    assert expand_urls("https://host/x.nc?a=*&b=[1]") == ["https://host/x.nc?a=*&b=[1]"]
    assert not is_glob("https://host/x.nc?a=*")


def test_prefixes(folder):
    assert expand_urls("a/") == ["a/deep/x3.nc", "a/x1.nc", "a/x2.nc"]
    assert expand_urls("b/") == ["b/y.nc"]
    # One thing, not many.
    assert expand_urls("store.zarr/") == ["store.zarr/"]
    os.rename("store.zarr", "store")
    assert expand_urls("store/") == ["store/"]
    os.mkdir("nothing")
    with pytest.raises(NotFoundError, match="no files under this prefix"):
        expand_urls("nothing/")


def test_lists(folder, monkeypatch):
    (folder / "lists").mkdir()
    (folder / "lists" / "all.txt").write_text("\ufeff# comment\n\n../a/x*.nc\nhttps://host/z.nc\n/abs/y.nc\n", "utf-8")
    monkeypatch.chdir(folder / "a")
    expected = [*(f"{folder}/lists/../a/x{n}.nc" for n in (1, 2)), "https://host/z.nc", "/abs/y.nc"]
    assert expand_urls(folder / "lists" / "all.txt") == expected
    (folder / "lists" / "all.txt").rename(folder / "lists" / "all")
    assert expand_urls(f"@{folder}/lists/all") == expected
    (folder / "bad.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SourceError, match="not a text file with one URL"):
        expand_urls(folder / "bad.txt")
    with pytest.raises(NotFoundError):
        expand_urls("gone.txt")


def test_iterables(folder):
    monkey = (name for name in ("a/x*.nc", "b/y.nc\n", "# no", "\n"))
    assert expand_urls(monkey, None) == ["a/x1.nc", "a/x2.nc", "b/y.nc"]
    source, file = MemorySource(b"abc"), io.BytesIO(b"abc")
    assert expand_urls([source, [file], b"abc"]) == [source, file, b"abc"]
    with pytest.raises(TypeError, match="int"):
        expand_urls(3)


def test_open_text_files(folder):
    (folder / "some").write_text("a/x1.nc\n\n# no\nb/*.nc\n")
    with open(folder / "some") as lines:
        assert expand_urls(lines) == ["a/x1.nc", "b/y.nc"]
    assert expand_urls(io.StringIO("a/x1.nc\nhttps://h/x\n")) == ["a/x1.nc", "https://h/x"]


def test_index_pages(web):
    base = web.url("index")
    assert expand_urls(f"{base}/**/*.nc") == [f"{base}/a%20b.nc", f"{base}/sub/c.nc"]
    assert expand_urls(f"{base}/*/c.*") == [f"{base}/sub/c.nc"]


def test_what_only_fsspec_knows():
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    for name in ("/shelf/a/1.nc", "/shelf/a/2.nc", "/shelf/b/3.nc"):
        files.pipe_file(name, b"x")
    assert expand_urls("memory://shelf/*/[13].nc") == ["memory://shelf/a/1.nc", "memory://shelf/b/3.nc"]
    assert expand_urls("memory://shelf/**/*.nc") == [
        "memory://shelf/a/1.nc", "memory://shelf/a/2.nc", "memory://shelf/b/3.nc"
    ]  # fmt: skip


def test_the_web_address_of_a_bucket_is_listed_as_the_bucket(monkeypatch):
    from insitu.sources import globs
    from insitu.sources.listing import FolderListing

    requested = []

    def level(address, url, options):
        requested.append((address.bucket, address.key, address.region, options))
        return FolderListing([], ["a b.nc", "c.txt"])

    monkeypatch.setattr(globs, globs.list_bucket_folder.__name__, level)
    url = "https://bucket.s3.eu-west-1.amazonaws.com/era5/*.nc"
    assert expand_urls(url, {"anon": True}) == ["https://bucket.s3.eu-west-1.amazonaws.com/era5/a%20b.nc"]
    assert requested == [("bucket", "era5/", "eu-west-1", {"anon": True})]
