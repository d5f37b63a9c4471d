"""Expressions as jobs of `/reduce` and `/read`: what they compute, and hostile ones, which are refused
before any work is done.
"""

from __future__ import annotations

import math
import re
import shlex
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import cbor2
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from insitu.active.wire import values_from_wire, values_to_wire
from insitu.active.wire_array import array_to_wire
from insitu.active.wire_expression import MAX_ARRAYS, MAX_NODES, STEP_SETTINGS
from insitu.model import Axis, Codec, Columns, Encoding, Source, Tile, VirtualArray
from insitu.model.elementwise import ARGUMENT_COUNTS, OPERATIONS
from server.serving import Answer, Server, serving
from waiting import wait_until

SHAPE = (40, 12, 18)


@pytest.fixture(scope="session")
def dataset(root: Path) -> xr.Dataset:
    rng = np.random.default_rng(12)
    names = ("time", "lat", "lon")
    made = xr.Dataset(
        {
            "u": (names, rng.normal(0, 9, SHAPE).astype("f4")),
            "v": (names, rng.normal(0, 9, SHAPE).astype("f4")),
            "n": (names[1:], rng.integers(-5, 5, SHAPE[1:]).astype("i4")),
        }
    )
    chunks = {"u": (7, 6, 18), "v": (40, 3, 3), "n": (12, 18)}
    made.to_netcdf(root / "wind.nc", encoding={n: {"zlib": True, "chunksizes": sizes} for n, sizes in chunks.items()})
    return made


def job(root: Path, *nodes: Any, arrays: Any = ("u", "v", "n"), constants: Any = (), **more: Any) -> dict[str, Any]:
    listed = [{"url": str(root / "wind.nc"), "variable": a} if isinstance(a, str) else a for a in arrays]
    leaves = [{"array": number} for number in range(len(listed))]
    tree = {"arrays": listed, "constants": list(constants), "nodes": [*leaves, *deepcopy(nodes)]}
    return {"expression": tree, "methods": ["max"], **more}


def op(name: str, *arguments: Any, **more: Any) -> dict[str, Any]:
    """A node; an integer among its arguments is the number of a node."""
    given = [{"node": a} if isinstance(a, int) and not isinstance(a, bool) else a for a in arguments]
    return {"operation": name, "arguments": given, **more}


def step(name: str, of: int, **more: Any) -> dict[str, Any]:
    return {"step": name, "of": of, **more}


def reduce(server: Server, *jobs: dict[str, Any]) -> Answer:
    body = cbor2.dumps({"jobs": list(jobs)})
    return server.ask("POST", "/reduce", body, {"Content-Type": "application/cbor"})


def values(answer: Answer, number: int = 0) -> dict[str, Any]:
    assert answer.status == 200, answer.body
    return {name: values_from_wire(found) for name, found in answer.items[number]["values"].items()}


SPEED = op("hypot", 0, 1)


def test_json_is_enough(server: Server, root: Path, dataset: xr.Dataset) -> None:
    reduce_job = job(root, SPEED, op("greater", 3, {"number": 12}), methods=["sum", "mean"], dim=["time"])
    found = values(server.post("/reduce", {"jobs": [reduce_job]}))
    strong = np.hypot(dataset.u, dataset.v) > 12
    np.testing.assert_array_equal(found["sum"], strong.sum("time"))
    np.testing.assert_allclose(found["mean"], strong.mean("time"))


def test_the_example_of_the_page_is_answered_to_curl(server: Server, root: Path, dataset: xr.Dataset) -> None:
    page = (Path(__file__).parents[2] / "docs" / "http-api.md").read_text(encoding="utf-8")
    command = next(block for block in re.findall(r"```sh\n(.*?)```", page, re.S) if "expression" in block)
    command = command.replace("http://127.0.0.1:8080", server.url).replace("/data/wind.nc", str(root / "wind.nc"))
    words = shlex.split(command.replace("\\\n", " "))
    assert words[0] == "curl"
    try:
        body = subprocess.run(words, capture_output=True, check=True).stdout
    except FileNotFoundError:  # the same request, by hand
        body = server.post("/reduce", words[words.index("--data") + 1].encode()).body
    found = values(Answer(200, {}, body))
    expected = (np.hypot(dataset.u, dataset.v) > 12).sum("time")
    np.testing.assert_array_equal(found["sum"], expected)


