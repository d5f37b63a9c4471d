"""Web servers that contradict themselves: every one gets an error of ours, after few requests."""

from __future__ import annotations

import functools
import gzip
import re
import socket
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import numpy as np
import pytest

import insitu
from insitu.active.transport import ServerClient, ServerError
from insitu.errors import InsituError, SourceError, StaleSourceError, TimedOutError
from insitu.sources import HttpSource, RetryPolicy, open_source, read_tail
from listener import Listener

# urllib3 leaves the socket of an answer whose Content-Length is invalid to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in.*socket:pytest.PytestUnraisableExceptionWarning")

DATA = np.random.default_rng(3).integers(0, 256, 300_000, dtype=np.uint8).tobytes()
HASTY = RetryPolicy(connect=5, read=2, deadline=10, attempts=3, first_pause=0.001, longest_pause=0.01)
MOST_REQUESTS = 40
"""Of one read of one range; a server that gives crumbs gets the most."""

Behaviour = Callable[[str, dict[str, str], int], bytes]
"""Method, headers and how many requests came before → the whole answer, as bytes."""


def answer(status: int, headers: dict[str, object], body: bytes = b"", *, method: str = "GET") -> bytes:
    """An answer whose connection is closed behind it."""
    fields = {"Connection": "close", "ETag": '"v1"', **headers}
    head = f"HTTP/1.1 {status} Some Reason\r\n" + "".join(f"{k}: {v}\r\n" for k, v in fields.items() if v is not None)
    return head.encode("latin-1") + b"\r\n" + (b"" if method == "HEAD" else body)


def requested_range(headers: dict[str, str]) -> tuple[int, int]:
    """Return the first and the last byte of a request."""
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", headers.get("range", "bytes=0-"))
    assert found
    if not found[1]:
        return max(len(DATA) - int(found[2]), 0), len(DATA) - 1
    return int(found[1]), min(int(found[2] or len(DATA) - 1), len(DATA) - 1)


def part(
    headers: dict[str, str],
    *,
    place: str | None = None,
    body: bytes | None = None,
    length: object = ...,
    **extra: object,
) -> bytes:
    """Return the part that was requested, apart from what the arguments say."""
    first, last = requested_range(headers)
    data = DATA[first : last + 1] if body is None else body
    place = f"bytes {first}-{last}/{len(DATA)}" if place is None else place
    fields = {"Content-Range": place, "Content-Length": len(data) if length is ... else length, **extra}
    return answer(206, fields, data)


