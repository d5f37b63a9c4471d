"""The arrays that a request names, by URL or by the location of their chunks, after checking that the
client may read them; and how their sources are opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from insitu.cancellation import check_deadline
from insitu.model import VirtualArray
from insitu.server.authentication import Credentials
from insitu.server.jobs import ArrayRequest
from insitu.server.operator_options import options_at_endpoint
from insitu.server.reductionist.object_url import RequestLocation
from insitu.server.roots import report_archive_on_refusal
from insitu.server.worker import Worker
from insitu.sources.address import scheme_of
from insitu.sources.http.login import basic_auth_header
from insitu.sources.storage_options import is_prefix

__all__ = ["add_login", "archive_options", "chunk_options", "find_array", "storage_options"]


def storage_options(worker: Worker, given: Mapping[str, Any], who: Credentials) -> dict[str, Any]:
    """Return how to open sources for a client that gives some options itself:
    the server's own options by URL prefix, else the client's credentials, else the server's own
    options for everything, else anonymously. Of `insitu explore` the user is the client, whose own
    credentials hold.
    """
    own, given = worker.settings.storage_options, dict(given)
    given.pop("anon", None)  # only the operator lends what the machine has
    if given.get("endpoint_url"):
        own = options_at_endpoint(own, str(given["endpoint_url"]))
    options: dict[str, Any] = {**own, **given}
    if who.name is not None:
        for name in ("anon", "token", "profile"):
            options.pop(name, None)
        options |= {"key": who.name, "secret": who.secret}
    elif not worker.settings.archives and not any(name in options for name in ("key", "profile", "token")):
        options.setdefault("anon", True)
    return options


def archive_options(
    worker: Worker, url: str, who: Credentials, given: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return how a client opens an archive; an error if the client may not read it."""
    options = storage_options(worker, given, who)
    worker.roots.check(url, options)
    add_login(options, url, who)
    return options


def chunk_options(worker: Worker, location: RequestLocation, who: Credentials) -> dict[str, Any]:
    """Return how to open the object of a Reductionist request."""
    if location.interface == "s3":
        return _without_cache(storage_options(worker, location.options, who))
    options = _without_cache(worker.settings.storage_options)
    add_login(options, location.url, who)
    return options


def _without_cache(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without the cache on disk: a request for a chunk brings no ETag that could tell versions apart."""
    return {
        name: _without_cache(value) if is_prefix(name, value) else value
        for name, value in options.items()
        if name != "cache"
    }


def add_login(options: dict[str, Any], url: str, who: Credentials) -> None:
    """Add the client's credentials for the web server in its own URL.

    A server that only the references of an archive name does not get them.
    """
    if who.name is not None and scheme_of(url) in ("http", "https"):
        parts = urlsplit(url)
        login = {"headers": {"Authorization": basic_auth_header(who.name, who.secret or "")}}
        options.setdefault(f"{parts.scheme}://{parts.netloc}/", login)


def find_array(
    worker: Worker, request: ArrayRequest, options: dict[str, Any], who: Credentials, whose: str
) -> VirtualArray:
    """Return an array that a request names, after checking all that it refers to; logins are added to
    the options.
    """
    check_deadline()
    if request.table is None:
        assert request.url is not None
        assert request.variable is not None
        worker.roots.check(request.url, options)
        add_login(options, request.url, who)
        place = worker.copies.checked_path(request.url, options)
        array = worker.scans.array(place, request.variable, decoded=request.decode, options=options, who=whose)
    else:
        array = request.array()
        for source in (source for tile in array.tiles for source in _listed_sources(tile.chunks.sources)):
            add_login(options, source.url, who)
    for url in {source.url for tile in array.tiles for source in _listed_sources(tile.chunks.sources)}:
        with report_archive_on_refusal(request.url):
            worker.roots.check(url, options)
    return array


def _listed_sources(sources: Any) -> Any:
    """Return the sources that can be listed.

    Those of Zarr keys are computed; they are checked when they are opened.
    """
    return sources if isinstance(sources, (tuple, list)) else ()
