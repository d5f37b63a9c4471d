"""URLs of entries of zip and tar archives.

An entry is named as `runs.zip::2024/jan.nc`, wherever the archive is, or as fsspec chains it:
`zip://2024/jan.nc::s3://bucket/runs.zip`. All other chains are left to fsspec.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from insitu.sources import ByteSource, open_source
from insitu.sources.redaction import chain_links

__all__ = ["EntryUrl", "entry_path", "open_location", "parse_entry_url"]

_CHAINED = re.compile(r"(zip|tar)://(.+?)::(.+)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z0-9+_-]+")
"""A step of fsspec's: `simplecache`, `filecache`."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+-]+)://")
_OURS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "http", "https", "file", "local", "memory")


class EntryUrl(NamedTuple):
    """The URL of an entry of an archive, taken apart."""

    archive: str
    path: str
    is_fsspec_chain: bool
    """Whether the URL is one of fsspec's chains: fsspec can unpack compressed entries as well."""


def entry_path(name: str) -> str:
    """Return an entry's name as a path that does not lead out of the archive.

    Examples
    --------
    >>> entry_path("./runs//../jan.nc")
    'runs/jan.nc'
    """
    return "/".join(part for part in name.replace("\\", "/").split("/") if part not in ("", ".", ".."))


def parse_entry_url(url: Any) -> EntryUrl | None:
    """Return the entry that a URL names; None if it names something else.

    Examples
    --------
    >>> tuple(parse_entry_url("s3://bucket/runs.tar::2024/jan.nc"))
    ('s3://bucket/runs.tar', '2024/jan.nc', False)
    >>> tuple(parse_entry_url("zip://jan.nc::https://host/runs.zip"))
    ('https://host/runs.zip', 'jan.nc', True)
    >>> parse_entry_url("simplecache::s3://bucket/jan.nc"), parse_entry_url("http://[::1]:8080/jan.nc")
    (None, None)
    """
    if not isinstance(url, str) or "::" not in url:
        return None
    chain = _CHAINED.fullmatch(url)
    if chain is not None:
        _, entry, archive = chain.groups()
        return EntryUrl(archive, entry_path(entry), True) if "::" not in archive and entry_path(entry) else None
    archive, *links = chain_links(url)
    if not links:
        return None  # the colons of an IPv6 address
    path = "::".join(links)
    scheme = _SCHEME.match(archive)
    if _WORD.fullmatch(archive) or (scheme and scheme[1].lower() not in _OURS) or "://" in path:
        return None
    if not scheme and os.path.exists(url):
        return None  # a name is a name, whatever characters it has
    inner = entry_path(path.replace("::", "/"))  # an archive in the archive: the scan refuses it by name
    return EntryUrl(archive, inner, False) if archive and inner else None


def open_location(url: Any, storage_options: Mapping[str, Any] | None = None) -> ByteSource:
    """Open the source of a URL.

    For an entry of an archive, this is the archive, scanned for that entry only.
    """
    place = parse_entry_url(url)
    if place is None:
        return open_source(url, storage_options)
    from insitu.formats.containers import open_entry  # not at the top: files need none of it

    return open_entry(url, place, storage_options)
