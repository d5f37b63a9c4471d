"""What xarray decodes, we decode: the same types, values to the bit, attributes and encoding.

Modules: cf/casting.py, cf/characters.py, cf/numbers.py, cf/times.py, model/cf_attributes.py
"""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import insitu
from insitu.cf import decode
from insitu.cf.unpack import unpack
from insitu.errors import CodecError, FormatError, InsituError, ModelError, UnsupportedError
from insitu.model import IDENTITY, Axis, Codec, Columns, Encoding, Tile, VirtualArray, concatenate
from insitu.reading import read_array

xr = pytest.importorskip("xarray")
from xarray.conventions import decode_cf_variable  # noqa: E402

FIXED = settings(max_examples=50, deadline=None)


def stored(values: np.ndarray, attributes: dict[str, Any], chunk: int = 2) -> VirtualArray:
    """An array as a scan gives it: cells of `chunk` elements along the first axis, the bytes at
    hand.
    """
    grid = (-(-values.shape[0] // chunk), *([1] * (values.ndim - 1))) if values.ndim else ()
    axes = tuple(Axis.regular(n, max(chunk if i == 0 else n, 1), padded=False) for i, n in enumerate(values.shape))
    row = values[:1].nbytes if values.ndim and len(values) else values.nbytes
    if values.ndim and values.size:
        count = np.arange(grid[0]).reshape(-1, *([1] * (values.ndim - 1)))
        length = np.minimum((count + 1) * chunk, len(values)) * row - count * chunk * row
        table = Columns(grid, (), np.asarray(-3), count * chunk * row, length, inline=values.tobytes())
    else:
        table = Columns.of_inline(grid, values.tobytes()) if not values.ndim else Columns.of_unwritten(
            tuple(axis.count for axis in axes)
        )  # fmt: skip
    tile = Tile(axes, (Encoding(values.dtype),), table)
    dims = tuple(f"d{i}" for i in range(values.ndim))
    return VirtualArray.of(tile, dims=dims, attributes=attributes)


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind == "O":
        pairs = zip(one.ravel(), other.ravel(), strict=True)
        return all(type(a) is type(b) and (a == b or (a != a and b != b)) for a, b in pairs)
    return one.tobytes() == other.tobytes()


def one_element(array: VirtualArray) -> np.ndarray:
    """The value of an array without dimensions."""
    (tile,) = array.tiles
    raw = read_array(VirtualArray.of(replace(tile, packings=IDENTITY), dims=()))
    return unpack(raw, tile.packings[0])


NANOSECONDS = {
    "day": 86400e9,
    "d": 86400e9,
    "hou": 3600e9,
    "h": 3600e9,
    "min": 60e9,
    "sec": 1e9,
    "mil": 1e6,
    "mic": 1e3,
    "nan": 1,
}
"""By the first letters of a unit."""


def lost(values: np.ndarray, attributes: dict[str, Any], times: np.ndarray) -> bool:
    """Whether xarray let times overflow in silence, as it does when others are NaN or have a
    fraction; we raise.
    """
    if times.dtype.kind not in "mM":
        return False
    missing = (values != values) | (values == attributes.get("_FillValue"))
    # What overflows becomes NaT on some processors, and the largest time on others.
    length = NANOSECONDS[str(attributes["units"]).partition(" ")[0].lower()[:3]]
    numbers = np.where(missing, 0, values.astype("f8") * attributes.get("scale_factor", 1))
    too_large = bool(missing.any()) and bool((np.abs(numbers) * length >= 2.0**63).any())
    return too_large or int(np.isnat(times).sum()) > int(missing.sum())


def check(values: np.ndarray, attributes: dict[str, Any], **options: Any) -> None:
    """What xarray decodes, we decode to the same.

    What it refuses we refuse by name, or read: it refuses integers with a fill value even where
    none is missing.
    """
    array = stored(values, attributes)
    encoding = {"source": "a.nc"}
    # A copy: xarray multiplies numbers with a fraction in place.
    variable = xr.Variable(array.dims, values.copy(), dict(attributes), dict(encoding))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = decode_cf_variable("v", variable, **options).load()
        except Exception:  # xarray raises whatever NumPy and pandas raise
            with contextlib.suppress(InsituError):
                read_array(
                    decode.decode_variable(array, name="v", encoding=encoding, values=lambda: values, **options).array
                )
            return
        if lost(values, attributes, expected.values):
            return
        found = decode.decode_variable(array, name="v", encoding=encoding, values=lambda: values, **options)
        result = read_array(found.array) if found.array.ndim else one_element(found.array)
    assert found.array.dims == expected.dims
    assert result.dtype == found.array.dtype == expected.dtype
    assert same_bits(result, expected.values), (result, expected.values)
    assert repr(found.attributes) == repr(expected.attrs)
    assert set(found.encoding) == set(expected.encoding)
    for key, value in expected.encoding.items():
        assert repr(found.encoding[key]) == repr(value), key


INTEGERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i2", ">i4"]
FLOATS = ["f2", "f4", "f8", ">f4", ">f8"]


@st.composite
def variables(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, Any]]:
    """Numbers, some of which mean missing, with attributes that pack them."""
    dtype = np.dtype(draw(st.sampled_from(INTEGERS + FLOATS)))
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        elements = st.one_of(st.integers(info.min, info.max), st.sampled_from([info.min, info.max, 0, 1]))
    else:
        width = dtype.itemsize * 8
        elements = st.floats(width=width) | st.sampled_from([0.0, -0.0, 1.0, 1.5])
    values = np.array(draw(st.lists(elements, min_size=1, max_size=7)), dtype)
    attributes: dict[str, Any] = {"units": draw(st.sampled_from(["K", "m"])), "long_name": "x"}
    own = dtype.newbyteorder("=")
    some = [np.asarray(v, own)[()] for v in values.tolist()]
    fill = st.sampled_from([*some, own.type(0), np.float32(1e20), np.float64(-999.0), np.int32(-999), np.int16(1)])
    if draw(st.booleans()):
        attributes["_FillValue"] = draw(st.sampled_from([*some, own.type(0)]))
    if draw(st.booleans()):
        attributes["missing_value"] = draw(fill)
    if draw(st.booleans()) and draw(st.booleans()):
        attributes["missing_value"] = np.array(draw(st.lists(fill, min_size=1, max_size=3)))
    number = st.sampled_from([0.1, 0.01, 2.0, 1e-7, 273.15, -0.0])
    kind = st.sampled_from([np.float32, np.float64, np.float64, np.float32, float, np.float16, np.int16, np.int32, int])
    if draw(st.booleans()):
        attributes["scale_factor"] = draw(kind)(draw(number))
    if draw(st.booleans()):
        attributes["add_offset"] = draw(kind)(draw(number))
    # xarray compares swapped bytes with the fill value of unsigned big-endian data, and misses it:
    # we do not.
    if dtype.isnative and draw(st.booleans()) and draw(st.booleans()):
        attributes["_Unsigned"] = draw(st.sampled_from(["true", "false", "True"]))
    if draw(st.booleans()) and draw(st.booleans()):
        attributes["dtype"] = draw(st.sampled_from(["bool", "int"]))
    return values, attributes


@FIXED
@given(variables(), st.booleans(), st.booleans())
def test_masked_and_scaled_as_xarray(case: tuple[np.ndarray, dict[str, Any]], mask: bool, timedelta: bool) -> None:
    check(*case, mask_and_scale=mask, decode_timedelta=timedelta)


@FIXED
@given(st.lists(variables(), min_size=2, max_size=4))
def test_every_part_of_a_mosaic_by_its_own_rules(cases: list[tuple[np.ndarray, dict[str, Any]]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            parts = [decode_cf_variable("v", xr.Variable("d0", values, attrs)).values for values, attrs in cases]
        except ValueError:
            return
        arrays = [decode.decode_variable(stored(values, attrs)).array for values, attrs in cases]
        mosaic = concatenate(arrays, "d0")
        expected = np.concatenate(parts)
    assert mosaic.dtype == expected.dtype
    assert same_bits(read_array(mosaic), expected)
    assert same_bits(read_array(mosaic[::-2]), expected[::-2])


UNITS = ["days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds"]
DATES = [
    "2000-01-01", "1850-1-1 0:0:0", "1900-01-01 00:00:00.0", "1970-01-01T00:00:00Z", "1-1-1", "0001-01-01 00:00:00",
    "1582-10-15", "1500-01-01", "2000-01-01 12:00:00.123456", "1990-01-01 00:00:00 +01:00", "2262-04-01", "1678-01-01",
    "2000-02-30", "20010203", "1970-01-01 UTC",
]  # fmt: skip
CALENDARS = [
    None, None, None, "standard", "gregorian", "proleptic_gregorian", "noleap", "365_day", "360_day", "all_leap",
    "julian", "Standard",
]  # fmt: skip


@st.composite
def dated(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, Any]]:
    """Numbers that are times."""
    dtype = np.dtype(draw(st.sampled_from(["i2", "i4", "i8", "u1", "u8", "f4", "f8", ">f8", ">i4"])))
    unit = draw(st.sampled_from([*UNITS, "day", "hour", "Days", "h", "sec"]))
    if dtype.kind == "f":
        whole = st.integers(-100_000, 100_000).map(float)
        elements = whole | st.floats(-1e5, 1e5, width=32) | st.sampled_from([0.5, 0.1, 1 / 3, np.nan, 1e7, 1e-4])
    else:
        info = np.iinfo(dtype)
        low, high = max(info.min, -(10**6)), min(info.max, 10**6)
        elements = st.integers(low, high) | st.sampled_from([0, 1, info.max, -1 if info.min else 0])
    shape = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    count = int(np.prod(shape))
    values = np.array(draw(st.lists(elements, min_size=count, max_size=count)), dtype).reshape(shape)
    attributes: dict[str, Any] = {"units": f"{unit} since {draw(st.sampled_from(DATES))}", "axis": "T"}
    calendar = draw(st.sampled_from(CALENDARS))
    if calendar is not None:
        attributes["calendar"] = calendar
    own = dtype.newbyteorder("=")
    if draw(st.booleans()):
        attributes["_FillValue"] = draw(st.sampled_from([own.type(values.flat[0]), own.type(7), own.type(99)]))
    if draw(st.booleans()) and draw(st.booleans()):
        attributes["scale_factor"] = draw(st.sampled_from([np.float32(0.5), np.float64(0.1), np.float64(2)]))
    return values, attributes


@FIXED
@given(dated(), st.sampled_from([None, None, True, False]), st.sampled_from(["ns", "ns", "s", "ms", "us"]))
def test_dates_as_xarray(case: tuple[np.ndarray, dict[str, Any]], use_cftime: bool | None, unit: str) -> None:
    coder = xr.coders.CFDatetimeCoder(use_cftime=use_cftime, time_unit=unit)
    check(*case, decode_times=coder)


@FIXED
@given(dated(), st.sampled_from(UNITS), st.sampled_from([None, "timedelta64[s]", "timedelta64[ns]", "timedelta64[D]"]),
       st.sampled_from([None, True, False, "s", "ns", "us"]))  # fmt: skip
def test_differences_of_time_as_xarray(
    case: tuple[np.ndarray, dict[str, Any]], units: str, declared: str | None, how: Any
) -> None:
    values, attributes = case
    attributes = {**attributes, "units": units} | ({} if declared is None else {"dtype": declared})
    coder = xr.coders.CFTimedeltaCoder(time_unit=how, decode_via_units=True) if isinstance(how, str) else how
    check(values, attributes, decode_timedelta=coder)


WORDS = np.array(["", "a", "Zürich", "smørrebrød", "x y "])


@pytest.mark.parametrize(
    "attributes", [{}, {"_Encoding": "utf-8"}, {"_FillValue": np.bytes_(b"a")}, {"missing_value": "none"}]
)
@pytest.mark.parametrize("shape", [(5, 12), (5, 2, 6), (12,), (0, 3), (5, 0)])
def test_characters_as_xarray(attributes: dict[str, Any], shape: tuple[int, ...]) -> None:
    text = np.array([word.encode() for word in WORDS], "S12").view("S1")
    values = np.resize(text, shape)
    if attributes.get("_Encoding") and len(shape) == 3:
        return  # letters of two bytes are cut
    check(values, attributes)
    check(values, attributes, stack_char_dim=False) if "_Encoding" not in attributes else None
    check(values, attributes, concat_characters=False)


def test_fixed_and_masked_text_as_xarray() -> None:
    values = np.array([word.encode() for word in WORDS])
    check(values, {"_Encoding": "utf-8"})
    check(values, {"_FillValue": np.bytes_(b"a"), "missing_value": np.bytes_(b"x y ")})
    check(values, {"_Encoding": "utf-8", "_FillValue": "a"})


def test_text_that_is_not_its_charset_is_an_error() -> None:
    array = stored(np.array([b"\xff"]), {"_Encoding": "utf-8"})
    with pytest.raises(CodecError, match="utf-8"):
        read_array(decode.decode_variable(array).array)


def test_characters_cost_no_read() -> None:
    values = np.array([b"one", b"two"]).view("S1").reshape(2, 3)
    found = decode.decode_variable(stored(values, {}), values=lambda: pytest.fail("they were read")).array
    assert found.dims == ("d0",)
    assert read_array(found).tolist() == [b"one", b"two"]
    assert read_array(found[::-1]).tolist() == [b"two", b"one"]


def test_characters_in_several_cells_are_read_and_kept() -> None:
    values = np.array([b"one", b"two"]).view("S1").reshape(2, 3)
    axes = (Axis.regular(2, 2), Axis.regular(3, 2))
    tile = Tile(axes, (Encoding(np.dtype("S1")),), Columns.of_unwritten((1, 2)))
    array = VirtualArray.of(tile, dims=("x", "n"))
    assert read_array(decode.decode_variable(array, values=lambda: values).array).tolist() == [b"one", b"two"]
    with pytest.raises(UnsupportedError, match="several chunks"):
        decode.decode_variable(array)


def test_unwritten_characters_are_empty() -> None:
    tile = Tile(
        (Axis.regular(2, 2), Axis.regular(3, 3)),
        (Encoding(np.dtype("S1"), (Codec("zlib"),), fill=b"\0"),),
        Columns.of_unwritten((1, 1)),
    )
    assert read_array(decode.decode_variable(VirtualArray.of(tile, dims=("x", "n"))).array).tolist() == [b"", b""]


def test_booleans_and_swapped_bytes() -> None:
    for dtype in ("i1", "u2", ">i4", "f4", ">f8", "c8", "?"):
        values = np.array([0, 1, 2, 0], dtype)
        check(values, {"dtype": "bool"})
        check(values, {"dtype": "bool", "_FillValue": values.dtype.newbyteorder("=").type(1)})
        check(values, {"note": "x"})
        check(values, {"_FillValue": values.dtype.newbyteorder("=").type(2)})


def test_swapped_unsigned_values_are_missing_too() -> None:
    values = np.array([1, -1, -2], ">i2")
    found = decode.decode_variable(stored(values, {"_Unsigned": "true", "_FillValue": np.int16(-1)}))
    np.testing.assert_array_equal(read_array(found.array), np.array([1, np.nan, 65534], "f4"))


def test_plain_values_stay_as_they_are() -> None:
    array = stored(np.arange(4.0), {"_FillValue": np.float64("nan"), "units": "K"})
    found = decode.decode_variable(array)
    assert found.array.tiles[0].packings.identity
    assert found.attributes == {"units": "K"}
    assert np.isnan(found.encoding["_FillValue"])


def test_alike_variables_share_their_table() -> None:
    attributes = {"_FillValue": np.int16(-1), "scale_factor": 0.5}
    one, two = (
        decode.decode_variable(stored(np.zeros(3, "i2"), dict(attributes))).array.tiles[0].packings for _ in range(2)
    )
    assert one is two


def test_dates_that_nobody_looked_at_are_checked_when_read() -> None:
    array = stored(np.array([0, 10**6]), {"units": "days since 2000-01-01"})
    found = decode.decode_variable(array, name="time").array
    assert found.dtype == np.dtype("M8[ns]")
    assert read_array(found[:1]).tolist() == [np.datetime64("2000-01-01", "ns").astype(int)]
    with pytest.raises(CodecError, match="out of range") as caught:
        read_array(found)
    assert "use_cftime" in str(caught.value)


def test_values_are_read_once_and_only_where_they_decide() -> None:
    requested = []
    values = np.arange(3)

    def read() -> np.ndarray:
        requested.append(1)
        return values

    decode.decode_variable(stored(values, {"units": "K", "scale_factor": 2.0}), values=read)
    assert not requested
    decode.decode_variable(stored(values, {"units": "hours since 2000-01-01"}), values=read)
    assert len(requested) == 1


def test_what_makes_no_sense_is_named() -> None:
    values = np.zeros(2, "i2")
    with pytest.raises(FormatError, match="mask_and_scale=False") as caught:
        decode.decode_variable(stored(values, {"scale_factor": np.array([1.0, 2.0])}), name="tas")
    assert "variable tas" in str(caught.value)
    for attributes in ({"scale_factor": "big"}, {"scale_factor": "nan"}, {"add_offset": 2**60 + 1}):
        packing = decode.decode_variable(stored(values, attributes)).array.tiles[0].packings[0]
        with pytest.raises(FormatError, match=r"has the invalid value.*mask_and_scale=False"):
            unpack(values, packing)
    with pytest.raises(FormatError, match="decode_times=False"):
        decode.decode_variable(stored(values, {"units": "days since ever"}), name="time")
    with pytest.raises(InsituError, match="moon"):
        decode.decode_variable(stored(values, {"units": "days since 2000-01-01", "calendar": "moon"}))
    with pytest.raises(FormatError, match="twice"):
        decode.decode_variable(stored(values, {"scale_factor": 2.0}), encoding={"scale_factor": 2.0})
    done = decode.decode_variable(stored(values, {"scale_factor": 2.0}))
    with pytest.raises(ModelError, match="already"):
        decode.decode_variable(done.array)
    with pytest.raises(TypeError, match="coder"):
        decode.decode_variable(
            stored(values, {"units": "days since 2000-01-01"}),
            decode_times=xr.coders.CFDatetimeCoder(),
            use_cftime=True,
        )


@pytest.mark.parametrize(
    ("values", "attributes", "message"),
    [
        (np.zeros(2, "i2"), {"missing_value": np.array([1, 2], "i2")}, "several missing values"),
        (np.zeros(2, "i2"), {"_FillValue": np.float32("nan")}, "but integer values"),
        (np.zeros(2, "f4"), {"_Unsigned": "true"}, "no integer values"),
        (np.zeros(2), {"units": "days since 1500-01-01"}, "before the Gregorian calendar"),
        (np.array([0, 10**6]), {"units": "days since 2000-01-01"}, "out of the range"),
        (np.zeros(2), {"units": "days", "dtype": "timedelta64[D]"}, r"timedelta64\[s\]"),
    ],
)
def test_what_the_user_should_know(values: np.ndarray, attributes: dict[str, Any], message: str) -> None:
    with pytest.warns(xr.SerializationWarning, match=message):
        decode.decode_variable(stored(values, attributes), name="v", values=lambda: values)


def test_a_file_as_xarray(tmp_path: Any) -> None:
    netcdf = pytest.importorskip("netCDF4")
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "a.nc"
    with netcdf.Dataset(path, "w") as file:
        file.createDimension("x", 5)
        file.createDimension("n", 12)
        packed = file.createVariable("packed", "i2", ("x",), fill_value=-1, zlib=True)
        packed.set_auto_maskandscale(False)
        packed.setncatts({"scale_factor": np.float32(0.1), "add_offset": np.float32(3), "missing_value": np.int16(-1)})
        packed[:4] = [1, -1, 3, 4]
        file.createVariable("text", str, ("x",))[:] = WORDS.astype(object)
        file.createVariable("empty", str, ("x",))
        letters = file.createVariable("letters", "S1", ("x", "n"))
        letters[:] = np.array([word.encode() for word in WORDS], "S12").view("S1").reshape(5, 12)
        letters.setncattr("_Encoding", "utf-8")
        colours = file.createEnumType("i1", "colours", {"red": 1, "blue": 2})
        file.createVariable("colour", colours, ("x",))[:] = 2
        times = file.createVariable("x", "f8", ("x",))
        times.setncatts({"units": "days since 1850-01-01", "calendar": "noleap"})
        times[:] = np.arange(5) * 30.5
        signed = file.createVariable("signed", "i1", ("x",), fill_value=-1)
        signed.set_auto_maskandscale(False)
        signed.setncattr("_Unsigned", "true")
        signed[:] = [0, -1, -2, 127, -128]
        file.createVariable("big", ">i4", ("x",), endian="big")[:] = range(5)
    with h5py.File(path, "a") as file:
        file["fixed"] = np.array([b"ab", b"cde"])
    group = insitu.scan(str(path), decode=False)
    keys = (
        "_FillValue",
        "missing_value",
        "scale_factor",
        "add_offset",
        "units",
        "calendar",
        "_Unsigned",
        "char_dim_name",
        "_Encoding",
    )
    with xr.open_dataset(path, engine="netcdf4") as dataset:
        for name, expected in dataset.variables.items():
            array = group.arrays[name]
            found = decode.decode_variable(array, name=name, values=partial(read_array, array))
            result = read_array(found.array)
            assert found.array.dims == expected.dims or name == "fixed"
            assert same_bits(result, np.asarray(expected.load().values)), (name, result, expected.values)
            assert repr(found.attributes) == repr(expected.attrs)
            for key in keys:
                assert repr(found.encoding.get(key)) == repr(expected.encoding.get(key))
    metadata = decode.decode_variable(group.arrays["colour"]).encoding["dtype"].metadata
    assert metadata == {"enum": {"red": 1, "blue": 2}, "enum_name": "colours"}
