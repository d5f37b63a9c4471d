"""Which file beside a DMR++ document does a relative name mean?"""

from __future__ import annotations

from insitu.errors import UnsupportedError
from insitu.sources.address import folder_of

__all__ = ["beside"]


def beside(url: str, href: str) -> str:
    """The file of that name beside the document, or below.

    A document comes from elsewhere: it must not name any file of this machine that it likes.

    Examples
    --------
    >>> beside("https://example.com/a/b.nc.dmrpp", "c.nc")
    'https://example.com/a/c.nc'
    >>> beside("s3://bucket/what?/b.nc.dmrpp", "c.nc")
    's3://bucket/what?/c.nc'
    """
    parts = href.split("/")
    if href.startswith(("/", "file:")) or "\\" in href or ":" in parts[0] or ".." in parts:
        raise UnsupportedError(f"the document names a file that is not beside it: {href!r}", url=url, structure="href")
    return f"{folder_of(url)}{href}"
