"""The routes `/v2/{operation}` of the Reductionist protocol, and its error responses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from insitu.cancellation import Deadline, LateError
from insitu.errors import AccessError, CodecError, InsituError, NotFoundError, SourceError
from insitu.server.access import get_client
from insitu.server.authentication import Credentials
from insitu.server.error_responses import (
    BusyError,
    RequestError,
    RequestTooLargeError,
    SlowError,
    error_response,
    json_error_response,
    public_message,
)
from insitu.server.reductionist.operations import OPERATIONS, encode_result, operate
from insitu.server.reductionist.request import ChunkRequest, parse_chunk_request
from insitu.server.request_body import SMALL_REQUEST_BYTES, read_body
from insitu.server.requested_arrays import chunk_options
from insitu.server.worker import Worker
from insitu.sources.access_policy import RefusedError

__all__ = ["reductionist_routes"]


def reductionist_routes(worker: Worker) -> list[BaseRoute]:
    """Return the routes `/v2/…`, as in Reductionist, and `/keepdims/v2/…`.

    The latter keep reduced dimensions and nest counts, so that PyActiveStorage can reduce any axes.
    """
    plain = _make_endpoint(worker, lambda: worker.settings.keep_dims)
    keeping_dims = _make_endpoint(worker, lambda: True)
    return [
        Route("/v2/{operation}", plain, methods=["POST"]),
        Route("/keepdims/v2/{operation}", keeping_dims, methods=["POST"]),
    ]


def _make_endpoint(worker: Worker, keeps_dims: Callable[[], bool]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        operation = request.path_params["operation"]
        if operation not in OPERATIONS:
            return json_error_response(404, f"unsupported operation {operation[:60]}")
        try:
            who = get_client(request)
            wanted = parse_chunk_request(await read_body(request, worker, SMALL_REQUEST_BYTES))
            _check_access(worker, wanted)
            cost, keep_dims = worker.loader.cost(wanted), keeps_dims()
            data = await worker.run(
                cost, lambda deadline: _compute_answer(worker, operation, wanted, who, keep_dims, deadline)
            )
        except InsituError as error:
            return _protocol_error_response(error)
        return Response(data, media_type="application/cbor")

    return answer


def _check_access(worker: Worker, wanted: ChunkRequest) -> None:
    location = wanted.location
    worker.roots.check(location.url, location.options)


def _compute_answer(
    worker: Worker, operation: str, wanted: ChunkRequest, who: Credentials, keep_dims: bool, deadline: Deadline
) -> bytes:
    deadline.check()
    chunk = worker.loader.load(wanted, who, chunk_options(worker, wanted.location, who))
    deadline.check()
    return encode_result(operate(operation, wanted, chunk, keep_dims), wanted, keep_dims)


def _protocol_error_response(error: InsituError) -> Response:
    """Return the response of the protocol to an error:
    400 for request, object or storage, 401 for credentials.
    """
    if isinstance(error, (RefusedError, BusyError, SlowError, RequestTooLargeError, LateError)):
        return error_response(error)
    causes = [public_message(error)]
    if isinstance(error, RequestError):
        return error_response(error, 400)
    if isinstance(error, CodecError):
        return json_error_response(400, "failed to decompress data", causes, kind=error.kind)
    if isinstance(error, NotFoundError):
        return json_error_response(
            400, "error retrieving object from S3 storage", [*causes, "NoSuchKey"], kind=error.kind
        )
    if isinstance(error, AccessError):
        headers = {"WWW-Authenticate": "Basic"}
        return json_error_response(
            401, "error retrieving object from S3 storage", [*causes, "Access Denied"], headers, error.kind
        )
    if isinstance(error, SourceError):
        return json_error_response(400, "error retrieving object from S3 storage", causes, kind=error.kind)
    return error_response(error, 400)
