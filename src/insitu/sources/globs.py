"""Expansion of globs, prefixes, list files and nested lists into the URLs of single files.

Users name many files as `s3://bucket/era5/**/*.nc`, a local glob, a prefix that ends in a slash, a
text file with a URL on each line, or a list or iterator of any of these. A glob costs one listing
per folder that it passes through, all folders of a level at once; `**` costs one listing of
everything below.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any
from urllib.parse import quote

from insitu.errors import AccessError, NotFoundError, SourceError
from insitu.sources.address import Address, bucket_address, scheme_of, web_address
from insitu.sources.filelike import FileLike
from insitu.sources.listing import (
    FolderListing,
    is_directory,
    list_all_objects,
    list_bucket_folder,
    list_bucket_objects,
    list_folder,
    local_path,
)
from insitu.sources.protocol import ByteSource
from insitu.sources.redaction import redact_url
from insitu.sources.resolve import Openable, open_source
from insitu.sources.storage_options import options_for
from insitu.sources.threads import gather

__all__ = ["expand_urls", "is_glob"]

_LIST_SUFFIXES = (".txt", ".lst", ".list", ".urls")
_STORE_SUFFIXES = (".zarr", ".insitu", ".icechunk", ".parq", ".parquet")
_STORE_MARKERS = frozenset({"zarr.json", ".zgroup", ".zarray", ".zattrs", ".zmetadata", "root.json", "repo"})
"""Names that mark a prefix as one store instead of many files: Zarr, references, a repository."""
_DATA_SUFFIXES = (
    ".nc", ".nc3", ".nc4", ".cdf", ".h5", ".hdf", ".hdf5", ".he5", ".grib", ".grib2", ".grb", ".grb2", ".tif", ".tiff",
    ".fits", ".fit", ".fts",
)  # fmt: skip
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


def expand_urls(
    urls: Openable | Iterable[Openable], storage_options: Mapping[str, Any] | None = None
) -> list[Openable]:
    """Return the files that are named, one by one; globs and prefixes sorted by name, everything
    else in the order given.

    Parameters
    ----------
    urls
        A path or URL: as it is; with `*`, `**`, `?`, `[…]` or `{a,b}` (in web addresses no `?`,
        which begins a query): what matches; a prefix that ends in `/`: the data files under it,
        unless it is a Zarr store or the like; the name of a text file (`.txt`, `.lst`, `.urls`, or
        any after an `@`): what its lines name, `#` begins a comment. Or an iterable of these, lines
        of an open text file included. Open files and sources are passed on.
    storage_options
        See `open_source`.

    Examples
    --------
    >>> expand_urls(["a.nc", ["b.nc"], "c_{1,2}.nc"])
    ['a.nc', 'b.nc', 'c_1.nc', 'c_2.nc']
    """
    if isinstance(urls, os.PathLike):
        urls = os.fspath(urls)
    if isinstance(urls, str):
        return [*_expand_one(_with_slash(urls.strip()), storage_options)]
    if isinstance(urls, bytes | bytearray | memoryview | ByteSource):
        return [urls]
    if isinstance(urls, FileLike) and not _is_text(urls):
        return [urls]
    if not isinstance(urls, Iterable):
        raise TypeError(f"cannot tell which files a {type(urls).__name__} names: give paths, URLs, or a list of them")
    found: list[Openable] = []
    for item in urls:
        if isinstance(item, str) and _is_comment(item):
            continue
        found += expand_urls(item, storage_options)
    return found


def is_glob(url: str) -> bool:
    """Return whether a URL is a pattern.

    Examples
    --------
    >>> is_glob("s3://b/*.nc"), is_glob("https://h/x.nc?v=[1]"), is_glob("s3://b/x.nc")
    (True, False, False)
    """
    if scheme_of(url) in ("http", "https"):
        return bool(re.search(r"[*\[]|" + _BRACES.pattern, url.partition("?")[0].partition("://")[2].partition("/")[2]))
    return bool(re.search(r"[*?\[]|" + _BRACES.pattern, url))


def _exists(url: str, storage_options: Mapping[str, Any] | None) -> bool:
    """Return whether a remote object has this very name; asked only where a pattern matches
    nothing.
    """
    if local_path(url) is not None:
        return False
    try:
        with open_source(url, storage_options) as source:
            source.describe()
    except SourceError:
        return False
    return True


def _is_text(file: Any) -> bool:
    return hasattr(file, "encoding") and hasattr(file, "readline")


def _is_comment(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _expand_one(url: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    if url.startswith("@") and not os.path.exists(url):
        return _read_list_file(url[1:], storage_options)
    if url.lower().endswith(_LIST_SUFFIXES) and not is_glob(url):
        return _read_list_file(url, storage_options)
    if is_glob(url):
        local = local_path(url)
        if local is not None and os.path.exists(local) and not url.endswith("/"):
            return [url]  # a name is a name, whatever characters it has
        not_found: SourceError = NotFoundError("no file matches this pattern", url=redact_url(url))
        try:
            found = [
                n
                for one in _expand_braces(url)
                for n in (_expand_glob(one, storage_options) if is_glob(one) else [one])
            ]
        except re.error:
            found = []  # [z-a] is no valid pattern: it must be a name
        except (NotFoundError, AccessError) as problem:
            found, not_found = [], problem  # a web server need not show an index
        if not found and _exists(url, storage_options):
            return [url]  # an object may be called "shape-[5, 5, 4].nc"
        if not found:
            raise not_found
        return found
    return _files_under(url, storage_options) if url.endswith("/") else [url]


def _read_list_file(url: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    with open_source(url, storage_options) as source:
        text = source.read(0, source.size())
    try:
        lines = [line.strip() for line in text.decode("utf-8-sig").splitlines() if not _is_comment(line)]
    except UnicodeDecodeError:
        raise SourceError("this is not a text file with one URL per line", url=redact_url(url)) from None
    here = local_path(url)
    found: list[str] = []
    for line in lines:
        # A list names its neighbours: it may be used from any directory.
        is_relative = here is not None and scheme_of(line) is None and not os.path.isabs(os.path.expanduser(line))
        path = os.path.join(os.path.dirname(str(here)), line) if is_relative else line
        found += _expand_one(_with_slash(path), storage_options)
    return found


def _with_slash(url: str) -> str:
    """Return a prefix with a slash at its end, where the system's own mark is another one."""
    return f"{url[:-1]}/" if os.sep != "/" and url.endswith(os.sep) and scheme_of(url) is None else url


