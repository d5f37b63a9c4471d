"""Which servers are next to which data: the argument `active=`, checked, and the servers of a URL."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from insitu.active.transport import ServerError
from insitu.sources.address import scheme_of
from insitu.sources.listing import local_path

__all__ = ["Placement", "Servers", "place_servers", "servers_of"]

Servers = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""One server; several with the same data; or, by URL prefix, one or several each."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Servers that are next to the data below one prefix."""

    prefix: str
    """Of URLs, or a folder; empty: all data."""
    servers: tuple[str, ...]
    """URLs. Several have the same data and share the work."""

    def holds(self, url: str) -> bool:
        """Return whether a URL lies below the prefix; paths are absolute.

        Examples
        --------
        >>> Placement("s3://era5", ("http://a",)).holds("s3://era5/t.nc"), Placement("s3://era5", ()).holds("s3://era51/t")
        (True, False)
        """
        if not url.startswith(self.prefix):
            return False
        return (
            len(url) == len(self.prefix) or not self.prefix or self.prefix[-1] == "/" or url[len(self.prefix)] in "/?"
        )


def place_servers(given: Servers) -> tuple[Placement, ...]:
    """Return what `active=` says, longer prefixes first; raise an error if it names no server.

    Examples
    --------
    >>> place_servers({"s3://a/": "http://one:8080", "s3://a/b/": ["http://two:8080", "http://three:8080"]})[0]
    Placement(prefix='s3://a/b/', servers=('http://two:8080', 'http://three:8080'))
    """
    by_prefix = given if isinstance(given, Mapping) else {"": given}
    found = []
    for prefix, servers in by_prefix.items():
        named = (servers,) if isinstance(servers, str) else tuple(servers) if isinstance(servers, Sequence) else ()
        if not named or not all(isinstance(url, str) and url for url in named) or not isinstance(prefix, str):
            raise ServerError(
                f"active= names no server{f' for {prefix!r}' if prefix else ''}",
                hint='Give a URL, a list of URLs of servers with the same data, or {"s3://bucket/": URL, …}',
            )
        found.append(Placement(_comparable(prefix) if prefix else "", tuple(dict.fromkeys(named))))
    if not found:
        raise ServerError("active= is an empty mapping", hint='Write {"s3://bucket/": "http://host:port"}')
    return tuple(sorted(found, key=lambda placement: -len(placement.prefix)))


def servers_of(placements: Sequence[Placement], url: str) -> tuple[str, ...]:
    """Return the servers next to a URL: those of its longest prefix; none if no prefix fits."""
    if len(placements) == 1 and not placements[0].prefix:
        return placements[0].servers
    where = _comparable(url)
    return next((placement.servers for placement in placements if placement.holds(where)), ())


def _comparable(url: str) -> str:
    """Return a URL as it is, the name of a local file as an absolute path; a slash at the end stays."""
    path = None if scheme_of(url) not in (None, "file", "local") else local_path(url)
    if path is None:
        return url
    return os.path.join(os.path.abspath(path), "") if url.endswith("/") else os.path.abspath(path)
