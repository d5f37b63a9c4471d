"""The compatible protocol from outside: what is compressed, filtered or missing, what an answer
holds, and how storage fails.
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
import zlib
from typing import Any

import cbor2
import numpy as np
import pytest

from server.places import KEYS, VALUES, Place, basic, servers

SHUFFLE = {"id": "shuffle", "element_size": 4}


def shuffled(data: bytes, size: int) -> bytes:
    """As HDF5 does it: bytes that fill no whole element stay where they are."""
    whole = len(data) // size * size
    return np.frombuffer(data[:whole], np.uint8).reshape(-1, size).T.tobytes() + data[whole:]


def blosc2(data: bytes) -> bytes:
    found: bytes = pytest.importorskip("blosc2").compress2(data, typesize=4)
    return found


COMPRESSED = {"gzip": gzip.compress, "zlib": zlib.compress, "blosc2": blosc2}


@pytest.mark.parametrize("name", COMPRESSED)
@pytest.mark.parametrize("filters", [None, [], [SHUFFLE], [{"id": "shuffle_simd", "element_size": 4}]])
@pytest.mark.parametrize("shaped", [True, False])
def test_compressions(place: Place, name: str, filters: Any, shaped: bool) -> None:
    plain = VALUES.tobytes()
    data = COMPRESSED[name](shuffled(plain, 4) if filters else plain)
    more: dict[str, Any] = {} if shaped else {"shape": None}
    request = place.request(
        data=b"head" + data + b"tail", offset=4, size=len(data), compression={"id": name}, filters=filters, **more
    )
    assert place.post("sum", request).values == 300
    assert place.post("select", request).answer["bytes"] == plain
    if shaped:
        part = place.post("max", {**request, "axis": [0, 2], "selection": [[0, 2, 1], [2, 0, -1], [0, 4, 3]]})
        np.testing.assert_array_equal(part.values, VALUES[:, 2:0:-1, ::3].max(axis=(0, 2)))


def test_filters_are_undone_in_reverse(near: Place) -> None:
    plain = VALUES.tobytes()
    twice = shuffled(shuffled(plain, 4), 7)
    filters = [SHUFFLE, {"id": "shuffle", "element_size": 7}]
    packed = {"data": zlib.compress(twice), "compression": {"id": "zlib"}}
    assert near.ask("select", data=twice, filters=filters).answer["bytes"] == plain
    assert near.ask("select", filters=filters, **packed).answer["bytes"] == plain
    assert near.ask("select", data=twice, filters=filters[::-1]).answer["bytes"] != plain


def test_wrong_codecs(near: Place) -> None:
    for compression in (
        "zlib",
        {},
        {"id": None},
        {"id": "nothing"},
        {"id": "zlib", "level": 3},
        {"id": 5},
        [],
        [{"id": "zlib"}],
    ):
        near.ask("sum", compression=compression).refused()
    for filters in (
        SHUFFLE,
        "shuffle",
        ["shuffle"],
        [{"id": "shuffle"}],
        [{"id": "nothing", "element_size": 4}],
        [{**SHUFFLE, "element_size": 0}],
        [{**SHUFFLE, "element_size": -4}],
        [{**SHUFFLE, "element_size": "4"}],
        [{**SHUFFLE, "more": 1}],
        [None],
        [{"element_size": 4}],
    ):
        near.ask("sum", filters=filters).refused()


@pytest.mark.parametrize("name", COMPRESSED)
def test_what_does_not_decompress(place: Place, name: str) -> None:
    good = COMPRESSED[name](VALUES.tobytes())
    for data in (b"x" * 100, good[: len(good) // 2], good[:3], VALUES.tobytes()):
        place.ask("sum", data=data, compression={"id": name}).refused(400)
        place.ask("sum", data=data, compression={"id": name}, shape=None).refused(400)
    for wrong in ([23], [25], [2, 3, 5]):
        place.ask("sum", data=good, compression={"id": name}, shape=wrong).refused(400)
    place.ask("sum", data=COMPRESSED[name](b"12345"), compression={"id": name}, shape=None).refused(400)


def test_chunks_that_unpack_to_far_more_than_they_say(near: Place) -> None:
    """Bounded by the declared shape, or by the server's limit where there is none: the answer is an
    error, at once.
    """
    bomb = zlib.compress(bytes(200 << 20), 9)
    near.ask("sum", data=bomb, compression={"id": "zlib"}).refused(400)
    packer = zlib.compressobj(9)
    zeros = packer.compress(bytes(32 << 20))
    huge = b"".join([zeros, *(packer.compress(bytes(64 << 20)) for _ in range(12)), packer.flush()])
    near.ask("sum", data=huge, compression={"id": "zlib"}, shape=None).refused(400)
    near.ask("sum", data=gzip.compress(bomb), compression={"id": "gzip"}).refused(400)
    near.ask("sum", compression={"id": "zlib"}, shape=[1 << 40]).refused(400)
    near.ask("sum", compression={"id": "zlib"}, shape=[1 << 20, 1 << 20]).refused(400)


# -- what is missing


MISSING = [
    ({"missing_value": 7}, lambda a: a == 7),
    ({"missing_values": [7, 9, 11]}, lambda a: np.isin(a, [7, 9, 11])),
    ({"missing_values": []}, lambda a: np.zeros(a.shape, bool)),
    ({"valid_min": 5}, lambda a: a < 5),
    ({"valid_max": 5}, lambda a: a > 5),
    ({"valid_range": [5, 9]}, lambda a: (a < 5) | (a > 9)),
]


@pytest.mark.parametrize(("missing", "where"), MISSING)
@pytest.mark.parametrize("name", ["int32", "uint64", "float32", "float64", "int8"])
def test_missing(near: Place, missing: Any, where: Any, name: str) -> None:
    array = np.random.default_rng(3).integers(0, 14, (4, 5)).astype(name)
    want = np.ma.array(array, mask=where(array))
    for axis in (None, [0], [1]):
        along = None if axis is None else tuple(axis)
        counts = np.atleast_1d(want.count(axis=along)).tolist()
        for operation in ("sum", "min", "max"):
            reply = near.ask(operation, array, missing=missing, axis=axis)
            found = reply.answer
            assert found["count"] == counts
            assert found["dtype"] == name
            expected = np.ma.atleast_1d(getattr(np.ma, operation)(want, axis=along))
            known = np.array(counts) > 0
            np.testing.assert_array_equal(np.atleast_1d(reply.values)[known], expected[known].data)
        reply = near.ask("count", array, missing=missing, axis=axis)
        assert np.atleast_1d(reply.values).tolist() == reply.answer["count"] == counts
    reply = near.ask("select", array, missing=missing)
    np.testing.assert_array_equal(reply.values, array)  # values stay as they are
    assert reply.answer["count"] == [int(want.count())]


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("int32", 7),
        ("int32", "x"),
        ("int32", []),
        ("int32", {}),
        ("int32", {"missing_value": 1, "valid_min": 2}),
        ("int32", {"nothing": 1}),
        ("int32", {"missing_value": 1.5}),
        ("int32", {"missing_value": 1.0}),
        ("int32", {"missing_value": 2**31}),
        ("int32", {"missing_value": "1"}),
        ("int32", {"missing_value": [1]}),
        ("int32", {"missing_value": True}),
        ("int32", {"missing_values": 1}),
        ("int32", {"missing_values": [1, 2**40]}),
        ("int32", {"missing_values": [1, None]}),
        ("int32", {"valid_range": [1]}),
        ("int32", {"valid_range": [1, 2, 3]}),
        ("int32", {"valid_range": [2, 1]}),
        ("int32", {"valid_range": [2, 2]}),
        ("int32", {"valid_range": 1}),
        ("int32", {"valid_min": "1"}),
        ("uint32", {"missing_value": -1}),
        ("uint64", {"valid_max": 2**64}),
        ("int8", {"valid_min": 128}),
        ("float32", {"missing_value": 1e39}),
        ("float32", {"valid_range": [3.0, 1.0]}),
        ("float16", {"valid_max": 70000}),
        ("float64", {"missing_value": "nan"}),
    ],
)
def test_missing_that_does_not_fit(near: Place, name: str, missing: Any) -> None:
    for operation in ("sum", "count", "select"):
        near.ask(operation, np.ones(4, name), missing=missing).refused()


def test_missing_in_a_float_takes_integers(near: Place) -> None:
    assert near.ask("sum", np.array([1, 2, 3], "f4"), missing={"missing_value": 2}).values == 4
    assert near.ask("sum", np.array([1, 2, 3], "f4"), missing={"missing_value": None, "valid_min": 2}).values == 5


# -- answers


def test_answers_in_bytes(near: Place) -> None:
    for operation, shape, count in (("sum", [2, 4], [3] * 8), ("select", [2, 3, 4], [24])):
        plain = near.ask(operation, axis=[1]).answer
        assert (plain["shape"], plain["shape_as_bytes"], plain["count"], plain["count_as_bytes"]) == (
            shape,
            b"",
            count,
            b"",
        )
        one = near.ask(operation, axis=[1], option_shape_as_bytes=True).answer
        assert (one["shape"], one["shape_as_bytes"]) == ([], struct.pack(f"<{len(shape)}Q", *shape))
        assert (one["count"], one["count_as_bytes"]) == (count, b"")
        two = near.ask(operation, axis=[1], option_count_as_bytes=True).answer
        assert (two["count"], two["count_as_bytes"]) == ([], struct.pack(f"<{len(count)}q", *count))
        assert (two["shape"], two["bytes"]) == (shape, plain["bytes"])
    both = near.ask(
        "max", option_shape_as_bytes=True, option_count_as_bytes=True, option_disable_chunk_cache=True
    ).answer
    assert (both["shape"], both["shape_as_bytes"], both["count_as_bytes"]) == ([], b"", struct.pack("<q", 24))
    for name in ("option_disable_chunk_cache", "option_shape_as_bytes", "option_count_as_bytes"):
        for wrong in (1, "true", [], {}):
            near.ask("sum", **{name: wrong}).refused()


def test_the_map_is_plain_cbor_in_the_order_of_the_protocol(near: Place) -> None:
    body = near.ask("sum").body
    assert body[0] == 0xA7  # a map of seven pairs, of known length
    assert list(cbor2.loads(body)) == KEYS
    assert b"\x65dtype\x65int32" in body


def test_big_endian_comes_as_little(near: Place) -> None:
    array = VALUES.astype(">i4")
    found = near.ask("select", array, data=array.tobytes(), byte_order="big").answer
    assert (found["bytes"], found["byte_order"]) == (VALUES.tobytes(), "little")


def test_numbers_neither_wrap_nor_lose(near: Place) -> None:
    many = np.full(1 << 20, 0.1, "f4")
    assert near.ask("sum", many).values == np.float32(many.astype("f8").sum())
    top = np.full(4, np.iinfo("i4").max, "i4")
    reply = near.ask("sum", top)
    assert int(reply.values) == 4 * np.iinfo("i4").max
    assert reply.answer["dtype"] == "int64"
    assert near.ask("sum", np.full(4, 200, "u1")).values == 800
    mixed = np.array([1, np.nan, -np.inf, 3])
    assert np.isnan(near.ask("max", mixed).values)
    assert near.post("max", near.request(mixed, missing={"valid_range": [-5, 5]})).values == 3
    edge = np.array([np.iinfo("i8").max, np.iinfo("i8").min, 5])
    assert near.ask("sum", edge).values == 4


# -- storage that fails


def test_what_is_not_there(place: Place) -> None:
    request = place.request()
    missing = request["url"] + "-no"
    assert "NoSuchKey" in place.post("sum", {**request, "url": missing}).refused(400)
    if place.interface == "s3":
        assert (
            "NoSuchKey"
            in place.post("sum", {**request, "url": request["url"].replace("/private/", "/nowhere/")}).refused()
        )


def test_credentials(all_places: dict[str, Place], web: Any) -> None:
    if "s3" in all_places:
        place = all_places["s3"]
        request = place.request()
        public = {**request, "url": request["url"].partition("/private/")[0] + "/public/none"}
        assert place.post("sum", request).values == 300
        for headers in (
            {},
            basic(servers.KEY, "wrong"),
            basic("nobody", servers.SECRET),
            basic("", ""),
            {"Authorization": "Basic %%%"},
            {"Authorization": "Basic " + base64.b64encode(b"no colon").decode()},
            {"Authorization": "Basic"},
        ):
            reply = place.post("sum", request, headers)
            assert "Access Denied" in reply.refused(401)
            assert servers.SECRET.encode() not in reply.body
        assert "NoSuchKey" in place.post("sum", public, {}).refused(400)
    place = all_places["http"]
    web[1]["/private/x"] = VALUES.tobytes()
    request = {"interface_type": "http", "url": web[0] + "/private/x", "dtype": "int32"}
    assert place.post("sum", request, basic("me", "hush")).values == 300
    for headers in ({}, basic("me", "wrong")):
        assert "Access Denied" in place.post("sum", request, headers).refused(401)


def test_upstream_failures(all_places: dict[str, Place], web: Any) -> None:
    place = all_places["http"]
    web[1]["/short"] = b"1234"
    request = {"interface_type": "http", "url": web[0] + "/short", "dtype": "int32"}
    assert place.post("sum", request).answer["count"] == [1]
    place.post("sum", {**request, "size": 8}).refused(400)
    place.post("sum", {**request, "offset": 400}).refused(400)
    place.post("sum", {**request, "url": web[0] + "/empty"}).refused(400)


def test_places_that_no_root_allows(near: Place, all_places: dict[str, Place]) -> None:
    """Not of the protocol: the server reads what it was told to, and says 403 to the rest."""
    for interface, url in (
        ("http", "http://127.0.0.1:9/x"),
        ("https", "https://example.invalid/x"),
        ("s3", "http://127.0.0.1:9/bucket/x"),
        ("http", "http://169.254.169.254/latest/meta-data/"),
        ("file", "file:///etc/passwd"),
        ("http", "http://localhost:1/x"),
    ):
        near.post("sum", {"interface_type": interface, "url": url, "dtype": "uint8"}).refused(403)


def test_json_of_any_content_type(near: Place) -> None:
    body = json.dumps(near.request()).encode()
    assert near.send("POST", "/v2/sum", body, {}).values == 300
