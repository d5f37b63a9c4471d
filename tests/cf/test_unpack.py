"""One chunk's stored values become meant ones: into any output, by any thread, and never by another
row's rules.
"""

from __future__ import annotations

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from insitu.cf.unpack import get_unpacker, unpack
from insitu.errors import CodecError, ModelError
from insitu.model import Packing, PackingKind, Packings

PACKED = PackingKind(dtype="float32", masked="float32", scaled="float32", scale_dtype="float32", offset_dtype="float32")
ROW = Packing(0.5, 10.0, (np.int16(-9),), PACKED)
STORED = np.array([[0, 1, -9], [4, -9, 6]], "i2")
MEANT = np.array([[10, 10.5, np.nan], [12, np.nan, 13]], "f4")


def test_without_an_output() -> None:
    found = unpack(STORED, ROW)
    assert found.dtype == np.float32 == get_unpacker(ROW, STORED.dtype).dtype
    np.testing.assert_array_equal(found, MEANT)
    assert STORED[0, 2] == -9


@pytest.mark.parametrize("dtype", ["f4", "f8", ">f4", "c16", "O"])
def test_into_an_output_of_another_type_and_any_strides(dtype: str) -> None:
    room = np.zeros((4, 6), dtype)
    out = room[::2, ::2]
    assert unpack(STORED, ROW, out) is out
    np.testing.assert_array_equal(out.astype("c16"), MEANT)
    np.testing.assert_array_equal(unpack(STORED.T, ROW, np.empty((3, 2), dtype)).astype("c16"), MEANT.T)


def test_an_output_that_cannot_hold_them_is_refused() -> None:
    with pytest.raises(TypeError, match="cast"):
        unpack(STORED, ROW, np.empty(STORED.shape, "i4"))


def test_in_place() -> None:
    row = Packing(missing=(np.float32(1e20),), kind=PackingKind(dtype="float32", masked="float32"))
    values = np.array([1, 1e20, 3], "f4")
    assert unpack(values, row, values) is values
    np.testing.assert_array_equal(values, np.array([1, np.nan, 3], "f4"))


def test_parts_of_a_read_only_chunk() -> None:
    chunk = np.frombuffer(STORED.tobytes(), "i2").reshape(STORED.shape)
    np.testing.assert_array_equal(unpack(chunk[:, ::-1], ROW), MEANT[:, ::-1])
    np.testing.assert_array_equal(unpack(np.broadcast_to(chunk[0, 1], (2, 2)), ROW), np.full((2, 2), 10.5, "f4"))
    assert unpack(chunk[:0], ROW).shape == (0, 3)


def test_one_element_as_array_or_scalar() -> None:
    for value in (np.asarray(np.int16(-9)), np.int16(-9)):
        found = unpack(value, ROW)  # type: ignore[arg-type]
        assert isinstance(found, np.ndarray)
        assert found.shape == ()
        assert np.isnan(found)


def test_nothing_to_do_costs_nothing() -> None:
    assert unpack(STORED, Packing()) is STORED
    assert unpack(STORED.astype(">i2"), Packing()).dtype == np.dtype("i2")


def test_a_row_without_types_takes_the_usual_ones() -> None:
    assert unpack(STORED, Packing(scale=0.5)).dtype == np.float64
    assert unpack(STORED, Packing(missing=(np.int16(1),))).dtype == np.float32
    assert unpack(STORED.astype("i4"), Packing(missing=(np.int32(1),))).dtype == np.float64
    assert unpack(np.array([b"a"]), Packing(missing=(), kind=PackingKind(missing=(b"a",)))).tolist() != [b"a"]