def test_weights_groups_partials_and_quantiles(server: Server, root: Path, dataset: xr.Dataset) -> None:
    speed = np.hypot(dataset.u, dataset.v)
    weights, codes = np.linspace(1, 2, 12), np.arange(40) % 3
    first = job(root, SPEED, methods=["mean", "std"], axes=[1, 2], weights={"1": weights.tolist()})
    second = job(root, SPEED, axes=[0], groups={"axis": 0, "codes": codes.tolist(), "count": 3})
    third = job(root, SPEED, methods=["quantile", "median"], axes=[0, 2], q=[0.1, 0.7], keepdims=True)
    fourth = job(root, SPEED, methods=["mean"], axes=[0], answer="partial")
    answer = reduce(server, first, second, third, fourth)
    weighted = speed.weighted(xr.DataArray(weights, dims="lat"))
    np.testing.assert_allclose(values(answer)["mean"], weighted.mean(("lat", "lon")), rtol=1e-6)
    np.testing.assert_allclose(values(answer)["std"], weighted.std(("lat", "lon")), rtol=1e-6)
    grouped = speed.groupby(xr.DataArray(codes, dims="time", name="g")).max()
    np.testing.assert_array_equal(values(answer, 1)["max"], grouped)
    assert values(answer, 2)["quantile"].shape == (2, 1, 12, 1)
    np.testing.assert_allclose(
        values(answer, 2)["quantile"].squeeze(), speed.quantile([0.1, 0.7], ("time", "lon")), rtol=1e-6
    )
    partial = {name: values_from_wire(found) for name, found in answer.items[3]["partial"].items()}
    np.testing.assert_allclose(partial["total"].squeeze(), speed.sum("time"), rtol=1e-5)


def test_selections_of_arrays_and_of_the_result(server: Server, root: Path, dataset: xr.Dataset) -> None:
    part = {"url": str(root / "wind.nc"), "variable": "u", "selection": [{"slice": [39, 3, -2]}, 3]}
    reduce_job = job(
        root, op("multiply", 0, {"number": 2}), arrays=[part], selection=[{"slice": [2, None]}, [17, -3, 5]]
    )
    expected = (dataset.u[39:3:-2, 3] * 2)[2:, 17:4:-3]
    assert (
        values(reduce(server, {**reduce_job, "dim": ["time"]}))["max"].tolist() == expected.max("time").values.tolist()
    )
    listed = {**reduce_job, "selection": [{"index": [5, 1, 1]}, 4], "axes": None}
    assert values(reduce(server, listed))["max"] == float((dataset.u[39:3:-2, 3] * 2)[[5, 1, 1], 4].max())
    reduce_job["expression"]["nodes"].append(op("add", 1, {"constant": 0}))
    reduce_job["expression"]["constants"] = [{"dtype": "<f8", "values": np.arange(18.0).tolist()}]
    found = values(reduce(server, {**reduce_job, "axes": [0]}))["max"]
    np.testing.assert_allclose(found, (dataset.u[39:3:-2, 3] * 2 + np.arange(18.0))[2:, 17:4:-3].max("time"))


def test_read(server: Server, root: Path, dataset: xr.Dataset) -> None:
    reduce_job = job(root, op("subtract", 0, 1), op("where", 2, 3, {"number": "nan"}), selection=[{"slice": [1, 9]}])
    del reduce_job["methods"]
    answer = server.post("/read", {"jobs": [reduce_job]})
    assert answer.status == 200, answer.body
    head, *blocks, end, last = answer.items
    assert (head["shape"], end, last["done"]) == ([8, 12, 18], {"job": 0, "end": True}, 1)
    found = np.frombuffer(b"".join(blocks), head["dtype"]).reshape(head["shape"])
    np.testing.assert_array_equal(found, (dataset.u - dataset.v).where(dataset.n != 0)[1:9])


