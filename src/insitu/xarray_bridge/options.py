"""How much may an operation read without being asked to? One place for the settings of a process."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Options", "options"]


@dataclass(slots=True)
class Options:
    """Settings that hold for the whole process; assign to change them."""

    read_limit: int = 1 << 30
    """Bytes that arithmetic on a virtual array may read at once; above, it becomes a Dask array. `.load()` is not limited."""
    block_bytes: int = 64 << 20
    """Bytes that are held at a time when an array is streamed to another store."""
    point_limit: int = 4096
    """Up to how many points a pointwise selection stays virtual; above, it is read."""


options = Options()
"""The settings in force."""
