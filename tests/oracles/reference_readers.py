"""Reference readers of TIFF, FITS and NetCDF-3, in a process of their own: damage may kill it.

python reference_readers.py tiff    (the worker; paths come one a line; the answers are pickled
beside the files, one line says so)
"""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import wait  # unlike select, of any number of open files
from pathlib import Path
from typing import Any

from isolation import environment

__all__ = ["read_by_reference"]

MOST_BYTES = 1 << 20
"""Of an array that is read: damage may declare any shape."""
Contents = dict[str, Any]
"""Values by name."""


def read_by_reference(format_name: str, paths: Iterable[Path], seconds: float) -> Iterator[list[Contents]]:
    """Yield for each file what every reference reader finds in it: nothing of those that refuse it,
    or die of it.
    """
    worker: subprocess.Popen[str] | None = None
    try:
        for path in paths:
            if worker is None:
                worker = subprocess.Popen(
                    [sys.executable, __file__, format_name],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    env=environment(),
                )
            assert worker.stdin is not None
            assert worker.stdout is not None
            print(path, file=worker.stdin, flush=True)
            ready = wait([worker.stdout], seconds)
            if ready and worker.stdout.readline():
                yield pickle.loads(path.with_suffix(".answer").read_bytes())
                continue
            _end(worker)
            worker = None
            yield []
    finally:
        if worker is not None:
            _end(worker)


def _end(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.communicate()


def _read_netcdf3(path: str) -> Contents:
    import netCDF4

    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        small = {name: item for name, item in file.variables.items() if item.size * 8 <= MOST_BYTES}
        return {name: item[...] for name, item in small.items()}


def _read_fits(path: str) -> Contents:
    from astropy.io import fits

    found: Contents = {}
    with fits.open(path, memmap=False) as file:
        for number, unit in enumerate(file):
            with suppress(Exception):  # of one unit: the others are there
                if unit.size > MOST_BYTES or unit.data is None:
                    continue
                if unit.is_image:
                    found[str(number)] = unit.data
                else:
                    found |= {f"{number}/{column.name}": unit.data[column.name] for column in unit.columns}
    return {name: values for name, values in found.items() if values.dtype.kind in "biufc"}


def _read_rasterio(path: str) -> Contents:
    import rasterio

    with rasterio.open(path) as file:
        if file.count * file.width * file.height * 8 > MOST_BYTES:
            return {}
        return {"band_data": file.read()}


def _read_tifffile(path: str) -> Contents:
    import tifffile

    with tifffile.TiffFile(path) as file:
        page = file.pages.first
        if page.size * 8 > MOST_BYTES:
            return {}
        values, size = page.asarray(), (page.imagelength, page.imagewidth)
        pixels = values.reshape(*size, -1).transpose(2, 0, 1) if page.planarconfig == 1 else values.reshape(-1, *size)
        return {"band_data": pixels}


READERS = {"netcdf3": (_read_netcdf3,), "fits": (_read_fits,), "tiff": (_read_rasterio, _read_tifffile)}


def main(format_name: str) -> None:
    """Serve as the worker."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not get among the answers
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        path, found = line.rstrip("\n"), []
        for read in READERS[format_name]:
            try:
                found.append(read(path))
            except Exception:
                continue
        Path(path).with_suffix(".answer").write_bytes(pickle.dumps(found))
        print("done", file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
