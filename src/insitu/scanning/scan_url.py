"""Scan a URL into a group of stored arrays: a file of any format, a Zarr store, or saved
references.

CF decoding happens in `scan_member`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Any, Literal

from insitu.formats import scan_folder, scan_format
from insitu.formats.containers import open_location, parse_entry_url
from insitu.formats.scan_request import ScanRequest
from insitu.model import VirtualGroup
from insitu.scanning.manifest_store import document_of_manifests, is_manifest_store
from insitu.sources import ByteSource, detach_secrets

__all__ = [
    "Verify",
    "apply_verify",
    "can_be_collection",
    "is_saved_tree",
    "scan_source",
    "scan_stored",
]

Location = str | PathLike[str] | ByteSource | Mapping[str, Any]
Errors = Literal["raise", "warn", "skip"]
Verify = Literal["open", "read", "never"]


def scan_stored(
    url: Location,
    *,
    group: str | None = None,
    variables: Collection[str] | None = None,
    errors: Errors = "raise",
    format: str | None = None,
    verify: Verify = "read",
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> VirtualGroup:
    """Scan an archive: find where every chunk lies and how it is encoded. Reads metadata only.

    The arrays have stored values. Only those of an insitu store are decoded: see `is_saved_tree`.

    Parameters
    ----------
    url
        A path, a URL (`http://`, `https://`, `s3://`, `gs://`, `az://`), or an open source of
        bytes: an archive file, a Zarr store (directory, prefix, zip), saved references, or a member
        of a zip or tar archive (`runs.zip::2024/jan.nc`).
    group
        Scan this group only.
    variables
        Scan only these variables, and the dimension scales that they refer to.
    errors
        `"raise"`: a variable that cannot be read is an error. `"warn"`: it is left out with a
        warning, and the reason is kept in `problems`.
    format
        The format of a file; if not given, its first bytes decide.
    verify
        When to check that sources did not change since they were scanned. `"read"`: when one is
        opened for reading, which takes no additional request. `"open"`: also now, for every source
        of saved references. `"never"`: not at all. A changed source raises `StaleSourceError`.
    allow_local
        Whether remote references may name local files.
    storage_options
        Credentials and endpoints: `anon`, `key`, `secret`, `token`, `endpoint_url`, `region`,
        `headers`; or a mapping of URL prefix → such options.

    Returns
    -------
    VirtualGroup
        The tree of arrays, with attributes.
    """
    if errors not in ("raise", "warn", "skip"):
        raise ValueError(f'errors must be "raise", "warn" or "skip", not {errors!r}')
    if verify not in ("open", "read", "never"):
        raise ValueError(f'verify must be "open", "read" or "never", not {verify!r}')
    at_format = "keep" if errors == "skip" else errors
    if isinstance(variables, str):
        variables = [variables]
    if is_manifest_store(url):
        url = document_of_manifests(url)
    if isinstance(url, Mapping):
        from insitu import references

        tree = references.tree_from_document(url, errors=at_format)
        return ScanRequest(group, variables).select(tree, url="references in memory")
    if isinstance(url, PathLike):
        url = os.fspath(url)
    if isinstance(url, str):
        # A signed URL is a secret: the identity of the file must not contain it.
        url, storage_options = detach_secrets(url, storage_options)
        if format is None and can_be_collection(url):
            found = _scan_collection(url, group, variables, at_format, verify, allow_local, storage_options)
            if found is not None:
                return found
    with _open_bytes(url, storage_options) as source:
        how: dict[str, Any] = {"format": format, "verify": verify, "storage_options": storage_options}
        return scan_source(source, group=group, variables=variables, errors=at_format, **how)


def scan_source(
    source: ByteSource,
    *,
    group: str | None = None,
    variables: Collection[str] | None = None,
    errors: str = "raise",
    format: str | None = None,
    verify: Verify = "read",
    storage_options: Mapping[str, Any] | None = None,
) -> VirtualGroup:
    """Return the stored arrays of an open file.

    Parameters
    ----------
    source
        The file.
    group, variables, format, verify, storage_options
        See `insitu.scan`.
    errors
        `"raise"`, `"warn"` or `"keep"`: see `insitu.formats.scan_format`.
    """
    found = scan_format(
        source, group=group, variables=variables, errors=errors, format=format, storage_options=storage_options
    )
    return apply_verify(found, verify)


def apply_verify(group: VirtualGroup, verify: Verify) -> VirtualGroup:
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


def _scan_collection(
    url: str,
    group: str | None,
    variables: Collection[str] | None,
    errors: str,
    verify: Verify,
    allow_local: bool,
    storage_options: Mapping[str, Any] | None,
) -> VirtualGroup | None:
    """Return the tree of the references or the Zarr store at a URL; None if there is neither."""
    from insitu import references  # not at the top: Arrow takes longer to import than a file to scan

    request = ScanRequest(group, variables, errors, storage_options=storage_options)
    if references.can_be_references(url):
        found = references.open_references(url, errors=errors, allow_local=allow_local, storage_options=storage_options)
        if found is not None:
            found = request.select(found, url=url)
            if verify == "open":
                references.check(found, storage_options=storage_options).raise_stale()
            return apply_verify(found, verify)
    stored = scan_folder(url, request)
    if stored is not None:
        return stored
    if url.endswith("/") and references.is_repository(url, storage_options):
        found = references.open_references(
            url, format="icechunk", errors=errors, allow_local=allow_local, storage_options=storage_options
        )
        return None if found is None else request.select(found, url=url)
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
