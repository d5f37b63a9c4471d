"""How does each library read a native Zarr store? What `read_zarr.py` adds to the contestants of
`readers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from readers import Read, Slabs, _work, check, tensorstore, zarr_native, zarrs

__all__ = ["check", "insitu", "tensorstore", "zarr_native", "zarrs"]


def insitu(path: str, warm: str, slabs: Slabs | None = None) -> Callable[[], list[Any]]:
    """Our own: look at the metadata, then read."""
    from insitu.formats.scan_request import ScanRequest
    from insitu.formats.zarr import open_zarr
    from insitu.reading import read_array

    def opened(where: str) -> Iterator[Read]:
        group = open_zarr(where, ScanRequest())
        assert group is not None
        (array,) = group.arrays.values()
        yield lambda slab: read_array(array, slab)

    return _work(opened, path, warm, slabs)
