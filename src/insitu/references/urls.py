"""Resolve the URLs of a reference file, and refuse local paths in remote reference files.

References are untrusted data. A relative URL is relative to the reference file (a portable
archive). A local path is followed only if the reference file is local too, or if the reader allows
it.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from insitu.errors import AccessError, FormatError
from insitu.sources.listing import local_path

__all__ = ["UrlResolver", "absolute_url", "is_relative", "relative_to", "with_other_files"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(://|::)")
_LOCAL = re.compile(r"(file|local)://", re.IGNORECASE)
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")
"""A drive, or a network share."""


@dataclass(slots=True)
class UrlResolver:
    """Resolves the URLs of one reference set."""

    url: str | None
    """Of the reference file or directory; None: the references are in memory."""
    allow_local: bool = False
    """Whether a remote reference set may name local files."""
    directory: bool = False
    """Whether `url` is the directory itself."""
    has_relative: bool = False
    """Whether a URL that was resolved so far is relative."""
    _beside: bool | None = None
    """Whether relative paths are relative to the reference file; decided by the first one."""
    _may_be_local: bool | None = None
    """Whether URLs may name local files; decided by the first one."""

    def resolve(self, url: str) -> str:
        """Return the absolute URL.

        Raises
        ------
        AccessError
            If a remote reference set names a local file.
        """
        if not url:
            raise FormatError("a reference has an empty URL")
        if _SCHEME.match(url):
            if _LOCAL.match(url.rpartition("::")[2]):
                self._permit(url)
            return url
        if _is_absolute_path(url):
            self._permit(url)
            return url
        self.has_relative = True
        if self.url is None:
            return os.path.abspath(url)
        here = local_path(self.url)
        if here is None:
            return _join_url(self.url, url, self.directory)
        folder = here if self.directory else os.path.dirname(here)
        if self._beside is None:
            # kerchunk writes paths as they were given, relative to its working directory.
            self._beside = os.path.exists(os.path.join(folder, url)) or not os.path.exists(url)
        return os.path.normpath(os.path.join(folder, url)) if self._beside else os.path.abspath(url)

    def _permit(self, url: str) -> None:
        if self._may_be_local is None:
            self._may_be_local = self.url is None or local_path(self.url) is not None or self.allow_local
        if not self._may_be_local:
            raise AccessError(
                f"this remote reference file names a local file: {url}",
                url=self.url,
                hint="If you trust it, open it with allow_local=True",
            )


def _join_url(base: str, url: str, directory: bool) -> str:
    """Return a relative URL joined to a remote one; `..` does not leave the bucket or host."""
    if base[:8].lower().startswith(("http://", "https://")):
        parts = urlsplit(base)
        folder = parts.path if directory else posixpath.dirname(parts.path)
        path = posixpath.normpath(posixpath.join("/", folder, quote(url)))
        return parts._replace(path=path).geturl()
    scheme, _, rest = base.partition("://")
    bucket, _, key = rest.partition("/")
    folder = key if directory else posixpath.dirname(key)
    return f"{scheme}://{bucket}{posixpath.normpath(posixpath.join('/', folder, url))}"


def absolute_url(url: str) -> str:
    """Return a URL that does not depend on where the reference file lies."""
    return url if _SCHEME.match(url) else os.path.abspath(url)


def is_relative(url: str) -> bool:
    """Return whether a URL is relative to its reference file."""
    return not (_SCHEME.match(url) or _is_absolute_path(url))


def _is_absolute_path(url: str) -> bool:
    """Return whether a path does not depend on where the reference file lies: also one that Windows
    wrote, on whatever system it is read.
    """
    if url.startswith("/") or _WINDOWS.match(url):
        return True
    return os.name == "nt" and (url.startswith("\\") or os.path.splitdrive(url)[0] != "")


def with_other_files(recipe: Mapping[str, Any] | None, change: Callable[[str], str]) -> dict[str, Any] | None:
    """Return a saved recipe with other URLs of its files, also of those of which nothing is shown.

    Examples
    --------
    >>> with_other_files({"files": ["/data/a.zip::x.nc"]}, lambda url: relative_to(url, "/data/all.insitu"))
    {'files': ['a.zip::x.nc']}
    """
    if recipe is None:
        return None

    def rename(name: str) -> str:
        archive, mark, member = name.partition("::")  # a member of an archive, if no scheme precedes the mark
        return name if mark and "://" in archive else f"{change(archive)}{mark}{member}"

    changed = dict(recipe)
    if files := recipe.get("files"):
        changed["files"] = [rename(str(name)) for name in files]
    if shadowed := recipe.get("shadowed"):
        changed["shadowed"] = {rename(name): about for name, about in shadowed.items()}
    return changed


def relative_to(url: str, target: str) -> str:
    """Return a URL relative to a reference file at `target`, where both are on one host; else as it
    is.

    Examples
    --------
    >>> relative_to("/data/a/x.nc", "/data/refs/all.json"), relative_to("s3://b/x.nc", "/data/refs.json")
    ('../a/x.nc', 's3://b/x.nc')
    """
    target = target.rstrip("/")  # a directory as a shell completes it
    target_path, source_path = local_path(target), local_path(url)
    if target_path is not None and source_path is not None:
        try:
            return os.path.relpath(source_path, os.path.dirname(target_path)).replace(os.sep, "/")
        except ValueError:  # on another drive of Windows
            return url
    if target_path is not None or source_path is not None:
        return url
    one, two = target.partition("://"), url.partition("://")
    if one[0] != two[0] or one[2].partition("/")[0] != two[2].partition("/")[0] or one[0].startswith("http"):
        return url
    folder = posixpath.dirname(one[2].partition("/")[2])
    return posixpath.relpath("/" + two[2].partition("/")[2], "/" + folder)
