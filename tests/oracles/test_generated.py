"""Do scans and values of every generated HDF5 and NetCDF-4 file agree with h5py and xarray?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import make_hdf5
import make_netcdf4
import pytest
from finding import BAD, Finding, lines_of

HDF5 = [f"{name}-{libver}" for name, (_, libvers) in make_hdf5.FILES.items() for libver in libvers]
NETCDF4 = [f"{name}-{format_}" for name, (_, formats) in make_netcdf4.FILES.items() for format_ in formats]

UNSEEN = ("external_links", "odd_deep_values", "odd_names", "odd_references", "odd_scales", "odd_texts")
"""Files that neither engine of xarray opens."""

SEEN_BY_XARRAY = [
    *NETCDF4,
    *(name for name in HDF5 if name.startswith(("attributes", "groups", "scales", "types")) and name.endswith("t")),
    *(name for name in HDF5 if name.startswith("odd_") and name.endswith("latest") and not name.startswith(UNSEEN)),
]
"""The files of netCDF, and those of h5py whose names, dimensions, types and attributes are of
interest.
"""

REFUSED: dict[str, str] = {}
"""Datasets that may be refused, by `file dataset` (without the library version), with the reason.
"""

Found = Callable[[str, Sequence[str]], Mapping[str, list[Finding]]]


def _problems(findings: list[Finding], name: str) -> str:
    kind = name.rpartition("-")[0]
    unexpected = [finding for finding in findings if f"{kind} {finding.name}" not in REFUSED]
    return lines_of(findings, BAD) or lines_of(unexpected, ["refused"])


@pytest.mark.parametrize("name", [*HDF5, *NETCDF4])
def test_h5py_agrees(name: str, found: Found) -> None:
    findings = found("hdf5", [*HDF5, *NETCDF4])[name]
    assert not _problems(findings, name)
    assert "equal" in {finding.verdict for finding in findings}


@pytest.mark.parametrize("name", SEEN_BY_XARRAY)
def test_xarray_agrees(name: str, found: Found) -> None:
    findings = found("xarray", SEEN_BY_XARRAY)[name]
    assert not _problems(findings, name)
    assert "equal" in {finding.verdict for finding in findings}
