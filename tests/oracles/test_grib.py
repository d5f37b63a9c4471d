"""Do scans and values of GRIB files made by others agree with ecCodes and cfgrib?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

import insitu
from insitu.model import VirtualGroup
from real_files import parameters

eccodes = pytest.importorskip("eccodes")
cfgrib = pytest.importorskip("cfgrib")

FILES = parameters("grib")

REFUSED = {
    # no whole message
    "blend.t17z.master.f001.co.grib2.head": "the file is truncated",
    "south_polar_stereo_grib1.grb.begin": "the file is truncated",
}
DAMAGED = {"era5-levels-corrupted.grib": "does not end with 7777"}
NO_ORACLE = {
    # cfgrib fails
    "polar_stereographic.grb2", "template_4_65535.grb2", "regular_gg_wrong_increment.grib",
    # one parameter number for all that the tables do not know: cfgrib lays them over each other
    "broken_combined_grib2_grib1.grb2",
}  # fmt: skip
SLOW = {"nam.t00z.awp21100.tm00.grib2", "ncep-seasonal-monthly.grib"}
"""cfgrib takes half a minute and more: with INSITU_ALL=1 only."""
HUGE = {"ncep-seasonal-monthly.grib"}
"""Of 1.4 million places, most of them empty: half a minute to read, with INSITU_ALL=1 only."""
EVERYTHING = bool(os.environ.get("INSITU_ALL"))

pytestmark = pytest.mark.usefixtures("quiet")


def _fields(path: Path) -> dict[tuple[int, int], np.ndarray[Any, Any] | None]:
    """The values of every field, by the offset of its message and its number in it."""
    found: dict[tuple[int, int], np.ndarray[Any, Any] | None] = {}
    eccodes.codes_grib_multi_support_on()
    try:
        with path.open("rb") as file:
            while True:
                try:
                    handle = eccodes.codes_grib_new_from_file(file)
                except eccodes.CodesInternalError:
                    continue
                if handle is None:
                    return found
                eccodes.codes_set(handle, "missingValue", 1e36)
                offset, number = int(eccodes.codes_get(handle, "offset")), 0
                while (offset, number) in found:
                    number += 1
                try:
                    values = eccodes.codes_get_values(handle)
                except (
                    eccodes.KeyValueNotFoundError
                ):  # a template of nobody's: simple packing is read here all the same
                    found[offset, number] = None
                    continue
                found[offset, number] = np.where(values == 1e36, np.nan, values).astype(np.float32)
                eccodes.codes_release(handle)
    finally:
        eccodes.codes_grib_multi_support_off()


@pytest.mark.parametrize("path", FILES)
def test_every_value_is_that_of_eccodes(path: Path) -> None:
    if path.name in HUGE and not EVERYTHING:
        pytest.skip("set INSITU_ALL=1")
    if path.name in REFUSED:
        with pytest.raises(insitu.errors.FormatError, match=REFUSED[path.name]):
            insitu.scan(path, decode=False)
        return
    if path.name in DAMAGED:
        with pytest.raises(insitu.errors.FormatError, match=DAMAGED[path.name]):
            insitu.scan(path, decode=False)
    group = insitu.scan(path, errors="warn", decode=False)
    expected = _fields(path)
    seen = set()
    for name, array in group.all_arrays():
        (tile,) = array.tiles
        if not tile.encodings[0].codecs or tile.encodings[0].codecs[0].configuration["var"] != "values":
            continue
        values = insitu.read(array, decode=False)
        located = tile.chunks.locate([*np.indices(tile.chunks.shape).reshape(len(tile.axes), -1)])
        header = [number for number, axis in enumerate(tile.axes) if axis.size == 1 and axis.length > 1]
        flat = values.reshape(-1, int(np.prod(values.shape[len(header) :])))
        assert np.isnan(flat[located.source < 0]).all()
        for row in np.flatnonzero(located.source >= 0):
            found = flat[row]
            configuration = tile.encodings[located.encoding[row]].codecs[0].configuration
            own = (int(located.offset[row]), configuration.get("field", 0))
            seen.add(own)
            wanted = expected[own]
            if wanted is None:
                continue
            if configuration.get("alternate"):
                wanted = wanted.reshape(array.shape[-2:]).copy()
                wanted[1::2] = wanted[1::2, ::-1]
            np.testing.assert_array_equal(found, wanted.reshape(-1), err_msg=name)
    # Each field is somewhere.
    assert seen == expected.keys()


def _open_with_cfgrib(path: Path) -> list[xarray.Dataset]:
    how: dict[str, Any] = {"indexpath": ""}
    try:
        found = [xarray.open_dataset(path, engine="cfgrib", backend_kwargs={**how, "errors": "raise"})]
    except Exception:  # no single cube, or a damaged message
        found = cfgrib.open_datasets(str(path), backend_kwargs=how)
    for dataset in found:
        dataset.attrs.pop("history", None)
    return found


def _groups(tree: VirtualGroup) -> list[str | None]:
    if tree.arrays:
        return [None]
    return [name for name in tree.groups if not name.startswith("repeated")]


@pytest.mark.parametrize("path", parameters("grib", without={*REFUSED, *DAMAGED, *NO_ORACLE}))
def test_datasets_are_those_of_cfgrib(path: Path) -> None:
    if path.name in SLOW and not EVERYTHING:
        pytest.skip("set INSITU_ALL=1")
    actual = [insitu.open_dataset(path, group=name) for name in _groups(insitu.scan(path, decode=False))]
    expected = _open_with_cfgrib(path)
    assert len(actual) == len(expected)
    for dataset in expected:
        same = [own for own in actual if _identical(own, dataset)]
        assert same, f"{list(dataset.data_vars)} of {dict(dataset.sizes)}"
        actual = [own for own in actual if own is not same[0]]


def _identical(one: xarray.Dataset, other: xarray.Dataset) -> bool:
    return set(one.variables) == set(other.variables) and one.load().identical(other.load())
