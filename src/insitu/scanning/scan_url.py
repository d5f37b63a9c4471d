"""Scan a URL into a group of stored arrays: a file of any format, a Zarr store, or saved
references.

CF decoding happens in `scan_member`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from typing import Any

from insitu.errors import error_context
from insitu.formats import scan_folder, scan_format
from insitu.formats.containers import open_location, parse_entry_url
from insitu.formats.scan_request import ScanRequest
from insitu.model import VirtualGroup
from insitu.open_options import ScanOptions
from insitu.scanning.manifest_store import document_of_manifests, is_manifest_store
from insitu.sources import ByteSource, detach_secrets

__all__ = [
    "apply_verify",
    "can_be_collection",
    "is_saved_tree",
    "scan_source",
    "scan_stored",
]

Location = str | PathLike[str] | ByteSource | Mapping[str, Any]


def scan_stored(url: Location, options: ScanOptions) -> VirtualGroup:
    """Scan an archive: find where every chunk lies and how it is encoded. Reads metadata only.

    The arrays have stored values. Only those of an insitu store are decoded: see `is_saved_tree`.

    Parameters
    ----------
    url
        A path, a URL (`http://`, `https://`, `s3://`, `gs://`, `az://`), or an open source of
        bytes: an archive file, a Zarr store (directory, prefix, zip), saved references, or a member
        of a zip or tar archive (`runs.zip::2024/jan.nc`).
    options
        See `insitu.scan`.

    Returns
    -------
    VirtualGroup
        The tree of arrays, with attributes.
    """
    if options.verify not in ("open", "read", "never"):
        raise ValueError(f'verify must be "open", "read" or "never", not {options.verify!r}')
    if is_manifest_store(url):
        url = document_of_manifests(url)
    if isinstance(url, Mapping):
        from insitu import references

        tree = references.tree_from_document(url, errors=_format_errors(options))
        with error_context(url="references in memory"):
            return _to_request(options).select(tree)
    if isinstance(url, PathLike):
        url = os.fspath(url)
    if isinstance(url, str):
        # A signed URL is a secret: the identity of the file must not contain it.
        url, storage_options = detach_secrets(url, options.storage_options)
        if storage_options is not options.storage_options:
            options = replace(options, storage_options=storage_options)
        if options.format is None and can_be_collection(url):
            found = _scan_collection(url, options)
            if found is not None:
                return found
    with _open_bytes(url, options.storage_options) as source:
        return scan_source(source, options)


def scan_source(source: ByteSource, options: ScanOptions) -> VirtualGroup:
    """Return the stored arrays of an open file."""
    found = scan_format(
        source,
        group=options.group,
        variables=options.variables,
        errors=_format_errors(options),
        format=options.format,
        storage_options=options.storage_options,
    )
    return apply_verify(found, options.verify)


def _format_errors(options: ScanOptions) -> str:
    """Return what formats do with a variable that cannot be read: see `insitu.formats.scan_format`."""
    return "keep" if options.errors == "skip" else options.errors


def _to_request(options: ScanOptions) -> ScanRequest:
    """Return what formats and references are asked for."""
    return ScanRequest(
        options.group, options.variables, _format_errors(options), options.format, options.storage_options
    )


def apply_verify(group: VirtualGroup, verify: str) -> VirtualGroup:
    """Return the tree; with `verify="never"`, without the data that identifies its sources."""
    if verify != "never":
        return group
    from insitu.references import without_identity

    return without_identity(group)


# Names of reference sets and Zarr stores, which are more than one file.
_COLLECTION_SUFFIX = re.compile(r"(\.(json|parq|parquet|insitu|icechunk|zarr|zip)(\.(zst|gz))?|/)$", re.IGNORECASE)
_COLLECTION_SCHEME = re.compile(r"(reference\+json|reference\+parquet|virtualizarr)://", re.IGNORECASE)


def can_be_collection(url: str) -> bool:
    """Return whether references or a Zarr store can lie at a URL: by its name, or a local
    directory.
    """
    found = bool(_COLLECTION_SUFFIX.search(url.partition("?")[0]) or _COLLECTION_SCHEME.match(url)) or os.path.isdir(
        url
    )
    return found and parse_entry_url(url) is None


def is_saved_tree(url: Any) -> bool:
    """Return whether an insitu store lies at a URL: its arrays are decoded already."""
    if not isinstance(url, (str, PathLike)) or not can_be_collection(os.fspath(url)):
        return False
    from insitu import references

    return references.is_store(os.fspath(url))


def _scan_collection(url: str, options: ScanOptions) -> VirtualGroup | None:
    """Return the tree of the references or the Zarr store at a URL; None if there is neither."""
    from insitu import references  # not at the top: Arrow takes longer to import than a file to scan

    request, storage_options = _to_request(options), options.storage_options
    opening: dict[str, Any] = {
        "errors": request.errors,
        "allow_local": options.allow_local,
        "storage_options": storage_options,
    }
    if references.can_be_references(url):
        found = references.open_references(url, **opening)
        if found is not None:
            with error_context(url=url):
                found = request.select(found)
            if options.verify == "open":
                references.check(found, storage_options=storage_options).raise_stale()
            return apply_verify(found, options.verify)
    stored = scan_folder(url, request)
    if stored is not None:
        return stored
    if url.endswith("/") and references.repository_exists(url, storage_options):
        found = references.open_references(url, format="icechunk", **opening)
        with error_context(url=url):
            return None if found is None else request.select(found)
    return None


@contextmanager
def _open_bytes(url: Location, storage_options: Mapping[str, Any] | None) -> Iterator[ByteSource]:
    """Open a source; one that the caller opened stays open."""
    # Text first: checking a runtime protocol takes longer than opening a file.
    if not isinstance(url, str) and isinstance(url, ByteSource):
        yield url
        return
    with open_location(url, storage_options) as source:
        yield source
