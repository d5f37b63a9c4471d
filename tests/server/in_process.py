"""Requests to an application in this process, without a server program."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import anyio

from server.serving import Answer


@dataclass(eq=False)
class Request:
    """A request; a body that is no bytes is sent as JSON."""

    method: str
    path: str
    body: Any = b""
    headers: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)


def ask_app(app: Any, *requests: Request) -> list[Answer]:
    """The answers of an application, asked as an ASGI server would: start, requests, end."""
    return anyio.run(_serve, app, requests)


async def _serve(app: Any, requests: tuple[Request, ...]) -> list[Answer]:
    message, events = anyio.create_memory_object_stream[Any](8)
    commands, obeyed = anyio.create_memory_object_stream[Any](8)
    async with message, events, commands, obeyed, anyio.create_task_group() as group:
        group.start_soon(app, {"type": "lifespan", "asgi": {"version": "3.0"}}, obeyed.receive, message.send)
        await commands.send({"type": "lifespan.startup"})
        assert (await events.receive())["type"] == "lifespan.startup.complete"
        answers = [await _exchange(app, request) for request in requests]
        await commands.send({"type": "lifespan.shutdown"})
        assert (await events.receive())["type"] == "lifespan.shutdown.complete"
    return answers


async def _exchange(app: Any, request: Request) -> Answer:
    answer, whole = Answer(0, {}, b""), anyio.Event()
    body = request.body if isinstance(request.body, bytes) else json.dumps(request.body).encode()
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            answer.body += message.get("body", b"")

    async def receive() -> Any:
        message = next(messages, None)
        if message is None:
            await whole.wait()
            return {"type": "http.disconnect"}
        return message

    headers = {"content-type": "application/json", **request.headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": request.path,
        "root_path": "",
        "raw_path": request.path.encode(),
        "query_string": urlencode(request.query).encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "server": ("here", 80),
        "client": ("me", 1),
    }
    await app(scope, receive, send)
    whole.set()
    return answer