def test_an_expression_of_one_array_is_that_array(server: Server, root: Path, dataset: xr.Dataset) -> None:
    """It is reduced as its chunks are decoded, so that the last bits are the same."""
    part = {"selection": [{"slice": [1, 38]}]}
    more: dict[str, Any] = {"methods": ["mean", "std", "median"], "dim": ["lat", "time"]}
    named = {"url": str(root / "wind.nc"), "variable": "u"}
    reduce_job = [{**named, **part, **more}, job(root, arrays=["u"], **part, **more)]
    reduce_job.append(job(root, arrays=[{**named, **part}], **more))
    answer = reduce(server, *reduce_job)
    for name in more["methods"]:
        first, second, third = (values(answer, number)[name] for number in range(3))
        np.testing.assert_array_equal(first, second, strict=True)
        np.testing.assert_array_equal(first, third, strict=True)
    blocks = [server.post("/read", {"jobs": [{**one, "methods": None}]}).items for one in reduce_job]
    assert blocks[0][:3] == blocks[1][:3] == blocks[2][:3]


def test_a_part_of_what_is_too_much_is_computed(server: Server, root: Path) -> None:
    """The work is that of what is selected."""
    large = job(root, op("add", 0, 1), arrays=[unwritten((LONG, 1)), unwritten((1, LONG))])
    assert reduce(server, large).status == 413
    assert values(reduce(server, {**large, "selection": [7, {"slice": [0, 5000]}]}))["max"] == 0


def test_every_operation_is_known(server: Server, root: Path, dataset: xr.Dataset) -> None:
    """None of the table makes the server fail; types that NumPy refuses are refused."""
    for name, count in ARGUMENT_COUNTS.items():
        extra: list[Any] = [{"number": 2}] * (count - 1)
        if name == "is_in":
            extra = [{"members": 0}]
        for at in (0, 2):
            constants = [values_to_wire(np.array([1, 2]))]
            answer = reduce(server, job(root, op(name, at, *extra), constants=constants))
            assert answer.status in (200, 400), (name, answer.body)
            if answer.status == 400:
                assert name.startswith("bitwise") or name in ("invert", "isnat", "left_shift", "right_shift")


def test_the_page_lists_every_operation_and_step() -> None:
    page = (Path(__file__).parents[2] / "docs" / "http-api.md").read_text(encoding="utf-8")
    table = page.split("| operations |")[1].split("\n\n")[0]
    assert sorted(re.findall(r"[a-z_0-9]+", " ".join(re.findall(r"`(.*?)`", table)))) == sorted(ARGUMENT_COUNTS)
    assert set(ARGUMENT_COUNTS) == set(OPERATIONS)
    assert set(re.findall(r'"step": "([a-z_]+)"', page)) == set(STEP_SETTINGS)


def test_numbers_stay_weak_and_scalars_do_not(server: Server, root: Path, dataset: xr.Dataset) -> None:
    double = {"scalar": values_to_wire(np.asarray(2.0))}
    answer = reduce(server, job(root, op("add", 0, {"number": 2.0})), job(root, op("add", 0, double)))
    assert values(answer)["max"].dtype == np.float32
    assert values(answer, 1)["max"].dtype == np.float64


