"""Messages of CBOR and JSON: what is plain is decoded as the libraries decode it; what is made to cost is refused
before they see it.
"""

from __future__ import annotations

import json
import struct
import threading
import tracemalloc
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import cbor2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from insitu.active import message_decoder, transport
from insitu.active.message_decoder import (
    MAX_NESTING,
    MessageTooLargeError,
    decode_cbor,
    decode_json,
    decode_sequence,
)
from insitu.active.wire import (
    declared_elements,
    dtype_from_wire,
    excerpt,
    selection_from_wire,
    selection_keys_to_wire,
)
from insitu.active.wire_array import array_from_wire
from insitu.errors import ModelError
from insitu.sources.retry_policy import RetryPolicy

NUMBERS = st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False) | st.booleans() | st.none()
PLAIN = st.recursive(
    NUMBERS | st.text(max_size=5) | st.binary(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=3) | st.integers(0, 300), inner, max_size=30)
    ),
    max_leaves=40,
)


@settings(max_examples=100)
@given(PLAIN)
def test_plain_messages(value: Any) -> None:
    data = cbor2.dumps(value)
    assert decode_cbor(data) == cbor2.loads(data) == value
    assert decode_sequence(data * 3) == [value] * 3
    for cut in {0, len(data) // 2, len(data) - 1}:
        with pytest.raises(ModelError):
            decode_cbor(data[:cut])


@settings(max_examples=100)
@given(st.binary(max_size=40))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    try:
        found = decode_cbor(data)
    except ModelError:
        return
    assert cbor2.dumps(found) == cbor2.dumps(cbor2.loads(data))


def test_lengths_that_are_not_said() -> None:
    """As Jackson writes them."""
    for data in (b"\x9f\x01\x82\x02\x03\xff", b"\xbf\x61a\x01\x61b\x9f\xff\xff", b"\x5f\x41a\x41b\xff", b"\xbf\xff"):
        assert decode_cbor(data) == cbor2.loads(data)
    for data in (b"\x9f\x01", b"\xbf\x61a\xff", b"\x82\x01\xff", b"\xff", b"\x5f\x01\xff", b"\x7f\x41a\xff"):
        with pytest.raises(ModelError):
            decode_cbor(data)


SHARED = b"\xd8\x1c\x82" * 200 + b"\x01" + b"\xd8\x1d\x00" * 200
REFUSED = {
    "shared references": (SHARED, "tag"),
    "a map that contains itself": (b"\xd8\x1c\xa1\x61a\xd8\x1d\x00", "tag"),
    "a bignum": (b"\xc2\x59\xff\xff" + b"\xff" * 0xFFFF, "tag"),
    "a decimal fraction": (b"\xc4\x82\x1a\x3b\x9a\xca\x00\x01", "tag"),
    "a tag within": (b"\x81\xa1\x61a\xc1\x00", "tag"),
    "undefined": (b"\x81\xf7", "not accepted"),
    "a simple value": (b"\xf8\x20", "not accepted"),
    "a reserved head": (b"\x1c", "not accepted"),
    "a list as a key": (b"\xa1\x81\x01\x02", "keys"),
    "a float as a key": (b"\xa1\xfb" + bytes(8) + b"\x02", "keys"),
    "a key in a map without a length": (b"\xbf\x61a\x01\x80\x01\xff", "keys"),
    "a list that claims more than there is": (b"\x9b" + struct.pack(">Q", 1 << 40) + b"\0", "ends within"),
    "a map that claims more than there is": (b"\xbb" + struct.pack(">Q", 1 << 63) + b"\0", "ends within"),
    "text that claims more than there is": (b"\x7b" + struct.pack(">Q", 1 << 62) + b"a", "ends within"),
    "a vast list that ends as one without a length": (b"\x9b" + struct.pack(">Q", 1 << 63) + b"\0\xff", "ends within"),
    "vast text that ends as one without a length": (b"\x7b" + struct.pack(">Q", 1 << 62) + b"\xff", "ends within"),
    "lists within lists": (b"\x81" * (MAX_NESTING + 1) + b"\0", "within each other"),
    "lists without lengths": (b"\x9f" * 100_000, "within each other"),
    "two items": (b"\x01\x02", "one item"),
    "no item": (b"", "one item"),
    "text that is none": (b"\x61\xff", "not valid CBOR"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_costs_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, why = REFUSED[name]
    if why in ("tag", "keys", "within each other", "ends within", "not accepted"):
        monkeypatch.setattr(message_decoder, "import_cbor2", lambda: pytest.fail("the library saw it"))
    with pytest.raises(ModelError, match=why):
        decode_cbor(data)


def test_too_many_items() -> None:
    data = cbor2.dumps([[1, 2], {"a": 3}])
    assert decode_cbor(data, 7) == [[1, 2], {"a": 3}]
    with pytest.raises(MessageTooLargeError, match="more than 6 items"):
        decode_cbor(data, 6)
    assert decode_json("[[1,2],[3,4]]", 6)
    with pytest.raises(MessageTooLargeError, match="more than 5 items"):
        decode_json(b"[[1,2],[3,4]]", 5)


def test_an_index_is_one_item_however_long() -> None:
    values = np.arange(600_000)
    for key in (values[::-2], np.isin(values % 7, (0, 3)), [5, -1, 5], np.array([], int)):
        wire = selection_keys_to_wire((key,))
        assert len(cbor2.dumps(wire)) < 2_000_000
        decode_cbor(cbor2.dumps(wire), 16)
        selected = selection_from_wire(wire, values.shape)
        np.testing.assert_array_equal(values[selected.selectors[0]], values[key])


def test_json_has_the_same_limits() -> None:
    deepest = "[" * MAX_NESTING + "]" * MAX_NESTING
    assert decode_json(deepest) == json.loads(deepest)
    assert decode_json('{"a": [-9223372036854775808, 1.5, null, "x,["]}') == {"a": [-(1 << 63), 1.5, None, "x,["]}
    for text in (
        f"[{deepest}]",
        "[" * 90_000,
        "9" * 21,
        "9" * 5000,
        '{"a": 1, "a": 2}',
        "[1",
        "",
        b"\xff",
        b'"\xff"',
    ):
        with pytest.raises(ModelError):
            decode_json(text)


def test_excerpts_look_at_the_beginning_only() -> None:
    """And shapes of many lengths are not multiplied: their product would have a million digits."""
    many = [[1 << 62] * 100] * 100_000
    tracemalloc.start()
    try:
        assert len(excerpt(many)) < 100
        with pytest.raises(ModelError, match="type"):
            dtype_from_wire([["a", "x" * 1_000_000]])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    assert excerpt("a" * 100) == repr("a" * 80)
    assert excerpt([1, 2]) == "'[1, 2]'"
    lengths = [1 << 62] * 200_000
    assert declared_elements({"shape": lengths, "all": 1}) == 0
    table = {"shape": [], "dtype": "<i4", "sources": [], "tiles": [{"grid": lengths, "axes": [], "encodings": []}]}
    with pytest.raises(ModelError, match="at most 64"):
        array_from_wire(table)


def test_the_client_checks_answers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"/reduce": (200, SHARED), "/read": (200, cbor2.dumps({"done": 10**30})), "/scan": (500, b"[" * 90_000)}

    class Malicious(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            status, body = answers[self.path]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    monkeypatch.setattr(transport, "RETRIES", RetryPolicy(attempts=1))
    with ThreadingHTTPServer(("127.0.0.1", 0), Malicious) as site:
        threading.Thread(target=site.serve_forever, args=(0.02,), daemon=True).start()
        client = transport.ServerClient(f"http://127.0.0.1:{site.server_address[1]}")
        for route, why in (("reduce", "has a tag"), ("read", "has a tag"), ("scan", "status 500")):
            with pytest.raises(transport.ServerError, match=why):
                client.ask(route, {})
        site.shutdown()
