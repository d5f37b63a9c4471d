"""A request says which variables of a file are asked for, and what that means within an archive."""

from __future__ import annotations

import pytest

from insitu.formats.scan_request import ScanRequest


@pytest.mark.parametrize(
    ("request_", "path", "name"),
    [
        (ScanRequest(), "g/a", "g/a"),
        (ScanRequest("/g/"), "g/a", "a"),
        (ScanRequest("g"), "ga", None),
        (ScanRequest("g", ["/a"]), "g/a", "a"),
        (ScanRequest("g", ["g/a"]), "g/a", None),
        (ScanRequest(variables=["a"]), "b", None),
        (ScanRequest(variables=[]), "a", None),
    ],
)
def test_the_name_of_what_is_asked_for(request_: ScanRequest, path: str, name: str | None) -> None:
    assert request_.name_of(path) == name


def test_a_request_within_an_archive() -> None:
    request = ScanRequest("/runs/jan.nc/inner/", ["a"], "warn", "hdf5", {"anon": True})
    assert request.for_entry("runs/jan.nc") == ScanRequest("inner", ["a"], "warn", "hdf5", {"anon": True})
    assert request.for_entry("runs/jan.nc/inner").group is None
    assert request.for_whole_entry() == ScanRequest(None, None, "warn", "hdf5", {"anon": True})
