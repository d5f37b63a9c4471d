"""Roots, messages and requests with paths of Windows: what lies outside is refused, and is not named."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from insitu.errors import SourceError
from insitu.server.error_responses import public_message
from insitu.server.explorer.answers.chunk_mosaic import public_url
from insitu.server.reductionist.object_url import locate_object
from insitu.server.roots import Roots
from insitu.server.zarr_view import archive_and_key
from insitu.sources.access_policy import access_policy_scope, without_outside_paths
from windows import WindowsOs, windows_paths


@pytest.fixture
def roots(monkeypatch: pytest.MonkeyPatch) -> Iterator[Roots]:
    """A server that reads from one folder of a drive, which need not be there for these tests."""
    found = Roots([])
    found.paths.append(r"C:\data")
    with windows_paths(), access_policy_scope(found):
        yield found


@pytest.mark.parametrize(
    "url", [r"C:\data\x.nc", "C:/data/x.nc", "file:///C:/data/x.nc", r"C:\data\a\..\x.nc", r"C:\data\*.nc"]
)
def test_inside(roots: Roots, url: str) -> None:
    roots.check(url)


@pytest.mark.parametrize(
    "url",
    [
        r"C:\secret\x.nc", r"C:\data\..\secret\x.nc", "file:///C:/secret/x.nc", r"D:\data\x.nc", r"\\server\data\x.nc",
        "file://server/data/x.nc", r"C:\database\x.nc", r"C:\data\{a,..\..\secret}\*.nc", "/data/x.nc", r"\data2\x.nc",
    ],
)  # fmt: skip
def test_outside(roots: Roots, url: str) -> None:
    with pytest.raises(SourceError, match="outside its roots"):
        roots.check(url)


def test_messages_do_not_name_paths_outside(roots: Roots) -> None:
    error = SourceError(r"cannot read C:\secret\x.nc", url=r"C:\secret\x.nc")
    assert "secret" not in public_message(error)
    shown = SourceError("cannot read it", url=r"C:\data\x.nc")
    assert r"C:\data\x.nc" in public_message(shown)
    assert (
        without_outside_paths(r"see \\server\share\x.nc, 'D:\my files\y' and C:/data/z") == "see …, '…' and C:/data/z"
    )
    assert "secret" not in public_url(r"C:\secret\x.nc")
    assert public_url(r"C:\data\x.nc") == r"C:\data\x.nc"


def test_requests_name_drives(roots: Roots) -> None:
    assert archive_and_key("C:/data/x.insitu!/tas/c/0") == ("C:/data/x.insitu", "tas/c/0")
    assert archive_and_key("/s3:/bucket/x.nc!/".lstrip("/")) == ("s3://bucket/x.nc", "")
    assert locate_object("file", "file:///C:/data/a%20b.nc").url == r"C:\data\a b.nc"


def test_elsewhere_a_drive_is_a_name() -> None:
    assert archive_and_key("C:/data/x.insitu!/") == ("/C:/data/x.insitu", "")


@pytest.mark.parametrize(("system", "reuses"), [("nt", False), ("posix", True)])
def test_a_port_that_is_taken_is_not_free(system: str, reuses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows `SO_REUSEADDR` allows a second program to listen on the same port."""
    server_run = import_module("insitu.server.run")  # its package has a function of this name
    requested: list[Any] = []

    class Socket(socket.socket):
        def setsockopt(self, *how: Any) -> None:
            requested.append(how[1])
            super().setsockopt(*how)

    monkeypatch.setattr(socket, "socket", Socket)
    if system == "nt":
        monkeypatch.setattr(server_run, "os", WindowsOs())
    assert server_run._free_port("127.0.0.1", 0) is not None
    assert (socket.SO_REUSEADDR in requested) is reuses
