"""Sizes of files that come along with the names of a listing."""

from __future__ import annotations

import uuid

import fsspec
import pytest

from insitu.sources.listing import list_folder


def test_sizes_of_a_file_system_of_fsspec() -> None:
    pytest.importorskip("fsspec")
    folder = f"memory://sizes-{uuid.uuid4().hex}"
    for name, size in (("a.nc", 3), ("deep/b.nc", 7), ("c.nc", 0)):
        with fsspec.open(f"{folder}/{name}", "wb") as file:
            file.write(b"x" * size)
    found = list_folder(folder)
    assert (found.folders, found.files) == (["deep"], ["a.nc", "c.nc"])
    assert {name: found.sizes[name] for name in found.files} == {"a.nc": 3, "c.nc": 0}
