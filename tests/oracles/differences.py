"""Where does a scan say something else than xarray on purpose?

One list: what the difference looks like, and why. Everything that is not in it is an error.
"""

from __future__ import annotations

import re

__all__ = ["FILES", "allowed"]

ALWAYS = (
    (r"dtype object, not (u?int|float)\d+", "each element is an array: xarray shows the dtype of what is in it"),
    (r"dtype \|V\d+, not object", "references are addresses in the file; h5netcdf shows objects of h5py"),
    (r"dtype \[\(.*, not \|V\d+", "a record with numbers of odd bits: h5netcdf shows its bytes"),
    (r"dims \(.*_null',\), not \(\)", "a null dataspace has no element: an axis of length 0; h5netcdf shows a scalar"),
    (r"shape \(0,\), not \(\)", "a null dataspace has no element: an axis of length 0; h5netcdf shows a scalar"),
    (r"dtype [<>]?c(omplex)?\d+, not .*'r', 'i'", "complex numbers, as h5py shows them; netCDF4 leaves them compounds"),
    (r".*fields None, not \('r', 'i'\)", "complex numbers, as h5py shows them; netCDF4 leaves them compounds"),
    (
        r"shape \(1, 2, 3\), not \(2, 2, 3\)",
        "two dimensions of one name, from two groups: netCDF4 takes the nearest for both",
    ),
    (
        r"(attribute .*: )?(\(slice.*\): )?element \d+ is '(.*)', not '\3 +('|$)",
        "a space-padded text ends before its blanks, as h5py has it; netCDF4 keeps them",
    ),
    (
        r"attribute .*: element \d+ is '(.+)', not '\1.+('|$)",
        "a null-terminated text ends at its NUL, as h5py has it; netCDF4 shows what lies behind",
    ),
    (
        r"shape \((\d+(, \d+)*), .*\), not \(\1,?\)",
        "an array type: its axes follow the dataset's; h5netcdf leaves them out",
    ),
)
"""Patterns of differences, and the reasons for them."""

NOT_BY_NETCDF = (
    (r"not shown by xarray", "a type that netCDF has no name for: its library hides the variable"),
    (r"attributes too many", "of a type that netCDF has no name for: its library hides the attributes"),
)
"""The same, for files that netCDF did not write."""


def allowed(problem: str, made_by_netcdf: bool) -> str:
    """The reason why this difference is meant; "" if it is not."""
    known = ALWAYS if made_by_netcdf else ALWAYS + NOT_BY_NETCDF
    return next((reason for pattern, reason in known if re.match(pattern, problem)), "")


FILES = {
    "h5diff_strings1.h5": "texts padded with spaces: netCDF-4 shows the padding, h5py and h5netcdf (and we) do not",
    "h5diff_strings2.h5": "the same",
    "tstring.h5": "the same",
    "tstring-at.h5": "the same, in an attribute",
    "tstr.h5": "texts of fixed length: h5netcdf shows bytes, where netCDF-4, which dies of this file, shows texts",
    "test.h5": "the same",
    "thlink.h5": (
        "hard links in circles: h5netcdf numbers the dimensions without name that it meets twice "
        "once more; netCDF-4 dies of it"
    ),
    "f03tst_open_mem.nc": (
        "space that was never allocated and has no fill value: netCDF-C shows what happened to be in its memory"
    ),
}
"""Files of the corpus that open as another dataset than xarray's on purpose, and why."""
