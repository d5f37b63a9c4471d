"""All routes of the explorer: the page, its files, the state of the server, listings, and archives."""

from __future__ import annotations

from contextlib import suppress

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from insitu import __version__
from insitu.errors import InsituError
from insitu.server.access import find_client, get_client
from insitu.server.authentication import Credentials
from insitu.server.error_responses import error_response
from insitu.server.explorer.answers.archive_listing import list_archives
from insitu.server.explorer.answers.archive_summary import prepare_summary
from insitu.server.explorer.answers.chunk_mosaic import chunk_routes
from insitu.server.explorer.answers.coordinate_values import prepare_coordinate
from insitu.server.explorer.answers.field_download import prepare_download
from insitu.server.explorer.answers.field_geometry import prepare_geometry
from insitu.server.explorer.answers.field_values import prepare_field
from insitu.server.explorer.answers.formula_summary import prepare_formula
from insitu.server.explorer.answers.line_values import prepare_line
from insitu.server.explorer.answers.point_value import prepare_point
from insitu.server.explorer.answers.region_statistics import prepare_region
from insitu.server.explorer.answers.sampled_range import prepare_range
from insitu.server.explorer.answers.value_table import prepare_table
from insitu.server.explorer.api_answer import json_answer
from insitu.server.explorer.api_query import ApiQuery
from insitu.server.explorer.archive_route import (
    CLIENT_CLOSED,
    answer_response,
    archive_route,
    make_etag,
    run_while_connected,
)
from insitu.server.explorer.opened_archives import ArchiveOpener
from insitu.server.explorer.page_files import PageFile, compress_file, page_files
from insitu.server.explorer.recognise_archives import is_folder
from insitu.server.scanned_archives import SCAN_BYTES
from insitu.server.worker import Worker

__all__ = ["explorer_routes", "open_first_archive"]

LISTING_BYTES = 4 << 20
"""Bytes that are counted for a listing."""


def explorer_routes(worker: Worker) -> list[BaseRoute]:
    """Return the routes of the explorer."""
    return [
        *_page_routes(),
        _server_route(worker),
        _list_route(worker),
        archive_route(worker, "archive", prepare_summary),
        archive_route(worker, "coordinate", prepare_coordinate),
        archive_route(worker, "field", prepare_field),
        archive_route(worker, "formula", prepare_formula),
        archive_route(worker, "geometry", prepare_geometry),
        archive_route(worker, "line", prepare_line),
        archive_route(worker, "point", prepare_point),
        archive_route(worker, "range", prepare_range),
        archive_route(worker, "region", prepare_region),
        archive_route(worker, "table", prepare_table),
        archive_route(worker, "download", prepare_download),
        *chunk_routes(worker),
    ]


async def open_first_archive(worker: Worker) -> None:
    """Open the archive that `insitu explore` was started for while the browser starts; its request then
    finds it open. An error is reported by that request.
    """
    url = first_archive(worker)
    if url is not None:
        with suppress(InsituError):
            await worker.run(SCAN_BYTES, lambda deadline: ArchiveOpener(worker).open(url, Credentials()))


def first_archive(worker: Worker) -> str | None:
    """Return the one archive that `insitu explore` was started for; None if there are several, or folders."""
    archives = worker.settings.archives
    return archives[0] if len(archives) == 1 and not is_folder(archives[0]) else None


def _page_routes() -> list[BaseRoute]:
    async def index(request: Request) -> Response:
        return _file_response(request, page_files().get("index.html"))

    async def file(request: Request) -> Response:
        return _file_response(request, page_files().get(request.path_params["name"]))

    return [Route("/", index, methods=["GET"]), Route("/explorer/page/{name:path}", file, methods=["GET"])]


def _file_response(request: Request, found: PageFile | None) -> Response:
    if found is None:
        raise HTTPException(404, "the explorer has no such file")
    headers = {"Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        found = compress_file(found)
        headers["Content-Encoding"] = "gzip"
    headers["ETag"] = found.etag
    if found.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(found.data, headers=headers, media_type=found.media_type)


def _server_route(worker: Worker) -> BaseRoute:
    async def respond(request: Request) -> Response:
        tokens = worker.tokens.current()
        state: dict[str, object] = {
            "version": __version__,
            "needs_token": tokens is not None,
            "mode": "explore" if worker.settings.archives else "serve",
            "open": None,
        }
        if find_client(request) is not None:  # everybody may ask this; what is open here only clients learn
            state["open"] = first_archive(worker)
        return JSONResponse(state)

    return Route("/explorer/api/server", respond, methods=["GET"])


def _list_route(worker: Worker) -> BaseRoute:
    opener = ArchiveOpener(worker)

    async def respond(request: Request) -> Response:
        try:
            client = get_client(request)
            query = ApiQuery(request.query_params.multi_items())
            listing = worker.run(LISTING_BYTES, lambda deadline: list_archives(opener, query, client))
            answer = json_answer(await run_while_connected(request, listing))
        except InsituError as error:
            return error_response(error)
        except ClientDisconnect:
            return Response(status_code=CLIENT_CLOSED)
        etag = make_etag(answer.body.decode())
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers={"ETag": etag})
        return answer_response(answer, etag)

    return Route("/explorer/api/list", respond, methods=["GET"])
