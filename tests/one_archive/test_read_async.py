"""`Archive.read_async`: the values of `read`, for many tasks of a service at once."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import insitu
from gated_site import GatedSite
from insitu.errors import StaleSourceError, VariableError

VALUES = np.random.default_rng(1).random((40, 30))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "a.h5"
    with h5py.File(made, "w") as file:
        file.create_dataset("g/x", data=VALUES, chunks=(1, 30), compression="gzip")
    return made


def read_rows(archive: insitu.Archive, rows: range) -> list[Any]:
    async def ask() -> list[Any]:
        return await asyncio.gather(*(archive.read_async("g/x", np.s_[row]) for row in rows), return_exceptions=True)

    return asyncio.run(ask())


def test_rows_are_requested_at_once_after_one_scan(path: Path) -> None:
    with GatedSite(path.parent) as site:
        insitu.read(f"{site.url}/a.h5", "g/x", np.s_[0])
        scan = len(site.requests)
        archive = insitu.Archive.open(f"{site.url}/a.h5")
        site.hold(0)
        np.testing.assert_array_equal(read_rows(archive, range(40)), VALUES)
        assert len(site.requests) < 2 * scan + 40
        site.hold(40)
        np.testing.assert_array_equal(read_rows(archive, range(40)), VALUES)
        assert site.most >= 40


def test_keywords(path: Path) -> None:
    archive = insitu.Archive.open(path)
    found = asyncio.run(archive.read_async("g/x", start=(3, 2), count=(4, 5)))
    np.testing.assert_array_equal(found, VALUES[3:7, 2:7])
    found = asyncio.run(archive.read_async("g/x", points=([1, 5], [2, 0]), decode=False))
    np.testing.assert_array_equal(found, VALUES[[1, 5], [2, 0]])


def test_errors_are_ours(path: Path) -> None:
    archive = insitu.Archive.open(path)
    with pytest.raises(VariableError, match="g/y"):
        asyncio.run(archive.read_async("g/y"))
    read_rows(archive, range(1))
    with h5py.File(path, "a") as file:
        file["more"] = 1
    with pytest.raises(StaleSourceError):
        asyncio.run(archive.read_async("g/x"))


def test_an_archive_travels(path: Path) -> None:
    archive = insitu.Archive.open(path)
    for original in (archive, archive.member("g") and archive):
        np.testing.assert_array_equal(read_rows(pickle.loads(pickle.dumps(original)), range(40)), VALUES)
