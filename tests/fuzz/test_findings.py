"""Does what once hurt the HDF5 parser still do so?"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from mutation import believed, mutated, tried  # noqa: E402

FINDINGS = sorted((HERE / "findings").glob("*.h5"))


@pytest.mark.parametrize("path", FINDINGS, ids=[path.stem for path in FINDINGS])
def test_what_was_found(path: Path) -> None:
    with believed():
        assert tried(path.read_bytes()) in ("read", "in part", "refused")


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_few_changes(tmp_path: Path, libver: str) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file.create_dataset(
            "x", data=np.arange(24).reshape(4, 6), chunks=(2, 3), compression="gzip", maxshape=(None, 6)
        )
        file["g/texts"] = np.array([("a", 1), ("bc", 2)], [("s", h5py.string_dtype()), ("n", "<i2")])
        file["x"].attrs["units"] = "m"
        layout = h5py.VirtualLayout((2, 4, 6), "i8")
        layout[0] = h5py.VirtualSource(".", "x", (4, 6))
        file.create_virtual_dataset("virtual", layout)
    chance = random.Random(3)
    data = path.read_bytes()
    with believed():
        assert tried(data) == "read"
        for _ in range(150):
            tried(mutated(data, chance))
