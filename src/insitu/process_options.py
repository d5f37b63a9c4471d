"""Options of the process: `insitu.options`, a name that a module of this package cannot have."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Options", "check_engine", "options"]


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
    scan_cache: bool = True
    """Whether scans are kept on disk, so that an archive opens at once the second time."""
    fallback_bytes: int = 16 << 20
    """Bytes that a reduction may read here without a warning, if `active=` names a server for it. A smaller fallback
    warns once for each server and reason.
    """
    _engine: Any = field(default=None, init=False, repr=False)

    @property
    def engine(self) -> Any:
        """What runs the portions of a large reduction: a Dask client, `"dask"` (Dask's current scheduler), or any
        `concurrent.futures.Executor`; None: the threads of this process.
        """
        return self._engine

    @engine.setter
    def engine(self, engine: Any) -> None:
        self._engine = check_engine(engine)

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


def check_engine(given: Any, option: str = "engine", others: str = ",") -> Any:
    """Return what names an engine, as it is.

    Parameters
    ----------
    given
        A Dask client, "dask", an executor, or None: this process.
    option
        Where it was given.
    others
        What else may be given there, for the error.

    Raises
    ------
    TypeError
        If it names none.
    """
    if given is None or isinstance(given, Executor) or _is_dask_client(given):
        return given
    if isinstance(given, str) and given == "dask":
        return given
    raise TypeError(
        f"{option} must be a Dask client, 'dask', an Executor of concurrent.futures{others} or None, not {given!r}"
    )


def _is_dask_client(engine: Any) -> bool:
    """Return whether an object is a client of a Dask cluster; Dask need not be installed."""
    return hasattr(engine, "scheduler_info") and hasattr(engine, "get")
