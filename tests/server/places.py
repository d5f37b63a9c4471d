"""Kinds of storage that a server may read from, and plain HTTP to ask it: the compatible protocol
from outside. Nothing of insitu is imported here.
"""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import quote, urlsplit

import cbor2
import numpy as np

from script_modules import load_script
from waiting import LONG, wait_until

KEYS = ["bytes", "dtype", "shape", "shape_as_bytes", "count", "count_as_bytes", "byte_order"]
VALUES = np.arange(1, 25, dtype="<i4").reshape(2, 3, 4)


servers = load_script("servers")


def put_object(endpoint: str, bucket: str, name: str, data: bytes) -> None:
    """Write an object, and its bucket, as soon as the S3 server can: one that answers may not be ready to store."""
    import obstore
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    config: Any = {
        "endpoint": endpoint, "access_key_id": servers.KEY, "secret_access_key": servers.SECRET, "region": "us-east-1"
    }  # fmt: skip
    store = S3Store(bucket, config=config, client_options={"allow_http": True})

    def put() -> bool:
        try:
            obstore.put(store, name, data)
        except (BaseError, OSError):
            return False
        return True

    wait_until(put, f"{bucket}/{name} cannot be written")


def basic(name: str, secret: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()}


@dataclass
class Reply:
    status: int
    type: str
    body: bytes

    @property
    def answer(self) -> dict[str, Any]:
        """A good answer, its form checked."""
        assert self.status == 200, self.body
        assert self.type == "application/cbor"
        found: dict[str, Any] = cbor2.loads(self.body)
        assert list(found) == KEYS
        types = [bytes, str, list, bytes, list, bytes, str]
        assert [type(value) for value in found.values()] == types
        assert found["byte_order"] == "little"
        return found

    @property
    def values(self) -> np.ndarray[Any, Any]:
        found = self.answer
        return np.frombuffer(found["bytes"], np.dtype(found["dtype"]).newbyteorder("<")).reshape(found["shape"])

    def refused(self, status: int = 400) -> str:
        """An error, its form checked; all that it says."""
        assert self.status == status, (self.status, self.body)
        assert self.type == "application/json"
        found = json.loads(self.body)
        assert list(found) == ["error"]
        error = found["error"]
        assert set(error) <= {"message", "caused_by"}
        assert isinstance(error["message"], str)
        causes = error.get("caused_by", [])
        assert all(isinstance(cause, str) for cause in causes)
        return " | ".join([error["message"], *causes])


@dataclass
class Place:
    """A kind of storage, and a server that may read from it."""

    server: str
    interface: str
    put: Callable[[bytes], str]
    headers: dict[str, str] = field(default_factory=dict)

    def send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Reply:
        connection = http.client.HTTPConnection(urlsplit(self.server).netloc, timeout=LONG)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        reply = Reply(answer.status, answer.getheader("content-type") or "", answer.read())
        connection.close()
        return reply

    def post(self, operation: str, request: Any, headers: dict[str, str] | None = None) -> Reply:
        whole = {"Content-Type": "application/json", **(self.headers if headers is None else headers)}
        return self.send("POST", f"/v2/{operation}", json.dumps(request).encode(), whole)

    def request(self, array: Any = VALUES, **more: Any) -> dict[str, Any]:
        data = more.pop("data", None)
        stored = array.tobytes(more.get("order") or "C") if data is None else data
        name = array.dtype.name
        requested = {
            "interface_type": self.interface,
            "url": self.put(stored),
            "dtype": name,
            "shape": list(array.shape),
        }
        return {**requested, **more}

    def ask(self, operation: str, array: Any = VALUES, **more: Any) -> Reply:
        return self.post(operation, self.request(array, **more))


class Website(BaseHTTPRequestHandler):
    objects: dict[str, bytes]

    def do_GET(self) -> None:
        data = self.objects.get(self.path)
        login = self.headers.get("Authorization")
        status = 404 if data is None else 200
        if self.path.startswith("/private/"):
            status = 401 if login is None else 403 if login != basic("me", "hush")["Authorization"] else status
        if self.path.startswith("/broken/"):
            status = 500
        if status == 200 and data is not None:
            first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
            part = data[int(first) : int(last) + 1]
            self.send_response(206 if part else 416)
            self.send_header(
                "Content-Range",
                f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}" if part else f"bytes */{len(data)}",
            )
        else:
            self.send_response(status)
            part = b""
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *arguments: object) -> None:
        pass


def bucket_of(endpoint: str, numbers: Iterator[int]) -> Callable[[bytes], str]:
    def put(data: bytes, bucket: str = "private") -> str:
        key = f"a b/x{next(numbers)}"
        put_object(endpoint, bucket, key, data)
        return f"{endpoint}/{bucket}/{quote(key)}"

    put(b"x", "public")
    return put
