"""Worker that compares one file, opened by insitu and loaded, with what xarray makes of it.

Run as a worker, since the oracles' libraries die of some files: a path and the engines to ask come
one a line, verdicts go one a line.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import xarray as xr

from insitu.errors import InsituError
from insitu.xarray_bridge import open_dataset
from oracles.differences import FILES

__all__ = ["verdict"]

MOST_BYTES = 1 << 26

ENGINES: dict[str, dict[str, Any]] = {"netcdf4": {}, "h5netcdf": {"phony_dims": "access"}, "zarr": {}}


def oracle(path: str, engines: Sequence[str]) -> tuple[xr.Dataset | None, str]:
    """What xarray makes of a file: the first engine that opens it says it."""
    for engine in engines:
        try:
            with xr.open_dataset(path, engine=engine, **ENGINES[engine]) as ds:
                if ds.nbytes > MOST_BYTES:
                    return None, "too large"
                return ds.load(), engine
        except Exception:  # any of many: then this oracle has nothing to say
            continue
    return None, "no engine opens it"


def verdict(path: str, engines: Sequence[str]) -> str:
    """One word, and why."""
    expected, engine = oracle(path, engines)
    if expected is None:
        return f"unchecked: {engine}"
    try:
        actual = open_dataset(path).load()
    except InsituError as refused:
        return f"refused: {type(refused).__name__}: {refused}"
    except Exception as error:
        return f"crashed: {type(error).__name__}: {error}"
    # netCDF-4 has no name for some types of HDF5 (references, arrays, opaque bits, complex numbers
    # …) and leaves such things out.
    more = [name for name in actual.variables if name not in expected.variables]
    actual = actual.drop_vars(more)
    for name in [name for name in actual.attrs if name not in expected.attrs]:
        del actual.attrs[name]
    special = [n for n in actual.variables if actual[n].dtype.kind in "cV" or expected[n].dtype.kind in "cV"]
    actual, expected = actual.drop_vars(special), expected.drop_vars(special)
    try:
        xr.testing.assert_identical(actual, expected)
    except AssertionError as difference:
        if reason := FILES.get(path.rsplit("/", 1)[-1]):
            return f"differs: {reason}"
        return f"wrong ({engine}): {difference}"
    except ValueError as problem:  # xarray cannot compare some attributes
        return f"unchecked: {problem}"
    return f"equal, and more: {more}" if more else "equal"


def main() -> None:
    """Serve as the worker."""
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        path, *engines = line.rstrip("\n").split("\t")
        print(verdict(path, engines).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