def _expand_braces(pattern: str) -> list[str]:
    """Return the patterns without braces that a pattern with braces stands for.

    Examples
    --------
    >>> _expand_braces("{a,b}/x{1,2}.nc")
    ['a/x1.nc', 'a/x2.nc', 'b/x1.nc', 'b/x2.nc']
    """
    parts = _BRACES.split(pattern)
    choices = [part.split(",") if number % 2 else [part] for number, part in enumerate(parts)]
    expanded = ["".join(words) for words in product(*choices)]
    return [one for part in expanded for one in _expand_braces(part)] if len(parts) > 1 else expanded


def _files_under(url: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    """Return the data files under a prefix; the prefix itself if it is one store."""
    if url.rstrip("/").lower().endswith(_STORE_SUFFIXES):
        return [url]
    place = _listable_prefix(url, storage_options)
    if place is None:
        return [url]
    if _STORE_MARKERS & set(place.level("").files):
        return [url]
    names = place.below("")
    data = [name for name in names if name.lower().endswith(_DATA_SUFFIXES)]
    found = sorted(data or [name for name in names if not re.search(r"(^|/)[._]", name)])
    if not found:
        raise NotFoundError("there are no files under this prefix", url=redact_url(url))
    return [place.url(name) for name in found]


def _expand_glob(pattern: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    path = local_path(pattern)
    if path is not None:
        local_pattern = path if _FILE_URL.match(pattern) else os.path.expanduser(pattern)
        return sorted(name for name in glob.glob(local_pattern, recursive=True) if not name.endswith(os.sep))
    head, _, tail = _split_pattern(pattern)
    place = _listable_prefix(head, storage_options)
    if place is None:
        return [pattern]
    folders, found = [""], list[str]()
    segments = tail.split("/")
    for number, segment in enumerate(segments):
        if "**" in segment:
            rest = re.compile(_regex("/".join(segments[number:])))
            names = [name for some in gather(lambda at, _: place.below(at), folders) for name in some]
            found = [name for name in names if rest.fullmatch(name[len(_folder_of_match(name, folders)) :])]
            break
        expression, last = re.compile(_regex(segment)), number == len(segments) - 1
        levels = gather(lambda at, _: place.level(at), folders)
        matches = [
            f"{folder}{name}"
            for folder, here in zip(folders, levels, strict=True)
            for name in (here.files if last else here.folders)
            if expression.fullmatch(name)
        ]
        if last:
            found = matches
        folders = [f"{name}/" for name in matches]
        if not folders:
            break
    return [place.url(name) for name in sorted(set(found))]


_FILE_URL = re.compile(r"(file|local)://", re.IGNORECASE)


def _folder_of_match(name: str, folders: list[str]) -> str:
    """Return the folder that a name was found under."""
    return max((folder for folder in folders if name.startswith(folder)), key=len)


def _split_pattern(pattern: str) -> tuple[str, str, str]:
    """Split a pattern before its first segment with a wildcard.

    Examples
    --------
    >>> _split_pattern("s3://bucket/era5/20*/x.nc")
    ('s3://bucket/era5/', '/', '20*/x.nc')
    """
    scheme, _, rest = pattern.partition("://")
    segments = rest.split("/")
    first = next(number for number, segment in enumerate(segments) if number and is_glob(f"x://h/{segment}"))
    return f"{scheme}://{'/'.join(segments[:first])}/", "/", "/".join(segments[first:])


def _regex(pattern: str) -> str:
    """Return the regular expression of a pattern of path segments.

    Examples
    --------
    >>> bool(re.fullmatch(_regex("**/t*.nc"), "a/b/tas.nc")), bool(re.fullmatch(_regex("*.nc"), "a/x.nc"))
    (True, False)
    """
    expression, at = "", 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            expression, at = expression + "(?:.*/)?", at + 3
        elif pattern.startswith("**", at):
            expression, at = expression + ".*", at + 2
        elif pattern[at] == "*":
            expression, at = expression + "[^/]*", at + 1
        elif pattern[at] == "?":
            expression, at = expression + "[^/]", at + 1
        elif pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
            inner = pattern[at + 1 : end].replace("\\", "\\\\")
            expression, at = f"{expression}[{'^' + inner[1:] if inner[0] == '!' else inner}]", end + 1
        else:
            expression, at = expression + re.escape(pattern[at]), at + 1
    return expression


class _Prefix:
    """A prefix that can be listed, and how names under it become URLs again."""

    def __init__(self, base: str, storage_options: Mapping[str, Any] | None, bucket: Address | None) -> None:
        self._base, self._options, self._bucket = base, storage_options, bucket
        self._quoted = scheme_of(base) in ("http", "https")

    def url(self, name: str) -> str:
        return self._base + (quote(name, safe="/~!$&'()*+,;=:@") if self._quoted else name)

    def level(self, below: str) -> FolderListing:
        """Return the names right under a folder."""
        if self._bucket is not None:
            return list_bucket_folder(self._address(below), self._base, options_for(self._base, self._options))
        return list_folder(self.url(below), self._options)

    def below(self, folder: str) -> list[str]:
        """Return everything under a folder, as paths from the base."""
        if self._bucket is not None:
            options = options_for(self._base, self._options)
            return [folder + name for name in list_bucket_objects(self._address(folder), self._base, options)]
        found = list_all_objects(self.url(folder), self._options)
        if found is not None:
            return [folder + name for name in found]
        # A web server has one page for each folder.
        names, pending = list[str](), [folder]
        while pending:
            levels = gather(lambda at, _: self.level(at), pending)
            names += [at + name for at, here in zip(pending, levels, strict=True) for name in here.files]
            pending = [f"{at}{name}/" for at, here in zip(pending, levels, strict=True) for name in here.folders]
        return names

    def _address(self, below: str) -> Address:
        assert self._bucket is not None
        bucket = self._bucket
        return Address(bucket.kind, bucket.bucket, bucket.key + below, bucket.region, bucket.account)


def _listable_prefix(url: str, storage_options: Mapping[str, Any] | None) -> _Prefix | None:
    """Return how a prefix is listed; None if it is a local file."""
    base = url.rstrip("/") + "/"
    path = local_path(url)
    if path is not None:
        return _Prefix(base, storage_options, None) if is_directory(url) else None
    bucket = bucket_address(base)
    if bucket is None and scheme_of(base) in ("http", "https"):
        # The web address of a bucket shows no page, but can be listed as the bucket it is.
        bucket = web_address(f"{base}x")
        bucket = bucket and Address(bucket.kind, bucket.bucket, bucket.key[:-1], bucket.region, bucket.account)
    return _Prefix(base, storage_options, bucket)
