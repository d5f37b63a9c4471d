"""A selection that no memory can hold is an error of ours that says what to select.

Modules: reading/estimate.py
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

import insitu
from insitu.cli import app
from insitu.errors import SelectionSizeError
from insitu.model import Selection
from insitu.reading import ReadContext, read_array
from insitu.reading.estimate import estimate_read


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", shape=(1 << 30, 1 << 10, 1 << 20), chunks=(1, 64, 64), dtype="f4", fillvalue=3)
    return tmp_path / "a.h5"


def test_a_read_says_what_to_select(file: Path) -> None:
    array = insitu.scan(file, decode=False).array("x")
    with pytest.raises(SelectionSizeError, match=r"GiB.*\[0, 0:64, :\]") as caught:
        read_array(array, context=ReadContext("x"))
    assert isinstance(caught.value, MemoryError)
    assert caught.value.place["variable"] == "x"
    assert (read_array(array, np.s_[0, 0:2, :]) == 3).all()


def test_so_does_the_command_line(file: Path) -> None:
    result = CliRunner().invoke(app, ["read", str(file), "x"])
    assert result.exit_code not in (0, None)
    assert not isinstance(result.exception, MemoryError) or isinstance(result.exception, SelectionSizeError)
    assert "0:64" in result.output or "0:64" in str(result.exception)


def test_the_weight_of_a_plan_counts_what_it_holds(file: Path) -> None:
    array = insitu.scan(file, decode=False).array("x")

    def weight(*selection: object) -> int:
        return estimate_read(array, Selection.of(tuple(selection), array.shape)).plan

    assert weight(0, slice(0, 64), slice(0, 64)) < 10_000
    assert weight(slice(0, 1000), 0, 0) > 1000 * 500
    assert weight(np.zeros(10**6, np.int64), 0, 0) > 10**6 * 50
    assert (
        estimate_read(array, Selection.of((0, np.zeros(1000, int), np.zeros(1000, int)), array.shape)).chunk
        == 4 * 10**6
    )
