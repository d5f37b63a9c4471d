"""Roots `URL=FOLDER`: a copy is read only if it is the object that the client means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import insitu
from insitu.errors import InsituError, StaleSourceError
from insitu.model import Source
from insitu.server.local_copies import LocalCopies
from insitu.server.roots import Roots
from insitu.sources.local import LocalSource
from server.serving import serving

VALUES = np.arange(30_000.0).reshape(100, 300)
Web = tuple[str, dict[str, bytes]]


def make(path: Path, values: np.ndarray[Any, Any] = VALUES) -> bytes:
    """A file whose size does not depend on its values."""
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("t", data=values, chunks=(10, 300))
    os.utime(path, (1e9, 1e9))
    return path.read_bytes()


@pytest.fixture
def place(web: Web, tmp_path: Path) -> tuple[str, Path, bytes]:
    """The URL of an object, its local copy, and its bytes."""
    url, objects = web
    (tmp_path / "copies").mkdir()
    name = f"/{tmp_path.name}/x.h5"
    objects[name] = make(tmp_path / "copies" / "x.h5")
    return f"{url}{name}", tmp_path / "copies" / "x.h5", objects[name]


def copies(place: tuple[str, Path, bytes], **how: Any) -> LocalCopies:
    url, path, _ = place
    return LocalCopies(Roots([f"{url.rpartition('/')[0]}={path.parent}"]).local_copy, **how)


def test_an_equal_date_is_enough(place: tuple[str, Path, bytes], web: Web) -> None:
    url, path, data = place
    web[1].clear()  # nothing is asked of the object
    with copies(place).open(Source(url, len(data), '"v"', 1e9), {}) as source:
        assert isinstance(source, LocalSource)
    with pytest.raises(StaleSourceError, match="its size was 5"):
        copies(place).open(Source(url, 5, '"v"', 1e9), {})
    assert path.exists()


@pytest.mark.parametrize("recorded", [(None, None), ('"v"', None), ('"v"', 1.1e9)])
def test_bytes_are_compared_where_dates_prove_nothing(
    place: tuple[str, Path, bytes], recorded: tuple[Any, Any]
) -> None:
    url, path, data = place
    requested = Source(url, len(data), *recorded)
    known = copies(place)
    for _ in range(2):
        with known.open(requested, {}) as source:
            assert source.read_many([(0, 8), (len(data) - 8, 8)]) == [data[:8], data[-8:]]
    # Another version of the same size: here only the last chunk differs, and it is what is asked for.
    other = VALUES.copy()
    other[-1] += 1
    assert len(make(path, other)) == len(data)
    os.utime(path, (1.2e9, 1.2e9))
    for _ in range(2):
        with known.open(requested, {}) as source, pytest.raises(StaleSourceError, match=r"bytes differ.*x\.h5"):
            source.read(len(data) - 80_000, 80_000)
    with copies(place, trusted=True).open(requested, {}) as source:
        assert source.read(0, 8) == data[:8]


def test_an_object_that_cannot_be_read(place: tuple[str, Path, bytes], web: Web) -> None:
    url, _, data = place
    web[1].pop("/" + url.partition("//")[2].partition("/")[2])
    known = copies(place)
    for _ in range(2):
        with known.open(Source(url, len(data)), {}) as source, pytest.raises(StaleSourceError, match="--trust-copies"):
            source.read(0, 8)
    with pytest.raises(StaleSourceError, match="--trust-copies"):
        known.checked_path(url, {})
    with copies(place, trusted=True).open(Source(url, len(data)), {}) as source:
        assert source.read(0, 8) == data[:8]


def test_chunks_in_the_cache_belong_to_the_version_that_was_asked_for(place: tuple[str, Path, bytes]) -> None:
    url, _, data = place
    known = copies(place)
    about = [known.open(Source(url, len(data), etag), {}).describe() for etag in ('"v"', '"w"', '"v"')]
    assert about[0] == about[2] != about[1]


def test_reductions_of_copies(place: tuple[str, Path, bytes], tmp_path: Path) -> None:
    """From outside: the right copy is summed, another of the same size never, and all of that twice."""
    url, path, data = place
    root = f"{url.rpartition('/')[0]}={path.parent}"
    with serving([root], tmp_path / "log") as server:
        near: dict[str, Any] = {"active": server.url, "active_required": True}
        by_client, by_server = insitu.scan(url), url
        for _ in range(2):
            assert insitu.reduce(by_client, "t", "sum", **near) == VALUES.sum()
            assert insitu.reduce(by_server, "t", "sum", **near) == VALUES.sum()
        assert len(make(path, VALUES + 1)) == len(data)
        os.utime(path, (1.3e9, 1.3e9))
        for _ in range(2):
            for opened in (by_client, by_server):
                with pytest.raises(InsituError, match="bytes differ"):
                    insitu.reduce(opened, "t", "sum", **near)
