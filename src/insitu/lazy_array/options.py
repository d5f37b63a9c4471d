"""Options of the process for virtual arrays: `insitu.options`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from insitu.active.fallback import settings as fallback
from insitu.engines.choose import check_engine
from insitu.engines.choose import settings as engine_settings
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

    @property
    def engine(self) -> Any:
        """What runs the portions of a large reduction: a Dask client, `"dask"` (Dask's current scheduler), or any
        `concurrent.futures.Executor`; None: the threads of this process.
        """
        return engine_settings.engine

    @engine.setter
    def engine(self, engine: Any) -> None:
        engine_settings.engine = check_engine(engine)

    @contextmanager
    def __call__(self, **changes: Any) -> Iterator[Options]:
        """Change settings for as long as a `with` block lasts, for the whole process.

        Examples
        --------
        >>> with options(block_bytes=1 << 20) as changed:
        ...     changed.block_bytes
        1048576
        """
        if unknown := [name for name in changes if name.startswith("_") or not hasattr(self, name)]:
            raise TypeError(f"not an option of insitu: {', '.join(unknown)}")
        before = {name: getattr(self, name) for name in changes}
        try:
            for name, value in changes.items():
                setattr(self, name, value)
            yield self
        finally:
            for name, value in before.items():
                setattr(self, name, value)


options = Options()
"""The settings in force."""
