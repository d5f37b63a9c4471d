"""Every example runs by itself, in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import LONG

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(path.name for path in FOLDER.glob("*.py") if path.name != "archive.py")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    for needed in ("netCDF4", "dask", "zarr", "fsspec", *(["starlette"] if name == "next_to_the_data.py" else [])):
        pytest.importorskip(needed)
    environment = {**os.environ, "no_proxy": "*", "ICECHUNK_LOG": "error"}
    done = subprocess.run(
        [sys.executable, FOLDER / name], cwd=tmp_path, capture_output=True, text=True, timeout=LONG, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip()


def test_all_are_listed() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"({name})" in text for name in EXAMPLES)
