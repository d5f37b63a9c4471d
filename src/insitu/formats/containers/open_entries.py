"""Open the entries of zip and tar archives that URLs name, and expand patterns in such URLs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from insitu.errors import InsituError, NotFoundError
from insitu.formats.containers.entry_list import list_entries
from insitu.formats.containers.entry_urls import EntryUrl, entry_path, parse_entry_url
from insitu.formats.containers.scan import ScopedArchive
from insitu.formats.containers.zarr_folders import find_store_roots
from insitu.sources import ByteSource, open_source
from insitu.sources.globs import expand_urls, is_glob
from insitu.sources.redaction import redact_url

__all__ = ["expand_entries", "open_entry"]


def open_entry(url: str, place: EntryUrl, storage_options: Mapping[str, Any] | None = None) -> ByteSource:
    """Return the archive of an entry, scanned for that entry only.

    Parameters
    ----------
    url, place
        The URL, and what it names.
    storage_options
        See `insitu.sources.open_source`.
    """
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
