"""Listing of folders and prefixes: local directories, buckets, index pages of web servers, fsspec.

Storage is listed only where nothing else tells the names: for a glob, or a group without
consolidated metadata.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from insitu.errors import AccessError, InsituError, NotFoundError, SourceError, UnsupportedError
from insitu.sources.access_policy import check_path, has_access_policy, refuse_third_party
from insitu.sources.address import Address, bucket_address, file_url_path, scheme_of
from insitu.sources.redaction import redact_text, redact_url
from insitu.sources.storage_options import options_for

if TYPE_CHECKING:
    from insitu.sources.object_store.bucket import Bucket
    from insitu.sources.object_store.listing_pages import ListingPage

__all__ = [
    "FolderListing",
    "is_directory",
    "list_all_objects",
    "list_folder",
    "list_some_objects",
    "list_subfolders",
    "local_path",
]

Answer = TypeVar("Answer")


class FolderListing(NamedTuple):
    """The names right under a prefix."""

    folders: list[str]
    files: list[str]
    sizes: Mapping[str, int] = MappingProxyType({})
    """Bytes of files, where the listing of a store tells them along with the names."""


def local_path(url: str) -> str | None:
    """Return the path that a URL names on this machine; None if it names something elsewhere.

    Examples
    --------
    >>> local_path("file:///data/a%20b"), local_path("/x"), local_path("s3://bucket/x")
    ('/data/a b', '/x', None)
    """
    if (path := file_url_path(url)) is not None:
        return path
    if scheme_of(url) is not None and not os.path.exists(url):
        return None
    return os.path.abspath(os.path.expanduser(url))


def is_directory(url: str) -> bool:
    """Return whether a URL names a directory on this machine."""
    path = local_path(url)
    return path is not None and os.path.isdir(path)


def list_subfolders(url: str, storage_options: Mapping[str, Any] | None = None) -> list[str] | None:
    """Return the names right under a prefix that have something under them in turn; None where
    listing is not possible (HTTP).

    Raises
    ------
    SourceError
        If the request to the store fails.
    """
    if scheme_of(url) in ("http", "https") and local_path(url) is None:
        return None
    return list_folder(url, storage_options).folders


def list_folder(url: str, storage_options: Mapping[str, Any] | None = None) -> FolderListing:
    """Return the names right under a prefix; none if the prefix does not exist, except for
    directories, where that is an error.
    """
    path = local_path(url)
    if path is not None:
        return _list_local_folder(path)
    base = url.rstrip("/") + "/"
    if (address := bucket_address(base)) is not None:
        return list_bucket_folder(address, base, options_for(base, storage_options))
    if scheme_of(url) in ("http", "https"):
        from insitu.sources.http.index_page import list_index_page

        return FolderListing(*list_index_page(base, storage_options))
    files, inner = _fsspec_filesystem(base, storage_options)
    rows = _call_fsspec(lambda: files.ls(inner, detail=True), base) or []
    names = sorted((row["name"].rstrip("/").rsplit("/", 1)[-1], row["type"] == "directory") for row in rows)
    sizes = {row["name"].rsplit("/", 1)[-1]: int(row["size"]) for row in rows if row.get("size") is not None}
    folders, found = ([name for name, folder in names if folder is wanted] for wanted in (True, False))
    return FolderListing(folders, found, sizes)


def list_all_objects(url: str, storage_options: Mapping[str, Any] | None = None) -> dict[str, int] | None:
    """Return everything under a prefix, as key relative to it → bytes; None where listing is not
    possible (HTTP).
    """
    path = local_path(url)
    if path is not None:
        return _list_local_files(path)
    base = url.rstrip("/") + "/"
    if (address := bucket_address(base)) is not None:
        return list_bucket_objects(address, base, options_for(base, storage_options))
    if scheme_of(url) in ("http", "https"):
        return None
    files, inner = _fsspec_filesystem(base, storage_options)
    rows = _call_fsspec(lambda: files.find(inner, detail=True), base) or {}
    top = inner.rstrip("/") + "/"
    return {name.removeprefix(top): int(row["size"]) for name, row in rows.items()}


def list_some_objects(url: str, most: int, storage_options: Mapping[str, Any] | None = None) -> list[str] | None:
    """Return the keys of everything under a prefix, relative to it; None if there are more than `most`, which are not
    listed to their end, or where listing is not possible (HTTP, fsspec).
    """
    path = local_path(url)
    if path is not None:
        return _take(_iterate_local_keys(path), most)
    base = url.rstrip("/") + "/"
    address = bucket_address(base)
    if address is None:
        return None
    options = options_for(base, storage_options)
    return _call_bucket(lambda: _take(_iterate_bucket_keys(address, base, options), most), url)


def _take(keys: Iterator[str], most: int) -> list[str] | None:
    found = list(islice(keys, most + 1))
    return found if len(found) <= most else None


def _iterate_local_keys(path: str) -> Iterator[str]:
    check_path(path)
    for folder, _, files in os.walk(path):
        below = os.path.relpath(folder, path).replace(os.sep, "/")
        yield from (name if below == "." else f"{below}/{name}" for name in files)


def _iterate_bucket_keys(address: Address, url: str, options: Mapping[str, Any]) -> Iterator[str]:
    import obstore

    from insitu.sources.object_store.bucket import bucket_for

    bucket, prefix = bucket_for(address, url, options), address.key.rstrip("/")
    skip = len(prefix) + 1 if prefix else 0
    if has_access_policy():
        from insitu.sources.object_store.listing_pages import list_pages

        for page in list_pages(bucket, address, options, prefix, ""):
            yield from (key[skip:] for key, _ in page.files)
        return
    pages: Any = bucket.call_with_retries(
        lambda store: obstore.list(store, prefix or None, chunk_size=1000), redact_url(url)
    )
    for page in pages:
        yield from (row["path"][skip:] for row in page)


def list_bucket_folder(address: Address, url: str, options: Mapping[str, Any]) -> FolderListing:
    """Return the names right under a prefix of a bucket."""
    import obstore

    from insitu.sources.object_store.bucket import bucket_for

    bucket, prefix = bucket_for(address, url, options), address.key.rstrip("/") or None
    if has_access_policy():
        below = _list_pages(bucket, address, options, prefix or "", "/")
        names = sorted(name.rstrip("/").rsplit("/", 1)[-1] for page in below for name in page.folders)
        found = {key.rsplit("/", 1)[-1]: size for page in below for key, size in page.files}
        return FolderListing(names, sorted(found), found)
    answer = _call_bucket(
        lambda: bucket.call_with_retries(lambda store: obstore.list_with_delimiter(store, prefix), redact_url(url)), url
    )
    if answer is None:
        return FolderListing([], [])
    folders = sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in answer["common_prefixes"])
    found = {row["path"].rsplit("/", 1)[-1]: int(row["size"]) for row in answer["objects"]}
    return FolderListing(folders, sorted(found), found)


def list_bucket_objects(address: Address, url: str, options: Mapping[str, Any]) -> dict[str, int]:
    """Return everything under a prefix of a bucket: key relative to it → bytes."""
    import obstore

    from insitu.sources.object_store.bucket import bucket_for

    bucket, prefix = bucket_for(address, url, options), address.key.rstrip("/")
    skip = len(prefix) + 1 if prefix else 0
    if has_access_policy():
        return {
            key[skip:]: size for page in _list_pages(bucket, address, options, prefix, "") for key, size in page.files
        }
    pages = _call_bucket(
        lambda: bucket.call_with_retries(
            lambda store: list(obstore.list(store, prefix or None, chunk_size=1000)), redact_url(url)
        ),
        url,
    )
    return {row["path"][skip:]: int(row["size"]) for page in pages or [] for row in page}


def _list_pages(
    bucket: Bucket, address: Address, options: Mapping[str, Any], prefix: str, delimiter: str
) -> list[ListingPage]:
    from insitu.sources.object_store.listing_pages import list_pages

    try:
        return list(list_pages(bucket, address, options, prefix, delimiter))
    except NotFoundError:
        return []  # as obstore has it


def _list_local_folder(path: str) -> FolderListing:
    check_path(path)
    try:
        with os.scandir(path) as entries:
            names = sorted((entry.name, entry.is_dir()) for entry in entries)
    except FileNotFoundError:
        raise NotFoundError("no such directory", url=path) from None
    except PermissionError:
        raise AccessError("permission to list the directory is denied", url=path) from None
    except OSError as error:
        raise SourceError(f"listing failed: {error.strerror}", url=path) from error
    return FolderListing([name for name, folder in names if folder], [name for name, folder in names if not folder])


def _list_local_files(path: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    pending = [""]
    while pending:
        below = pending.pop()
        check_path(os.path.join(path, below))
        try:
            with os.scandir(os.path.join(path, below)) as entries:
                for entry in entries:
                    if entry.is_dir():
                        pending.append(f"{below}{entry.name}/")
                    else:
                        sizes[f"{below}{entry.name}"] = entry.stat().st_size
        except NotADirectoryError:
            continue
        except FileNotFoundError:
            if not below:
                return {}
            raise SourceError("the directory changed while it was listed", url=path) from None
        except OSError as error:
            raise SourceError(f"listing failed: {error.strerror}", url=path) from error
    return sizes


def _fsspec_filesystem(url: str, storage_options: Mapping[str, Any] | None) -> tuple[Any, str]:
    refuse_third_party(url)
    try:
        core = importlib.import_module("fsspec.core")
    except ImportError:
        from insitu.sources.fsspec_source import FSSPEC_HINT

        raise UnsupportedError(
            "this kind of URL cannot be listed without fsspec", url=redact_url(url), hint=FSSPEC_HINT
        ) from None
    try:
        files, inner = core.url_to_fs(url, **options_for(url, storage_options))
    except (ImportError, ValueError, OSError) as error:
        raise SourceError(f"this location cannot be listed: {redact_text(str(error))}", url=redact_url(url)) from None
    return files, inner


def _call_bucket(request: Callable[[], Answer], url: str) -> Answer | None:
    """Return the answer of obstore to a listing; None if there is no such prefix."""
    from obstore.exceptions import BaseError

    from insitu.sources.object_store.store_errors import as_source_error

    try:
        return request()
    except InsituError:
        raise
    except FileNotFoundError:
        return None
    except (BaseError, OSError) as error:
        raise as_source_error(error, redact_url(url)) from None


def _call_fsspec(request: Callable[[], Answer], url: str) -> Answer | None:
    """Return the answer of fsspec to a listing; None if there is no such folder."""
    try:
        return request()
    except FileNotFoundError:
        return None
    except PermissionError:
        raise AccessError("the store refuses to list", url=redact_url(url)) from None
    except Exception as error:
        # The many file systems of fsspec have no one class of error.
        raise SourceError(f"listing failed: {redact_text(str(error))}", url=redact_url(url)) from None
