"""The command line as a stranger would use it.

Modules: cli/read.py, cli/verb_group.py
"""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from forked_commands import run_insitu
from insitu.cli.read import parse_slices
from insitu.errors import SelectionError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.h5"
    with h5py.File(path, "w") as made:
        made.create_dataset("g/values", data=np.arange(60).reshape(6, 10), chunks=(4, 5), compression="gzip")
        made.create_dataset("one", data=1.5)
        made["one"].attrs["units"] = "m"
    return path


def test_info(file: Path) -> None:
    text = run_insitu("info", file, "--map", "--attributes").stdout
    assert "values" in text
    assert "zlib" in text
    assert "one:units = 'm'" in text
    assert "2 variables" in text


def test_info_says_what_cannot_be_had(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    wide = h5py.h5t.STD_I64LE.copy()
    wide.set_size(16)
    with h5py.File(path, "w") as made:
        made["good"] = np.arange(3)
        h5py.h5a.create(made["good"].id, b"odd", wide, h5py.h5s.create(h5py.h5s.SCALAR))
        h5py.h5d.create(made.id, b"wide", wide, h5py.h5s.create_simple((3,)))
        layout = h5py.VirtualLayout((3,), "i4")
        layout[:] = h5py.VirtualSource("gone.h5", "x", (3,))
        made.create_virtual_dataset("virtual", layout)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((3,))
        plist.set_filter(32017, h5py.h5z.FLAG_OPTIONAL, ())
        h5py.h5d.create(made.id, b"filtered", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((3,)), dcpl=plist)
    report = json.loads(run_insitu("info", path, "--json").stdout)
    assert "integers of" in report["problems"]["wide"]
    notes = dict(report["notes"])
    assert "'odd' is not read" in notes["good"]
    assert "gone.h5" in notes["virtual"]
    assert "SZ" in notes["filtered"]
    assert "is not read" in run_insitu("info", path).stdout.replace("\n", " ")


def test_info_for_programs(file: Path) -> None:
    tree = json.loads(run_insitu("info", file, "--json").stdout)
    values = tree["groups"]["g"]["variables"]["values"]
    assert values["shape"] == [6, 10]
    assert values["chunks"]["stored"] == 4
    assert tree["variables"]["one"]["attributes"] == {"units": "m"}


def test_scan(file: Path) -> None:
    text = run_insitu("scan", file).stdout
    assert "5" in text.splitlines()[-1]  # four chunks and a scalar


def test_read(file: Path, tmp_path: Path) -> None:
    done = run_insitu("read", file, "g/values[1, ::3]", "-v")
    assert done.stdout.strip() == "[10 13 16 19]"
    assert "2 chunks" in done.stderr
    target = tmp_path / "slab.npy"
    run_insitu("read", file, "g/values", "..., [9, 0]", "-o", target)
    np.testing.assert_array_equal(np.load(target), np.arange(60).reshape(6, 10)[:, [9, 0]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "nothing.nc"], "nothing.nc"),
        (["read", "FILE", "missing"], "There are: "),
        (["read", "FILE", "g/values", "7, 0"], "out of bounds for axis 0"),
        (["read", "FILE", "g/values", "a:b"], "'a:b' is not a slice"),
        (["info", __file__], "hdf5"),
    ],
)
def test_errors_are_one_line(file: Path, arguments: list[str], message: str) -> None:
    done = run_insitu(*[file if argument == "FILE" else argument for argument in arguments], code=1)
    assert message in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_wrong_usage() -> None:
    run_insitu("reed", code=2)
    run_insitu("read", code=2)


def test_slices_as_numpy_writes_them() -> None:
    assert parse_slices(None) is ...
    assert parse_slices("0, -3:, ::2, [1, 2], ...") == (0, slice(-3, None), slice(None, None, 2), [1, 2], ...)
    for wrong in ("x", "1:2:3:4", "[a]"):
        with pytest.raises(SelectionError, match="is not a slice"):
            parse_slices(wrong)
