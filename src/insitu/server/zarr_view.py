"""The routes `/zarr` and `/zarr2`: any archive under the roots as a read-only Zarr store over HTTP.

`/zarr/<archive>!/<key>` returns a key of the archive as a V3 store, `/zarr2/<archive>!/<key>` as a
V2 store, the only version that GDAL before 3.8 reads. The archive is a path, a URL or a pattern:
`/zarr/data/era5.insitu!/`, `/zarr/s3://bucket/x.nc!/`, `/zarr/data/*.nc!/`. Metadata is
consolidated, so that no listing is needed. Chunks whose codecs every client knows are passed on as
stored; all others are encoded anew. Range requests are supported.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from insitu.archive import Archive
from insitu.errors import InsituError, NotFoundError
from insitu.lru import LruCache
from insitu.reading.zarr_store import ByteSpan, ZarrTree
from insitu.reading.zarr_store.encoded_chunks import EncodedChunks
from insitu.scanning.scan_member import make_loader
from insitu.scanning.stored_view import zarr_tree
from insitu.server.access import get_client
from insitu.server.authentication import Credentials
from insitu.server.client_cache import ClientCache
from insitu.server.error_responses import RequestError, RequestTooLargeError, error_response
from insitu.server.requested_arrays import archive_options
from insitu.server.roots import report_archive_on_refusal
from insitu.server.scanned_archives import SCAN_BYTES, content_version
from insitu.server.worker import Worker

__all__ = ["zarr_routes"]

ENCODED_CACHE_BYTES = 64 << 20
"""Size of the cache of newly encoded chunks: clients such as GDAL request them in several ranges.
"""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")
_DRIVE = re.compile(r"/[A-Za-z]:/")
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Headers": "Range, Authorization, X-Insitu-Token",
    "Access-Control-Max-Age": "600",
}


def zarr_routes(worker: Worker) -> list[BaseRoute]:
    """Return the routes `/zarr/…` and `/zarr2/…`."""
    views = _ZarrViews(worker)

    def route(zarr_format: int) -> Any:
        async def answer(request: Request) -> Response:
            try:
                who = get_client(request)
                url, key = archive_and_key(request.path_params["rest"])
                wanted = _parse_range(request.headers.get("range"))
                opened = await worker.run(SCAN_BYTES, lambda deadline: views.open(url, zarr_format, who))
                cost = views.cost(opened.tree, key)
                found = await worker.run(cost, lambda deadline: _get_object(views, opened, url, key, wanted))
            except InsituError as error:
                return error_response(error)
            return _object_response(found, wanted, key)

        return answer

    async def answer_preflight(request: Request) -> Response:
        """Answer the preflight request of a browser."""
        return Response(status_code=204, headers={} if worker.settings.archives else PREFLIGHT_HEADERS)

    return [
        made
        for name, number in (("zarr", 3), ("zarr2", 2))
        for made in (
            Route(f"/{name}/{{rest:path}}", route(number), methods=["GET", "HEAD"]),
            Route(f"/{name}/{{rest:path}}", answer_preflight, methods=["OPTIONS"]),
        )
    ]


def archive_and_key(path: str) -> tuple[str, str]:
    """Return the URL of the archive and the key that a path names.

    Examples
    --------
    >>> archive_and_key("data/era5.insitu!/t2m/c/0/0"), archive_and_key("s3:/bucket/x.nc!/")
    (('/data/era5.insitu', 't2m/c/0/0'), ('s3://bucket/x.nc', ''))
    >>> archive_and_key("data/wow!.nc!/zarr.json")
    ('/data/wow!.nc', 'zarr.json')
    """
    # The separator is followed by a slash, or ends the path: a name may contain exclamation marks.
    archive, mark, key = path.partition("!/" if "!/" in path else "!")
    if mark == "!" and path.endswith("!"):
        archive, key = path[:-1], ""
    if not mark or not archive.strip("/"):
        raise RequestError("the path names no archive", why="Write /zarr/PATH!/KEY, e.g. /zarr/data/era5.nc!/zarr.json")
    scheme = _SCHEME.match(archive)
    # Proxies merge two slashes into one.
    url = f"{scheme[1]}://{archive[scheme.end() :]}" if scheme else f"/{archive.lstrip('/')}"
    if os.name == "nt" and _DRIVE.match(url):
        url = url[1:]
    return url, key.lstrip("/")


@dataclass(frozen=True, slots=True)
class _RequestedRange:
    """The byte range of a request."""

    span: ByteSpan
    given: bool = False


@dataclass(frozen=True, slots=True)
class _ObjectBytes:
    """Some bytes of an object, and the size of the whole object."""

    data: bytes
    size: int


def _parse_range(header: str | None) -> _RequestedRange:
    """Return the range in a header; the whole object if there are several ranges, as HTTP allows."""
    found = _RANGE.fullmatch(header.strip()) if header is not None else None
    if found is None or not (found[1] or found[2]):
        return _RequestedRange(ByteSpan())
    if not found[1]:
        return _RequestedRange(ByteSpan(-int(found[2])) if int(found[2]) else ByteSpan(0, 0), True)
    return _RequestedRange(ByteSpan(int(found[1]), int(found[2]) + 1 if found[2] else None), True)


@dataclass(frozen=True, slots=True)
class _OpenedTree:
    """An archive that was scanned, as a Zarr tree."""

    tree: ZarrTree
    number: int
    """Unique number, for keys of the cache of encoded chunks."""


class _ZarrViews:
    """The archives that clients read as Zarr stores."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._numbers = count()
        self._encoded: LruCache[tuple[int, str], bytes] = LruCache(ENCODED_CACHE_BYTES, len, min_items=1)

    def open(self, url: str, zarr_format: int, who: Credentials) -> _OpenedTree:
        """Return an archive; scan it if it is not cached or has changed."""
        options = archive_options(self.worker, url, who)
        place = self.worker.copies.checked_path(url, options)

        def make() -> _OpenedTree:
            found = Archive.open(place, tree=True, errors="warn", storage_options=options).tree
            tree = ZarrTree(
                zarr_tree(found, make_loader(options)),
                zarr_format,
                "gzip" if zarr_format == 3 else "zlib",
                portable=True,
                storage_options=options,
                cache=ClientCache(self.worker.cache, who, {}),
                opener=lambda source: self.worker.copies.open(source, options),
            )
            tree.documents  # noqa: B018  built now, while only requests for this archive wait
            return _OpenedTree(tree, next(self._numbers))

        key = ("zarr", who.digest, url, zarr_format, self.worker.generation)
        opened: _OpenedTree = self.worker.scans.get(key, place, make, lambda: [content_version(place)])
        return opened

    def cost(self, tree: ZarrTree, key: str) -> int:
        """Return about how many bytes the response to a request holds."""
        place = tree.place(key) if key not in tree.documents else None
        if place is None:
            return 1 << 20
        view = tree.views[place[0]]
        if isinstance(view, EncodedChunks):
            return 3 * math.prod(view.chunks) * max(view.encoding.dtype.itemsize, view.array.dtype.itemsize, 1)
        size = math.prod(view.array.chunks) * max(view.array.encoding.dtype.itemsize, 1)
        if size > self.worker.limits.chunk:
            raise RequestTooLargeError(
                f"a chunk of {place[0]} has {size:,} bytes, more than the limit of this server, "
                f"{self.worker.limits.chunk:,} bytes"
            )
        return size

    def get(self, opened: _OpenedTree, key: str, wanted: _RequestedRange) -> _ObjectBytes | None:
        """Return the requested range of a key; None if there is no such key."""
        tree = opened.tree
        document = tree.documents.get(key)
        if document is not None:
            return _ObjectBytes(wanted.span.of(document), len(document))
        place = tree.place(key)
        if place is None:
            return None
        if isinstance(tree.views[place[0]], EncodedChunks):
            whole = self._encoded.get_or_load((opened.number, key), lambda: tree.get(key) or b"")
        else:
            found = tree.get(key)
            if found is None:
                return None
            whole = found
        return _ObjectBytes(wanted.span.of(whole), len(whole))


def _get_object(
    views: _ZarrViews, opened: _OpenedTree, url: str, key: str, wanted: _RequestedRange
) -> _ObjectBytes | None:
    with report_archive_on_refusal(url):
        return views.get(opened, key, wanted)


def _object_response(found: _ObjectBytes | None, wanted: _RequestedRange, key: str) -> Response:
    headers: Mapping[str, str] = {"Accept-Ranges": "bytes", "Cache-Control": "no-cache"}
    if found is None:
        return error_response(NotFoundError(f"the store has no key {key!r}"))
    name = key.rpartition("/")[2]
    kind = "application/json" if name.endswith(".json") or name.startswith(".z") else "application/octet-stream"
    if not wanted.given:
        return Response(found.data, 200, headers, kind)
    start, length = wanted.span.within(found.size)
    if not length:
        return Response(b"", 416, {**headers, "Content-Range": f"bytes */{found.size}"}, kind)
    place = f"bytes {start}-{start + length - 1}/{found.size}"
    return Response(found.data, 206, {**headers, "Content-Range": place}, kind)
