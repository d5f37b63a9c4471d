"""The Reductionist protocol, field by field: against NumPy where it computes, against the
protocol's text where it refuses.
"""

from __future__ import annotations

import gzip
import json
import math
import socket
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import cbor2
import numpy as np
import pytest

from server.serving import Answer, Server
from waiting import LONG

KEYS = ["bytes", "dtype", "shape", "shape_as_bytes", "count", "count_as_bytes", "byte_order"]
WIRE = ["int32", "int64", "uint32", "uint64", "float32", "float64"]
MORE = ["int8", "int16", "uint8", "uint16", "float16"]


class Bench:
    """Writes chunks and asks about them."""

    def __init__(self, server: Server, root: Path) -> None:
        self.server, self.root, self.number = server, root, 0

    def put(self, data: bytes) -> str:
        self.number += 1
        path = self.root / f"chunk-{self.number}"
        path.write_bytes(data)
        return f"file://{path}"

    def ask(self, operation: str, request: dict[str, Any], **more: Any) -> Answer:
        return self.server.post(f"/v2/{operation}", {"interface_type": "file", **request, **more})

    def values(self, operation: str, array: np.ndarray[Any, Any], **more: Any) -> tuple[np.ndarray[Any, Any], Any]:
        request = {
            "url": self.put(array.tobytes()),
            "dtype": array.dtype.name,
            "shape": list(array.shape),
            "byte_order": "little",
        }
        answer = self.ask(operation, request, **more)
        assert answer.status == 200, answer.body
        found = answer.cbor
        return np.frombuffer(found["bytes"], found["dtype"]).reshape(found["shape"]), found


@pytest.fixture
def bench(server: Server, root: Path) -> Bench:
    return Bench(server, root)


def refused(answer: Answer, status: int = 400) -> str:
    assert answer.status == status, (answer.status, answer.body)
    assert answer.headers["content-type"] == "application/json"
    body = answer.json
    assert list(body) == ["error"]
    assert isinstance(body["error"]["message"], str)
    assert all(isinstance(cause, str) for cause in body["error"].get("caused_by", []))
    return answer.message


@pytest.mark.parametrize("name", WIRE + MORE)
@pytest.mark.parametrize("order", ["little", "big", None])
def test_every_type_in_both_byte_orders(bench: Bench, name: str, order: str | None) -> None:
    array = np.arange(1, 13).astype(name).reshape(3, 4)
    stored = array.astype(array.dtype.newbyteorder({"little": "<", "big": ">", None: "="}[order]))
    request = {"url": bench.put(stored.tobytes()), "dtype": name, "shape": [3, 4], "byte_order": order}
    for operation, expected in (("sum", array.sum()), ("max", array.max()), ("min", array.min())):
        answer = bench.ask(operation, request).cbor
        assert answer["dtype"] == name
        assert answer["shape"] == []
        assert np.frombuffer(answer["bytes"], name)[0] == expected
        assert answer["count"] == [12]
    selected = bench.ask("select", request).cbor
    assert selected["dtype"] == name
    np.testing.assert_array_equal(np.frombuffer(selected["bytes"], name).reshape(selected["shape"]), array)


def test_an_answer_is_a_map_in_this_order(bench: Bench) -> None:
    request = {"url": bench.put(np.arange(6, dtype="<i4").tobytes()), "dtype": "int32"}
    answer = bench.ask("sum", request)
    assert answer.headers["content-type"] == "application/cbor"
    found = answer.cbor
    assert list(found) == KEYS
    assert found == {
        "bytes": (15).to_bytes(4, "little"),
        "dtype": "int32",
        "shape": [],
        "shape_as_bytes": b"",
        "count": [6],
        "count_as_bytes": b"",
        "byte_order": "little",
    }


