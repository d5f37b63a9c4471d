"""Do threads get in each other's way in ecCodes?"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import insitu
from insitu.formats.grib import header_keys

pytest.importorskip("eccodes")
from .conftest import Makes


def test_many_scans_and_reads_at_once(tmp_path: Path, make: Makes) -> None:
    expected = {}
    random = np.random.default_rng(0)
    for number in range(8):
        path = tmp_path / f"{number}.grib2"
        levels = range(100, 900, 100)
        values = random.normal(280, 10, (8, 16 * 31))
        kind = ["grid_ccsds", "grid_complex_spatial_differencing", "grid_jpeg", "grid_simple"][number % 4]
        path.write_bytes(
            b"".join(make(level=level, packingType=kind, values=v) for level, v in zip(levels, values, strict=True))
        )
        expected[path] = insitu.read(path, "t", decode=False)
    header_keys._memory.clear()

    def work(path: Path) -> bool:
        return all(
            np.array_equal(insitu.read(insitu.scan(path, decode=False), "t", decode=False), expected[path])
            for _ in range(5)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, list(expected) * 4))
