"""Random arrays, types, codecs, selections, axes and missing rules: what the server answers is what
NumPy's masked arrays say.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from insitu.active.wire import values_from_wire
from server.serving import Server

DTYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]


@st.composite
def chunks(draw: Any) -> dict[str, Any]:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    dtype = np.dtype(draw(st.sampled_from(DTYPES))).newbyteorder(draw(st.sampled_from("<>")))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    array = rng.integers(0, 30, shape).astype(dtype)
    if dtype.kind == "f" and draw(st.booleans()):
        array[rng.random(shape) < 0.1] = draw(st.sampled_from([np.nan, np.inf]))
    selection = None
    if draw(st.booleans()):
        selection = []
        for length in shape:
            start, stop = draw(st.integers(-length - 1, length + 1)), draw(st.integers(-length - 1, length + 1))
            selection.append([start, stop, draw(st.sampled_from([1, 2, 3, -1, -2]))])
    axis = draw(st.none() | st.sets(st.integers(0, len(shape) - 1)).map(sorted))
    missing = draw(
        st.none()
        | st.sampled_from(
            [
                {"missing_value": 7},
                {"missing_values": [3, 7, 11]},
                {"valid_min": 5},
                {"valid_max": 20},
                {"valid_range": [5, 20]},
            ]
        )
    )
    return {
        "array": array, "order": draw(st.sampled_from("CF")), "selection": selection, "axis": axis, "missing": missing,
        "compression": draw(st.sampled_from([None, "zlib", "gzip", "zstd", "blosc", "lz4", "bz2"])),
        "shuffle": draw(st.booleans()), "offset": draw(st.integers(0, 9)),
    }  # fmt: skip


def stored(case: dict[str, Any]) -> bytes:
    array = case["array"]
    data = array.tobytes(order=case["order"])
    if case["shuffle"]:
        data = np.frombuffer(data, "u1").reshape(-1, array.dtype.itemsize).T.tobytes()
    if case["compression"] == "zlib":
        return zlib.compress(data)
    if case["compression"] is not None:
        numcodecs = pytest.importorskip("numcodecs")
        return bytes(numcodecs.get_codec({"id": case["compression"]}).encode(data))
    return data


def masked(array: Any, missing: Any) -> Any:
    values = array.astype(array.dtype.newbyteorder("="))
    if missing is None:
        return np.ma.masked_array(values, np.zeros(values.shape, bool))
    ((way, given),) = missing.items()
    mask = {
        "missing_value": lambda: values == given,
        "missing_values": lambda: np.isin(values, given),
        "valid_min": lambda: ~(values >= given),
        "valid_max": lambda: ~(values <= given),
        "valid_range": lambda: ~((values >= given[0]) & (values <= given[1])),
    }[way]()
    return np.ma.masked_array(values, mask)


@settings(max_examples=60)
@given(chunks(), st.sampled_from(["count", "sum", "min", "max", "select"]))
def test_one_chunk(server: Server, root: Path, case: dict[str, Any], operation: str) -> None:
    array = case["array"]
    data = stored(case)
    path = root / "property"
    path.write_bytes(b"x" * case["offset"] + data + b"tail")
    request = {
        "interface_type": "file",
        "url": f"file://{path}",
        "dtype": array.dtype.name,
        "offset": case["offset"],
        "size": len(data),
        "byte_order": "big" if array.dtype.newbyteorder(">") == array.dtype else "little",
        "shape": list(array.shape),
        "order": case["order"],
        "axis": case["axis"],
        "selection": case["selection"],
        "missing": case["missing"],
        "compression": case["compression"] and {"id": case["compression"]},
        "filters": [{"id": "shuffle", "element_size": array.dtype.itemsize}] if case["shuffle"] else None,
    }
    answer = server.post(f"/v2/{operation}", request)
    part = array if case["selection"] is None else array[tuple(slice(*entry) for entry in case["selection"])]
    want = masked(part, case["missing"])
    axes = tuple(range(array.ndim)) if case["axis"] is None else tuple(case["axis"])
    if operation in ("min", "max") and 0 in [part.shape[a] for a in axes]:  # as in NumPy
        assert answer.status == 400
        return
    assert answer.status == 200, answer.body
    found = answer.cbor
    values = np.frombuffer(found["bytes"], found["dtype"])
    order = case["order"] if operation == "select" or (not axes and operation != "count") else "C"
    values = values.reshape(found["shape"], order=order)
    if operation == "select":
        assert found["count"] == [int(want.count())]
        np.testing.assert_array_equal(values, want.data)
        return
    if not axes:
        np.testing.assert_array_equal(np.array(found["count"], int).reshape(part.shape, order=order), ~want.mask)
        np.testing.assert_array_equal(values, ~want.mask if operation == "count" else want.data)
        return
    counts = np.asarray(np.ma.count(want, axis=axes))
    assert found["count"] == np.atleast_1d(counts).ravel().tolist()
    if operation == "count":
        np.testing.assert_array_equal(values, counts)
        return
    with np.errstate(all="ignore"):
        if operation == "sum":
            wide = np.ma.sum(want.astype("f8" if array.dtype.kind == "f" else "i8"), axis=axes)
            expected = np.ma.filled(np.ma.asarray(wide), 0).astype("f8")
            assert values.astype("f8") == pytest.approx(
                expected, rel=1e-3 if array.dtype.itemsize == 2 else 1e-6, nan_ok=True
            )
            return
        edge = -np.inf if operation == "max" else np.inf
        plain = np.where(want.mask, edge, want.data.astype("f8"))
        expected = getattr(np, operation)(plain, axis=axes)
    known = counts > 0
    np.testing.assert_array_equal(np.asarray(values, "f8")[known], np.asarray(expected)[known])


@settings(max_examples=30)
@given(st.data())
def test_arrays_of_files(server: Server, root: Path, data: Any) -> None:
    h5py = pytest.importorskip("h5py")
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    dtype = data.draw(st.sampled_from(["i2", "u1", "f4", ">f8", "i8"]))
    numbers = np.random.default_rng(data.draw(st.integers(0, 99))).normal(0, 50, shape)
    array = (np.abs(numbers) if dtype == "u1" else numbers).astype(dtype)
    if array.dtype.kind == "f":
        array.reshape(-1)[:: data.draw(st.integers(2, 5))] = np.nan
    cut = tuple(data.draw(st.integers(1, length)) for length in shape)
    path = root / "property.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "t", data=array, chunks=cut, compression=data.draw(st.sampled_from([None, "gzip", "lzf"])), shuffle=True
        )
    selection, keys = [], []
    for length in shape:
        kind = data.draw(st.sampled_from(["all", "slice", "index", "one"]))
        if kind == "index":
            key: Any = data.draw(st.lists(st.integers(-length, length - 1), min_size=1, max_size=5))
            selection.append({"index": key})
        elif kind == "one":
            key = data.draw(st.integers(-length, length - 1))
            selection.append(key)
        else:
            step = data.draw(st.sampled_from([1, 2, -1])) if kind == "slice" else 1
            key = slice(None, None, step)
            selection.append({"slice": [None, None, step]})
        keys.append(key)
    part = array
    for axis in reversed(range(len(shape))):
        part = part[(slice(None),) * axis + (keys[axis],)]
    axes = data.draw(st.sets(st.integers(0, part.ndim - 1)).map(sorted)) if part.ndim else []
    methods = ["count", "min", "max", "sum", "mean", "std"]
    job = {
        "url": str(path),
        "variable": "t",
        "selection": selection,
        "axes": axes,
        "methods": methods,
        "keepdims": True,
    }
    answer = server.post("/reduce", {"jobs": [job]})
    assert answer.status == 200, answer.body
    values = {name: values_from_wire(found) for name, found in answer.items[0]["values"].items()}
    want = np.ma.masked_invalid(part.astype("f8"))
    along = tuple(axes)
    np.testing.assert_array_equal(values["count"], np.ma.count(want, axis=along, keepdims=True))
    if not axes:
        return
    for name in methods[1:]:
        expected = np.ma.filled(
            np.ma.asarray(getattr(np.ma, name)(want, axis=along, keepdims=True)), 0 if name == "sum" else np.nan
        )
        assert values[name].astype("f8") == pytest.approx(np.asarray(expected), rel=1e-5, abs=1e-5, nan_ok=True), name
    read = server.post("/read", {"jobs": [{"url": str(path), "variable": "t", "selection": selection}]})
    head, *rest = read.items
    raw = b"".join(item for item in rest if isinstance(item, bytes))
    np.testing.assert_array_equal(np.frombuffer(raw, head["dtype"]).reshape(head["shape"]), part)


def test_a_mean_of_sixteen_million_floats(server: Server, root: Path) -> None:
    h5py = pytest.importorskip("h5py")
    array = (np.random.default_rng(1).random(1 << 24, dtype="f4") + np.float32(280)).reshape(256, -1)
    path = root / "many.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=array, chunks=(16, 65536))
        file.create_dataset("d", data=array[:2].astype("f8"))
    job = {"url": str(path), "variable": "t", "methods": ["sum", "count"], "answer": "partial"}
    partial = {
        name: values_from_wire(v) for name, v in server.post("/reduce", {"jobs": [job]}).items[0]["partial"].items()
    }
    exact = np.sum(array, dtype=np.longdouble) / array.size
    assert abs(float(partial["total"].sum()) / int(partial["count"].sum()) - float(exact)) <= 1e-12 * abs(float(exact))
    mean = values_from_wire(
        server.post("/reduce", {"jobs": [{**job, "methods": ["mean"], "answer": "values"}]}).items[0]["values"]["mean"]
    )
    assert float(mean) == float(np.float32(exact))
