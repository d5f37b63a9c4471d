"""Paths and file URLs of Windows, with the path functions of Windows: drives, shares, slashes of both
kinds.

Modules: sources/address.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import insitu
from insitu.combining.cached_archive import _absolute_path as cached_path
from insitu.combining.file_names import absolute_path
from insitu.errors import AccessError, SourceError
from insitu.formats.containers import parse_entry_url
from insitu.formats.dmrpp.data_file import resolve_beside
from insitu.formats.grib.index_file import data_file_names
from insitu.formats.parsing.sibling_files import sibling_urls
from insitu.references import save
from insitu.references.icechunk.repository import container_prefix, source_url, virtual_location
from insitu.references.urls import UrlResolver, absolute_url, is_relative, relative_to
from insitu.sources import open_source
from insitu.sources.address import file_name, file_url, file_url_path, folder_of, host_of, is_remote, scheme_of
from insitu.sources.globs import expand_urls
from insitu.sources.listing import local_path
from windows import windows_paths


@pytest.fixture
def windows() -> Iterator[None]:
    with windows_paths():
        yield


FORMS = [
    (r"C:\data\a b.nc", r"C:\data\a b.nc"),
    ("C:/data/a b.nc", r"C:\data\a b.nc"),
    ("c:/data/./x/../a b.nc", r"c:\data\a b.nc"),
    (r"\\server\share\a.nc", r"\\server\share\a.nc"),
    ("//server/share/a.nc", r"\\server\share\a.nc"),
    ("file:///C:/data/a%20b.nc", r"C:\data\a b.nc"),
    ("file://C:/data/a%20b.nc", r"C:\data\a b.nc"),  # as fsspec writes it
    ("file:///C|/data/x.nc", r"C:\data\x.nc"),
    ("file://localhost/C:/data/x.nc", r"C:\data\x.nc"),
    ("FILE:///c:/x%23?.nc", r"c:\x#?.nc"),
    (r"file:///C:\data\x.nc", r"C:\data\x.nc"),
    ("local://C:/x.nc", r"C:\x.nc"),
    ("file://server/share/x.nc", r"\\server\share\x.nc"),
    ("file:////server/share/x.nc", r"\\server\share\x.nc"),
]


@pytest.mark.parametrize(("url", "path"), FORMS)
def test_a_path_or_file_url_names_a_local_path(windows: None, url: str, path: str) -> None:
    assert local_path(url) == path
    assert not is_remote(url)
    assert host_of(url) == "files"
    assert cached_path(url) == path
    if scheme_of(url) is not None:
        assert scheme_of(url) in ("file", "local")
        assert file_url_path(url) == path


def test_a_drive_is_no_scheme() -> None:
    """On whatever system: references that were made on Windows are read elsewhere, too."""
    assert [scheme_of(url) for url in (r"C:\x.nc", "C:/x.nc", "C://x.nc", "c:x.nc")] == [None] * 4


@pytest.mark.parametrize("path", [r"C:\data\a b#1.nc", r"\\server\share\a.nc", "D:\\"])
def test_a_path_survives_as_url(windows: None, path: str) -> None:
    assert file_url_path(file_url(path)) == path
    assert source_url(virtual_location(path)) == path


def test_urls_of_paths(windows: None) -> None:
    assert file_url(r"C:\data\a b.nc") == "file:///C:/data/a%20b.nc"
    assert file_url(r"\\server\share\a.nc") == "file://server/share/a.nc"
    assert container_prefix(virtual_location(r"C:\data\a.nc")) == "file:///C:/data/"


def test_elsewhere_a_host_is_another_machine() -> None:
    assert file_url_path("file://server/share/x.nc") is None
    assert local_path("file://server/share/x.nc") is None
    with pytest.raises(SourceError, match="another machine"):
        open_source("file://server/share/x.nc")
    assert file_url_path("file:///data/a%20b?c#d") == "/data/a b?c#d"


@pytest.mark.parametrize(
    ("url", "folder", "name"),
    [
        (r"C:\data\x.nc", "C:\\data\\", "x.nc"),
        (r"C:\data/x.nc", "C:\\data/", "x.nc"),
        (r"\\server\share\x.nc", "\\\\server\\share\\", "x.nc"),
        ("s3://bucket/a\\b/c\\d.nc", "s3://bucket/a\\b/", "c\\d.nc"),  # backslashes of keys are letters
    ],
)
def test_folder_and_name(windows: None, url: str, folder: str, name: str) -> None:
    assert (folder_of(url), file_name(url)) == (folder, name)


def test_elsewhere_a_backslash_is_a_letter() -> None:
    assert (folder_of("/data/a\\b.nc"), file_name("/data/a\\b.nc")) == ("/data/", "a\\b.nc")


def test_files_beside_another(windows: None) -> None:
    assert resolve_beside(r"C:\data\a.nc.dmrpp", "a.nc") == r"C:\data\a.nc"
    assert data_file_names(r"C:\data\gfs.grib2.idx") == ["gfs.grib2"]
    assert sibling_urls(r"C:\data\a.h5", r"..\b.h5")[0] == r"C:\b.h5"
    # A name that a POSIX system wrote: where it says, or beside.
    assert sibling_urls(r"C:\data\a.h5", "/gone/c.h5") == ["/gone/c.h5", r"C:\data\c.h5"]
    assert sibling_urls(r"C:\data\a.h5", r"D:\gone\c.h5") == [r"D:\gone\c.h5", r"C:\data\c.h5"]


def test_absolute_paths(windows: None) -> None:
    assert absolute_path("C:/data/x.nc") == r"C:\data\x.nc"
    assert absolute_path("C:\\data\\") == absolute_path("C:/data/") == "C:\\data/"  # a prefix stays one
    assert absolute_path("s3://b/x.nc") == "s3://b/x.nc"
    assert absolute_path(r"C:\data\runs.tar::jan.nc") == r"C:\data\runs.tar::jan.nc"
    assert tuple(parse_entry_url(r"C:\data\runs.tar::jan.nc") or ()) == (r"C:\data\runs.tar", "jan.nc", False)
    assert absolute_url("C:/data/x.nc") == r"C:\data\x.nc"


def test_patterns_with_backslashes(windows: None) -> None:
    assert expand_urls([r"C:\data\{a,b}.nc"]) == [r"C:\data\a.nc", r"C:\data\b.nc"]
    assert expand_urls("C:\\data\\x.zarr\\") == ["C:\\data\\x.zarr/"]  # a prefix, here that of a store


@pytest.mark.parametrize(
    ("base", "url", "expected"),
    [
        (r"C:\refs\x.json", "data/a.nc", r"C:\refs\data\a.nc"),
        (r"C:\refs\x.json", r"..\a.nc", r"C:\a.nc"),
        ("file:///C:/refs/x.json", "a.nc", r"C:\refs\a.nc"),
        (r"\\server\share\x.json", "a.nc", r"\\server\share\a.nc"),
        (r"C:\refs\x.json", r"D:\data\a.nc", r"D:\data\a.nc"),
        (r"C:\refs\x.json", "D:/data/a.nc", "D:/data/a.nc"),
        (r"C:\refs\x.json", r"\\server\share\a.nc", r"\\server\share\a.nc"),
        (r"C:\refs\x.json", r"\data\a.nc", r"\data\a.nc"),
        (r"C:\refs\x.json", "file:///D:/a.nc", "file:///D:/a.nc"),
        ("s3://b/refs/x.json", "data/a.nc", "s3://b/refs/data/a.nc"),
    ],
)
def test_urls_of_references(windows: None, base: str, url: str, expected: str) -> None:
    assert UrlResolver(base).resolve(url) == expected


@pytest.mark.parametrize("url", [r"C:\secret", "C:/secret", r"\\server\share\secret", "file:///C:/secret"])
@pytest.mark.parametrize("system", ["windows", "this"])
def test_remote_references_may_not_name_files_of_windows(url: str, system: str, request: Any) -> None:
    if system == "windows":
        request.getfixturevalue("windows")
    with pytest.raises(AccessError, match="allow_local"):
        UrlResolver("https://example.org/x.json").resolve(url)
    assert not is_relative(url)


@pytest.mark.parametrize("url", [r"\secret", "C:secret"])
def test_only_windows_knows_paths_of_a_current_drive(windows: None, url: str) -> None:
    assert not is_relative(url)
    with pytest.raises(AccessError, match="allow_local"):
        UrlResolver("s3://bucket/x.json").resolve(url)


def test_relative_urls_of_references(windows: None) -> None:
    assert relative_to(r"C:\data\a\x.nc", r"C:\data\refs\all.json") == "../a/x.nc"
    assert relative_to(r"\\server\share\x.nc", r"\\server\share\refs\all.json") == "../x.nc"
    assert relative_to(r"D:\data\x.nc", r"C:\refs\all.json") == r"D:\data\x.nc"  # there is no way from drive to drive
    assert relative_to(r"\\server\share\x.nc", r"C:\refs.json") == r"\\server\share\x.nc"


def test_kerchunk_gets_forward_slashes(tmp_path: Path) -> None:
    """fsspec takes a path of Windows with slashes, and without a scheme."""
    import h5py
    import numpy as np

    from insitu.references.zarr_blocks import _with_forward_slashes

    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(5)
    with windows_paths():
        assert _with_forward_slashes(r"C:\data\x.nc") == "C:/data/x.nc"
        assert _with_forward_slashes(r"\\server\share\x.nc") == "//server/share/x.nc"
        assert _with_forward_slashes("s3://bucket/a\\b.nc") == "s3://bucket/a\\b.nc"
    save(insitu.scan(tmp_path / "a.h5"), tmp_path / "refs.json", inline_threshold=0)
    refs = json.loads((tmp_path / "refs.json").read_text(encoding="utf-8"))["refs"]
    assert refs["x/0"][0] == str(tmp_path / "a.h5")  # elsewhere a path stays as it is
