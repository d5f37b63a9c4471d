"""Options of a copy, as one object: Python's functions and the command line fill it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from insitu.copying.choose_chunks import Chunks
from insitu.errors import UnsupportedError
from insitu.sources.address import is_remote

__all__ = ["TARGETS", "CopyOptions", "parse_memory", "target_kind"]

TARGETS = {".zarr": "zarr", ".icechunk": "icechunk", ".nc": "netcdf", ".nc4": "netcdf", ".cdf": "netcdf"}
"""Suffix of a target: its kind."""
SHARE_OF_MEMORY = 4
"""A copy takes this part of the machine's memory, if not told otherwise."""
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """How a copy is made."""

    chunks: Chunks = None
    """Lengths by dimension, or `auto`, `series`, `maps`, `both`; None: as in the source."""
    shards: Mapping[str, int] | None = None
    """Lengths by dimension of what is one object; Zarr V3 only."""
    codec: str | None = None
    """`zstd:3`, `zlib:4`, `blosc:lz4`, `none`; `source`: those of the source where its chunks stay; None: the same, but
    of Zarr V3 only if its specification has them; else zstd:3, of NetCDF zlib:4.
    """
    memory: int | None = None
    """Bytes that the copy may take; None: a quarter of the machine's."""
    zarr_format: int = 3
    """2 or 3."""
    overwrite: bool = False
    """Whether an existing target is replaced."""
    append: bool | str = False
    """Whether what is new along a dimension is added to an existing target; a name: that dimension."""
    verify: bool = False
    """Whether the target is read back and compared with checksums of the values."""
    repack: bool = False
    """Whether variables whose files are packed differently are packed anew."""
    commit_every: int | None = None
    """Of Icechunk: labels of the first dimension in each commit; None: one commit."""
    engine: Any = None
    """Where boxes are copied: an executor, a Dask client, "dask"; None: in this process."""
    progress: Callable[[int, int], None] | None = field(default=None, repr=False)
    """Called with bytes of values that are done, and all of them."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """How to open the target."""

    @classmethod
    def of_call(cls, *, memory: int | str | None = None, **given: Any) -> CopyOptions:
        """Return the options of a call; memory may be text, such as `2GiB`.

        Raises
        ------
        TypeError
            If there is no option of a name.
        """
        return cls(memory=parse_memory(memory) if isinstance(memory, str) else memory, **given)

    def memory_bytes(self) -> int:
        """Return the bytes that may be taken."""
        if self.memory is not None:
            return self.memory
        return machine_memory() // SHARE_OF_MEMORY


def machine_memory() -> int:
    """Return the bytes of memory of the machine, or of the group of processes that this one is limited with."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # Windows
        whole = 8 << 30
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            limit = file.read().strip()
        return min(whole, int(limit)) if limit.isdigit() else whole
    except OSError:
        return whole


def parse_memory(text: str) -> int:
    """Return bytes, from text such as `512MB` or `2GiB`.

    Examples
    --------
    >>> parse_memory("512MB"), parse_memory("2GiB"), parse_memory("1000")
    (512000000, 2147483648, 1000)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", text.lower())
    if found is None or found[2] not in _UNITS:
        raise UnsupportedError(f"{text!r} is no amount of memory", hint="Write e.g. 512MB or 2GiB")
    return int(float(found[1]) * _UNITS[found[2]])


def target_kind(target: str) -> str:
    """Return what kind of target a URL or path names.

    Raises
    ------
    UnsupportedError
        If its suffix names no format, or it cannot be written there.
    """
    name = target.split("?")[0].rstrip("/")
    kind = TARGETS.get(os.path.splitext(name)[1].lower())
    if kind is None:
        raise UnsupportedError(
            "the suffix of the target names no format",
            url=target,
            hint="Use a name that ends in .zarr, .icechunk or .nc",
        )
    if kind == "netcdf" and is_remote(target):
        raise UnsupportedError(
            "a NetCDF file cannot be written to an object store",
            url=target,
            hint="Write it to a local path and upload it, or copy to .zarr or .icechunk",
        )
    return kind
