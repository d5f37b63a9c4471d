from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

import insitu
from insitu.errors import StaleSourceError
from insitu.model import Columns, Selection, Source, Tile, VirtualArray
from insitu.model import Encoding as Stored
from insitu.model.axis import Axis
from insitu.reading import plan_read
from insitu.reading.execute import execute
from insitu.reading.source_pool import SourcePool
from insitu.reading.task_batches import REMOTE_REQUESTS, cut_batches
from insitu.sources import CachedSource, CountingSource, DiskCache, LocalSource


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as target:
        target.create_dataset("x", data=np.arange(4000.0).reshape(40, 100), chunks=(4, 100), compression="gzip")
    return path


def test_chunks_kept_on_disk_are_found_by_any_selection(file: Path, tmp_path: Path) -> None:
    group = insitu.scan(file, decode=False)
    array = group.arrays["x"]
    about = replace(array.sources[0], etag='"of a server"', modified=None)
    counted = CountingSource(LocalSource(file))
    cache = DiskCache(tmp_path / "cache", 1 << 20)

    def read(key: slice) -> np.ndarray:
        selection = Selection.of(key, array.shape)
        out = np.empty(selection.result_shape, array.dtype)
        opened = SourcePool(opener=lambda source: CachedSource(counted, cache, about))
        execute(plan_read(array, selection), out, opened)
        return out

    expected = np.arange(4000.0).reshape(40, 100)
    assert np.array_equal(read(slice(8, 20)), expected[8:20])
    counted.reset()
    assert np.array_equal(read(slice(0, 24)), expected[:24])
    assert (
        len(counted.ranges) == 3
    )  # chunks 0, 1 and 5: the others are on disk, though another selection asked for them
    counted.reset()
    assert np.array_equal(read(slice(12, 13)), expected[12:13])
    assert counted.ranges == []


def test_a_file_that_changed_since_the_scan_is_not_read(file: Path) -> None:
    group = insitu.scan(file, decode=False)
    with h5py.File(file, "a") as target:
        target["more"] = np.arange(10)
    with pytest.raises(StaleSourceError, match="variable x") as caught:
        insitu.read(group, "x", decode=False)
    place = caught.value.place
    assert place["url"] == str(file)
    assert "chunk" in place
    assert np.array_equal(
        insitu.read(insitu.scan(file, decode=False), "x", decode=False), np.arange(4000.0).reshape(40, 100)
    )


def test_tasks_far_away_end_with_their_object_and_have_few_requests() -> None:
    files, chunks = 5, 300
    size, step = 1000, 100_000_000  # too far apart to be asked for together
    sources = [Source(f"https://localhost/{number}") for number in range(files)]
    cells = np.arange(files * chunks)
    table = Columns((len(cells),), sources, cells // chunks, cells % chunks * step, np.asarray(size))
    tile = Tile((Axis.regular(len(cells) * 125, 125),), (Stored(np.dtype("<f8")),), table)
    found = list(cut_batches(plan_read(VirtualArray.of(tile, dims=("a",)), Selection.of(..., (len(cells) * 125,)))))
    assert [begin for begin, _ in found] == [0, *[end for _, end in found[:-1]]]
    assert found[-1][1] == len(cells)
    for begin, end in found:
        assert begin // chunks == (end - 1) // chunks
        assert 0 < end - begin <= REMOTE_REQUESTS