class Hostile(Listener):
    def __init__(self, behave: Behaviour) -> None:
        self.behave = behave
        self.count = 0
        super().__init__()
        self.url += "/x.h5"

    def serve(self, line: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = line.recv(1 << 16)
            if not piece:
                return
            head += piece
        first, *rest = head.decode("latin-1").split("\r\n")
        headers = {n.lower().strip(): v.strip() for n, _, v in (entry.partition(":") for entry in rest)}
        self.count += 1
        with suppress(OSError):  # the client has seen enough
            line.sendall(self.behave(first.split()[0], headers, self.count - 1))


@contextmanager
def hostile(behave: Behaviour) -> Iterator[Hostile]:
    server = Hostile(behave)
    try:
        yield server
    finally:
        server.listener.close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def refuses_ranges(method: str, headers: dict[str, str], before: int) -> bytes:
    """HEAD tells a size, GET gives nothing of it."""
    if method == "HEAD":
        return answer(200, {"Content-Length": 1000}, method=method)
    return answer(416, {"Content-Length": 0})


def always_compressed(method: str, headers: dict[str, str], before: int) -> bytes:
    body = gzip.compress(DATA[:1000])
    first, last = requested_range(headers)
    return answer(
        206,
        {"Content-Range": f"bytes {first}-{last}/{len(DATA)}", "Content-Encoding": "gzip", "Content-Length": len(body)},
        body,
    )


def grows(method: str, headers: dict[str, str], before: int) -> bytes:
    first, last = requested_range(headers)
    return part(headers, place=f"bytes {first}-{last}/{len(DATA) + before}")


def crumbs(method: str, headers: dict[str, str], before: int) -> bytes:
    first, _ = requested_range(headers)
    return part(headers, place=f"bytes {first}-{first}/{len(DATA)}", body=DATA[first : first + 1])


def head_disagrees(method: str, headers: dict[str, str], before: int) -> bytes:
    """GET does not tell the size, and what HEAD says of it is of another version."""
    if method == "HEAD":
        return answer(200, {"Content-Length": 7, "ETag": '"other"'}, method=method)
    first, last = requested_range(headers)
    return part(headers, place=f"bytes {first}-{last}/*")


def says(**changes: object) -> Behaviour:
    return lambda method, headers, before: part(headers, **changes)  # type: ignore[arg-type]


def whole(body: bytes = DATA, length: object = ..., **extra: object) -> Behaviour:
    fields = {"Content-Length": len(body) if length is ... else length, **extra}
    return lambda method, headers, before: answer(200, fields, body, method=method)


def refused(status: int, **extra: object) -> Behaviour:
    return lambda method, headers, before: answer(status, {"Content-Length": 0, **extra}, method=method)


def raw(data: bytes) -> Behaviour:
    return lambda method, headers, before: data


def later(first: Behaviour, then: Behaviour) -> Behaviour:
    return lambda method, headers, before: (first if before == 0 else then)(method, headers, before)


@functools.cache  # it takes 1.5 s: not where tests are collected
def burst() -> bytes:
    return gzip.compress(bytes(200 << 20))


BEHAVIOURS: dict[str, Behaviour] = {
    "HEAD tells a size, GET says 416": refuses_ranges,
    "416 that tells the size": refused(416, **{"Content-Range": "bytes */1000"}),
    "416 that tells nonsense": refused(416, **{"Content-Range": "bytes */-5"}),
    "always 206 with gzip": always_compressed,
    "206 in an unknown encoding": says(**{"Content-Encoding": "x-secret"}),
    "206 without a place": says(place=""),
    "206 of another place": says(place="bytes 5-10/300000", body=DATA[5:11]),
    "206 that ends before it begins": says(place="bytes 10-5/300000"),
    "206 with negative numbers": says(place="bytes -5--1/300000"),
    "206 of more than there is": says(place=f"bytes 0-{10**18}/300000"),
    "206 with endless digits": says(place=f"bytes 0-{'9' * 5000}/{'9' * 5000}"),
    "206 whose total is too small": says(place="bytes 0-999999/5"),
    "206 with a short body": says(body=DATA[:10], length=100_000),
    "206 with a body of another length": says(body=DATA[:10]),
    "206 with a negative length": says(length=-5),
    "206 with a length that is no number": says(length="many"),
    "206 with endless digits of length": says(length="9" * 5000),
    "206 with two lengths": says(length=f"{len(DATA)}, 5"),
    "206 in crumbs": crumbs,
    "206 of a size that grows": grows,
    "206 with an ETag of every request": lambda m, h, n: part(h, ETag=f'"{n}"'),
    "206 without a size, HEAD of another version": head_disagrees,
    "200 with a short body": whole(DATA[:100], length=len(DATA)),
    "200 with a negative length": whole(length=-1),
    "200 with an enormous length": whole(DATA[:100], length=1 << 62),
    "200 with endless digits": whole(DATA[:100], length="9" * 5000),
    "200 that bursts": lambda m, h, n: whole(burst(), **{"Content-Encoding": "gzip"})(m, h, n),
    "200 whose gzip is broken": whole(DATA[:100], **{"Content-Encoding": "gzip"}),
    "200 whose deflate ends early": whole(zlib.compress(DATA)[:-10], **{"Content-Encoding": "deflate"}),
    "a part first, then a page": later(says(), whole(b"<html>sign in</html>", ETag=None)),
    "endless redirects": lambda m, h, n: answer(302, {"Location": f"/x{n}.h5", "Content-Length": 0}, method=m),
    "a redirect to itself": refused(301, Location="/x.h5"),
    "a redirect to nowhere": refused(302, Location="http://[bad"),
    "a redirect to a file": refused(302, Location="file:///etc/passwd"),
    "a redirect with a line break": refused(302, Location="/x\x00y"),
    "412 for ever": refused(412),
    "304": refused(304),
    "204": refused(204),
    "203": refused(203),
    "299": refused(299),
    "100 for ever": raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 200),
    "status 999": raw(b"HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n"),
    "status 0": raw(b"HTTP/1.1 000 What\r\nContent-Length: 0\r\n\r\n"),
    "no HTTP at all": raw(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "nothing": raw(b""),
    "a thousand headers": raw(b"HTTP/1.1 206 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n"),
    "an endless header": raw(b"HTTP/1.1 206 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n"),
    "chunks of negative length": raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc\r\n0\r\n\r\n"),
    "chunks that are none": raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\nabc"),
    "chunks of enormous length": raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\nabc"),
    "chunked with a part": raw(
        b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-99/300000\r\nTransfer-Encoding: "
        b"chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    ),
    "a date that is none": lambda m, h, n: part(
        h, body=b"", ETag=None, **{"Last-Modified": "Thu, 99 Jan 0000 99:99:99 +9999"}
    ),
    "Retry-After without end": refused(503, **{"Retry-After": "9" * 400}),
    "Retry-After of no date": refused(503, **{"Retry-After": "Thu, 01 Jan 99999 00:00:00 GMT"}),
}


def read_first(source: HttpSource) -> bytes:
    return source.read(0, 100_000)


def read_many(source: HttpSource) -> bytes:
    return b"".join(source.read_many([(0, 100), (150_000, 100), (250_000, 100)]))


def read_end(source: HttpSource) -> bytes:
    return read_tail(source, 1000)


def read_again(source: HttpSource) -> bytes:
    return source.read(0, 1000) + source.read(200_000, 1000)


EXPECTED = {
    read_first: DATA[:100_000],
    read_many: DATA[:100] + DATA[150_000:150_100] + DATA[250_000:250_100],
    read_end: DATA[-1000:],
    read_again: DATA[:1000] + DATA[200_000:201_000],
}


def outcome(read: Callable[[], bytes]) -> tuple[bytes, InsituError | None]:
    try:
        return read(), None
    except InsituError as problem:
        return b"", problem


@pytest.mark.parametrize("how", EXPECTED, ids=lambda how: how.__name__)
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_hostile_server_gets_an_error_of_ours(name: str, how: Callable[[HttpSource], bytes]) -> None:
    with hostile(BEHAVIOURS[name]) as server:
        source = HttpSource(server.url, policy=HASTY)
        found, problem = outcome(lambda: how(source))
        if problem is not None:
            assert problem.url == server.url
        elif found == b"":
            with pytest.raises(InsituError):  # nothing could be had, and nobody says that there is nothing
                source.size()
        else:
            assert found == EXPECTED[how]  # not all of these matter to every way to read
        assert server.count <= MOST_REQUESTS * (3 if how is read_many else 1)


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_scan_of_a_hostile_server_ends(name: str) -> None:
    with hostile(BEHAVIOURS[name]) as server:
        options = {"timeout": 5, "retries": 1, "read_timeout": 1}
        with pytest.raises(InsituError):
            insitu.scan(server.url, storage_options=options, decode=False)
        assert server.count <= 2 * MOST_REQUESTS


def test_bytes_are_never_wrong_whatever_the_size_does() -> None:
    with hostile(grows) as server:
        source = HttpSource(server.url, policy=HASTY)
        assert source.read(0, 100) == DATA[:100]
        with pytest.raises(StaleSourceError):
            source.read(100, 100)


def test_what_is_refused_is_not_late() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(SourceError, match="refused") as caught:
        open_source(f"http://127.0.0.1:{port}/x.h5", {"retries": 1}).read(0, 10)
    assert not isinstance(caught.value, TimedOutError)
    with pytest.raises(ServerError, match="refused"):
        ServerClient(f"http://127.0.0.1:{port}").ask("reduce", {})
