"""Does a scan of GRIB files find every field, whatever the grid, the packing and the order of the
messages?

Modules: formats/grib/codecs/eccodes_library.py
"""

from __future__ import annotations

import itertools
import logging
import re
import textwrap
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

import insitu
from damaged_bytes import ONE_BIT, count_refused, flip, read_all, written_to
from insitu.codecs.buffer_spec import as_octets
from insitu.errors import CodecError, FormatError, InsituError, UnknownCodecError, VariableError
from insitu.formats import InsituWarning, scan_format
from insitu.formats.grib.codecs.eccodes_library import eccodes as eccodes_library
from insitu.formats.grib.codecs.packed_sections import split_sections
from insitu.formats.grib.codecs.packings import values_of
from insitu.sources import CountingSource, MemorySource

eccodes = pytest.importorskip("eccodes")
cfgrib = pytest.importorskip("cfgrib")
from .conftest import Makes, find_section, together  # noqa: E402


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def _theirs(path: Path, **keys: Any) -> xarray.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = xarray.open_dataset(
            path, engine="cfgrib", backend_kwargs={"indexpath": "", "errors": "raise", **keys}
        ).load()
    found.attrs.pop("history")
    return found


def _same(path: Path, group: str | None = None, **keys: Any) -> xarray.Dataset:
    actual = insitu.open_dataset(path, group=group).load()
    xarray.testing.assert_identical(actual, _theirs(path, **keys))
    return actual


GRIDS = [
    "regular_ll_pl_grib1", "regular_ll_pl_grib2", "regular_ll_sfc_grib1", "regular_gg_pl_grib1", "regular_gg_ml_grib2",
    "reduced_gg_pl_32_grib1",
    "reduced_gg_pl_32_grib2", "rotated_ll_pl_grib1", "rotated_ll_pl_grib2", "rotated_gg_pl_grib2",
    "reduced_ll_sfc_grib2", "polar_stereographic_pl_grib1",
    "polar_stereographic_sfc_grib2", "reduced_rotated_gg_sfc_grib2", "GRIB1", "GRIB2",
]  # fmt: skip


@pytest.mark.parametrize("sample", GRIDS)
def test_grids(tmp_path: Path, make: Makes, sample: str) -> None:
    (tmp_path / "a.grib").write_bytes(make(sample))
    _same(tmp_path / "a.grib")


