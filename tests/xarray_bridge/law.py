"""Does one file, opened by us and loaded, equal what xarray makes of it?

Run as a worker, since the oracles' libraries die of some files: paths come one a line, verdicts go one a line.
"""

from __future__ import annotations

import sys
import warnings

import xarray as xr

from insitu.errors import InsituError
from insitu.xarray_bridge import open_dataset

__all__ = ["verdict"]

MOST_BYTES = 1 << 26

DIFFERENCES = {
    "h5diff_strings1.h5": "texts padded with spaces: netCDF-4 shows the padding, h5py and h5netcdf (and we) do not",
    "h5diff_strings2.h5": "the same",
    "tstring.h5": "the same",
    "tstring-at.h5": "the same, in an attribute",
    "f03tst_open_mem.nc": "space that was never allocated and has no fill value: netCDF-C shows what happened to be in its memory",
}
"""Files that differ on purpose, and why."""


def oracle(path: str) -> tuple[xr.Dataset | None, str]:
    """What xarray makes of a file: engine netcdf4, else h5netcdf."""
    for engine, options in (("netcdf4", {}), ("h5netcdf", {"phony_dims": "access"})):
        try:
            with xr.open_dataset(path, engine=engine, **options) as ds:
                if ds.nbytes > MOST_BYTES:
                    return None, "too large"
                return ds.load(), engine
        except Exception:  # any of many: then this oracle has nothing to say
            continue
    return None, "no engine opens it"


def verdict(path: str) -> str:
    """One word, and why."""
    theirs, engine = oracle(path)
    if theirs is None:
        return f"unchecked: {engine}"
    try:
        ours = open_dataset(path).load()
    except InsituError as refused:
        return f"refused: {type(refused).__name__}: {refused}"
    except Exception as error:
        return f"crashed: {type(error).__name__}: {error}"
    # netCDF-4 has no name for some types of HDF5 (references, arrays, opaque bits, complex numbers …) and leaves such things out.
    more = [name for name in ours.variables if name not in theirs.variables]
    ours = ours.drop_vars(more)
    for name in [name for name in ours.attrs if name not in theirs.attrs]:
        del ours.attrs[name]
    special = [n for n in ours.variables if ours[n].dtype.kind in "cV" or theirs[n].dtype.kind in "cV"]
    ours, theirs = ours.drop_vars(special), theirs.drop_vars(special)
    try:
        xr.testing.assert_identical(ours, theirs)
    except AssertionError as difference:
        if reason := DIFFERENCES.get(path.rsplit("/", 1)[-1]):
            return f"differs: {reason}"
        return f"wrong ({engine}): {difference}"
    except ValueError as problem:  # xarray cannot compare some attributes
        return f"unchecked: {problem}"
    return f"equal, and more: {more}" if more else "equal"


def main() -> None:
    """Serve as the worker."""
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        print(verdict(line.rstrip("\n")).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
