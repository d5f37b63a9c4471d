"""Fixtures: a scanner of local files, and a comparison of chunk tables with those of h5py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from insitu.formats import scan_format
from insitu.model import Stored, VirtualArray, VirtualGroup
from insitu.sources.local import LocalSource


@pytest.fixture
def scan() -> Callable[..., VirtualGroup]:
    """Scan a file by its path."""

    def of(path: Path, **options: Any) -> VirtualGroup:
        with LocalSource(path) as source:
            return scan_format(source, **options)

    return of


@pytest.fixture
def same_chunks() -> Callable[[h5py.Dataset, VirtualArray], int]:
    """Assert that all chunks lie where h5py says, and no others; how many there are."""

    def check(dataset: h5py.Dataset, array: VirtualArray) -> int:
        (tile,) = array.tiles
        infos: list[Any] = []
        dataset.id.chunk_iter(infos.append)
        count = len(infos)
        for info in infos:
            cell = tuple(first // size for first, size in zip(info.chunk_offset, dataset.chunks, strict=True))
            state = tile.chunks[cell]
            assert isinstance(state, Stored), (cell, state)
            found = state.offset, state.length, state.filter_mask
            assert found == (info.byte_offset, info.size, info.filter_mask), cell
        cells = np.indices(tile.chunks.shape).reshape(len(tile.chunks.shape), -1)
        assert int((tile.chunks.locate(list(cells)).source >= 0).sum()) == count
        assert tile.chunks.shape == tuple(
            -(-length // size) for length, size in zip(dataset.shape, dataset.chunks, strict=True)
        )
        return count

    return check
