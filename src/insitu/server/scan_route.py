"""The route `/scan`: the metadata of an archive, with the location of every chunk, for a client."""

from __future__ import annotations

import cbor2
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from insitu.active.wire_group import group_to
from insitu.archive import Archive
from insitu.errors import InsituError
from insitu.server.batch import add_login, storage_options
from insitu.server.body import body_of
from insitu.server.credentials import Credentials, credentials_of
from insitu.server.error_responses import RequestError, TooLargeError, failure
from insitu.server.jobs import Batch, scan_of
from insitu.server.worker import Worker

__all__ = ["scan_routes"]

MOST_BYTES = 1 << 20
"""Largest body of a request."""
COST = 32 << 20
"""Bytes that are counted for a scan: metadata of one archive."""


def scan_routes(worker: Worker) -> list[BaseRoute]:
    """Return the route `/scan`."""

    async def answer(request: Request) -> Response:
        try:
            who = credentials_of(request.headers, worker.tokens.current())
            body = await body_of(request, worker)
            kind = request.headers.get("content-type", "")
            if len(body) > MOST_BYTES:
                raise TooLargeError(
                    f"a request for metadata must not be larger than {MOST_BYTES} bytes: send a URL and options only"
                )
            data = await worker.run(COST, lambda deadline: _scan(worker, body, kind, who))
        except InsituError as error:
            return failure(error)
        return Response(data, media_type="application/cbor-seq")

    return [Route("/scan", answer, methods=["POST"])]


def _scan(worker: Worker, body: bytes, kind: str, who: Credentials) -> bytes:
    url, group, options = scan_of(body, kind)
    chosen = storage_options(worker, Batch((), options), who)
    worker.roots.check(url, chosen)
    add_login(chosen, url, who)
    place = worker.roots.local_copy(url)

    def make() -> bytes:
        found = Archive.open(place, many=False, group=group, errors="warn", storage_options=chosen).tree
        return cbor2.dumps({"group": group_to(found, worker.roots.public_url)}) + cbor2.dumps({"done": 1})

    data: bytes = worker.scans.get((who.digest, sorted(options.items()), url, group), place, make)
    if len(data) > worker.limits.memory // 4:
        raise RequestError("the metadata of this archive is larger than the memory of the server allows: name a group")
    return data
