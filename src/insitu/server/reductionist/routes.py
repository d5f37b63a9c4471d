"""The routes `/v2/{operation}` of the Reductionist protocol, and its error responses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from insitu.cancellation import Deadline, LateError
from insitu.errors import AccessError, CodecError, InsituError, NotFoundError, SourceError
from insitu.server.body import body_of
from insitu.server.credentials import Credentials, TokenError, credentials_of
from insitu.server.error_responses import (
    BusyError,
    RequestError,
    SlowError,
    TooLargeError,
    failure,
    problem,
    public_text,
)
from insitu.server.reductionist.operations import OPERATIONS, encoded, operate
from insitu.server.reductionist.request import ChunkRequest, parse
from insitu.server.worker import Worker
from insitu.sources.access_policy import RefusedError

__all__ = ["compatible_routes"]


def compatible_routes(worker: Worker) -> list[BaseRoute]:
    """Return the routes `/v2/…`, as in Reductionist, and `/keepdims/v2/…`.

    The latter keep reduced dimensions and nest counts, so that PyActiveStorage can reduce any axes.
    """
    plain = _answering(worker, worker.settings.keep_dims)
    kept = _answering(worker, True)
    return [
        Route("/v2/{operation}", plain, methods=["POST"]),
        Route("/keepdims/v2/{operation}", kept, methods=["POST"]),
    ]


def _answering(worker: Worker, keep_dims: bool) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        operation = request.path_params["operation"]
        if operation not in OPERATIONS:
            return problem(404, f"unsupported operation {operation[:60]}")
        try:
            who = credentials_of(request.headers, worker.tokens.current())
            wanted = parse(await body_of(request, worker))
            _allow(worker, wanted)
            cost = worker.loader.cost(wanted)
            data = await worker.run(cost, lambda deadline: _work(worker, operation, wanted, who, keep_dims, deadline))
        except InsituError as error:
            return _failed(error)
        return Response(data, media_type="application/cbor")

    return answer


def _allow(worker: Worker, wanted: ChunkRequest) -> None:
    location = wanted.location
    worker.roots.check(location.url, location.options)


def _work(
    worker: Worker, operation: str, wanted: ChunkRequest, who: Credentials, keep_dims: bool, deadline: Deadline
) -> bytes:
    deadline.check()
    chunk = worker.loader.load(wanted, who)
    deadline.check()
    return encoded(operate(operation, wanted, chunk, keep_dims), wanted, keep_dims)


def _failed(error: InsituError) -> Response:
    """Return the response of the protocol to an error:
    400 for request, object or storage, 401 for credentials.
    """
    if isinstance(error, (RefusedError, BusyError, SlowError, TooLargeError, LateError)):
        return failure(error)
    if isinstance(error, TokenError):
        return failure(error, 401)
    causes = [public_text(error)]
    if isinstance(error, RequestError):
        return failure(error, 400)
    if isinstance(error, CodecError):
        return problem(400, "failed to decompress data", causes, kind=error.kind)
    if isinstance(error, NotFoundError):
        return problem(400, "error retrieving object from S3 storage", [*causes, "NoSuchKey"], kind=error.kind)
    if isinstance(error, AccessError):
        headers = {"WWW-Authenticate": "Basic"}
        return problem(401, "error retrieving object from S3 storage", [*causes, "Access Denied"], headers, error.kind)
    if isinstance(error, SourceError):
        return problem(400, "error retrieving object from S3 storage", causes, kind=error.kind)
    return failure(error, 400)