def _space_view() -> dict[str, Any]:
    return {
        "gridType": "space_view", "Nx": 40, "Ny": 40, "latitudeOfSubSatellitePoint": 0,
        "longitudeOfSubSatellitePoint": 0, "dx": 38, "dy": 38, "Xp": 20000,
        "Yp": 20000, "Xo": 0, "Yo": 0, "Nr": 6610700,
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["lambert", "mercator", "space_view", "lambert_azimuthal_equal_area"])
def test_projections(tmp_path: Path, make: Makes, kind: str) -> None:
    keys: dict[str, dict[str, Any]] = {
        "lambert": {
            "gridType": "lambert", "Nx": 30, "Ny": 20, "DxInMetres": 30000, "DyInMetres": 30000, "Latin1InDegrees": 45,
            "Latin2InDegrees": 45,
            "LaDInDegrees": 45, "LoVInDegrees": 10, "latitudeOfFirstGridPointInDegrees": 40,
            "longitudeOfFirstGridPointInDegrees": 2,
        },
        "mercator": {
            "gridType": "mercator", "Ni": 30, "Nj": 20, "DiInMetres": 30000, "DjInMetres": 30000,
            "latitudeOfFirstGridPointInDegrees": 10,
            "longitudeOfFirstGridPointInDegrees": 2, "latitudeOfLastGridPointInDegrees": 15,
            "longitudeOfLastGridPointInDegrees": 10,
        },
        "space_view": _space_view(),
        "lambert_azimuthal_equal_area": {
            "gridType": "lambert_azimuthal_equal_area", "Nx": 30, "Ny": 20, "DxInMetres": 30000, "DyInMetres": 30000,
            "standardParallelInDegrees": 45,
            "centralLongitudeInDegrees": 10, "latitudeOfFirstGridPointInDegrees": 40,
            "longitudeOfFirstGridPointInDegrees": 2,
        },
    }  # fmt: skip
    chosen = keys[kind]
    count = chosen.get("Nx", chosen.get("Ni")) * chosen.get("Ny", chosen.get("Nj"))
    handle = eccodes.codes_grib_new_from_samples("GRIB2")
    for key, value in chosen.items():
        eccodes.codes_set(handle, key, value)
    eccodes.codes_set_values(handle, np.arange(count, dtype=np.float64))
    (tmp_path / "a.grib").write_bytes(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    found = _same(tmp_path / "a.grib")
    assert {"latitude", "longitude"} <= set(found.coords)


@pytest.mark.parametrize("edition", [1, 2])
def test_members_runs_steps_and_levels(tmp_path: Path, make: Makes, edition: int) -> None:
    messages = [
        make(
            f"regular_ll_pl_grib{edition}",
            shortName=name,
            level=level,
            step=step,
            dataDate=date,
            **_member(edition, member),
        )
        for name, level, step, date, member in itertools.product(
            ["t", "z"], [500, 1000, 850], [0, 6, 12], [20240101, 20240102], [0, 3]
        )
    ]
    random = np.random.default_rng(0)
    (tmp_path / "a.grib").write_bytes(b"".join(messages[i] for i in random.permutation(len(messages))))
    found = _same(tmp_path / "a.grib")
    assert found.t.dims == ("number", "time", "step", "isobaricInhPa", "latitude", "longitude")
    # A combination that is not there.
    (tmp_path / "b.grib").write_bytes(b"".join(messages[1:]))
    found = _same(tmp_path / "b.grib")
    assert np.isnan(found.t[0, 0, 0].sel(isobaricInhPa=500)).all()
    assert not np.isnan(found.z).any()


def _member(edition: int, member: int) -> dict[str, Any]:
    if edition == 1:
        return {"setLocalDefinition": 1, "localDefinitionNumber": 1, "type": "pf", "stream": "enfo", "number": member}
    return {"productDefinitionTemplateNumber": 1, "perturbationNumber": member, "numberOfForecastsInEnsemble": 50}


def test_accumulations(tmp_path: Path, make: Makes) -> None:
    messages = [
        make("regular_ll_sfc_grib2", shortName="tp", stepType="accum", stepRange=f"0-{step}", dataDate=date)
        for step, date in itertools.product([6, 12, 18], [20240229, 20240301])
    ]
    (tmp_path / "a.grib").write_bytes(b"".join(messages))
    found = _same(tmp_path / "a.grib")
    assert found.tp.attrs["GRIB_stepType"] == "accum"
    assert found.sizes["step"] == 3


@pytest.mark.parametrize("unit", ["m", "h", "3h", "D"])
def test_units_of_steps(tmp_path: Path, make: Makes, unit: str) -> None:
    messages = [make(stepUnits=unit, step=step, level=level) for step in (0, 1, 2, 5) for level in (500, 700)]
    (tmp_path / "a.grib").write_bytes(b"".join(messages))
    assert _same(tmp_path / "a.grib").sizes["step"] == 4


def test_what_is_no_cube_is_groups(tmp_path: Path, make: Makes) -> None:
    messages = [
        make("regular_ll_pl_grib2", shortName="t", level=500),
        make("regular_ll_pl_grib2", shortName="t", level=850),
        make("regular_ll_sfc_grib2", shortName="2t"),
        make("regular_ll_sfc_grib2", shortName="10u"),
        make("regular_ll_sfc_grib2", shortName="tp", stepType="accum", stepRange="0-6"),
        make("regular_ll_sfc_grib2", shortName="sp"),
    ]
    (tmp_path / "a.grib").write_bytes(b"".join(messages))
    tree = insitu.scan(tmp_path / "a.grib", decode=False)
    assert not tree.arrays
    names = {"heightAboveGround_10", "heightAboveGround_2", "isobaricInhPa", "surface_instant", "surface_accum"}
    assert tree.groups.keys() == names
    _same(tmp_path / "a.grib", "isobaricInhPa", filter_by_keys={"typeOfLevel": "isobaricInhPa"})
    _same(tmp_path / "a.grib", "surface_accum", filter_by_keys={"typeOfLevel": "surface", "stepType": "accum"})
    assert list(insitu.scan(tmp_path / "a.grib", group="heightAboveGround_2", decode=False).arrays)[-1] == "t2m"
    with pytest.raises(VariableError, match="isobaricInhPa"):
        insitu.scan(tmp_path / "a.grib", group="nowhere", decode=False)
    assert list(insitu.scan(tmp_path / "a.grib", variables=["isobaricInhPa/t"], decode=False).groups) == [
        "isobaricInhPa"
    ]


def test_repeated_headers_lose_nothing(tmp_path: Path, make: Makes) -> None:
    size = 16 * 31
    first, second = make(values=np.arange(size)), make(values=np.arange(size) * 2.0)
    (tmp_path / "a.grib").write_bytes(first + second)
    tree = insitu.scan(tmp_path / "a.grib", decode=False)
    np.testing.assert_array_equal(insitu.read(tree, "t", decode=False).reshape(-1), np.arange(size))
    np.testing.assert_array_equal(insitu.read(tree, "repeated_2/t", decode=False).reshape(-1), 2 * np.arange(size))


def test_unknown_parameters_are_not_mixed(tmp_path: Path, make: Makes) -> None:
    messages = [make(parameterCategory=201, parameterNumber=number) for number in (1, 2)]
    (tmp_path / "a.grib").write_bytes(b"".join(messages))
    assert len(insitu.scan(tmp_path / "a.grib", decode=False).groups) == 2


def test_several_fields_in_a_message(tmp_path: Path, make: Makes) -> None:
    size = 16 * 31
    bitmap = np.where(np.arange(size) % 3, np.arange(size), 9999.0)
    parts = [
        make(shortName="u", level=500, values=np.arange(size) + 1.0),
        make(shortName="v", level=500, values=np.arange(size) * 0.5),
        make(shortName="t", level=500, missingValue=9999, bitmapPresent=1, values=bitmap),
    ]
    (tmp_path / "a.grib").write_bytes(together(*parts) + make(shortName="u", level=850))
    tree = insitu.scan(tmp_path / "a.grib", decode=False)
    fields = {name: np.squeeze(insitu.read(array, decode=False)) for name, array in tree.all_arrays()}
    u = next(values for name, values in fields.items() if name.endswith("u"))
    np.testing.assert_array_equal(u[-1].reshape(-1), np.arange(size) + 1.0)
    v = next(values for name, values in fields.items() if name.endswith("v"))
    np.testing.assert_array_equal(v.reshape(-1), np.arange(size) * 0.5)
    t = next(values for name, values in fields.items() if name.endswith("/t"))
    np.testing.assert_array_equal(t.reshape(-1), np.where(bitmap == 9999, np.nan, bitmap))


def test_points_without_values(tmp_path: Path, make: Makes) -> None:
    values = np.where(np.arange(16 * 31) % 5, np.linspace(0, 1, 16 * 31), 9999.0)
    for edition in (1, 2):
        path = tmp_path / f"{edition}.grib"
        path.write_bytes(
            make(f"regular_ll_pl_grib{edition}", shortName="t", missingValue=9999, bitmapPresent=1, values=values)
        )
        assert int(np.isnan(_same(path).t).sum()) == 100


PACKINGS = [
    (1, "grid_simple"), (1, "grid_second_order"), (1, "grid_second_order_no_SPD"), (1, "grid_second_order_SPD1"),
    (1, "grid_second_order_row_by_row"),
    (2, "grid_simple"), (2, "grid_complex"), (2, "grid_complex_spatial_differencing"), (2, "grid_ccsds"),
    (2, "grid_jpeg"), (2, "grid_png"),
    (2, "grid_ieee"), (2, "grid_second_order"),
]  # fmt: skip


@pytest.mark.parametrize(("edition", "packing"), PACKINGS)
@pytest.mark.parametrize("missing", [False, True])
def test_packings(tmp_path: Path, make: Makes, edition: int, packing: str, missing: bool) -> None:
    random = np.random.default_rng(2)
    values = np.cumsum(random.normal(0, 1, 16 * 31)) + 200
    keys: dict[str, Any] = {}
    if missing:
        values[::4] = 9999
        keys = {"missingValue": 9999, "bitmapPresent": 1}
    try:
        message = make(f"regular_ll_pl_grib{edition}", values=values, bitsPerValue=16, **keys)
        handle = eccodes.codes_new_from_message(message)
        eccodes.codes_set(handle, "packingType", packing)
        message = eccodes.codes_get_message(handle)
        eccodes.codes_release(handle)
    except eccodes.CodesInternalError:
        pytest.skip("this ecCodes does not write it")
    (tmp_path / "a.grib").write_bytes(message)
    _same(tmp_path / "a.grib")


@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize("bits", [1, 3, 7, 8, 9, 12, 15, 16, 17, 23, 24, 25, 31, 32])
@pytest.mark.parametrize("decimals", [-2, 0, 3])
def test_simple_packing_to_the_bit(make: Makes, edition: int, bits: int, decimals: int) -> None:
    values = np.random.default_rng(bits).normal(250, 30, 16 * 31)
    handle = eccodes.codes_new_from_message(make(f"regular_ll_pl_grib{edition}"))
    for key, value in (("decimalPrecision", decimals), ("bitsPerValue", bits)):
        eccodes.codes_set(handle, key, value)
    eccodes.codes_set_values(handle, values)
    message, expected = eccodes.codes_get_message(handle), eccodes.codes_get_values(handle)
    eccodes.codes_release(handle)
    found = values_of(split_sections(as_octets(message)), 16 * 31)
    assert found is not None
    np.testing.assert_array_equal(found, expected)


def test_rows_that_run_to_and_fro(tmp_path: Path, make: Makes) -> None:
    (tmp_path / "a.grib").write_bytes(make(alternativeRowScanning=1, values=np.arange(16 * 31)))
    _same(tmp_path / "a.grib")


def test_bytes_between_messages(tmp_path: Path, make: Makes) -> None:
    one, two = make(level=500), make(level=850)
    for junk in (b"\0" * 40, b"\r\r\nABXX12 ECMF 010000\r\r\n", b"GRIBGRIB" * 3, bytes(200_000)):
        (tmp_path / "a.grib").write_bytes(b"ZCZC heading\r\n" + one + junk + two + junk)
        assert insitu.scan(tmp_path / "a.grib", decode=False).arrays["t"].shape[0] == 2


def _counted(data: bytes) -> CountingSource:
    source = MemorySource(data)
    return CountingSource(source)


def test_a_scan_far_away_takes_few_round_trips(make: Makes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("insitu.formats.parsing.read_cache.is_remote", lambda url: True)
    size = 16 * 31
    equal = b"".join(
        make(level=level, step=step, values=np.arange(size)) for level in range(100, 1000, 50) for step in range(40)
    )
    source = _counted(equal)
    assert scan_format(source).arrays["t"].shape[:2] == (40, 18)
    assert source.batches < 20
    # Of any length, with something between them.
    random = np.random.default_rng(0)
    packed = [
        make(
            level=level,
            step=step,
            packingType="grid_ccsds",
            values=random.normal(0, 1, size) * (random.random(size) > random.random()),
        )
        + b"\0" * int(random.integers(0, 9))
        for level in range(100, 1000, 50)
        for step in range(40)
    ]
    source = _counted(b"".join(packed))
    tree = scan_format(source)
    assert tree.details.notes["messages"] == len(packed)
    assert source.batches < 80


def test_truncated_anywhere_and_flipped_anywhere(tmp_path: Path, make: Makes) -> None:
    one = make("regular_ll_pl_grib1", shortName="t", level=500)
    good = one + together(make(shortName="u", level=500), make(shortName="v", level=500))
    for end in [*range(0, 300, 3), *range(300, len(good), 97)]:
        if end != len(one):
            with pytest.raises(InsituError):
                scan_format(MemorySource(good[:end]), format="grib")
    random = np.random.default_rng(0)
    places = [*range(0, 250, 2), *random.integers(0, len(good), 60).tolist()]
    read = written_to(tmp_path / "bad.grib", partial(read_all, errors="warn", format="grib"))
    assert count_refused(flip(good, places, ONE_BIT), read)


def test_a_damaged_message_is_left_out_if_asked(tmp_path: Path, make: Makes) -> None:
    good, bad = make(level=500), bytearray(make(level=850))
    bad[-4:] = b"\0\0\0\0"
    (tmp_path / "a.grib").write_bytes(bytes(bad) + good)
    with pytest.raises(FormatError, match="7777"):
        insitu.scan(tmp_path / "a.grib", decode=False)
    with pytest.warns(InsituWarning, match="left out"):
        tree = insitu.scan(tmp_path / "a.grib", errors="warn", decode=False)
    assert tree.arrays["t"].ndim == 2
    assert list(tree.problems) == ["message_at_0"]


def test_without_eccodes(tmp_path: Path, make: Makes, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.grib").write_bytes(make(generatingProcessIdentifier=77))
    eccodes_library.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "eccodes", None)
    with pytest.raises(UnknownCodecError, match=r"insitu\[grib\]"):
        insitu.scan(tmp_path / "a.grib", decode=False)
    eccodes_library.cache_clear()


@pytest.mark.parametrize(
    "sample", ["regular_ll_pl_grib1", "regular_ll_pl_grib2", "regular_gg_pl_grib2", "rotated_ll_pl_grib2"]
)
@pytest.mark.parametrize("west", [False, True])
@pytest.mark.parametrize("north", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_points_in_any_order_stand_where_ecCodes_has_them(
    tmp_path: Path, sample: str, west: bool, north: bool, columns: bool
) -> None:
    handle = eccodes.codes_grib_new_from_samples(sample)
    ends = [
        (f"{axis}OfFirstGridPointInDegrees", f"{axis}OfLastGridPointInDegrees") for axis in ("longitude", "latitude")
    ]
    for (first, last), turned in zip(ends, (west, north), strict=True):
        if turned:
            begin, end = eccodes.codes_get(handle, first), eccodes.codes_get(handle, last)
            eccodes.codes_set(handle, first, end)
            eccodes.codes_set(handle, last, begin)
    for key, value in (("iScansNegatively", west), ("jScansPositively", north), ("jPointsAreConsecutive", columns)):
        eccodes.codes_set(handle, key, int(value))
    eccodes.codes_set_values(handle, np.arange(eccodes.codes_get_size(handle, "values"), dtype=np.float64))
    (tmp_path / "a.grib").write_bytes(eccodes.codes_get_message(handle))
    lists = [eccodes.codes_get_array(handle, key) for key in ("latitudes", "longitudes", "values")]
    eccodes.codes_release(handle)
    found = insitu.open_dataset(tmp_path / "a.grib").load()
    (name,) = found.data_vars
    values = found[name]
    placed = [
        np.asarray(found[axis].broadcast_like(values).transpose(*values.dims)) for axis in ("latitude", "longitude")
    ]
    mine = sorted(
        zip(placed[0].ravel().tolist(), placed[1].ravel().tolist(), values.values.ravel().tolist(), strict=True)
    )
    assert mine == sorted(zip(*(part.tolist() for part in lists), strict=True))
    if not west and not columns:
        _same(tmp_path / "a.grib")


def test_more_values_than_points(tmp_path: Path, make: Makes) -> None:
    message = bytearray(make("regular_gg_pl_grib2"))
    at = message.index((128).to_bytes(4, "big"), 16)  # Ni
    message[at : at + 4] = (64).to_bytes(4, "big")
    (tmp_path / "a.grib").write_bytes(message)
    tree = insitu.scan(tmp_path / "a.grib", decode=False)
    assert tree.arrays["t"].dims == ("values",)
    assert "8192 points" in str(tree.problems["latitude"])
    assert np.isfinite(insitu.read(tree.arrays["t"], decode=False)).all()


def _packed(packing: str) -> bytearray:
    handle = eccodes.codes_grib_new_from_samples("regular_ll_pl_grib2")
    eccodes.codes_set(handle, "bitsPerValue", 12)
    eccodes.codes_set(handle, "packingType", packing)
    eccodes.codes_set_values(handle, np.cumsum(np.random.default_rng(0).normal(0, 1, 16 * 31)))
    message = bytearray(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    return message


@pytest.mark.parametrize(
    ("packing", "place", "value"),
    [
        ("grid_complex", 31, b"\0\0\xff\xff"),  # groups
        ("grid_complex", 5, b"\0\xff\xff\xff"),  # values
        ("grid_complex", 42, b"\0\0\xff\xff"),  # length of the last group
        ("grid_complex_spatial_differencing", 48, b"\xff"),  # bytes of a descriptor
        ("grid_complex_spatial_differencing", 35, b"\x40"),  # width of groups
        ("grid_jpeg", 5, b"\0\0\0\x99"),
        ("grid_png", 5, b"\0\0\xff\x99"),
    ],
)
def test_a_header_that_claims_too_much_never_reaches_the_library(
    tmp_path: Path, packing: str, place: int, value: bytes
) -> None:
    try:
        message = _packed(packing)
    except eccodes.CodesInternalError:
        pytest.skip("this ecCodes does not write it")
    at = find_section(message, 5) + place
    message[at : at + len(value)] = value
    (tmp_path / "a.grib").write_bytes(message)
    with pytest.raises(CodecError):
        insitu.read(tmp_path / "a.grib", "t", decode=False)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (68, b"\x04\0\0\x20"),  # the number of the grid
        (34, b"\0\0\0\0"),  # rows
        (72 + 8, b"\0\1"),  # a row of one point
        (38, b"\x80\0\0\0"),  # unit of angles
        (10, b"\0"),  # no list of rows
    ],
)
def test_a_grid_that_cannot_be_is_not_computed(tmp_path: Path, make: Makes, place: int, value: bytes) -> None:
    message = bytearray(make("reduced_gg_pl_32_grib2"))
    at = find_section(message, 3) + place
    message[at : at + len(value)] = value
    (tmp_path / "a.grib").write_bytes(message)
    try:
        tree = insitu.scan(tmp_path / "a.grib", format="grib", decode=False)
    except FormatError:
        return
    assert "latitude" in tree.problems


def test_a_variable_of_groups_is_found_by_its_name(tmp_path: Path, make: Makes) -> None:
    """The error said that there are no variables at all."""
    path = tmp_path / "x.grib2"
    surface = [make("regular_ll_sfc_grib2", shortName=name) for name in ("2t", "10u")]
    path.write_bytes(b"".join([*surface, make("regular_ll_pl_grib2", level=500)]))
    for ask in (
        lambda: insitu.open_dataset(path, variables=["t2m"]),
        lambda: insitu.open_mfdataset([path], variables=["t2m"]),
        lambda: insitu.scan(path, variables=["t2m"]),
        lambda: insitu.scan(path, variables=["t2m"], decode=False),
        lambda: insitu.scan(path)["t2m"],
        lambda: insitu.read(path, "t2m"),
        lambda: insitu.Archive.open(path).array("t2m"),
    ):
        with pytest.raises(VariableError, match="heightAboveGround_2/t2m") as caught:
            ask()
        assert 'group="heightAboveGround_2"' in str(caught.value)
    assert "t2m" in insitu.open_dataset(path, group="heightAboveGround_2", variables=["t2m"])


def test_all_members_as_the_page_joins_them(tmp_path: Path, make: Makes, monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble = {"shortName": "t", "level": 500, "productDefinitionTemplateNumber": 1, "numberOfForecastsInEnsemble": 3}
    messages = [
        make(**ensemble, typeOfProcessedData=3 + (n > 0), perturbationNumber=n, stepRange=step)
        for step in ("0", "6")
        for n in range(3)
    ]
    (tmp_path / "ens.grib2").write_bytes(b"".join(messages))
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).resolve().parents[3] / "docs" / "formats.md"
    section = page.read_text(encoding="utf-8").partition("## GRIB")[2].partition("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict[str, Any] = {"insitu": insitu, "xr": xarray}
    exec(textwrap.dedent("  " + code.lstrip()), names)
    found = names["ds"]
    assert not isinstance(found.t.variable._data, np.ndarray)
    assert found.number.values.tolist() == [0, 1, 2]
    for n in range(3):
        reference = _theirs(tmp_path / "ens.grib2", filter_by_keys={"dataType": "pf" if n else "cf"})
        expected = reference.t.sel(number=n) if n else reference.t
        np.testing.assert_array_equal(found.t.sel(number=n).transpose(*expected.dims).values, expected.values)


def test_thresholds_and_percentiles_are_coordinates(tmp_path: Path, make: Makes) -> None:
    """cfgrib shows the first one only; before, the others were in groups `repeated_2`, …"""
    sample = "regular_ll_sfc_grib2"
    above = {"productDefinitionTemplateNumber": 9, "probabilityType": 1, "scaleFactorOfUpperLimit": 3}
    below = {"productDefinitionTemplateNumber": 5, "probabilityType": 0, "scaleFactorOfLowerLimit": 0}
    between = {"productDefinitionTemplateNumber": 9, "probabilityType": 2}
    headers: list[dict[str, Any]] = [
        *({**above, "scaledValueOfUpperLimit": limit} for limit in (254, 2540, 1270)),
        *({**below, "scaledValueOfLowerLimit": limit} for limit in (273, 263)),
        {**between, "scaledValueOfLowerLimit": 1, "scaledValueOfUpperLimit": 2},
        {**between, "scaledValueOfLowerLimit": 1, "scaledValueOfUpperLimit": 5},
        *({"productDefinitionTemplateNumber": 6, "percentileValue": percent} for percent in (90, 10, 50)),
        {"productDefinitionTemplateNumber": 0},
    ]
    messages = [make(sample, np.full(496, float(number)), **keys) for number, keys in enumerate(headers)]
    (tmp_path / "a.grib2").write_bytes(b"".join(messages))
    tree = insitu.open_datatree(tmp_path / "a.grib2")
    assert sorted(tree.children) == [
        "surface", "surface_percentile", "surface_probability_above", "surface_probability_below",
        "surface_probability_between",
    ]  # fmt: skip

    def first_points(group: str) -> Any:
        return tree[group]["t"].isel(latitude=0, longitude=0).load()

    assert first_points("surface").item() == 10
    found = first_points("surface_probability_above")
    assert dict(zip(found.threshold.values.tolist(), found.values.tolist(), strict=True)) == {
        0.254: 0,
        1.27: 2,
        2.54: 1,
    }
    found = first_points("surface_probability_below")
    assert dict(zip(found.threshold.values.tolist(), found.values.tolist(), strict=True)) == {263: 4, 273: 3}
    found = first_points("surface_probability_between")
    assert found.threshold.item() == 1
    assert dict(zip(found.upperThreshold.values.tolist(), found.values.tolist(), strict=True)) == {2: 5, 5: 6}
    found = first_points("surface_percentile")
    assert dict(zip(found.percentile.values.tolist(), found.values.tolist(), strict=True)) == {10: 8, 50: 9, 90: 7}


def test_a_limit_that_is_missing_is_no_threshold(tmp_path: Path, make: Makes) -> None:
    keys = {"productDefinitionTemplateNumber": 5, "probabilityType": 3, "scaleFactorOfLowerLimit": 255}
    message = bytearray(make("regular_ll_sfc_grib2", **keys))
    at = 16
    while message[at + 4] != 4:
        at += int.from_bytes(message[at : at + 4], "big")
    message[at + 37 : at + 47] = b"\xff" * 10
    (tmp_path / "a.grib2").write_bytes(message)
    assert not {"threshold", "upperThreshold"} & set(insitu.open_dataset(tmp_path / "a.grib2").variables)
