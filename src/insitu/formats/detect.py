"""Detect the format of a file by its first bytes, and scan it.

The file's name never matters. The formats are those of `insitu.formats.registry`.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping

from insitu.errors import FormatError, UnsupportedError, error_context
from insitu.formats.foreign_files import identify_foreign_file
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.registry import FORMATS, Format, installed_formats, iter_formats, load_format
from insitu.formats.scan_request import ScanRequest
from insitu.formats.unreadable import InsituWarning
from insitu.model import VirtualGroup
from insitu.sources.protocol import ByteSource

__all__ = ["find_format", "scan_folder", "scan_format", "scan_window"]


def scan_format(
    source: ByteSource,
    *,
    group: str | None = None,
    variables: Collection[str] | None = None,
    errors: str = "raise",
    format: str | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> VirtualGroup:
    """Detect the format of a file and scan it: where every chunk lies, and how it is encoded.

    Parameters
    ----------
    source
        The file's bytes (a `ByteSource`).
    group
        Scan only this subtree.
    variables
        Scan only these variables, by name or path, and their dimension scales.
    errors
        "raise": a variable that cannot be read ends the scan. "warn": it is left out, with an
        `InsituWarning` and an entry in `problems`. "keep": the same without the warning.
    format
        The format by name (see `FORMATS`), if the first bytes should not decide.
    storage_options
        Options to open other files that this one names (external links and data, sources of virtual
        datasets).

    Raises
    ------
    FormatError
        If the format is not known, or the file is damaged.
    """
    request = ScanRequest(group, variables, errors, format, storage_options)
    # Not isinstance: checking a runtime protocol takes 50 µs, a tenth of a scan.
    scan = getattr(source, "scan", None)
    if scan is not None:
        found: VirtualGroup = scan(request)
        return found
    return scan_window(ReadCache(source, storage_options=storage_options), request)


def scan_window(window: ReadCache, request: ScanRequest) -> VirtualGroup:
    """Do what `scan_format` does, for a file whose first bytes have been read.

    Errors get the URL of the file here, so that parsers need not carry it along.
    """
    with error_context(url=window.url):
        found = find_format(window, request.format)
        return found.scan(window, group=request.group, variables=request.variables, errors=request.errors)


def find_format(window: ReadCache, format: str | None = None) -> Format:
    """Return the format of that name, or the one that the first bytes are of."""
    known = FORMATS if format is None or format in FORMATS else installed_formats()
    if format is not None and format not in known:
        raise ValueError(f"no format {format!r}; there are: {', '.join(known)}")
    for row in iter_formats() if format is None else (known[format],):
        if format is None and not row.signature.match(window.head):
            continue
        try:
            found = load_format(row)
        except UnsupportedError as problem:
            if format is not None:
                raise
            # Somebody else's broken package must not stop the search.
            warnings.warn(str(problem), InsituWarning, stacklevel=3)
            continue
        if format is not None or found.matches(window):
            return found
    if window.size == 0:
        raise FormatError("the file is empty", offset=0, structure="signature")
    foreign = identify_foreign_file(window.head)
    raise FormatError(
        f"the file format is not supported: it looks like {foreign[0]}"
        if foreign
        else f"the file format is not known: the file starts with {window.head[:8]!r}",
        offset=0,
        structure="signature",
        hint=foreign[1] if foreign else f"Supported formats: {', '.join(installed_formats())}",
    )


def scan_folder(url: str, request: ScanRequest) -> VirtualGroup | None:
    """Return the tree of an archive that is a folder, not a file; None if there is none.

    Zarr is the only such format.
    """
    from insitu.formats import zarr

    return zarr.open_zarr(url, request) if zarr.matches(url) else None
