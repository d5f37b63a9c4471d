"""Is a file known by its first bytes, and one that is not told what it looks like?

Modules: formats/foreign_files.py, formats/unreadable.py, formats/variable_filter.py
"""

from __future__ import annotations

import gzip

import pytest

from insitu.errors import FormatError
from insitu.formats import FORMATS, scan_format
from insitu.sources import MemorySource

STRANGERS = {
    gzip.compress(b"anything"): "gzip",
    b"<!DOCTYPE html><html></html>": "HTML",
    b"\n  <?xml version='1.0'?><Error>NoSuchKey</Error>": "XML page.*login",
    b"<?xml version='1.0'?>\n<netcdf xmlns='http://www.unidata.ucar.edu/namespaces/netcdf/ncml-2.2'/>": "XML document",
    b"<!-- by hand --><Dataset xmlns='http://xml.opendap.org/ns/DAP/4.0#'/>": "XML document.*DMR",
    b'{"version": 1, "refs": {}}': "JSON",
    b"version https://git-lfs.github.com/spec/v1\n": "Git LFS",
}


@pytest.mark.parametrize(("data", "name"), STRANGERS.items(), ids=STRANGERS.values())
def test_strangers_are_named(data: bytes, name: str) -> None:
    with pytest.raises(FormatError, match=name) as caught:
        scan_format(MemorySource(data))
    assert caught.value.hint
    assert caught.value.offset == 0
    assert ("login" in caught.value.hint) == ("HTML" in name or "page" in name)


@pytest.mark.parametrize(
    "data",
    [b"CDF\x05" + b"\xff" * 100, b"II*\0" + bytes(100), b"MM\0+" + bytes(100), b"SIMPLE  =                    T"],
)
def test_damaged_files_of_other_formats(data: bytes) -> None:
    with pytest.raises(FormatError):
        scan_format(MemorySource(data))


@pytest.mark.parametrize("data", [b"", b"x", bytes(10_000), b"\x89HDF\r\n\x1a\n", b"\x89HDF\r\n\x1a"])
def test_what_is_nothing(data: bytes) -> None:
    with pytest.raises(FormatError):
        scan_format(MemorySource(data))


def test_a_format_may_be_named() -> None:
    assert "hdf5" in FORMATS
    with pytest.raises(FormatError):
        scan_format(MemorySource(b"CDF\x01" + bytes(100)), format="hdf5")
    with pytest.raises(ValueError, match="no format"):
        scan_format(MemorySource(b""), format="unheard of")


def test_errors_is_checked() -> None:
    with pytest.raises(ValueError, match="raise"):
        scan_format(MemorySource(b""), errors="ignore")
