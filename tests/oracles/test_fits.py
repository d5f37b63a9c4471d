"""Do scans and values of FITS files made by others agree with astropy?

Modules: formats/fits/codecs/hcompress.py, formats/fits/codecs/plio.py, formats/fits/codecs/table_heap.py
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from astropy.io import fits

import insitu
from real_files import parameters

FILES = parameters("fits")

REFUSED = {
    "map_000_038_truncated.fit": {"PRIMARY": "the file is truncated"},
    "astropy_group.fits": {"PRIMARY": "random groups"},
    "astropy_random_groups.fits": {"PRIMARY": "random groups"},
    "astropy_zerowidth.fits": {"AIPS AN/ORBPARM": "without elements"},
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _meant(group: Any, path: str) -> np.ndarray[Any, Any]:
    """The values with scale, zero and blank applied."""
    values = insitu.read(group, path, decode=False)
    attributes = group.array(path).attributes
    meant = values
    if "scale_factor" in attributes:  # in double precision, as astropy does it
        meant = values * np.float64(attributes["scale_factor"]) + np.float64(attributes["add_offset"])
    return np.where(values == attributes["_FillValue"], np.nan, meant) if "_FillValue" in attributes else meant


@pytest.mark.parametrize("path", FILES)
def test_astropy_agrees(path: Path) -> None:
    group = insitu.scan(path, errors="warn", decode=False)
    expected = REFUSED.get(path.name, {})
    assert group.problems.keys() == expected.keys()
    assert all(reason in group.problems[name] for name, reason in expected.items())
    seen: Counter[str] = Counter()
    with fits.open(path) as file:
        assert len(file) == len(group.details.notes["units"])
        for name, unit in zip(group.details.notes["units"], file, strict=True):
            seen[name] += 1
            own = name if seen[name] == 1 else f"{name}_{seen[name]}"
            if own in group.problems or unit.data is None:
                continue
            if unit.header.get("SIMPLE") is False:  # of no standard form: neither shows what it holds
                assert own not in group.arrays
                continue
            if unit.is_image:
                actual = _meant(group, own)
                np.testing.assert_allclose(actual, unit.data.astype(actual.dtype), rtol=1e-6)
                assert actual.dtype.kind == unit.data.dtype.kind
            else:
                _table(group, own, unit)


def _table(group: Any, name: str, unit: Any) -> None:
    for column in unit.columns:
        path = f"{name}/{column.name}"
        if path in group.problems:
            continue
        actual, expected = _meant(group, path), np.asarray(unit.data[column.name])
        if expected.dtype.kind == "O":
            for own, other in zip(actual.reshape(-1), expected.reshape(-1), strict=True):
                np.testing.assert_array_equal(own, np.asarray(other))
        elif expected.dtype.kind == "U":
            # Blanks at the end mean nothing; astropy keeps them in tables of text.
            assert [text.decode("latin-1").rstrip() for text in actual.reshape(-1)] == [
                text.rstrip() for text in expected.reshape(-1).tolist()
            ]
        else:
            assert actual.dtype.kind == expected.dtype.kind or "scale_factor" in group.array(path).attributes
            np.testing.assert_allclose(actual.reshape(expected.shape), expected.astype(actual.dtype))
