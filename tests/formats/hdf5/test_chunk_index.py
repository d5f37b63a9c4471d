"""Every kind of chunk index gives the chunks that h5py gives.

Modules: formats/hdf5/structures/chunk_rows.py, formats/hdf5/structures/extensible_array.py,
formats/hdf5/structures/fixed_array.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fixtures.hdf5_property import create

# (libver, maximum shape, what index that makes) for a dataset of 23 x 17 in chunks of 4 x 5.
INDEXES = {
    "v1 B-tree": ("earliest", None, {}),
    "v1 B-tree, unlimited": ("earliest", (None, None), {}),
    "fixed array": ("latest", None, {}),
    "fixed array, larger limit": ("latest", (40, 17), {}),
    "extensible array": ("latest", (None, 17), {}),
    "v2 B-tree": ("latest", (None, None), {}),
    "fixed array of 1.10": ("v110", None, {}),
    "implicit": ("latest", None, {"early": True}),
}
FILTERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "deflate": {"compression": "gzip", "shuffle": True},
    "checksum": {"fletcher32": True},
}


def _write(
    path: Path, libver: str, shape: tuple[int, ...], chunks: tuple[int, ...], early: bool = False, **how: Any
) -> None:
    with h5py.File(path, "w", libver=libver) as file:
        if early:
            how["dcpl"] = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            how["dcpl"].set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        dataset = file.create_dataset("x", shape, "i4", chunks=chunks, **how)
        dataset[...] = np.arange(dataset.size).reshape(shape)


@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize(("libver", "limit", "how"), INDEXES.values(), ids=INDEXES)
def test_same_as_h5py(tmp_path: Path, scan, same_chunks, libver, limit, how, filters) -> None:
    path = tmp_path / "x.h5"
    _write(path, libver, (23, 17), (4, 5), maxshape=limit, **how, **filters)
    array = scan(path).arrays["x"]
    with h5py.File(path) as file:
        assert same_chunks(file["x"], array) == 24
    assert array.details.chunks == (4, 5)
    assert len(array.tiles[0].encodings[0].codecs) == len(filters)


@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_one_chunk_is_the_whole(tmp_path: Path, scan, same_chunks, libver, filters) -> None:
    path = tmp_path / "x.h5"
    _write(path, libver, (6, 7), (6, 7), **filters)
    with h5py.File(path) as file:
        assert same_chunks(file["x"], scan(path).arrays["x"]) == 1


@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("limit", [None, (None,)], ids=["fixed array", "extensible array"])
def test_pages(tmp_path: Path, scan, same_chunks, limit, filters) -> None:
    """Fixed arrays have pages above 1024 elements; extensible arrays in data blocks above that,
    from element 131,060 on.
    """
    path = tmp_path / "x.h5"
    count = 5000 if limit is None else 400_000
    with h5py.File(path, "w", libver="latest") as file:
        dataset = file.create_dataset("x", (count,), "i1", chunks=(1,), maxshape=limit, **filters)
        for place in (0, 5, 1023, 1024, 2500, 4999, count - 1):
            dataset[place] = 1
        if limit is not None:
            dataset[131_000:131_100] = 1
            for place in (140_000, 163_900, 163_901, 200_001, 262_200, 300_000):
                dataset[place] = 1
    with h5py.File(path) as file:
        assert same_chunks(file["x"], scan(path).arrays["x"]) >= 6


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("limit", [(None, None), (None, 300)])
def test_deep_trees(tmp_path: Path, scan, same_chunks, libver, limit) -> None:
    """Enough chunks for several levels of nodes, and for super blocks."""
    path = tmp_path / "x.h5"
    _write(path, libver, (60, 90), (1, 1), maxshape=limit)
    with h5py.File(path) as file:
        assert same_chunks(file["x"], scan(path).arrays["x"]) == 5400


def test_written_in_any_order_and_sparse(tmp_path: Path, scan, same_chunks) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (1_000_000, 1_000_000), "f4", chunks=(10, 10))
        for row, column in ((999_999, 3), (5, 999_990), (0, 0), (77_777, 77_777)):
            dataset[row, column] = 1
        for index, size in (("none", 4), ("late", 8)):
            file.create_dataset(index, (10**9,), "i1", chunks=(size,))
    group = scan(path)
    with h5py.File(path) as file:
        for number in range(4):
            info = file["x"].id.get_chunk_info(number)
            state = group.arrays["x"].tiles[0].chunks[tuple(first // 10 for first in info.chunk_offset)]
            assert (state.offset, state.length) == (info.byte_offset, info.size)
    assert group.arrays["none"].tiles[0].chunks.nbytes < 100


def test_unlimited_axis_is_not_the_first(tmp_path: Path, scan) -> None:
    """The library's own chunk queries give wrong places here, so the bytes are compared."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="latest") as file:
        dataset = file.create_dataset("x", (4, 6, 3), "i4", chunks=(2, 3, 1), maxshape=(10, None, 7))
        dataset[...] = np.arange(72).reshape(4, 6, 3)
    data, values = path.read_bytes(), np.arange(72).reshape(4, 6, 3)
    chunks = scan(path).arrays["x"].tiles[0].chunks
    for cell in np.ndindex(2, 2, 3):
        state = chunks[cell]
        found = np.frombuffer(data[state.offset : state.offset + state.length], "<i4").reshape(2, 3, 1)
        box = tuple(slice(i * n, (i + 1) * n) for i, n in zip(cell, (2, 3, 1), strict=True))
        assert (found == values[box]).all()


def test_filter_masks(tmp_path: Path, scan, same_chunks) -> None:
    for libver in ("earliest", "latest"):
        path = tmp_path / f"{libver}.h5"
        with h5py.File(path, "w", libver=libver) as file:
            dataset = file.create_dataset("x", (8,), "i4", chunks=(2,), shuffle=True, compression="gzip")
            dataset[:2] = 1
            dataset.id.write_direct_chunk((2,), bytes(8), filter_mask=3)
            dataset.id.write_direct_chunk((6,), bytes(8), filter_mask=2)
        with h5py.File(path) as file:
            assert same_chunks(file["x"], scan(path).arrays["x"]) == 3


def test_bare_edges_become_masks(tmp_path: Path, scan) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="latest") as file:
        dataset = create(file, "x", (6, 8), "<i4", (4, 4), filters={"deflate": 1}, unfiltered_edges=True)
        dataset[...] = 1
    chunks = scan(path).arrays["x"].tiles[0].chunks
    assert [[chunks[i, j].filter_mask for j in (0, 1)] for i in (0, 1)] == [[0, 0], [1, 1]]


def test_shrunk_and_grown(tmp_path: Path, scan, same_chunks) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (40,), "i4", chunks=(4,), maxshape=(None,))
        dataset[...] = 1
        dataset.resize((13,))
        dataset.resize((30,))
    with h5py.File(path) as file:
        same_chunks(file["x"], scan(path).arrays["x"])
