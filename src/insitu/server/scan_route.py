"""The route `/scan`: the metadata of an archive, with the location of every chunk, for a client."""

from __future__ import annotations

import cbor2
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from insitu.active.wire_group import group_to_wire
from insitu.archive import Archive
from insitu.errors import InsituError
from insitu.server.authentication import Credentials, authenticate
from insitu.server.batch import add_login, storage_options
from insitu.server.error_responses import RequestError, RequestTooLargeError, error_response
from insitu.server.jobs import BatchRequest, parse_scan_request
from insitu.server.request_body import read_body
from insitu.server.worker import Worker

__all__ = ["scan_routes"]

MAX_REQUEST_BYTES = 1 << 20
"""Largest body of a request."""
SCAN_BYTES = 32 << 20
"""Bytes that are counted for a scan: metadata of one archive."""


def scan_routes(worker: Worker) -> list[BaseRoute]:
    """Return the route `/scan`."""

    async def answer(request: Request) -> Response:
        try:
            who = authenticate(request.headers, worker.tokens.current())
            body = await read_body(request, worker)
            kind = request.headers.get("content-type", "")
            if len(body) > MAX_REQUEST_BYTES:
                raise RequestTooLargeError(
                    f"a request for metadata must not be larger than {MAX_REQUEST_BYTES} bytes: send a URL "
                    "and options only"
                )
            data = await worker.run(SCAN_BYTES, lambda deadline: _scan_to_wire(worker, body, kind, who))
        except InsituError as error:
            return error_response(error)
        return Response(data, media_type="application/cbor-seq")

    return [Route("/scan", answer, methods=["POST"])]


def _scan_to_wire(worker: Worker, body: bytes, kind: str, who: Credentials) -> bytes:
    url, group, options = parse_scan_request(body, kind)
    chosen = storage_options(worker, BatchRequest((), options), who)
    worker.roots.check(url, chosen)
    add_login(chosen, url, who)
    place = worker.roots.local_copy(url)

    def make() -> bytes:
        found = Archive.open(place, many=False, group=group, errors="warn", storage_options=chosen).tree
        return cbor2.dumps({"group": group_to_wire(found, worker.roots.public_url)}) + cbor2.dumps({"done": 1})

    data: bytes = worker.scans.get((who.digest, sorted(options.items()), url, group), place, make)
    if len(data) > worker.limits.memory // 4:
        raise RequestError("the metadata of this archive is larger than the memory of the server allows: name a group")
    return data
