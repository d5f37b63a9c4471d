"""Values of a store's root come back with their types; what is no value is an error of ours."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from insitu.errors import FormatError
from insitu.references import arrow
from insitu.references.store.json_values import dtype_from_json, dtype_to_json, pack, unpack

RECORDS = np.zeros(2, [("t", "O"), ("n", "<i4"), ("s", "<f4", (2,))])
RECORDS["t"] = ["x", "y"]
OBJECTS = np.empty(2, object)
OBJECTS[:] = [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "value",
    [
        float("nan"), np.float32(2), np.int8(-3), np.bool_(True), b"abc", 1 + 2j, (1, (2, 3)), {1: 2, (3, 4): [5]},
        np.arange(6, dtype="<i2").reshape(2, 3), RECORDS, RECORDS[0], OBJECTS, np.zeros((0, 2), ">f8"),
        np.datetime64("2001-01-01", "s"), np.longdouble(1.25), np.array("text"), {"a": {"b": [np.float64(1), None]}},
    ],
)  # fmt: skip
def test_values_come_back(value: Any) -> None:
    found = unpack(json.loads(json.dumps(pack(value))))
    assert type(found) is type(value)
    assert repr(found) == repr(value)


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype("<M8[ns]"), np.dtype([("a", "<f4"), ("b", "|S3", (2, 2))]),
        np.dtype([("a", "i1"), ("b", "<f8")], align=True), np.dtype([(("title", "name"), "<i2")]),
        np.dtype([("a", [("b", "<i2", (3,))], (2,))]),
    ],
)  # fmt: skip
def test_types_come_back(dtype: np.dtype[Any]) -> None:
    assert dtype_from_json(json.loads(json.dumps(dtype_to_json(dtype)))) == dtype


@pytest.mark.parametrize(
    "value",
    [
        {"$float": []}, {"$float": "x"}, {"$objects": 3}, {"$objects": [1], "$shape": [2]}, {"$objects": [1]},
        {"$dtype": "<f4"}, {"$dtype": "<f4", "$base64": "AAA"}, {"$dtype": "<f4", "$base64": "AAAA"},
        {"$dtype": "<f4", "$base64": ""}, {"$dtype": "<f4", "$base64": "é"}, {"$dtype": "|O", "$base64": "AAAA"},
        {"$dtype": "<U1", "$base64": "eAAAfA=="}, {"$dtype": "<f4", "$base64": "AAAAAA==", "$shape": "x"},
        {"$dtype": "i1", "$value": 300}, {"$dtype": "i1", "$value": "1"}, {"$dtype": "|V8", "$value": 10**15},
        {"$dtype": "<f4", "$value": 10**400}, {"$dtype": "<i4", "$value": {"$float": "NaN"}},
        {"$dtype": [["a", "<i4"]], "$records": [["x"]]}, {"$dtype": [["a", "<i4"]], "$records": [[]]},
        {"$dtype": [["a", "<i4"]], "$records": []}, {"$dtype": [["a", "<i4"]], "$records": [[10**30]]},
        {"$bytes": 5}, {"$bytes": "A"}, {"$complex": [1.0]}, {"$complex": ["a", "b"]}, {"$complex": 1},
        {"$complex": [10**400, 0]},
        {"$tuple": 4}, {"$dict": [[[], 1]]}, {"$dict": [[1]]}, {"$dict": {}}, {"$type": ","}, {"$other": 1},
    ],
)  # fmt: skip
def test_what_is_no_value_is_refused(value: Any) -> None:
    with pytest.raises(FormatError):
        unpack(value)


@pytest.mark.parametrize(
    "value",
    [
        ",", "01", "", "x", "é", 3, None, [], {}, [[]], [["a"]], [["a", "<f4"], ["a", "<f4"]], [["a", "<f4", [-1]]],
        [["a", "<f4", "x"]], [[3, "<f4"]], [[["t"], "<f4"]], ["<f4", [10**12]], [["a", 5]],
    ],
)  # fmt: skip
def test_what_is_no_type_is_refused(value: Any) -> None:
    with pytest.raises(FormatError):
        dtype_from_json(value)


@pytest.mark.parametrize("inner", ["[]", '{"$tuple": []}', '{"a": 1}'])
def test_values_that_are_nested_too_deeply(inner: str) -> None:
    value = json.loads(inner)
    for _ in range(100_000):
        value = [value]
    with pytest.raises(FormatError, match="nested"):
        unpack(value)
    with pytest.raises(FormatError, match="nested"):
        dtype_from_json([["a", value]])


def test_columns_of_another_type_are_refused() -> None:
    numbers = pa.array([1.0, 2.0, 3.0, 4.0])
    rows = pa.FixedSizeListArray.from_arrays(numbers, 2)
    assert arrow.to_numbers(numbers[1:], np.float64).tolist() == [2, 3, 4]
    assert arrow.to_number_rows(rows[1:], 2, np.float64).tolist() == [[3, 4]]
    for column, dtype in ((numbers, np.int64), (pa.array([1.0, None]), np.float64), (pa.array(["x"]), np.float64)):
        with pytest.raises(TypeError):
            arrow.to_numbers(column, dtype)
    for column, width in ((rows, 3), (numbers, 2), (pa.array([[1.0], [2.0, 3.0]]), 2)):
        with pytest.raises(TypeError):
            arrow.to_number_rows(column, width, np.float64)
