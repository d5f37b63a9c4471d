"""How far away are the bytes? By the URL alone, before anything is opened: it decides how requests
are cut and how many run at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from insitu.model import Source
from insitu.sources import request_bytes as cost_of_request
from insitu.sources.address import is_remote

__all__ = ["NEAR_REQUEST", "has_remote_sources", "request_bytes"]

NEAR_REQUEST = 16 << 10
"""A read of a local file costs about as much as this many bytes from the page cache."""


def has_remote_sources(sources: Sequence[Source]) -> bool:
    """Return whether a request is a round trip; the first source speaks for all.

    Examples
    --------
    >>> [has_remote_sources([Source(url)]) for url in ("/data/a.nc", "file:///data/a.nc", "s3://bucket/a.nc")]
    [False, False, True]
    """
    url = _first_url(sources)
    return url is not None and is_remote(url)


def request_bytes(sources: Sequence[Source]) -> int:
    """How many bytes could be fetched in the time that one more request costs."""
    url = _first_url(sources)
    return NEAR_REQUEST if url is None else cost_of_request(url)


def _first_url(sources: Sequence[Source]) -> str | None:
    """Return the URL of the first source; None if there is none.

    Sources are not counted: that would read all manifests of a repository.
    """
    try:
        return sources[0].url
    except IndexError:
        return None
