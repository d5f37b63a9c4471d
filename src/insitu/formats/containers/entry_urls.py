"""URLs of entries of archives: parse them, open them, expand patterns in them.

An entry is named as `runs.zip::2024/jan.nc`, wherever the archive is, or as fsspec chains it:
`zip://2024/jan.nc::s3://bucket/runs.zip`. All other chains are left to fsspec.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from insitu.errors import InsituError, NotFoundError
from insitu.formats.containers.archive_entry import entry_path
from insitu.formats.containers.entry_list import list_entries
from insitu.formats.containers.scan import ScopedArchive
from insitu.formats.containers.zarr_folders import find_store_roots
from insitu.sources import ByteSource, expand_urls, open_source
from insitu.sources.globs import is_glob
from insitu.sources.redaction import chain_links, redact_url

__all__ = ["EntryUrl", "expand_entries", "open_location", "parse_entry_url"]

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
    source = open_source(place.archive, storage_options)
    if place.is_fsspec_chain and _needs_unpacking(source, place.path):
        source.close()
        return open_source(url, storage_options)
    return ScopedArchive(source, place.path)


def _needs_unpacking(source: ByteSource, path: str) -> bool:
    try:
        return any(entry.problem and entry_path(entry.name) == path for entry in list_entries(source))
    except InsituError:
        return True  # no zip or tar archive: fsspec may know more


def expand_entries(urls: Any, storage_options: Mapping[str, Any] | None = None) -> list[Any]:
    """Return the URLs that patterns match, as `insitu.sources.expand_urls` does, and entries of
    archives too: `runs_*.zip::2024/*.nc`.

    Parameters
    ----------
    urls
        What `expand_urls` takes.
    storage_options
        See `insitu.sources.open_source`.
    """
    if isinstance(urls, list | tuple):
        return [found for item in urls for found in expand_entries(item, storage_options)]
    place = parse_entry_url(urls)
    if place is None:
        return expand_urls(urls, storage_options)
    archives = [str(archive) for archive in expand_urls(place.archive, storage_options)]
    if not is_glob(f"x/{place.path}") or place.is_fsspec_chain:
        return [urls] if archives == [place.archive] else [f"{archive}::{place.path}" for archive in archives]
    found = []
    for archive in archives:
        with open_source(archive, storage_options) as source:
            found += [f"{archive}::{path}" for path in _matching_paths(source, place.path)]
    if not found:
        raise NotFoundError("no member of the archive matches this pattern", url=redact_url(urls))
    return found


def _matching_paths(source: ByteSource, pattern: str) -> list[str]:
    """Return the entries that match a pattern; a Zarr store counts as one entry."""
    paths = [entry_path(entry.name) for entry in list_entries(source)]
    roots = find_store_roots(paths)
    paths = [path for path in paths if not any(path.startswith(f"{root}/") for root in roots)] + roots
    fits = re.compile(_TOKEN.sub(_regex, pattern))
    return sorted({path for path in paths if path and fits.fullmatch(path)})


_TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|\[[^]]+\]|\{[^{}]*\}|.", re.DOTALL)
_WILD = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _regex(token: re.Match[str]) -> str:
    """Return one token of a glob pattern as a regular expression.

    `*` stops at a slash, `**` does not.
    """
    text = token[0]
    if text in _WILD:
        return _WILD[text]
    if text[0] == "[" and len(text) > 2:
        return "[" + text[1:-1].replace("\\", "\\\\").replace("!", "^", text[1] == "!") + "]"
    if text[0] == "{" and len(text) > 2:
        return "(?:" + "|".join(_TOKEN.sub(_regex, choice) for choice in text[1:-1].split(",")) + ")"
    return re.escape(text)
