"""LRU cache of scanned archives: metadata is kept between requests while the archive is unchanged."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from insitu.archive import open_variable
from insitu.cancellation import check_deadline
from insitu.lru import LruCache
from insitu.model import VirtualArray
from insitu.server.keyed_locks import KeyedLocks
from insitu.server.metrics import Metrics
from insitu.server.roots import local_path

__all__ = ["SCAN_BYTES", "ScannedArchives", "content_version"]

SCAN_BYTES = 32 << 20
"""Bytes that are counted for opening an archive: its metadata."""


@dataclass(frozen=True, slots=True)
class _CachedScan:
    found: Any
    version: Any
    checked: float
    state: Any = None


class ScannedArchives:
    """LRU cache of the metadata of archives, per client.

    Parameters
    ----------
    most
        Number of entries.
    fresh
        Seconds after which the scan of a remote archive expires.
    metrics
        Counter of scans.
    """

    def __init__(self, most: int, fresh: float, metrics: Metrics) -> None:
        self.fresh, self.metrics = fresh, metrics
        self._scans: LruCache[str, _CachedScan] = LruCache(most)
        self._making = KeyedLocks()

    def array(self, url: str, variable: str, *, decoded: bool, options: Mapping[str, Any], who: str) -> VirtualArray:
        """Return a variable of an archive.

        Parameters
        ----------
        url, variable
            The archive and the variable; groups before slashes.
        decoded
            Whether the CF conventions are applied: scale, offset, missing values, times.
        options
            Storage options.
        who
            Digest of the client: what one client may see another may not.
        """

        def make() -> VirtualArray:
            return scan_array(url, variable, options, decode=decoded)

        found: VirtualArray = self.get((who, url, variable, decoded), url, make)
        return found

    def get(
        self, key: Any, url: str, make: Callable[[], Any], find_state: Callable[[], Sequence[Any]] | None = None
    ) -> Any:
        """Return the entry of a key, about the archive at a URL;
        make it if there is none or the archive has changed.

        Parameters
        ----------
        key, url
            The entry, and the archive that it is about.
        make
            Makes the entry.
        find_state
            Returns what identifies the present content of each file of the archive. An entry that
            has expired stays if all are known and none has changed.
        """
        key = repr(key)
        version = content_version(url)
        with self._making.hold(key):  # if several requests need one archive, one of them scans it
            cached = self._scans.get(key)
            if cached is not None and cached.version == version and self._is_fresh(cached, url):
                return cached.found
            state = None if find_state is None else find_state()
            if cached is not None and state and None not in state and cached.state == state:
                self._scans.put(key, _CachedScan(cached.found, version, time.monotonic(), state))
                return cached.found
            self.metrics.add("insitu_scans_total", 1)
            found = make()
            check_deadline()  # a scan that was cancelled may be incomplete
            self._scans.put(key, _CachedScan(found, version, time.monotonic(), state))
            return found

    def forget(self) -> None:
        """Drop all entries: an archive turned out to have changed."""
        self._scans.clear()

    def _is_fresh(self, cached: _CachedScan, url: str) -> bool:
        path = local_path(url)
        return (path is not None and os.path.isfile(path)) or time.monotonic() - cached.checked < self.fresh


def content_version(url: str) -> Any:
    """Return what identifies the present content of a local archive; None for a remote one."""
    path = local_path(url)
    if path is None:
        return None
    if os.path.isdir(path):
        # Of references and stores, the file that is replaced last identifies the state.
        marks = (os.path.join(path, name) for name in ("root.json", "zarr.json", ".zmetadata", "repo"))
        path = next((mark for mark in marks if os.path.isfile(mark)), path)
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def scan_array(url: str, variable: str, options: Mapping[str, Any], *, decode: bool) -> VirtualArray:
    """Return a variable as xarray would show it, or as it is stored."""
    archive, name = open_variable(url, variable, many=False, storage_options=options)
    return archive.array(name, decode=decode)
