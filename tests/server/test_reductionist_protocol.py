"""The compatible protocol from outside, field by field, against NumPy: plain HTTP and CBOR, over
files, a web server and an S3 store.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from server.places import VALUES, Place

DTYPES = ["int32", "int64", "uint32", "uint64", "float32", "float64"]
MORE = ["int8", "int16", "uint8", "uint16", "float16", "complex64", "complex128", "bool"]


# -- routes


@pytest.mark.parametrize("path", ["/v2/sum", "/v2/sum/", "//v2/sum", "//v2/sum/", "///v2/sum//"])
def test_slashes(near: Place, path: str) -> None:
    body = json.dumps(near.request()).encode()
    assert near.send("POST", path, body, {"Content-Type": "application/json"}).values == 300


def test_routes(near: Place) -> None:
    for operation in ("count", "max", "min", "select", "sum"):
        assert near.ask(operation).status == 200
        assert near.send("GET", f"/v2/{operation}", None, {}).refused(405)
    for operation in ("mean", "foo", "SUM", "reduce"):
        assert f"unsupported operation {operation}" in near.ask(operation).refused(404)
    assert near.send("GET", "/v1/sum", None, {}).refused(404)
    metrics = near.send("GET", "/metrics", None, {})
    assert (metrics.status, metrics.type.partition(";")[0]) == (200, "text/plain")
    assert "insitu_running" in {family.name for family in text_string_to_metric_families(metrics.body.decode())}
    assert near.send("GET", "/.well-known/reductionist-schema", None, {}).status == 200


def test_bodies_that_are_no_request(near: Place) -> None:
    for body in (b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"url": 1, "url": 2}', b"{'a': 1}"):
        near.send("POST", "/v2/sum", body, {"Content-Type": "application/json"}).refused(400)


# -- fields


def test_unknown_missing_and_null_fields(place: Place) -> None:
    request = place.request()
    for name in ("foo", "source", "bucket", "object", "Dtype", "axes", ""):
        assert f"unknown field `{name}`" in place.post("sum", {**request, name: None}).refused()
    for name in ("interface_type", "url", "dtype"):
        assert f"missing field `{name}`" in place.post("sum", {k: v for k, v in request.items() if k != name}).refused()
        place.post("sum", {**request, name: None}).refused()
        place.post("sum", {**request, name: 7}).refused()
    optional = (
        "byte_order", "offset", "size", "axis", "order", "selection", "compression", "filters", "missing",
        "option_disable_chunk_cache", "option_shape_as_bytes", "option_count_as_bytes",
    )  # fmt: skip
    nothing = dict.fromkeys(optional)
    assert place.post("sum", {**request, **nothing}).values == 300
    flat = {name: value for name, value in request.items() if name != "shape"}
    assert place.post("select", {**flat, **nothing, "shape": None}).answer["shape"] == [24]


def test_interfaces_and_urls(near: Place, all_places: dict[str, Place], web: Any) -> None:
    for interface in ("S3", "ftp", "", "gs", 1, ["s3"]):
        near.post("sum", {**near.request(), "interface_type": interface}).refused()
    for url in ("", "x", "not a url", "http://", "http://[::1", "http://host:port/x", "s3://bucket/key", 5, None, {}):
        near.post("sum", {**near.request(), "url": url, "interface_type": "s3"}).refused()
        near.post("sum", {**near.request(), "url": url, "interface_type": "http"}).refused()
    assert all_places["http"].ask("sum").values == 300
    assert near.post("sum", {**near.request(), "interface_type": "https", "url": web[0] + "/none"}).refused()
    if "s3" in all_places:
        s3 = all_places["s3"]
        request = s3.request()
        endpoint, _, rest = request["url"].partition("/private/")
        for url in (
            f"{endpoint}/private//{rest}",
            f"{endpoint}//private/{rest}",
            f"{endpoint}/private/{rest.replace('x', '%78')}",
        ):
            assert s3.post("sum", {**request, "url": url}).values == 300
        for url in (
            endpoint,
            f"{endpoint}/",
            f"{endpoint}/private",
            f"{endpoint}/private/",
            f"{request['url']}?versionId=1",
        ):
            s3.post("sum", {**request, "url": url}).refused()


@pytest.mark.parametrize("name", DTYPES + MORE)
@pytest.mark.parametrize("order", ["big", "little", None])
def test_types_and_byte_orders(near: Place, name: str, order: str | None) -> None:
    array = np.array([[3, 1, 0], [1, 0, 1]]).astype(name)
    stored = array.astype(array.dtype.newbyteorder({"big": ">", "little": "<", None: "="}[order]))
    for operation in ("max", "min", "sum", "select", "count"):
        reply = near.ask(operation, array, data=stored.tobytes(), byte_order=order)
        found = reply.answer
        assert found["count"] == [6]
        if operation == "count":
            assert (found["dtype"], found["shape"], reply.values) == ("int64", [], 6)
            continue
        if not (operation == "sum" and name == "bool"):
            assert found["dtype"] == name
        assert found["shape"] == ([2, 3] if operation == "select" else [])
        np.testing.assert_array_equal(reply.values, array if operation == "select" else getattr(array, operation)())


def test_wrong_types(near: Place) -> None:
    for name in ("int", "Int32", "float", "str", "<f4", "i4", "datetime64", "object", 4, None, ["int32"]):
        near.post("sum", {**near.request(), "dtype": name}).refused()
    for order in ("Big", "native", "<", 1):
        near.post("sum", {**near.request(), "byte_order": order}).refused()


def test_offset_and_size(place: Place) -> None:
    array = np.arange(10, dtype="<i8")
    data = b"x" * 13 + array.tobytes() + b"y" * 16
    request = place.request(array, data=data)
    assert place.post("sum", {**request, "offset": 13, "size": 80}).values == 45
    flat = {name: value for name, value in request.items() if name != "shape"}
    assert place.post("count", {**flat, "offset": 13, "size": 24}).answer["count"] == [3]
    assert place.post("count", {**flat, "offset": 13}).answer["count"] == [12]  # to the end of the object
    for wrong in (
        {"size": 0},
        {"size": -8},
        {"size": 79},
        {"size": 72},
        {"size": 88},
        {"size": 8.0},
        {"size": "80"},
        {"size": True},
        {"offset": -1},
        {"offset": 1.5},
        {"offset": "0"},
        {"offset": 2**64},
        {"size": 2**64},
        {"offset": 60, "size": 80},
        {"offset": 500, "size": 80},
    ):
        place.post("sum", {**request, "offset": 13, **wrong}).refused()
    place.post("sum", {**flat, "offset": 13, "size": 12}).refused()  # no whole number of elements
    place.post("sum", {**flat, "offset": 14}).refused()
    place.post("sum", {**request, "offset": 13}).refused()  # the rest of the object is not of the shape


def test_shapes(near: Place) -> None:
    for shape in (
        [],
        [0],
        [2, 0],
        [-1],
        [2.0],
        ["2"],
        24,
        "24",
        [[24]],
        [5],
        [25],
        [2, 3],
        [1] * 100,
        [2**40, 2**40],
        [True, 24],
    ):
        near.post("sum", {**near.request(), "shape": shape}).refused()
    assert near.post("sum", {**near.request(), "shape": [24]}).values == 300
    assert near.post("sum", {**near.request(), "shape": [1, 24, 1, 1]}).values == 300


@pytest.mark.parametrize("axis", [None, 0, 1, 2, [0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]])
@pytest.mark.parametrize("order", ["C", "F", None])
def test_axes_are_dropped(near: Place, axis: Any, order: Any) -> None:
    along = tuple(axis) if isinstance(axis, list) else axis
    array = np.random.default_rng(0).integers(-50, 50, (2, 3, 4)).astype("<i4")
    for operation in ("sum", "max", "min"):
        reply = near.ask(operation, array, axis=axis, order=order)
        expected = getattr(array, operation)(axis=along)
        assert reply.answer["shape"] == list(expected.shape)
        np.testing.assert_array_equal(reply.values, expected)
        assert reply.answer["count"] == [24 // max(expected.size, 1)] * max(expected.size, 1)
    reply = near.ask("count", array, axis=axis, order=order)
    assert reply.answer["dtype"] == "int64"
    assert reply.values.ravel().tolist() == reply.answer["count"]


@pytest.mark.parametrize("order", ["C", "F"])
def test_no_axis_and_select(near: Place, order: Any) -> None:
    selection = [[0, 2, 1], [2, 0, -1], [1, 4, 2]]
    part = VALUES[0:2, 2:0:-1, 1:4:2]
    for operation in ("sum", "max", "min", "select"):
        reply = near.ask(operation, order=order, axis=[], selection=selection).answer
        assert reply["shape"] == list(part.shape)
        assert reply["bytes"] == part.tobytes(order)
        assert reply["count"] == ([part.size] if operation == "select" else [1] * part.size)
    for axis in (0, [1], [0, 2]):
        assert near.ask("select", order=order, axis=axis, selection=selection).answer["bytes"] == part.tobytes(order)


def test_wrong_axes_and_orders(near: Place) -> None:
    for axis in (3, [3], -1, [-1], [1, 0], [0, 0], [0, 3], 1.0, "0", [None], [[0]], True, {}):
        for operation in ("sum", "select"):
            near.ask(operation, axis=axis).refused()
    request = {name: value for name, value in near.request().items() if name != "shape"}
    for axis in (0, [0], []):
        near.post("sum", {**request, "axis": axis}).refused()
    for order in ("c", "K", "A", "", 1):
        near.post("sum", {**near.request(), "order": order}).refused()


@pytest.mark.parametrize(
    "selection",
    [
        [[0, 2, 1], [0, 3, 1], [0, 4, 1]], [[1, 2, 1], [0, 3, 2], [3, 0, -2]], [[-1, 2, 1], [-3, -1, 1], [-1, -5, -1]],
        [[0, 99, 1], [-99, 99, 1], [1, 2, 99]], [[1, -99, -1], [2, -99, -3], [0, 4, 3]],
    ],
)  # fmt: skip
def test_selections(place: Place, selection: Any) -> None:
    part = VALUES[tuple(slice(*entry) for entry in selection)]
    reply = place.ask("select", selection=selection)
    np.testing.assert_array_equal(reply.values, part)
    assert reply.answer["count"] == [part.size]
    for operation in ("sum", "max", "min"):
        for axis in (None, [1], [0, 2]):
            reply = place.ask(operation, selection=selection, axis=axis)
            np.testing.assert_array_equal(reply.values, getattr(part, operation)(axis=tuple(axis) if axis else None))


def test_empty_and_wrong_selections(near: Place) -> None:
    empty = [[1, 1, 1], [0, 3, 1], [2, 0, 1]]
    assert near.ask("select", selection=empty).answer["shape"] == [0, 3, 0]
    assert near.ask("sum", selection=empty).values == 0
    assert near.ask("count", selection=empty).answer["count"] == [0]
    for operation in ("max", "min"):
        assert (
            f"cannot perform {operation} on empty array or selection" in near.ask(operation, selection=empty).refused()
        )
        near.ask(operation, selection=empty, axis=[0]).refused()
        assert near.ask(operation, selection=[[0, 2, 1], [0, 3, 1], [2, 0, 1]], axis=[0]).answer["shape"] == [3, 0]
    whole = [0, 2, 1]
    for wrong in (
        [],
        [whole],
        [whole] * 2,
        [whole] * 4,
        [whole, whole, [0, 4, 0]],
        [whole, whole, [0, 4]],
        [whole, whole, [0, 4, 1, 1]],
        [whole, whole, 1],
        [whole, whole, [0, None, 1]],
        [whole, whole, [0, 4.0, 1]],
        [whole, whole, ["0", 4, 1]],
        "x",
        {"0": whole},
        [whole, whole, [0, 2**70, 1]],
    ):
        near.ask("sum", selection=wrong).refused()
    flat = {name: value for name, value in near.request().items() if name != "shape"}
    near.post("sum", {**flat, "selection": [[0, 4, 1]]}).refused()