def test_fill_values_do_not_overflow_aloud() -> None:
    fill = np.float32(9.96921e36)
    row = Packing(
        1e6, None, (fill,), PackingKind(dtype="float32", masked="float32", scaled="float32", scale_dtype="float32")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(unpack(np.array([fill, 1], "f4"), row), np.array([np.nan, 1e6], "f4"))


def test_rounding_follows_the_type_of_the_scale() -> None:
    stored = np.arange(-500, 500, dtype="f4") / 7
    for name in ("float32", "float64", "float"):
        scale: Any = {"float32": np.float32, "float64": np.float64, "float": float}[name](0.1)
        kind = PackingKind(dtype="float32", scaled="float32", scale_dtype=name)
        expected = stored.copy()
        expected *= scale
        assert unpack(stored, Packing(float(scale), kind=kind)).tobytes() == expected.tobytes()


def test_rows_that_are_equal_and_decode_otherwise_are_not_mixed_up() -> None:
    # A plain number takes the type of what it is compared with; a NumPy one does not.
    kind = PackingKind(dtype="float32", masked="float32", scaled="float32", scale_dtype="float32")
    stored = np.array([2**32 - 1], "u4")
    plain, typed = Packing(1.0, None, (2**32 - 1,), kind), Packing(1.0, None, (np.uint32(2**32 - 1),), kind)
    assert plain == typed
    assert np.isnan(unpack(stored, plain)[0])
    assert unpack(stored, typed)[0] == 2**32
    for zero in (0.0, -0.0):
        row = Packing(
            0.0, zero, (), PackingKind(dtype="float64", scaled="float64", scale_dtype="float64", offset_dtype="float64")
        )
        assert np.signbit(unpack(np.array([-1.0]), row)[0]) == np.signbit(zero)


def test_integers_have_no_room_for_missing_values() -> None:
    row = Packing(
        2.0, None, (np.int16(1),), PackingKind(dtype="int16", masked="int16", scaled="int16", scale_dtype="int16")
    )
    assert unpack(np.array([2, 3], "i2"), row).tolist() == [4, 6]
    with pytest.raises(CodecError, match="mask_and_scale=False"):
        unpack(np.array([1], "i2"), row)


def test_threads_share_a_row() -> None:
    stored = np.arange(-2000, 2000, dtype="i2").reshape(40, 100)
    expected = unpack(stored, ROW)
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: unpack(stored, ROW), range(64)):
            np.testing.assert_array_equal(found, expected)
    assert get_unpacker(ROW, stored.dtype) is get_unpacker(ROW, stored.dtype)


numbers = st.one_of(
    st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.floats(width=32).map(np.float32),
    st.integers(-(2**15), 2**15 - 1).map(np.int16), st.integers(0, 2**64 - 1).map(np.uint64), st.just(np.complex64(1j)),
)  # fmt: skip
rows = st.builds(
    Packing,
    scale=st.none() | st.floats(allow_nan=False),
    offset=st.none() | st.floats(allow_nan=False),
    missing=st.lists(numbers, max_size=3).map(tuple),
    kind=st.sampled_from(
        [
            PackingKind(),
            PACKED,
            PackingKind(missing=("x", b"y")),
            PackingKind(dtype="datetime64[ns]", unit="D", base="ns"),
        ]
    ),
    epoch=st.integers(-(2**63), 2**63 - 1),
).filter(lambda row: row.kind.scale_dtype is None or (row.scale is not None and row.offset is not None))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(rows, min_size=1, max_size=3), min_size=1, max_size=4))
def test_a_table_keeps_every_row(tables: list[list[Packing]]) -> None:
    copies = [pickle.loads(pickle.dumps(Packings.of(table))) for table in tables]
    pooled, maps = Packings.pool(copies)
    for table, mine, where in zip(tables, copies, maps, strict=True):
        for number, row in enumerate(table):
            assert mine[number].key[1:] == row.key[1:]
            assert repr(mine[number]) == repr(row) == repr(pooled[int(where[number])])
    assert len(pooled) <= sum(map(len, tables))


def test_whether_a_table_changes_anything() -> None:
    assert Packings.of([Packing(), Packing()]).identity
    assert not Packings.of([Packing(), ROW]).identity
    assert not Packings.of([Packing(missing=(1,))]).identity
    assert not Packings.of([Packing(offset=0.0)]).identity


def test_a_missing_value_that_has_no_room() -> None:
    with pytest.raises(ModelError, match="16 bytes"):
        Packings.of([Packing(missing=(np.complex128(1),))])
