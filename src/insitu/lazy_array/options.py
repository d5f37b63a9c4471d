"""Options of the process for virtual arrays: `insitu.options`."""

from __future__ import annotations

from dataclasses import dataclass

from insitu.active.fallback import settings as fallback
from insitu.scanning.scan_cache import settings as scan_settings

__all__ = ["Options", "options"]


@dataclass(slots=True)
class Options:
    """Settings that hold for the whole process; assign to change them."""

    read_limit: int = 1 << 30
    """Bytes that arithmetic on a virtual array may read at once; above, it becomes a Dask array.
    `.load()` is not limited.
    """
    block_bytes: int = 64 << 20
    """Bytes that are held at a time when an array is streamed to another store."""
    point_limit: int = 4096
    """Up to how many points a pointwise selection stays virtual; above, it is read."""

    @property
    def scan_cache(self) -> bool:
        """Whether scans are kept on disk, so that an archive opens at once the second time."""
        return scan_settings.enabled

    @scan_cache.setter
    def scan_cache(self, enabled: bool) -> None:
        scan_settings.enabled = enabled

    @property
    def fallback_bytes(self) -> int:
        """Bytes that a reduction may read here without a warning, if `active=` names a server for
        it.
        """
        return fallback.warn_bytes

    @fallback_bytes.setter
    def fallback_bytes(self, most: int) -> None:
        fallback.warn_bytes = most


options = Options()
"""The settings in force."""
