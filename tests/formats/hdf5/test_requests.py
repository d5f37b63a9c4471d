"""A scan reads few bytes, in few round trips."""

from __future__ import annotations

from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest

from insitu.formats import scan_format
from insitu.sources import CountingSource
from insitu.sources.coalesce import merge_ranges
from insitu.sources.local import LocalSource


class Remote(LocalSource):
    """A local file that says it is far away."""

    @property
    def url(self) -> str:
        return "https://example.org/file.nc"


def _scan(path: Path) -> CountingSource:
    source = CountingSource(Remote(path))
    scan_format(source)
    return source


def test_metadata_at_the_head(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", meta_block_size=1 << 20) as file:
        for number in range(100):
            dataset = file.create_dataset(f"variable_{number}", (4, 64, 64), "f4", chunks=(1, 64, 64))
            for name in ("units", "long_name", "standard_name", "cell_methods"):
                dataset.attrs[name] = f"{name} of variable {number}"
        for dataset in file.values():
            dataset[...] = 1
    source = _scan(path)
    assert source.batches <= 3
    offsets, lengths = zip(*source.ranges, strict=True)
    # Nodes of B-trees are asked for one by one; those that touch travel together.
    assert len(merge_ranges(offsets, lengths, gap=4096).offset) <= 3


def test_scattered_nodes(tmp_path: Path) -> None:
    path = tmp_path / "x.nc"
    variables, steps = 20, 100
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 3000)
        made = [
            file.createVariable(f"v{number}", "f4", ("time", "x"), chunksizes=(1, 3000)) for number in range(variables)
        ]
        for step in range(steps):
            for variable in made:
                variable[step] = np.float32(step)
    source = _scan(path)
    assert source.batches <= 8
    assert source.bytes < 700_000  # of 24 MB


@pytest.mark.parametrize("depth", [1, 6])
def test_batches_follow_depth_not_size(tmp_path: Path, depth) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="latest") as file:
        for number in range(30):
            group = file
            for level in range(depth):
                group = group.require_group(f"group {number} {level}")
            for inner in range(3):
                dataset = group.create_dataset(f"x{inner}", data=np.arange(64), chunks=(4,), maxshape=(None,))
                dataset.attrs["text"] = "words"
    assert _scan(path).batches <= 6 + depth
