"""Are the coordinates of large and of impossible grids those of ecCodes, or not offered at all?

Modules: formats/grib/header_keys.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import insitu
from insitu.errors import SourceError
from insitu.formats.grib import grid_coordinates, header_keys
from insitu.formats.grib.header_keys import EccodesMessage
from insitu.model import VirtualGroup

eccodes = pytest.importorskip("eccodes")

Requests = list[tuple[str, int]]


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Each grid is asked for once, by whichever test."""
    grid_coordinates._memory.clear()
    yield
    grid_coordinates._memory.clear()


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """What ecCodes computes: keys and points of the grid."""
    found: Requests = []
    array = EccodesMessage.array

    def count(self: EccodesMessage, key: str) -> Any:
        found.append((key, int(self.get("numberOfPoints"))))
        return array(self, key)

    monkeypatch.setattr(EccodesMessage, "array", count)
    return found


def constant(sample: str = "regular_ll_pl_grib2", changes: tuple[tuple[int, bytes], ...] = (), **keys: Any) -> bytes:
    """A message of one value, whose section 3 is changed behind its first bytes."""
    handle = eccodes.codes_grib_new_from_samples(sample)
    try:
        for key, value in keys.items():
            eccodes.codes_set(handle, key, value)
        points = eccodes.codes_get(handle, "numberOfPoints" if "grib2" in sample else "numberOfDataPoints")
        if eccodes.codes_is_defined(handle, "Ni") and "reduced" not in sample:
            points = eccodes.codes_get(handle, "Ni") * eccodes.codes_get(handle, "Nj")
        eccodes.codes_set_values(handle, np.full(points, 273.5))
        message = bytearray(eccodes.codes_get_message(handle))
    finally:
        eccodes.codes_release(handle)
    if changes:
        at = 16
        while message[at + 4] != 3:
            at += int.from_bytes(message[at : at + 4], "big")
        for place, value in changes:
            message[at + place : at + place + len(value)] = value
        points_of_grid = message[at + 6 : at + 10]
        while message[at + 4] != 5:
            at += int.from_bytes(message[at : at + 4], "big")
        message[at + 5 : at + 9] = points_of_grid
    return bytes(message)


def numbers(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "big") for value in values)


def on_grid(columns: int, rows: int) -> tuple[tuple[int, bytes], ...]:
    """The points, columns and rows of a section 3."""
    return (6, numbers(columns * rows)), (30, numbers(columns, rows))


@pytest.fixture
def scan(tmp_path: Path) -> Callable[[bytes], VirtualGroup]:
    def scan(message: bytes) -> VirtualGroup:
        (tmp_path / "a.grib").write_bytes(message)
        return insitu.scan(tmp_path / "a.grib", decode=False)

    return scan


GRIDS: list[dict[str, Any]] = [
    {},
    {"longitudeOfFirstGridPointInDegrees": -15.0, "longitudeOfLastGridPointInDegrees": 15.0},
    {"longitudeOfFirstGridPointInDegrees": 350.0, "longitudeOfLastGridPointInDegrees": 20.0},
    {"jScansPositively": 1, "latitudeOfFirstGridPointInDegrees": 0, "latitudeOfLastGridPointInDegrees": 60},
    {"iScansNegatively": 1, "longitudeOfFirstGridPointInDegrees": 30, "longitudeOfLastGridPointInDegrees": 0},
    {"jPointsAreConsecutive": 1},
    {"Ni": 7, "Nj": 11, "iDirectionIncrementInDegrees": 1 / 3, "jDirectionIncrementInDegrees": 0.7,
     "longitudeOfLastGridPointInDegrees": 2, "latitudeOfLastGridPointInDegrees": 53},
    {"Nj": 1, "latitudeOfLastGridPointInDegrees": 60},
]  # fmt: skip


@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize(("kind", "keys"), [*(("regular_ll_pl", keys) for keys in GRIDS), ("regular_gg_pl", {})])
def test_two_rows_and_two_columns_tell_the_axes_of_a_large_grid(
    scan: Any, requests: Requests, monkeypatch: pytest.MonkeyPatch, edition: int, kind: str, keys: dict[str, Any]
) -> None:
    message = constant(f"{kind}_grib{edition}", **keys)
    whole = scan(message)
    assert not whole.problems
    points = int(whole.arrays["latitude"].size * whole.arrays["longitude"].size)
    assert {count for _, count in requests} == {points}
    requests.clear()
    grid_coordinates._memory.clear()
    monkeypatch.setattr(grid_coordinates, "KEPT_POINTS", 0)
    found = scan(message)
    for name in ("latitude", "longitude"):
        axis = insitu.read(whole.arrays[name], decode=False)
        np.testing.assert_array_equal(insitu.read(found.arrays[name], decode=False), axis)
        assert found.arrays[name].attributes == whole.arrays[name].attributes
    assert {count for _, count in requests} == {2 * whole.arrays[name].size for name in ("latitude", "longitude")}


