"""A web server that lets one client in, by her name and password."""

from __future__ import annotations

import base64
import io
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from scipy.io import netcdf_file

VALUES = np.arange(600, dtype=">i4")


def login(name: str, secret: str = "hush") -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()}


ANN, BOB = login("ann"), login("bob")


def netcdf() -> bytes:
    file = io.BytesIO()
    made = netcdf_file(file, "w")
    made.createDimension("x", VALUES.size)
    made.createVariable("v", ">i4", ("x",))[:] = VALUES
    made.createDimension("column", 30)
    made.createDimension("row", 20)
    made.createVariable("plane", ">i4", ("row", "column"))[:] = VALUES.reshape(20, 30)
    for name, size in (("lat", 3), ("lon", 4)):
        made.createDimension(name, size)
        made.createVariable(name, ">f4", (name,))[:] = range(size)
    made.createVariable("placed", ">i4", ("lat", "lon"))[:] = 1
    made.flush()
    return file.getvalue()


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.nc", netcdf())
    return file.getvalue()


class Handler(BaseHTTPRequestHandler):
    """Lets ann in. The first part of a path says how it knows her again: by her header, a cookie,
    or the connection that she came by.
    """

    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]
    seen: list[tuple[str, str | None, str | None]]

    def setup(self) -> None:
        super().setup()
        self.logged_in = False

    def do_GET(self) -> None:
        _, how, name = self.path.split("/", 2)
        header, cookie = self.headers.get("Authorization"), self.headers.get("Cookie")
        self.seen.append((self.path, header, cookie))
        known = header == ANN["Authorization"]
        known = known or (how == "cookie" and cookie == "who=ann") or (how == "connection" and self.logged_in)
        data = self.objects[name]
        if not known:
            return self.answer(401, b"")
        self.logged_in = True
        whole = self.headers.get("Range") is None
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        if not first:
            first, last = str(max(len(data) - int(last), 0)), str(len(data) - 1)
        part = data[int(first) : int(last) + 1 if last else None]
        place = f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"
        return self.answer(200 if whole else 206, part, {} if whole else {"Content-Range": place}, how == "cookie")

    do_HEAD = do_GET

    def answer(self, status: int, body: bytes, more: dict[str, str] | None = None, cookie: bool = False) -> None:
        self.send_response(status)
        for name, value in {"ETag": '"v1"', **(more or {})}.items():
            self.send_header(name, value)
        if cookie:
            self.send_header("Set-Cookie", "who=ann; Path=/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


class Site:
    def __init__(self) -> None:
        objects = {"raw": VALUES.tobytes(), "x.nc": netcdf(), "x.zip": zipped(), "": b'<a href="x.nc">x.nc</a>'}
        self.handler = type("Private", (Handler,), {"objects": objects, "seen": []})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
