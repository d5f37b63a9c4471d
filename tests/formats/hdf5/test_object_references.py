"""Attributes that hold references show the paths and regions they refer to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import insitu

SELECTIONS = {
    "box": np.s_[0:2, 3:5],
    "row": np.s_[4],
    "all": np.s_[...],
    "steps": np.s_[::2, 1:9:3],
    "list": np.s_[[0, 1, 4], :],
}


@pytest.fixture(params=["earliest", "latest"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver=request.param) as file:
        data = file.create_dataset("group/data", data=np.arange(60.0).reshape(6, 10))
        file["other"] = np.arange(3)
        file["type"] = np.dtype("f4")
        here = file.create_group("here")
        attrs = here.create_dataset("x", data=1.0).attrs
        references = [data.ref, file["other"].ref, here.ref, file.ref, file["type"].ref]
        for number, reference in enumerate(references):
            attrs.create(f"object_{number}", reference, dtype=h5py.ref_dtype)
        attrs.create("objects", np.array(references, object), dtype=h5py.ref_dtype)
        attrs.create("square", np.array(references[:4], object).reshape(2, 2), dtype=h5py.ref_dtype)
        attrs.create("none", h5py.Reference(), dtype=h5py.ref_dtype)
        for name, selection in SELECTIONS.items():
            attrs.create(f"region_{name}", data.regionref[selection], dtype=h5py.regionref_dtype)
        mask = np.zeros((6, 10), bool)
        mask[1, 2] = mask[5, 9] = True
        attrs.create("region_points", data.regionref[mask], dtype=h5py.regionref_dtype)
        record = np.zeros(2, [("r", h5py.ref_dtype), ("n", ">i4"), ("g", h5py.regionref_dtype)])
        record["r"], record["n"] = references[:2], [1, 2]
        record["g"] = [data.regionref[0:2], data.regionref[1, 1]]
        attrs.create("records", record)
        attrs.create("record", record[0])
        several = np.empty(2, object)
        several[0], several[1] = np.array(references[:1], object), np.array(references[:2], object)
        attrs.create("sequences", several, dtype=h5py.vlen_dtype(h5py.ref_dtype))
        attrs["after"] = 5
    return path


@pytest.mark.parametrize("group", [None, "here"])
def test_objects(path: Path, group: str | None) -> None:
    attributes = insitu.scan(path, group=group, decode=False).array("x" if group else "here/x").attributes
    with h5py.File(path) as file:
        reference = file["here/x"].attrs
        for number in range(5):
            assert attributes[f"object_{number}"] == file[reference[f"object_{number}"]].name
        assert attributes["objects"] == [file[one].name for one in reference["objects"]]
        assert attributes["square"] == [file[one].name for one in reference["square"].ravel()]
        assert attributes["sequences"] == [", ".join(file[r].name for r in one) for one in reference["sequences"]]
        assert attributes["records"]["r"].tolist() == [file[one].name for one in reference["records"]["r"]]
    assert attributes["none"] == ""
    assert attributes["records"]["n"].tolist() == [1, 2]
    assert attributes["record"]["r"] == "/group/data"
    assert attributes["after"] == 5


def _parse_mask(text: str, shape: tuple[int, ...]) -> np.ndarray:
    """Which elements a text names."""
    mask = np.zeros(shape, bool)
    inside = text.removeprefix("/group/data")
    for part in inside[1:-1].split("] ["):
        found: Any = eval(f"np.s_[{part}]", {"np": np})
        for key in [found] if not isinstance(found[0] if isinstance(found, tuple) else 0, tuple) else found:
            mask[key] = True
    return mask


@pytest.mark.parametrize("name", [*SELECTIONS, "points"])
def test_regions(path: Path, name: str) -> None:
    text = insitu.scan(path, decode=False).array("here/x").attributes[f"region_{name}"]
    assert text.startswith("/group/data[")
    with h5py.File(path) as file:
        data = file["group/data"]
        selection = h5py.h5r.get_region(file["here/x"].attrs[f"region_{name}"], file.id)
        mask = np.zeros(data.shape, bool)
        if name == "points":
            mask[tuple(selection.get_select_elem_pointlist().T)] = True
        elif name == "all":
            mask[...] = True
        else:
            for first, last in selection.get_select_hyper_blocklist():
                mask[tuple(slice(a, b + 1) for a, b in zip(first, last, strict=True))] = True
    np.testing.assert_array_equal(_parse_mask(text, mask.shape), mask)


def test_regions_of_many_pieces_are_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("d", data=np.arange(100))
        file.attrs.create("r", data.regionref[np.arange(100) % 3 == 0], dtype=h5py.regionref_dtype)
    text = insitu.scan(path, decode=False).attributes["r"]
    assert text.startswith("/d[(0), (3), (6)")
    assert text.endswith("(45), … 18 more]")


def test_an_object_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["gone"] = 1
        file.attrs["r"] = file["gone"].ref
        del file["gone"]
    assert "no path leads to" in insitu.scan(path, decode=False).attributes["r"]


def test_the_bookkeeping_of_scales_stays_hidden(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
        file["x"].make_scale()
        file["d"] = np.arange(3)
        file["d"].dims[0].attach_scale(file["x"])
        file["d"].attrs["seen"] = file["x"].ref
    group = insitu.scan(path, decode=False)
    assert group.arrays["d"].attributes == {"seen": "/x"}
    assert group.arrays["x"].attributes == {}
    assert insitu.open_dataset(path)["d"].attrs == {"seen": "/x"}