def test_shape_and_count_as_bytes(bench: Bench) -> None:
    array = np.arange(24, dtype="<f4").reshape(2, 3, 4)
    request = {"url": bench.put(array.tobytes()), "dtype": "float32", "shape": [2, 3, 4], "axis": [1]}
    found = bench.ask("max", request, option_shape_as_bytes=True, option_count_as_bytes=True).cbor
    assert list(found) == KEYS
    assert found["shape"] == []
    assert np.frombuffer(found["shape_as_bytes"], "<u8").tolist() == [2, 4]
    assert found["count"] == []
    assert np.frombuffer(found["count_as_bytes"], "<i8").tolist() == [3] * 8
    plain = bench.ask("max", request, option_shape_as_bytes=None, option_count_as_bytes=False).cbor
    assert plain["shape"] == [2, 4]
    assert plain["shape_as_bytes"] == b""
    assert plain["count"] == [3] * 8


@pytest.mark.parametrize("axis", [None, 0, 1, 2, [0], [2], [0, 1], [1, 2], [0, 2], [0, 1, 2]])
@pytest.mark.parametrize("operation", ["sum", "min", "max", "count"])
def test_axes(bench: Bench, axis: Any, operation: str) -> None:
    array = np.random.default_rng(3).integers(-50, 50, (3, 4, 5)).astype("<i8")
    found, answer = bench.values(operation, array, axis=axis)
    along = tuple(range(3)) if axis is None else tuple(np.atleast_1d(axis).tolist())
    expected = (
        np.full(np.sum(array, axis=along).shape, math.prod(array.shape[a] for a in along))
        if operation == "count"
        else getattr(np, operation)(array, axis=along)
    )
    np.testing.assert_array_equal(found, expected)
    assert answer["dtype"] == "int64"
    assert answer["shape"] == list(np.shape(expected))
    assert answer["count"] == [math.prod(array.shape[a] for a in along)] * max(int(np.size(expected)), 1)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("operation", ["sum", "min", "max", "count", "select"])
def test_no_axis_reduces_nothing(bench: Bench, operation: str, order: str) -> None:
    array = np.arange(12, dtype="<i4").reshape(3, 4)
    request = {
        "url": bench.put(array.tobytes(order=order)), "dtype": "int32", "shape": [3, 4], "order": order, "axis": [],
        "missing": {"missing_value": 5},
    }  # fmt: skip
    found = bench.ask(operation, request).cbor
    assert found["shape"] == [3, 4]
    if operation == "count":
        assert found["dtype"] == "int64"
        assert found["count"] == [1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1]
        return
    values = np.frombuffer(found["bytes"], "<i4").reshape((3, 4), order=order)
    np.testing.assert_array_equal(values, array)
    if operation == "select":
        assert found["count"] == [11]
    else:
        assert np.array(found["count"]).reshape((3, 4), order=order)[1, 1] == 0
        assert sum(found["count"]) == 11


@pytest.mark.parametrize("order", ["C", "F"])
def test_orders(bench: Bench, order: str) -> None:
    array = np.random.default_rng(4).normal(size=(3, 4, 5)).astype("<f8")
    request = {"url": bench.put(array.tobytes(order=order)), "dtype": "float64", "shape": [3, 4, 5], "order": order}
    selection = [[0, 3, 2], [1, 4, 1], [4, -6, -2]]
    part = array[0:3:2, 1:4, 4::-2]
    found = bench.ask("select", request, selection=selection, axis=[1]).cbor
    assert found["shape"] == list(part.shape)
    np.testing.assert_array_equal(np.frombuffer(found["bytes"]).reshape(part.shape, order=order), part)
    found = bench.ask("max", request, selection=selection, axis=[0, 2]).cbor
    np.testing.assert_array_equal(np.frombuffer(found["bytes"]), part.max(axis=(0, 2)))


@pytest.mark.parametrize(
    "selection",
    [
        [[0, 4, 1], [0, 6, 1]],
        [[1, 3, 1], [0, 6, 2]],
        [[-3, -1, 1], [0, 100, 3]],
        [[3, 0, -1], [5, -7, -2]],
        [[0, 4, 3], [2, 3, 1]],
    ],
)
def test_selections_are_numpys(bench: Bench, selection: list[list[int]]) -> None:
    array = np.arange(24, dtype="<i4").reshape(4, 6)
    part = array[tuple(slice(*entry) for entry in selection)]
    found, answer = bench.values("select", array, selection=selection)
    np.testing.assert_array_equal(found, part)
    assert answer["count"] == [part.size]
    found, answer = bench.values("sum", array, selection=selection)
    assert found == part.sum()


