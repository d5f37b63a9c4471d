"""Does what once hurt the HDF5 parser still do so?"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "oracles")]

from bounds import bounded, measure_seconds  # noqa: E402
from isolation import findings_of, generate_once  # noqa: E402
from mutation import LARGEST_SEED, believed, disagreement, mutated, tried  # noqa: E402

FINDINGS = sorted((HERE / "findings").glob("*.h5"))


@pytest.fixture(scope="session")
def small_files(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, bytes]]:
    """The generated files of the tests that are small enough for a change to matter."""
    made = generate_once(tmp_path_factory)
    return [(name, path.read_bytes()) for name, path in made.items() if path.stat().st_size <= LARGEST_SEED]


@pytest.fixture(scope="session")
def seconds(small_files: list[tuple[str, bytes]]) -> float:
    """What a file may take."""
    return measure_seconds(data for _, data in small_files)


@pytest.mark.parametrize("path", FINDINGS, ids=[path.stem for path in FINDINGS])
def test_what_was_found(path: Path, seconds: float) -> None:
    data = path.read_bytes()
    for believe in (True, False):
        with bounded(seconds, believe=believe) as judged:
            outcome = judged(data)
        assert outcome in ("read", "in part", "refused"), outcome
    [(_, findings)] = findings_of("hdf5", [path], seconds=60)
    assert not disagreement(findings)


@pytest.mark.parametrize("seed", range(8))
def test_changes_to_every_generated_file(seed: int, small_files: list[tuple[str, bytes]], seconds: float) -> None:
    """A part of what `make fuzz` does without end: nothing but our errors, each in little time and
    memory.
    """
    assert len(small_files) > 40
    with bounded(seconds) as judged:
        for number, (name, data) in enumerate(small_files):
            outcome = judged(mutated(data, random.Random(1000 * seed + number)))
            assert outcome in ("read", "in part", "refused"), f"{name}, seed {1000 * seed + number}: {outcome}"


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