LONG = 1 << 20
HOSTILE: dict[str, tuple[int, str, Any]] = {
    "too many nodes": (400, "nodes", lambda: [op("negative", n + 2) for n in range(MAX_NODES)]),
    "a hundred thousand nodes": (400, "nodes", lambda: [op("negative", 0)] * 100_000),
    "too deep": (400, "too many operations", lambda: [op("negative", n + 2) for n in range(300)]),
    "ever twice as many": (
        400,
        "too many operations",
        lambda: [op("add", n + 2, n + 2) if n % 2 else op("subtract", max(n + 1, 2), n + 2) for n in range(400)],
    ),
    "no such operation": (400, "no operation 'eval'", lambda: [op("eval", 0)]),
    "a name of NumPy": (400, "no operation 'frompyfunc'", lambda: [op("frompyfunc", 0, 1)]),
    "code": (400, "no operation", lambda: [op("__import__('os').system('true')", 0)]),
    "too few arguments": (400, "add takes 2 arguments, not 1", lambda: [op("add", 0)]),
    "too many arguments": (400, "sqrt takes 1 arguments, not 2", lambda: [op("sqrt", 0, 1)]),
    "no arguments": (400, "arguments", lambda: [{"operation": "add"}]),
    "itself": (400, "node 3 does not exist, or comes later", lambda: [op("add", 0, 3)]),
    "a later one": (400, "node 4 does not exist, or comes later", lambda: [op("sqrt", 4), op("sqrt", 3)]),
    "a negative one": (400, "node -1 does not exist", lambda: [op("sqrt", -1)]),
    "a reference that is no integer": (400, "not an integer", lambda: [op("sqrt", {"node": 0.0})]),
    "true as a reference": (400, "not an integer", lambda: [op("sqrt", {"node": True})]),
    "no node": (400, "must be a node", lambda: [op("add", {"number": 1}, {"number": 2})]),
    "no such constant": (400, "constant 0 does not exist", lambda: [op("add", 0, {"constant": 0})]),
    "members elsewhere": (400, "members", lambda: [op("add", 0, {"members": 0}), {"constant": np.zeros(1)}]),
    "null elsewhere": (400, "null", lambda: [op("add", 0, None)]),
    "text": (400, "kind of argument", lambda: [op("add", 0, {"text": "x"})]),
    "a text as number": (400, "a number must be", lambda: [op("add", 0, {"number": "x"})]),
    "a list": (400, "an argument must be a map", lambda: [op("add", 0, [1, 2])]),
    "types that do not fit": (400, "not supported for the input types", lambda: [op("bitwise_and", 0, 1)]),
    "shapes that do not fit": (
        400,
        "shape mismatch",
        lambda: [op("add", 0, {"constant": 0}), {"constant": np.zeros(17)}],
    ),
    "a huge shift": (400, "numbers of 64 bits", lambda: [op("left_shift", 2, {"number": 1 << 80})]),
    "a shift beyond the type": (400, "out of bounds|too large", lambda: [op("left_shift", 2, {"number": 1 << 40})]),
    "a huge power": (400, "numbers of 64 bits", lambda: [op("power", 2, {"number": 10**400})]),
    "a power beyond the type": (400, "out of bounds|too large", lambda: [op("power", 2, {"number": 1 << 63})]),
    "a negative power": (422, "negative integer powers", lambda: [op("power", 2, 2)]),
    "decimals without end": (400, "decimals", lambda: [step("round", 0, decimals=1 << 30)]),
    "decimals that are none": (400, "decimals", lambda: [op("round", 0, {"number": 1e9})]),
    "a call on errors": (400, "errors must be", lambda: [op("sqrt", 0, errors={"invalid": "call"})]),
    "errors of another kind": (400, "errors must be", lambda: [op("sqrt", 0, errors={"all": "ignore"})]),
    "no such step": (400, "no step", lambda: [step("pickle", 0)]),
    "a cast to objects": (400, "cannot be of", lambda: [step("cast", 0, to="|O")]),
    "a cast to text": (400, "cannot be of", lambda: [step("cast", 0, to="<U99999")]),
    "a cast to no type": (400, "not a NumPy type", lambda: [step("cast", 0, to="nothing")]),
    "a mask of another shape": (
        400,
        "broadcast",
        lambda: [
            step("where", 0, condition={"constant": 0}, other={"number": 0}, to="<f4"),
            {"constant": np.ones((3, 3, 3), bool)},
        ],
    ),
    "a fill that does not fit": (400, "fill|bounds", lambda: [step("fill_null", 0, value={"number": 300}, to="|u1")]),
    "objects as constants": (
        400,
        "numbers or times",
        lambda: [op("add", 0, {"constant": 0}), {"constant": np.array([None], object)}],
    ),
    "an unknown entry": (400, "unknown entry 'code'", lambda: [{**op("sqrt", 0), "code": "x"}]),
    "no map": (400, "a node must be", lambda: [7]),
    "a combination of one": (
        400,
        "two arguments",
        lambda: [step("combine", 0, operation="sqrt", number={"number": 1})],
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_trees_are_refused(server: Server, root: Path, dataset: xr.Dataset, name: str) -> None:
    status, message, make = HOSTILE[name]
    nodes = make()
    constants = [values_to_wire(node["constant"]) for node in nodes if isinstance(node, dict) and "constant" in node]
    nodes = [node for node in nodes if not (isinstance(node, dict) and "constant" in node)]
    before = server.metrics().get("insitu_chunks_total", 0)
    answer = reduce(server, job(root, *nodes, constants=constants))
    assert answer.status == status, answer.body[:500]
    assert re.search(message, answer.message), answer.message
    if status != 422:  # which the values show
        assert server.metrics().get("insitu_chunks_total", 0) == before, "it is refused before it is evaluated"


def unwritten(shape: tuple[int, ...], dtype: str = "<f4", codecs: Any = (), url: str | None = None) -> dict[str, Any]:
    """An array without any bytes, in chunks of at most 1000 along each axis."""
    axes = tuple(Axis.regular(length, min(length, 1000)) for length in shape)
    grid = tuple(axis.count for axis in axes)
    encoding = Encoding(np.dtype(dtype), codecs, None, bytes(np.dtype(dtype).itemsize))
    table = Columns.of_unwritten(grid)
    if url is not None:
        table = Columns(grid, (Source(url),), *(np.zeros(grid, np.int64) for _ in range(3)))
    dims = tuple(f"d{number}" for number in range(len(shape)))
    return {"array": array_to_wire(VirtualArray.of(Tile(axes, (encoding,), table), dims=dims))}


def test_enormous_broadcasts_are_refused(server: Server, root: Path) -> None:
    sizes = [((LONG, 1), (1, LONG)), ((LONG, 1, 1, 1), (1, 1000, 1000, 1000))]
    for shapes in sizes:
        answer = reduce(server, job(root, op("add", 0, 1), arrays=[unwritten(shape) for shape in shapes]))
        assert answer.status == 413, answer.body[:300]
        assert "more than can be computed" in answer.message
    mask = values_to_wire(np.ones((LONG, 1), bool))
    answer = reduce(server, job(root, op("add", 0, {"constant": 0}), arrays=[unwritten((1, LONG))], constants=[mask]))
    assert answer.status == 413
    # Many operations on much are as much.
    deep = [op("add", n, 0) for n in range(150)]
    answer = reduce(server, job(root, *deep, arrays=[unwritten((100_000, 100_000))]))
    assert answer.status == 413, answer.body[:300]
    # A chunk that is larger than any may be.
    axis = Axis.regular(1 << 31, 1 << 31)
    zipped = Encoding(np.dtype("<f4"), (Codec("zlib", {}),), None, bytes(4))
    whole = VirtualArray.of(Tile((axis,), (zipped,), Columns.of_unwritten((1,))), dims=("a",))
    answer = reduce(server, job(root, op("sqrt", 0), arrays=[{"array": array_to_wire(whole)}]))
    assert (answer.status, "a chunk of" in answer.message) == (413, True)
    # A result that does not fit, of a tree that does.
    square = [unwritten((30_000, 1)), unwritten((1, 30_000))]
    answer = reduce(server, job(root, op("add", 0, 1), arrays=square, axes=[], methods=["count"]))
    assert answer.status == 413
    assert "larger than the memory" in answer.message


def test_operands_within_operands_are_computed(server: Server, root: Path) -> None:
    """Each array is larger than all before, so that what was computed so far is an operand."""

    def ask(levels: int) -> Answer:
        arrays = [unwritten((2,) * (level + 1)) for level in range(levels)]
        sums = [op("add", level + levels - 2 if level > 1 else 0, level) for level in range(1, levels)]
        return reduce(server, job(root, *sums, arrays=arrays, selection=[0] * (levels - 1)))

    assert values(ask(14))["max"] == 0
    assert values(ask(30))["max"] == 0
    answer = reduce(server, job(root, op("add", 0, {"constant": 0}), constants=[values_to_wire(np.zeros((1,) * 40))]))
    assert (answer.status, "dimensions" in answer.message) == (400, True)


def test_sizes_that_are_none(server: Server, root: Path) -> None:
    for length in (math.nan, -1, 1e9, "10", 1 << 70, None):
        array = unwritten((10, 10))
        array["array"]["shape"] = [length, 10]
        answer = reduce(server, job(root, op("sqrt", 0), arrays=[array]))
        assert answer.status == 400, (length, answer.body)
        constant = {"dtype": "<f4", "shape": [length], "data": b"1234"}
        answer = reduce(
            server, job(root, op("add", 0, {"constant": 0}), arrays=[unwritten((10,))], constants=[constant])
        )
        assert answer.status == 400, (length, answer.body)


def test_wide_trees_and_large_constants(server: Server, root: Path) -> None:
    answer = reduce(server, job(root, op("sqrt", 0), arrays=[unwritten((1,))] * (MAX_ARRAYS + 1)))
    assert (answer.status, "arrays" in answer.message) == (400, True)
    large = values_to_wire(np.zeros(33 << 20, "i1"))
    answer = reduce(server, job(root, op("sqrt", 0), arrays=[unwritten((1,))], constants=[large, large]))
    assert answer.status == 413  # already as a request
    listed = {"dtype": "<f4", "values": [0] * ((1 << 20) + 1)}
    answer = server.post("/reduce", {"jobs": [job(root, op("sqrt", 0), arrays=[], constants=[listed])]})
    assert answer.status == 400
    for bad in ([[1], [2, 3]], [[[[1]]], 2], "x", ["x"], [10**30]):
        answer = server.post(
            "/reduce", {"jobs": [job(root, op("sqrt", 0), constants=[{"dtype": "<i4", "values": bad}])]}
        )
        assert answer.status == 400, bad


def test_only_what_the_plain_route_reads(server: Server, root: Path, tmp_path: Path, dataset: xr.Dataset) -> None:
    (tmp_path / "secret").write_bytes(b"secret!!" * 100)
    by_name = {"url": str(tmp_path / "secret.nc"), "variable": "x"}
    by_place = unwritten((100,), "|i1", url=str(tmp_path / "secret"))
    for array in (by_name, by_place, unwritten((100,), "|i1", url=f"{root}/../{tmp_path.name}/secret")):
        answer = reduce(server, job(root, op("add", 0, {"number": 1}), arrays=["u", array]))
        assert answer.status == 403, answer.body
        assert "secret!!" not in answer.message
    odd = unwritten((100,), "|i1", codecs=(Codec("pickle", {}),))
    answer = reduce(server, job(root, op("add", 0, {"number": 1}), arrays=[odd]))
    assert (answer.status, "pickle" in answer.message) == (422, True)


def test_one_thing_at_a_time(server: Server, root: Path, dataset: xr.Dataset) -> None:
    reduce_job = job(root, SPEED)
    for extra in ({"url": "x", "variable": "u"}, {"array": {}}, {"decode": False}):
        assert reduce(server, {**reduce_job, **extra}).status == 400
    assert reduce(server, {**reduce_job, "dim": ["height"]}).status == 400
    assert reduce(server, {**reduce_job, "axes": [7]}).status == 400
    assert reduce(server, {**reduce_job, "selection": [{"slice": [0, 0]}]}).status == 400
    assert reduce(server, {"expression": None, "methods": ["max"]}).status == 400
    mixed = job(root, op("add", 0, 3), arrays=["u", unwritten((12, 18))], dim=["lat"])
    mixed["expression"]["nodes"] = [{"array": 0}, {"array": 1}, op("add", 0, 1)]
    assert "give axes in place of dim" in reduce(server, mixed).message


@pytest.mark.parametrize("where", ["options", "job", "expression", "node", "argument", "methods"])
def test_names_that_cannot_be_printed(server: Server, root: Path, dataset: xr.Dataset, where: str) -> None:
    """Python does not print integers of more than 4300 digits."""
    huge = 10**5000
    reduce_job = job(root, SPEED)
    tree = reduce_job["expression"]
    places = {"job": reduce_job, "expression": tree, "node": tree["nodes"][3], "argument": {}}
    request: dict[str, Any] = {"jobs": [reduce_job]}
    if where == "options":
        request["options"] = {huge: True}
    elif where == "methods":
        reduce_job["methods"] = [huge]
    else:
        places[where][huge] = huge
        tree["nodes"][3]["arguments"][0] = places["argument"] or {"node": 0}
    answer = server.ask("POST", "/reduce", cbor2.dumps(request), {"Content-Type": "application/cbor"})
    assert answer.status == 400, answer.body


ENTRIES = ["node", "number", "constant", "members", "scalar", "step", "of", "to", "operation", "arguments", "values"]
LEAVES = (
    st.none() | st.booleans() | st.integers(-3, 5) | st.floats() | st.sampled_from(["nan", "add", "<f4", "sqrt", "x"])
)
MAPS = st.dictionaries(st.sampled_from(ENTRIES), LEAVES | st.lists(LEAVES, max_size=3), max_size=3)
PIECES = LEAVES | MAPS | st.lists(LEAVES | MAPS, max_size=3)


@settings(max_examples=80)
@given(data=st.data())
def test_damaged_trees_never_make_it_fail(server: Server, root: Path, dataset: xr.Dataset, data: st.DataObject) -> None:
    nodes = [
        SPEED,
        step("where", 3, condition={"constant": 0}, other={"number": 0}, to="<f4"),
        step("fill_null", 4, value={"number": 0.0}, to="<f8"),
        op("clip", 5, None, {"scalar": {"dtype": "<f4", "values": 3}}, errors={"over": "warn"}),
        op("is_in", 6, {"members": 1}),
    ]
    constants = [{"dtype": "|b1", "values": [True] * 18}, {"dtype": "<i2", "values": [[1, 2], [3, 4]]}]
    reduce_job = job(root, *nodes, constants=constants)
    place: Any = reduce_job["expression"]
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.integers(0, 3)) == 0:
            break
        place = place[key]
    place[key] = data.draw(PIECES)
    answer = reduce(server, reduce_job)
    assert answer.status in (200, 400, 403, 404, 413, 422), answer.body


@pytest.fixture(scope="module")
def small(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of a quarter of a gigabyte."""
    log = tmp_path_factory.mktemp("log") / "serve.log"
    with serving([root], log, "--memory", "0.25", "--max-chunk", "256", "--max-request", "64", forked=False) as running:
        yield running


def test_little_memory_is_enough_or_refused(small: Server, root: Path, dataset: xr.Dataset) -> None:
    values(reduce(small, job(root, SPEED)))
    before = small.peak_bytes()
    # Chunks that are long along different axes: a box of whole chunks would be all of it.
    long = [{"array": _cut(1000, 4)}, {"array": _cut(4, 1000)}]
    tree = [op("multiply", 0, 1), *(op("add", n + 2, 0) for n in range(20))]  # 720 MB, if all were held
    for reduce_job in (
        job(root, *tree, arrays=long),
        job(root, *tree, arrays=long, methods=["median"], axes=[0]),
        job(root, *tree, arrays=long, methods=["mean"], axes=[0], weights={"0": np.ones(3000).tolist()}),
        job(
            root,
            op("is_in", 0, {"members": 0}),
            arrays=long[:1],
            constants=[values_to_wire(np.arange(6 << 20, dtype="f8"))],
        ),
    ):
        answer = reduce(small, reduce_job)
        assert answer.status in (200, 413, 503), answer.body[:300]
    assert small.peak_bytes() - before < 512 << 20
    assert reduce(small, job(root, SPEED)).status == 200


def _cut(rows: int, columns: int) -> dict[str, Any]:
    shape = (3000, 3000)
    axes = tuple(Axis.regular(length, size) for length, size in zip(shape, (rows, columns), strict=True))
    grid = tuple(axis.count for axis in axes)
    encoding = Encoding(np.dtype("<f4"), (Codec("zlib", {}),), None, bytes(4))
    return array_to_wire(VirtualArray.of(Tile(axes, (encoding,), Columns.of_unwritten(grid)), dims=("a", "b")))


def test_time_is_bounded(root: Path, tmp_path: Path) -> None:
    slow = [op("logaddexp", n, n) for n in range(20)]
    with serving([root], tmp_path / "log", "--timeout", "2") as server:
        answer = reduce(server, job(root, *slow, arrays=[unwritten((20_000, 6_000))]))
        assert answer.status == 503, answer.body[:300]
        wait_until(lambda: not server.metrics()["insitu_running"], "the work goes on")