def test_an_empty_selection(bench: Bench) -> None:
    array = np.arange(24, dtype="<i4").reshape(4, 6)
    found, answer = bench.values("select", array, selection=[[2, 2, 1], [0, 6, 1]])
    assert found.shape == (0, 6)
    assert answer["count"] == [0]
    assert bench.values("sum", array, selection=[[2, 2, 1], [0, 6, 1]])[0] == 0
    request = {
        "url": bench.put(array.tobytes()),
        "dtype": "int32",
        "shape": [4, 6],
        "selection": [[2, 2, 1], [0, 6, 1]],
    }
    assert "cannot perform max on empty array or selection" in refused(bench.ask("max", request))


@pytest.mark.parametrize(
    ("compression", "filters"),
    [
        ({"id": "zlib"}, None), ({"id": "gzip"}, []), ({"id": "zlib"}, [{"id": "shuffle", "element_size": 4}]),
        (None, [{"id": "shuffle", "element_size": 4}]), ({"id": "gzip"}, [{"id": "shuffle_simd", "element_size": 4}]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shaped", [True, False])
def test_compressions_and_filters(bench: Bench, compression: Any, filters: Any, shaped: bool) -> None:
    array = np.random.default_rng(5).normal(size=(6, 7)).astype("<f4")
    data = array.tobytes()
    if filters:
        data = np.frombuffer(data, "u1").reshape(-1, 4).T.tobytes()
    if compression:
        data = {"zlib": zlib.compress, "gzip": gzip.compress}[compression["id"]](data)
    request = {
        "url": bench.put(b"....." + data + b"tail"),
        "dtype": "float32",
        "offset": 5,
        "size": len(data),
        "compression": compression,
        "filters": filters,
    }
    if shaped:
        request["shape"] = [6, 7]
    found = bench.ask("select", request).cbor
    assert found["shape"] == ([6, 7] if shaped else [42])
    assert found["bytes"] == array.tobytes()
    total = np.frombuffer(bench.ask("sum", request).cbor["bytes"], "<f4")[0]
    assert total == np.float32(array.sum(dtype="f8"))


@pytest.mark.parametrize("name", ["blosc2", "blosc", "zstd", "lz4", "bz2", "lzma"])
def test_all_our_codecs_by_their_ids(bench: Bench, name: str) -> None:
    array = np.arange(1000, dtype="<i4").reshape(10, 100)
    if name == "blosc2":
        data = pytest.importorskip("blosc2").compress2(array, typesize=4)
    else:
        data = bytes(pytest.importorskip("numcodecs").get_codec({"id": name}).encode(array))
    request = {
        "url": bench.put(data),
        "dtype": "int32",
        "shape": [10, 100],
        "size": len(data),
        "compression": {"id": name},
    }
    found = bench.ask("sum", request, axis=[1]).cbor
    np.testing.assert_array_equal(np.frombuffer(found["bytes"], "<i4"), array.sum(axis=1))


MISSING = [
    ({"missing_value": 7}, lambda a: a == 7),
    ({"missing_values": [7, 9]}, lambda a: (a == 7) | (a == 9)),
    ({"valid_min": 4}, lambda a: a < 4),
    ({"valid_max": 20}, lambda a: a > 20),
    ({"valid_range": [4, 20]}, lambda a: (a < 4) | (a > 20)),
]


@pytest.mark.parametrize(("missing", "mask"), MISSING)
@pytest.mark.parametrize("name", ["int32", "uint64", "float32", "float64", "int16"])
@pytest.mark.parametrize("axis", [None, [1]])
def test_missing_values_are_left_out(bench: Bench, missing: Any, mask: Any, name: str, axis: Any) -> None:
    array = np.arange(24).reshape(4, 6).astype(name)
    masked = np.ma.masked_array(array, mask(array))
    along = None if axis is None else tuple(axis)
    for operation in ("sum", "min", "max", "count"):
        found, answer = bench.values(operation, array, missing=missing, axis=axis)
        count = np.ma.count(masked, axis=along)
        assert answer["count"] == np.atleast_1d(count).tolist()
        expected = np.ma.asarray(count if operation == "count" else getattr(np.ma, operation)(masked, axis=along))
        known = ~np.ma.getmaskarray(expected)
        np.testing.assert_array_equal(
            found[known] if found.shape else found, expected.data[known] if found.shape else expected
        )


def test_where_all_is_missing(bench: Bench) -> None:
    """The count is 0, a sum is 0, and an extreme is infinite: PyActiveStorage merges chunks without
    a look at flat counts. Of integers it is a missing value.
    """
    array = np.full((2, 3), 1e20, "<f4")
    array[1, 1] = 2
    missing = {"missing_value": float(np.float32(1e20))}
    for operation, edge in (("min", np.inf), ("max", -np.inf)):
        found, answer = bench.values(operation, array, missing=missing, axis=[1])
        assert answer["count"] == [0, 1]
        assert found.tolist() == [edge, 2.0]
    found, answer = bench.values("sum", array, missing=missing, axis=[1])
    assert found.tolist() == [0, 2]
    for dtype, given in (
        ("int32", {"valid_min": 9}),
        ("uint64", {"valid_range": [9, 12]}),
        ("int64", {"valid_max": 1}),
    ):
        ones, limits = np.full(5, 3).astype(dtype), np.iinfo(dtype)
        for operation in ("max", "min"):
            value, answer = bench.values(operation, ones, missing=given)
            assert answer["count"] == [0]
            assert int(value) not in (limits.min, limits.max)
            assert int(bench.values("count", value.reshape(1), missing=given)[0]) == 0


def test_nan_is_a_value_unless_it_is_missing(bench: Bench) -> None:
    array = np.array([1, np.nan, 3, np.inf], "<f4")
    for operation in ("sum", "min", "max"):
        assert np.isnan(bench.values(operation, array)[0])
    assert bench.values("count", array)[0] == 4
    body = {
        "interface_type": "file",
        "url": bench.put(array.tobytes()),
        "dtype": "float32",
        "missing": {"missing_value": float("nan")},
    }
    answer = bench.server.post("/v2/max", json.dumps(body).encode()).cbor
    assert np.frombuffer(answer["bytes"], "<f4")[0] == np.inf
    assert answer["count"] == [3]


def test_sums_do_not_wrap_inside(bench: Bench) -> None:
    top = np.iinfo("i4").max
    found, answer = bench.values("sum", np.array([top, 5, -10], "<i4"))
    assert (answer["dtype"], int(found)) == ("int32", top - 5)
    found, answer = bench.values("sum", np.array([top, top, top], "<i4"))
    assert (answer["dtype"], int(found)) == ("int64", 3 * top)
    found, answer = bench.values("sum", np.full(300, 200, "u1"))
    assert int(found) == 60000
    large = np.iinfo("i8").max
    found, answer = bench.values("sum", np.array([large, 1, -1], "<i8"))
    assert (answer["dtype"], int(found)) == ("int64", large)
    found, answer = bench.values("sum", np.array([large, large], "<i8"))
    assert float(found) == pytest.approx(2.0 * large)
    found, answer = bench.values("sum", np.array([3e38, 3e38], "<f4"))
    assert float(found) == pytest.approx(6e38)


def test_sums_of_many_floats_are_exact_to_the_type(bench: Bench) -> None:
    array = np.full(1 << 20, 0.1, "<f4")
    found, _ = bench.values("sum", array)
    assert found == np.float32(array.sum(dtype="f8"))


def test_defaults(bench: Bench) -> None:
    array = np.arange(10, dtype="=i8")
    request = {"url": bench.put(array.tobytes()), "dtype": "int64"}
    nulls = dict.fromkeys(
        ["byte_order", "offset", "size", "shape", "axis", "order", "selection", "compression", "filters", "missing",
         "option_disable_chunk_cache", "option_shape_as_bytes", "option_count_as_bytes"]
    )  # fmt: skip
    assert bench.ask("select", request).cbor == bench.ask("select", request, **nulls).cbor
    assert bench.ask("select", request).cbor["shape"] == [10]
    tail = bench.ask("select", request, offset=16).cbor
    assert np.frombuffer(tail["bytes"], "i8").tolist() == list(range(2, 10))
    part = bench.ask("select", request, offset=16, size=24).cbor
    assert np.frombuffer(part["bytes"], "i8").tolist() == [2, 3, 4]
    assert bench.ask("sum", request, option_disable_chunk_cache=True).cbor["count"] == [10]


BAD = [
    ({"nonsense": 1}, "nonsense"),
    ({"interface_type": "ftp"}, "ftp"),
    ({"interface_type": None}, "interface_type"),
    ({"url": 5}, "url"),
    ({"url": "not a url"}, "url"),
    ({"dtype": "int33"}, "int33"),
    ({"dtype": None}, "dtype"),
    ({"byte_order": "middle"}, "middle"),
    ({"offset": -1}, "offset"),
    ({"offset": 1.5}, "offset"),
    ({"offset": "1"}, "offset"),
    ({"size": 0}, "size"),
    ({"size": -4}, "size"),
    ({"size": 7}, "size"),
    ({"size": 8}, "size"),
    ({"shape": []}, "shape"),
    ({"shape": [0]}, "shape"),
    ({"shape": [3, 0]}, "shape"),
    ({"shape": [-1]}, "shape"),
    ({"shape": 12}, "shape"),
    ({"shape": [5]}, "shape"),
    ({"axis": 0, "shape": None}, "shape"),
    ({"axis": 2}, "axis"),
    ({"axis": -1}, "axis"),
    ({"axis": [1, 0]}, "ascending"),
    ({"axis": [0, 0]}, "unique"),
    ({"axis": [0, 5]}, "axis"),
    ({"axis": "0"}, "axis"),
    ({"order": "c"}, "order"),
    ({"order": "X"}, "order"),
    ({"selection": [[0, 3, 1]]}, "selection"),
    ({"selection": [[0, 3, 0], [0, 4, 1]]}, "stride"),
    ({"selection": [[0, 3], [0, 4]]}, "slice"),
    ({"selection": [[0, 3, 1], [0, None, 1]]}, "selection"),
    ({"selection": [[0, 3, 1], [0, 4, 1]], "shape": None}, "shape"),
    ({"compression": {"id": "zap"}}, "zap"),
    ({"compression": {"id": "pickle"}}, "pickle"),
    ({"compression": {"id": "zlib", "level": 3}}, "level"),
    ({"compression": "zlib"}, "compression"),
    ({"filters": [{"id": "shuffle"}]}, "element_size"),
    ({"filters": [{"id": "shuffle", "element_size": 0}]}, "element_size"),
    ({"filters": {"id": "shuffle", "element_size": 4}}, "filters"),
    ({"missing": {}}, "missing"),
    ({"missing": {"missing_value": 1, "valid_min": 3}}, "missing"),
    ({"missing": {"other": 1}}, "missing"),
    ({"missing": {"missing_value": "a"}}, "missing"),
    ({"missing": {"missing_value": 1.5}}, "missing"),
    ({"missing": {"missing_value": 2**31}}, "missing"),
    ({"missing": {"missing_values": 3}}, "missing"),
    ({"missing": {"valid_range": [3]}}, "valid_range"),
    ({"missing": {"valid_range": [4, 4]}}, "valid_range"),
    ({"missing": {"valid_range": [5, 4]}}, "valid_range"),
    ({"option_shape_as_bytes": 1}, "option_shape_as_bytes"),
]


@pytest.mark.parametrize(("change", "word"), BAD, ids=[json.dumps(change)[:60] for change, _ in BAD])
def test_what_is_not_valid_is_refused(bench: Bench, change: dict[str, Any], word: str) -> None:
    url = bench.put(np.arange(12, dtype="<i4").tobytes())
    good = {"interface_type": "file", "url": url, "dtype": "int32", "shape": [3, 4]}
    assert bench.server.post("/v2/sum", good).status == 200
    assert word in refused(bench.server.post("/v2/sum", {**good, **change}))


@pytest.mark.parametrize("name", ["interface_type", "url", "dtype"])
def test_what_is_required(bench: Bench, name: str) -> None:
    body = {"interface_type": "file", "url": bench.put(b"1234"), "dtype": "int32"}
    del body[name]
    assert f"missing field `{name}`" in refused(bench.server.post("/v2/sum", body))


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b'{"a": 1, "a": 1}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_object(server: Server, body: bytes) -> None:
    assert "request data is not valid" in refused(server.post("/v2/sum", body))


@pytest.mark.parametrize("codec", ["zlib", "gzip", "blosc2"])
def test_data_that_does_not_decompress(bench: Bench, codec: str) -> None:
    url = bench.put(b"this was never compressed by anything")
    request = {"url": url, "dtype": "int32", "compression": {"id": codec}}
    assert "failed to decompress data" in refused(bench.ask("sum", request, shape=[4]))
    assert "failed to decompress data" in refused(bench.ask("sum", request))


def test_data_of_another_size_than_the_shape_says(bench: Bench) -> None:
    data = zlib.compress(np.arange(12, dtype="<i4").tobytes())
    request = {"url": bench.put(data), "dtype": "int32", "compression": {"id": "zlib"}}
    refused(bench.ask("sum", request, shape=[11]))
    refused(bench.ask("sum", request, shape=[13]))
    refused(bench.ask("sum", {**request, "dtype": "int64", "url": bench.put(zlib.compress(b"123456789"))}))
    plain = {"url": bench.put(b"12345678"), "dtype": "int32"}
    refused(bench.ask("sum", plain, shape=[3]))
    refused(bench.ask("sum", plain, offset=4, size=8))
    refused(bench.ask("sum", plain, offset=80))
    refused(bench.ask("sum", {"url": bench.put(b""), "dtype": "int32"}))


def test_an_object_that_is_not_there(bench: Bench, root: Path) -> None:
    assert "NoSuchKey" in refused(bench.ask("sum", {"url": f"file://{root}/nothing", "dtype": "int32"}))


def test_unknown_operations_and_methods(server: Server) -> None:
    assert "unsupported operation mean" in refused(server.post("/v2/mean", {}), 404)
    assert server.get("/v2/sum").status == 405
    refused(server.get("/v3/sum"), 404)


@pytest.mark.parametrize("path", ["/v2/sum", "/v2/sum/", "//v2/sum", "//v2/sum/", "///v2/sum"])
def test_slashes(bench: Bench, path: str) -> None:
    body = json.dumps({"interface_type": "file", "url": bench.put(b"\1\0\0\0"), "dtype": "int32"}).encode()
    where = urlsplit(bench.server.url)
    with socket.create_connection((str(where.hostname), int(where.port or 0)), timeout=LONG) as line:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        line.sendall(head.encode() + body)
        answer = b""
        while part := line.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200")
    assert cbor2.loads(answer.partition(b"\r\n\r\n")[2])["count"] == [1]


def test_schema_and_metrics(server: Server) -> None:
    assert server.get("/.well-known/reductionist-schema").json["openapi"].startswith("3.")
    metrics = server.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert b"# TYPE insitu_requests_total counter" in metrics.body


def test_kept_dimensions_and_nested_counts(bench: Bench) -> None:
    array = np.arange(24, dtype="<f4").reshape(2, 3, 4)
    body = {
        "interface_type": "file",
        "url": bench.put(array.tobytes()),
        "dtype": "float32",
        "shape": [2, 3, 4],
        "axis": [1],
    }
    found = bench.server.post("/keepdims/v2/max", body).cbor
    assert found["shape"] == [2, 1, 4]
    assert found["count"] == [[[3] * 4]] * 2
    found = bench.server.post("/keepdims/v2/max", {**body, "axis": [0, 1, 2]}).cbor
    assert found["shape"] == [1, 1, 1]
    assert found["count"] == 24


def test_a_file_that_is_replaced_is_seen(bench: Bench, root: Path) -> None:
    path = root / "replaced"
    for number in range(3):
        path.write_bytes(np.full(4, number, "<i4").tobytes())
        found = bench.ask("max", {"url": f"file://{path}", "dtype": "int32"}).cbor
        assert np.frombuffer(found["bytes"], "<i4")[0] == number
