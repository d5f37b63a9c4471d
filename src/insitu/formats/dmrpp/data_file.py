"""The files of a DMR++ dataset: what tells a document, what the data file says of its variables, and
the files that chunks name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace

from insitu.errors import InsituError, UnsupportedError
from insitu.formats.detect import scan_window
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.parsing.sibling_files import OpensSiblings
from insitu.formats.scan_request import ScanRequest
from insitu.model import VirtualArray, VirtualGroup
from insitu.sources import open_source
from insitu.sources.address import folder_of

__all__ = ["find_in_data_file", "is_dmrpp", "resolve_beside", "with_arrays"]

NAMESPACES = (b"xml.opendap.org/dap/dmrpp", b"opendap.org/ns/dmrpp")


def is_dmrpp(window: ReadCache) -> bool:
    """Return whether a file is a DMR++ document."""
    head = window.head[:8192].lstrip(b"\xef\xbb\xbf \t\r\n")
    return head.startswith(b"<") and b"Dataset" in head and any(name in head for name in (*NAMESPACES, b" dmrpp:"))


def find_in_data_file(
    document: ReadCache, url: str, paths: Collection[str]
) -> tuple[dict[str, VirtualArray], dict[str, str]]:
    """Return variables as the data file itself describes them; of the others, why it does not.

    Parameters
    ----------
    document
        Its bytes.
    url
        The data file.
    paths
        Of the variables, without a slash before them.
    """
    found: dict[str, VirtualArray] = {}
    reasons: dict[str, str] = {}
    if not paths:
        return found, reasons
    options = document.storage_options
    try:
        own = document.source
        with closing(own.beside(url) if isinstance(own, OpensSiblings) else open_source(url, options)) as source:
            window = ReadCache(source, storage_options=options)
            if is_dmrpp(window):  # it could lead back here
                raise UnsupportedError("it is a DMR++ document, too", url=url)
            for path in paths:
                try:
                    found[path] = scan_window(window, ScanRequest(variables=[path])).array(path)
                except InsituError as problem:
                    reasons[path] = str(problem)
    except InsituError as problem:
        reasons = dict.fromkeys(paths, str(problem))
    return found, reasons


def with_arrays(tree: VirtualGroup, arrays: Mapping[str, VirtualArray], prefix: str = "") -> VirtualGroup:
    """Return the tree with more arrays, given by path."""
    own = {path.rpartition("/")[2]: array for path, array in arrays.items() if path.rpartition("/")[0] == prefix}
    groups = {name: with_arrays(group, arrays, f"{prefix}/{name}".lstrip("/")) for name, group in tree.groups.items()}
    return replace(tree, arrays={**tree.arrays, **own}, groups=groups)


def resolve_beside(url: str, href: str) -> str:
    """Return the URL of a file beside the document, or below it.

    A document may come from anywhere: it must not lead to other files of this machine.

    Examples
    --------
    >>> resolve_beside("https://example.com/a/b.nc.dmrpp", "c.nc")
    'https://example.com/a/c.nc'
    >>> resolve_beside("s3://bucket/what?/b.nc.dmrpp", "c.nc")
    's3://bucket/what?/c.nc'
    """
    parts = href.split("/")
    if href.startswith(("/", "file:")) or "\\" in href or ":" in parts[0] or ".." in parts:
        raise UnsupportedError(
            f"the document names a data file in another folder, which is not allowed: {href!r}", structure="href"
        )
    return f"{folder_of(url)}{href}"
