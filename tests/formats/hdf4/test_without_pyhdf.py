"""HDF4 files that pyhdf and GDAL wrote, on machines that have no pyhdf: most of them, as it has wheels for few."""

from __future__ import annotations

import numpy as np
import pytest

import insitu
from real_files import FILES


@pytest.mark.parametrize(
    ("file", "name", "dtype", "total"),
    [
        ("pyhdf.hdf", "d", "f8", 1363.0992126464844),
        ("pyhdf.hdf", "n", "i2", 1347),
        ("pyhdf.hdf", "b", "u1", 1347),
        ("gdal.hdf", "3-dimensional Scientific Dataset", "i2", 28757),
    ],
)
def test_sums_that_pyhdf_gave(file: str, name: str, dtype: str, total: float) -> None:
    values = insitu.read(str(FILES / "hdf4" / file), name, decode=False)
    assert values.dtype.newbyteorder("=") == np.dtype(dtype)
    assert values.astype("f8").sum() == pytest.approx(total, rel=1e-12)