def test_a_short_message_may_claim_many_points(scan: Any, requests: Requests) -> None:
    """It is a valid one: 16.6 million points are no reason to list them all."""
    ends = {"latitudeOfFirstGridPointInDegrees": 40.55, "latitudeOfLastGridPointInDegrees": 0,
            "longitudeOfFirstGridPointInDegrees": 0, "longitudeOfLastGridPointInDegrees": 40.95}  # fmt: skip
    message = constant(changes=(*on_grid(4096, 4056), (63, numbers(10000, 10000))), **ends)
    assert len(message) < 200
    tree = scan(message)
    assert not tree.problems
    assert tree.arrays["t"].shape == (4056, 4096)
    assert sorted(count for _, count in requests) == [2 * 4056, 2 * 4096]
    np.testing.assert_allclose(insitu.read(tree.arrays["latitude"]), 40.55 - 0.01 * np.arange(4056), atol=1e-9)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (((38, numbers(1 << 24, 1)),), "degrees of latitude"),  # the unit of angles
        (((46, numbers(0)), (50, numbers(1_200_000_000)), (55, numbers(0))), "degrees of longitude"),
        (((46, numbers(100_000_000)),), "degrees of latitude"),
        (on_grid(1 << 21, 2), "too large to compute"),
        (((6, numbers(15 * 31)),), "declares 465 points"),
    ],
)
def test_an_impossible_grid_is_found_out_by_arithmetic(
    scan: Any, monkeypatch: pytest.MonkeyPatch, changes: tuple[tuple[int, bytes], ...], why: str
) -> None:
    """ecCodes would turn its longitudes by one circle after the other, for hours."""
    message = constant(changes=changes)
    monkeypatch.setattr(header_keys, "decode_in_subprocess", lambda *requests: pytest.fail("ecCodes was asked"))
    tree = scan(message)
    assert why in tree.problems["latitude"]
    assert not {"latitude", "longitude"} & tree.arrays.keys()
    assert (insitu.read(tree.arrays["t"]) == 273.5).all() or tree.arrays["t"].size > 1 << 20


@pytest.mark.parametrize("changes", [((63, numbers(0xFFFFFF00)),), (*on_grid(40_000, 2), (63, numbers(1, 1)))])
def test_what_may_take_long_is_left_to_the_subprocess(
    scan: Any, monkeypatch: pytest.MonkeyPatch, changes: tuple[tuple[int, bytes], ...]
) -> None:
    """Increments of many turns, and many points: there, time and memory are limited."""
    sent: list[str] = []

    def decode(raw: bytes, key: str, count: int) -> Any:
        sent.append(key)
        raise SourceError("no process can be started")

    monkeypatch.setattr(header_keys, "decode_in_subprocess", decode)
    message = constant(changes=changes)
    with pytest.raises(SourceError):  # of the moment, not of the file: nothing of it is remembered
        scan(message)
    assert len(sent) == 1
    monkeypatch.undo()
    scan(message)


@pytest.mark.parametrize(
    ("template", "changes", "why"),
    [
        (101, ((6, numbers(90_000)),), "grids of type unstructured_grid"),
        (12, on_grid(300, 300), "grids of type transverse_mercator"),
        (30, on_grid(300, 300), "cannot compute"),  # Lambert, without its angles
        (90, on_grid(300, 300), "cannot compute"),
        (41, on_grid(300, 300), "Gaussian grid of number 0"),
        (150, ((6, numbers(90_000)), (31, numbers(128))), "declares 90000"),
        (10, on_grid(300, 300), ""),
        (1, on_grid(300, 300), ""),
        (150, ((6, numbers(12 * 128**2)), (31, numbers(128)), (35, numbers(45_000_000))), ""),
    ],
)
def test_large_grids_offer_what_can_be_computed(
    scan: Any, template: int, changes: tuple[tuple[int, bytes], ...], why: str
) -> None:
    message = constant(gridDefinitionTemplateNumber=template, changes=changes)
    tree = scan(message)
    assert tree.arrays["t"].size > grid_coordinates.KEPT_POINTS
    values = {name: insitu.read(array, decode=False) for name, array in tree.arrays.items()}
    assert (values["t"] == 273.5).all()
    assert ("latitude" in values) == ("longitude" in values) == (not why)
    assert why in tree.problems.get("latitude", "")
    if not why:
        handle = eccodes.codes_new_from_message(message)
        for name in ("latitude", "longitude"):
            wanted = eccodes.codes_get_array(handle, f"{name}s").reshape(values[name].shape)
            np.testing.assert_array_equal(values[name], wanted)
        eccodes.codes_release(handle)


def test_a_large_reduced_grid_is_computed_when_it_is_read(scan: Any, requests: Requests) -> None:
    message = constant("reduced_gg_pl_160_grib2")
    tree = scan(message)
    assert not requests
    latitude = insitu.read(tree.arrays["latitude"], decode=False)
    assert latitude.size == 138_346
    assert latitude[0] == latitude.max()
