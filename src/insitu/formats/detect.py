"""Which format is this file, and what does it hold?

By its first bytes, never by its name. A format is one row of `FORMATS`: how to recognise it, how to scan it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.containers import Inside, is_tar, is_zip, scan_inside, scan_tar, scan_zip
from insitu.formats.dmrpp import is_dmrpp, scan_dmrpp
from insitu.formats.entry_points import registered, registered_names
from insitu.formats.fits import is_fits, scan_fits
from insitu.formats.grib import is_grib, is_side_file, scan_by_index, scan_grib
from insitu.formats.hdf4 import is_hdf4, scan_hdf4
from insitu.formats.hdf5.scan import scan_hdf5
from insitu.formats.hdf5.structures.superblock import SIGNATURE
from insitu.formats.netcdf3 import is_netcdf3, scan_netcdf3
from insitu.formats.parsing.read_cache import Window
from insitu.formats.tiff import is_tiff, scan_tiff
from insitu.formats.unreadable import InsituWarning
from insitu.model import VirtualGroup
from insitu.sources.protocol import ByteSource

__all__ = ["FORMATS", "Format", "InsituWarning", "Scan", "scan_format", "scan_window"]


class Scan(Protocol):
    """Finds the chunks of one file."""

    def __call__(
        self,
        window: Window,
        *,
        group: str | None = None,
        variables: Collection[str] | None = None,
        errors: str = "raise",
    ) -> VirtualGroup:
        """Scan the file behind a window."""


class Format(NamedTuple):
    """One row of the table of formats."""

    matches: Callable[[Window], bool]
    """Whether a file is of this format, by its first bytes."""
    scan: Scan
    """Finds the chunks."""


def _is_hdf5(window: Window) -> bool:
    """The signature lies at 0, or at 512, 1024, 2048, ... behind a user block."""
    place, head = 0, window.head
    while place + len(SIGNATURE) <= window.size:
        if place + len(SIGNATURE) > len(head):
            return _behind_head(window, place)
        if head[place : place + len(SIGNATURE)] == SIGNATURE:
            return True
        place = max(512, 2 * place)
    return False


def _behind_head(window: Window, place: int) -> bool:
    """Look for the signature behind a large user block, unless the file is plainly something else."""
    if _looks_like(window.head) is not None:
        return False
    places = []
    while place + len(SIGNATURE) <= window.size:
        places.append((place, len(SIGNATURE)))
        place = max(512, 2 * place)
    return SIGNATURE in window.source.read_many(places)


FORMATS: dict[str, Format] = {
    # Archives before all that may begin within a file.
    "zip": Format(is_zip, scan_zip),
    "tar": Format(is_tar, scan_tar),
    "netcdf3": Format(is_netcdf3, scan_netcdf3),
    "tiff": Format(is_tiff, scan_tiff),
    "fits": Format(is_fits, scan_fits),
    "hdf4": Format(is_hdf4, scan_hdf4),
    "dmrpp": Format(is_dmrpp, scan_dmrpp),
    "grib": Format(is_grib, scan_grib),
    "grib_index": Format(is_side_file, scan_by_index),
    # The last: to look for its signature behind a user block may cost a request.
    "hdf5": Format(_is_hdf5, scan_hdf5),
}


def scan_format(
    source: ByteSource,
    *,
    group: str | None = None,
    variables: Collection[str] | None = None,
    errors: str = "raise",
    format: str | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> VirtualGroup:
    """Find the format of a file and scan it: where every chunk lies, and how it is encoded.

    Parameters
    ----------
    source
        The file's bytes (a `ByteSource`).
    group
        Scan only this subtree.
    variables
        Scan only these variables, by name or path, and their dimension scales.
    errors
        "raise": a variable that cannot be taken ends the scan. "warn": it is left out, with an `InsituWarning` and
        an entry in `problems`. "keep": the same without the warning.
    format
        The format by name (see `FORMATS`), if the first bytes should not decide.
    storage_options
        With which other files are opened that the file names (external links and data, sources of virtual datasets).

    Raises
    ------
    FormatError
        If the file is of no known format, or damaged.
    """
    if errors not in ("raise", "warn", "keep"):
        raise ValueError(f'errors must be "raise" or "warn", not {errors!r}')
    if isinstance(source, Inside):
        return scan_inside(
            source, group=group, variables=variables, errors=errors, format=format, storage_options=storage_options
        )
    window = Window(source, storage_options=storage_options)
    return scan_window(window, group=group, variables=variables, errors=errors, format=format)


def scan_window(
    window: Window,
    *,
    group: str | None = None,
    variables: Collection[str] | None = None,
    errors: str = "raise",
    format: str | None = None,
) -> VirtualGroup:
    """The same for a file whose first bytes are at hand."""
    names = (*FORMATS, *registered_names())
    if format is not None and format not in names:
        raise ValueError(f"no format {format!r}; there are: {', '.join(names)}")
    for name in names if format is None else (format,):
        try:
            row = FORMATS[name] if name in FORMATS else registered(name)
        except UnsupportedError as problem:
            if format is not None:
                raise
            # Somebody else's broken package must not stop the search.
            warnings.warn(str(problem), InsituWarning, stacklevel=2)
            continue
        if format is not None or row.matches(window):
            found: VirtualGroup = row.scan(window, group=group, variables=variables, errors=errors)
            return found
    looks = _looks_like(window.head)
    if window.size == 0:
        raise FormatError("the file is empty", url=window.url, offset=0, structure="signature")
    raise FormatError(
        f"the file is of no format that is read here{f': it looks like {looks[0]}' if looks else ''}",
        url=window.url,
        offset=0,
        structure="signature",
        hint=looks[1] if looks else f"Formats that are read: {', '.join(names)}",
    )


# First bytes of files that people mistake for HDF5, and what to do about them.
_LOOKS: tuple[tuple[bytes, str, str], ...] = (
    (b"BUFR", "BUFR", "BUFR holds messages, not arrays"),
    (b"\x1f\x8b", "a gzip archive", "Unpack it: a compressed file cannot be read by range"),
    (b"BZh", "a bzip2 archive", "Unpack it: a compressed file cannot be read by range"),
    (b"\xfd7zXZ", "an xz archive", "Unpack it: a compressed file cannot be read by range"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive", "Unpack it: a compressed file cannot be read by range"),
    (b"PAR1", "Parquet", "Parquet holds tables, not arrays"),
    (b"version https://git-lfs", "a Git LFS pointer", "Fetch the file itself with git lfs pull"),
)
_PAGES = (b"<!doctype", b"<html", b"<?xml", b"<error")


def _looks_like(head: bytes) -> tuple[str, str] | None:
    """What a file is, if it is not what it should be: its kind and a way out."""
    for magic, kind, hint in _LOOKS:
        if head.startswith(magic):
            return kind, hint
    start = head[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(_PAGES):
        return (
            "an HTML or XML page",
            "The server answered with a page: look at the URL, and at what it says in a browser",
        )
    if start[:1] in (b"{", b"["):
        return "JSON", "A reference file is opened by its own name, not scanned"
    return None
