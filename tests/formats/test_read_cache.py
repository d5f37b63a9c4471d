"""The cache of byte ranges of a file that is parsed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from insitu.formats.parsing.read_cache import ReadCache
from insitu.sources import open_source


def test_a_range_in_memory_stays_whole_when_a_new_one_overlaps_it(tmp_path: Path) -> None:
    """A missing range is rounded out into one that is in memory: both are served together."""
    data = np.random.default_rng(0).integers(0, 255, 8_000_000, np.uint8).tobytes()
    (tmp_path / "x").write_bytes(data)
    with open_source(str(tmp_path / "x")) as source:
        cache = ReadCache(source)
        cache.fetch([[(3_000_000, 600_000)]])
        wanted = [(2_999_000, 900), (3_000_000, 600_000), (2_000_000, 500_000)]
        assert cache.fetch([wanted])[0] == [data[offset : offset + length] for offset, length in wanted]
