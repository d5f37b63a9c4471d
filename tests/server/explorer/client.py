"""A client of the explorer's API for tests: queries, and binary answers as arrays."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

import numpy as np

from insitu.server.app import create_app
from insitu.server.settings import Settings
from server.in_process import Request, ask_app
from server.serving import Answer, Server


@dataclass
class Picture:
    """A binary answer."""

    header: dict[str, Any]
    arrays: dict[str, np.ndarray[Any, Any]]


@dataclass
class AppServer:
    """A server within this process, for each request anew: nothing has to start and to be waited for."""

    roots: tuple[str, ...]

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        route, _, query = path.partition("?")
        app = create_app(Settings(roots=self.roots))
        return ask_app(app, Request("GET", route, b"", headers or {}, dict(parse_qsl(query, keep_blank_values=True))))[
            0
        ]


@dataclass
class Explorer:
    """The API of a server about one archive."""

    server: Server | AppServer
    url: str = ""
    headers: dict[str, str] | None = None

    def ask(self, name: str, **fields: Any) -> Answer:
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in fields.items()}
        query = {**({"url": self.url} if self.url else {}), **texts}
        return self.server.get(f"/explorer/api/{name}?{urlencode(query)}", self.headers)

    def json(self, name: str, **fields: Any) -> Any:
        answer = self.ask(name, **fields)
        assert answer.status == 200, answer.body
        return answer.json

    def picture(self, name: str, **fields: Any) -> Picture:
        answer = self.ask(name, **fields)
        assert answer.status == 200, answer.body
        return unpack(answer.body)

    def refusal(self, name: str, status: int = 400, **fields: Any) -> str:
        """The message of an error with this status."""
        answer = self.ask(name, **fields)
        assert answer.status == status, answer.body
        return answer.message

    def variable(self, path: str) -> Any:
        groups = self.json("archive")["groups"]
        return next(one for group in groups for one in group["variables"] if one["path"] == path)


def unpack(body: bytes) -> Picture:
    """The header and the arrays of a binary answer, as a browser reads them."""
    length = int.from_bytes(body[:4], "little")
    header = json.loads(body[4 : 4 + length])
    start = 4 + length
    assert start % 8 == 0
    arrays = {}
    for about in header["arrays"]:
        dtype = np.dtype(about["dtype"])
        assert about["offset"] % 8 == 0
        count = int(np.prod(about["shape"], dtype=int))
        data = np.frombuffer(body, dtype, count, start + about["offset"])
        arrays[about["name"]] = data.reshape(about["shape"])
    return Picture(header, arrays)
