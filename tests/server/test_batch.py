"""Batches: several arrays in one request, weights, groups, decoding, streaming, and what is
refused.

Modules: server/jobs.py, server/run_job.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cbor2
import numpy as np
import pytest
import xarray as xr

from insitu import scan
from insitu.active.wire import values_from_wire
from insitu.active.wire_array import array_to_wire
from insitu.model import Axis, Codec, Columns, Encoding, Tile, VirtualArray
from insitu.reducing.chunk_storage import chunk_array
from insitu.server.error_responses import RequestError, RequestTooLargeError
from insitu.server.job_memory import answer_bytes
from insitu.server.jobs import parse_batch
from insitu.server.run_job import prepare_job
from insitu.server.settings import Limits
from server.serving import Answer, Server


@pytest.fixture(scope="session")
def dataset(server: Server, root: Path) -> xr.Dataset:
    rng = np.random.default_rng(12)
    values = rng.normal(280, 9, (40, 12, 18)).astype("f4")
    values[3, 4] = np.nan
    made = xr.Dataset(
        {"t": (("time", "lat", "lon"), values), "name": (("time",), np.array([f"n{i}" for i in range(40)], object))},
        coords={"time": np.arange(40), "lat": np.linspace(-80, 80, 12)},
    )
    made.t.encoding = {
        "zlib": True,
        "chunksizes": (7, 6, 18),
        "dtype": "i2",
        "scale_factor": 0.01,
        "add_offset": 270.0,
        "_FillValue": -9999,
    }
    made.to_netcdf(root / "batch.nc", engine="netcdf4")
    return xr.load_dataset(root / "batch.nc", engine="netcdf4")


def ask(server: Server, root: Path, route: str = "/reduce", **job: Any) -> Answer:
    job = {"url": str(root / "batch.nc"), "variable": "t", "decode": True, **job}
    return server.post(route, {"jobs": [job]})


def values(answer: Answer, number: int = 0) -> dict[str, Any]:
    assert answer.status == 200, answer.body
    assert "done" in answer.items[-1], answer.items[-1]
    return {name: values_from_wire(found) for name, found in answer.items[number]["values"].items()}


def test_stored_and_decoded_values(server: Server, root: Path, dataset: xr.Dataset) -> None:
    decoded = values(ask(server, root, methods=["mean", "min", "count"], axes=[0]))
    np.testing.assert_allclose(decoded["mean"], dataset.t.mean("time"), rtol=1e-6)
    np.testing.assert_array_equal(decoded["min"], dataset.t.min("time"))
    np.testing.assert_array_equal(decoded["count"], dataset.t.count("time"))
    stored = values(ask(server, root, methods=["min"], decode=False))
    assert stored["min"] == -9999
    assert stored["min"].dtype == np.int16


def test_many_jobs_in_one_request(server: Server, root: Path, dataset: xr.Dataset) -> None:
    where = {"url": str(root / "batch.nc"), "variable": "t", "decode": True, "methods": ["max"]}
    jobs = [{**where, "selection": [i]} for i in range(40)]
    answer = server.post("/reduce", {"jobs": jobs})
    found = [float(values(answer, i)["max"]) for i in range(40)]
    assert found == [float(v) for v in dataset.t.max(("lat", "lon"))]
    assert [item["job"] for item in answer.items[:-1]] == list(range(40))
    assert answer.items[-1]["done"] == 40


def test_medians_and_quantiles(server: Server, root: Path, dataset: xr.Dataset) -> None:
    found = values(ask(server, root, methods=["median"], axes=[0]))
    np.testing.assert_allclose(found["median"], dataset.t.median("time"), rtol=1e-6)
    found = values(ask(server, root, methods=["quantile"], axes=[0], q=[0.1, 0.9]))
    np.testing.assert_allclose(found["quantile"], dataset.t.quantile([0.1, 0.9], "time"), rtol=1e-6)


def test_weights(server: Server, root: Path, dataset: xr.Dataset) -> None:
    lat = np.cos(np.deg2rad(dataset.lat))
    weighted = dataset.t.weighted(lat)
    for dims, axes in ((("time", "lat", "lon"), None), (("lat", "lon"), [1, 2]), (("lat",), [1])):
        found = values(
            ask(
                server,
                root,
                methods=["mean", "sum", "var", "std", "sum_of_weights"],
                axes=axes,
                weights={"1": lat.values.tolist()},
            )
        )
        for name in found:
            np.testing.assert_allclose(found[name], getattr(weighted, name)(dims), rtol=1e-5, err_msg=f"{name} {dims}")
    both = xr.DataArray(np.linspace(0, 2, 40), dims="time") * lat
    found = values(
        ask(server, root, methods=["mean"], weights={"0": np.linspace(0, 2, 40).tolist(), "1": lat.values.tolist()})
    )
    np.testing.assert_allclose(found["mean"], dataset.t.weighted(both).mean(), rtol=1e-6)


def test_groups(server: Server, root: Path, dataset: xr.Dataset) -> None:
    codes = np.arange(40) % 5
    labelled = dataset.t.groupby(xr.DataArray(codes, dims="time", name="g"))
    for axes, dims in (([0], "time"), ([0, 2], ("time", "lon"))):
        found = values(
            ask(
                server,
                root,
                methods=["mean", "max", "count", "std"],
                axes=axes,
                groups={"axis": 0, "codes": codes.tolist(), "count": 5},
            )
        )
        for name in found:
            expected = getattr(labelled, name)(dims).values
            np.testing.assert_allclose(found[name], expected, rtol=1e-4, err_msg=name)
    some = np.where(codes == 2, -1, codes)
    found = values(ask(server, root, methods=["count"], groups={"axis": 0, "codes": some.tolist(), "count": 6}))
    assert found["count"][2].sum() == found["count"][5].sum() == 0


def test_reading_is_streamed_in_blocks(server: Server, root: Path) -> None:
    h5py = pytest.importorskip("h5py")
    array = np.random.default_rng(0).integers(0, 99, (300, 200, 300)).astype("i2")
    with h5py.File(root / "large.h5", "w") as file:
        file.create_dataset("t", data=array, chunks=(13, 200, 300), compression="gzip", compression_opts=1)
    answer = server.post(
        "/read",
        {
            "jobs": [
                {"url": str(root / "large.h5"), "variable": "t"},
                {"url": str(root / "large.h5"), "variable": "t", "selection": [5, 6, 7]},
            ]
        },
    )
    items = answer.items
    head = items[0]
    blocks = [item for item in items if isinstance(item, bytes)]
    assert len(blocks) > 3
    assert max(map(len, blocks)) <= 32 << 20
    raw = b"".join(blocks[:-1])
    np.testing.assert_array_equal(np.frombuffer(raw, head["dtype"]).reshape(head["shape"]), array)
    assert np.frombuffer(blocks[-1], "<i2")[0] == array[5, 6, 7]
    assert items[-1]["done"] == 2


def test_texts_travel(server: Server, root: Path, dataset: xr.Dataset) -> None:
    answer = ask(server, root, "/read", variable="name", selection=[{"slice": [0, 3]}])
    assert answer.status == 200, answer.body
    head, block = answer.items[:2]
    texts = block if isinstance(block, list) else np.frombuffer(block, head["dtype"]).tolist()
    assert texts == ["n0", "n1", "n2"]


def test_texts_have_no_partials(server: Server, root: Path, dataset: xr.Dataset) -> None:
    job = {"url": str(root / "batch.nc"), "variable": "name", "methods": ["max"], "answer": "partial"}
    answer = server.post("/reduce", {"jobs": [job]})
    assert (answer.status, "partial is not possible" in answer.message) == (400, True)


def test_tables_travel_in_cbor(server: Server, root: Path, dataset: xr.Dataset) -> None:
    array = scan(root / "batch.nc", decode=False).array("t")
    body = {"jobs": [{"array": array_to_wire(array), "methods": ["max"], "axes": [0]}]}
    answer = server.ask("POST", "/reduce", cbor2.dumps(body), {"Content-Type": "application/cbor"})
    with xr.open_dataset(root / "batch.nc", mask_and_scale=False, engine="netcdf4") as file:
        expected = file.t.max("time").load()
    np.testing.assert_array_equal(values(answer)["max"], expected)


def test_a_file_that_is_replaced_is_scanned_again(server: Server, root: Path) -> None:
    h5py = pytest.importorskip("h5py")
    for number in range(3):
        with h5py.File(root / "new.h5", "w") as file:
            file["t"] = np.full(3 + number, number)
        job = {"url": str(root / "new.h5"), "variable": "t", "methods": ["max", "count"]}
        found = values(server.post("/reduce", {"jobs": [job, job]}))
        assert (int(found["max"]), int(found["count"])) == (number, 3 + number)


BAD = [
    ({}, 400),
    ([], 400),
    ({"jobs": []}, 400),
    ({"jobs": [{}]}, 400),
    ({"jobs": [5]}, 400),
    ({"jobs": {}}, 400),
    ({"jobs": [{"url": "x"}]}, 400),
    ({"jobs": [{"url": 1, "variable": 2, "methods": ["max"]}]}, 400),
    ({"jobs": [], "more": 1}, 400),
]
BAD_JOBS = [
    ({"methods": []}, 400),
    ({"methods": ["nonsense"]}, 400),
    ({"methods": "max"}, 400),
    ({"methods": ["max", "max"]}, 400),
    ({"unknown": 1}, 400),
    ({"axes": ["a"]}, 400),
    ({"axes": [7]}, 400),
    ({"axes": [0, 0]}, 400),
    ({"selection": [0, 0, 0, 0]}, 400),
    ({"selection": [99]}, 400),
    ({"selection": [{"slice": [0, 5, 0]}]}, 400),
    ({"selection": [{"index": ["a"]}]}, 400),
    ({"selection": "all"}, 400),
    ({"selection": [True]}, 400),
    ({"selection": [{"what": 1}]}, 400),
    ({"skipna": "yes"}, 400),
    ({"ddof": "one"}, 400),
    ({"q": 3, "methods": ["quantile"]}, 400),
    ({"weights": {"a": [1]}}, 400),
    ({"weights": {"0": [1, 2]}, "methods": ["mean"]}, 400),
    ({"weights": {}}, 400),
    ({"weights": {"0": ["x"]}}, 400),
    ({"weights": {"1": [1] * 12}, "methods": ["median"]}, 400),
    ({"groups": {"axis": 0}}, 400),
    ({"groups": {"axis": 0, "codes": [0], "count": 1}}, 400),
    ({"groups": {"axis": 9, "codes": [0], "count": 1}}, 400),
    ({"groups": {"axis": 0, "codes": [5] * 40, "count": 2}}, 400),
    ({"answer": "all"}, 400),
    ({"variable": "nothing"}, 404),
    ({"variable": "../../t"}, 404),
    ({"url": "nowhere.nc"}, 403),
    ({"array": {}}, 400),
    ({"decode": 3}, 400),
    ({"methods": ["median"], "answer": "partial"}, 400),
    ({"variable": "name", "methods": ["mean"]}, 422),
]


@pytest.mark.parametrize(("body", "status"), BAD, ids=[json.dumps(body)[:50] for body, _ in BAD])
def test_requests_that_are_refused(server: Server, body: Any, status: int) -> None:
    for route in ("/reduce", "/read"):
        answer = server.post(route, body)
        assert answer.status == status, answer.body
        assert answer.json["error"]["message"]


@pytest.mark.parametrize(("change", "status"), BAD_JOBS, ids=[json.dumps(change)[:50] for change, _ in BAD_JOBS])
def test_jobs_that_are_refused(server: Server, root: Path, dataset: xr.Dataset, change: Any, status: int) -> None:
    answer = ask(server, root, **{"methods": ["max"], **change})
    assert answer.status == status, answer.body
    assert answer.json["error"]["message"]


def test_an_absent_file(server: Server, root: Path) -> None:
    assert ask(server, root, url=str(root / "absent.nc"), methods=["max"]).status == 404
    (root / "broken.nc").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    assert ask(server, root, url=str(root / "broken.nc"), methods=["max"]).status == 422
    (root / "nothing.nc").write_bytes(b"")
    assert ask(server, root, url=str(root / "nothing.nc"), methods=["max"]).status in (400, 422)


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff", b"\xa1", b"\x9f" * 5000, b"\xc4\x82\x1b\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\xdb" + b"\xff" * 8],
)
def test_what_is_no_cbor(server: Server, body: bytes) -> None:
    answer = server.ask("POST", "/reduce", body, {"Content-Type": "application/cbor"})
    assert answer.status == 400, answer.body


@pytest.mark.parametrize("codec", ["pickle", "json2", "numcodecs.pickle", "sharding_indexed"])
def test_tables_with_codecs_that_are_not_ours(server: Server, root: Path, codec: str) -> None:
    (root / "x.bin").write_bytes(bytes(32))
    table = array_to_wire(chunk_array(str(root / "x.bin"), 0, 32, Encoding(np.dtype("<i4")), (8,)))
    table["tiles"][0]["encodings"][0]["codecs"] = [[codec, {}]]
    body = cbor2.dumps({"jobs": [{"array": table, "methods": ["sum"]}]})
    answer = server.ask("POST", "/reduce", body, {"Content-Type": "application/cbor"})
    assert answer.status == 422, answer.body
    assert codec in answer.message


@pytest.mark.parametrize("code", [1e300, -1e300, 2.0**63, float("inf"), float("nan"), 0.5])
def test_codes_of_groups_that_are_no_integers(code: float) -> None:
    job = {"url": "x", "variable": "v", "methods": ["sum"], "groups": {"axis": 0, "codes": [0, code], "count": 2}}
    with pytest.raises(RequestError, match="codes of groups must be integers"):
        parse_batch(cbor2.dumps({"jobs": [job]}), "application/cbor", reducing=True)


def test_the_result_of_groups_has_their_number_not_the_length_of_the_axis() -> None:
    """Twelve months of a thousand days of maps: a result of twelve maps."""
    groups = {"axis": 0, "codes": [day % 12 for day in range(1000)], "count": 12}
    job = {"url": "x", "variable": "v", "methods": ["mean"], "axes": [0], "groups": groups}
    (parsed,) = parse_batch(cbor2.dumps({"jobs": [job]}), "application/cbor", reducing=True).jobs
    maps = answer_bytes(Limits(), parsed, (1000, 500, 500))
    assert 12 * 500 * 500 * 8 < maps < Limits().memory // 2
    with pytest.raises(RequestTooLargeError):
        answer_bytes(Limits(), parsed, (1000, 5000, 5000))


def test_one_value_of_a_large_chunk_needs_the_memory_of_the_chunk() -> None:
    axis = Axis.regular(64 << 20, 64 << 20)
    encoding = Encoding(np.dtype("f8"), (Codec("zlib", {}),))
    array = VirtualArray.of(Tile((axis,), (encoding,), Columns.of_unwritten((1,))), dims=("x",))
    job = {"url": "x", "variable": "v", "methods": ["mean"], "selection": [5]}
    (parsed,) = parse_batch(cbor2.dumps({"jobs": [job]}), "application/cbor", reducing=True).jobs
    assert prepare_job(Limits(), parsed, [array], 0).memory.nbytes > array.nbytes


class Untouched:
    """A table of chunks that must not be looked into."""

    shape = (1 << 40,)
    sources = ()

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} of the table was asked for")


def test_tables_are_not_looked_into_before_a_job_is_admitted() -> None:
    tile = Tile((Axis.regular(1 << 42, 4),), (Encoding(np.dtype("f8"), (Codec("zlib", {}),)),), Untouched())  # type: ignore[arg-type]
    array = VirtualArray.of(tile, dims=("x",))
    job: dict[str, Any] = {"url": "x", "variable": "v", "selection": [{"slice": [3, None, 2]}]}
    (read,) = parse_batch(cbor2.dumps({"jobs": [job]}), "application/cbor", reducing=False).jobs
    assert prepare_job(Limits(), read, [array], 0).memory.nbytes < 1 << 30
    job["methods"] = ["mean"]
    (mean,) = parse_batch(cbor2.dumps({"jobs": [job]}), "application/cbor", reducing=True).jobs
    with pytest.raises(RequestTooLargeError, match="touches more chunks"):
        prepare_job(Limits(), mean, [array], 0)
