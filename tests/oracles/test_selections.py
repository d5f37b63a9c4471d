"""Is any selection of any dataset what h5py and NumPy make of it?

Datasets are drawn: dtype, shape, chunks, filters, format version, which part was ever written. The
oracle is the whole dataset as h5py reads it, indexed by NumPy, one axis at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
from equality import different_values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import insitu

DTYPES = ("i1", "<i2", ">i4", "<u8", "<f2", "<f4", ">f8", "?", "<c8", "S5", "V3", "i4,f4")
FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "deflate": {"compression": "gzip"},
    "shuffle, deflate": {"compression": "gzip", "shuffle": True},
    "shuffle, deflate, fletcher32": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "fletcher32": {"fletcher32": True},
    "lzf": {"compression": "lzf"},
    "zstd": dict(hdf5plugin.Zstd()),
    "lz4": dict(hdf5plugin.LZ4()),
    "bzip2": dict(hdf5plugin.BZip2()),
    "bitshuffle": dict(hdf5plugin.Bitshuffle()),
}


@st.composite
def datasets(draw: st.DrawFn) -> dict[str, Any]:
    """How a dataset is made."""
    shape = tuple(draw(st.lists(st.integers(1, 17), max_size=3)))
    chunked = bool(shape) and draw(st.booleans())
    filters = draw(st.sampled_from(sorted(FILTERS))) if chunked else "none"
    return {
        "shape": shape,
        "chunks": tuple(draw(st.integers(1, length)) for length in shape) if chunked else None,
        "maxshape": tuple(draw(st.sampled_from([length, length + 5, None])) for length in shape) if chunked else None,
        "dtype": draw(st.sampled_from(DTYPES)),
        "filters": filters,
        "libver": draw(st.sampled_from(["earliest", "v108", "latest"])),
        "written": tuple(draw(st.integers(0, length)) for length in shape) if draw(st.booleans()) else shape,
    }


def axis_indices(length: int) -> st.SearchStrategy[Any]:
    """What may stand for one axis of a selection."""
    bound = st.none() | st.integers(-length - 2, length + 2)
    return st.one_of(
        st.integers(-length, length - 1),
        st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, 3, 7, -1, -2])),
        st.lists(st.integers(-length, length - 1), max_size=6).map(lambda items: np.array(items, "i8")),
        st.lists(st.booleans(), min_size=length, max_size=length).map(lambda items: np.array(items, "?")),
    )


def _make(path: Path, how: dict[str, Any]) -> None:
    random = np.random.default_rng(1)
    with h5py.File(path, "w", libver=how["libver"]) as file:
        options = FILTERS[how["filters"]] if how["chunks"] else {}
        dataset = file.create_dataset(
            "data", how["shape"], np.dtype(how["dtype"]), chunks=how["chunks"], maxshape=how["maxshape"], **options
        )
        dtype = dataset.dtype
        where = tuple(slice(stop) for stop in how["written"])
        count = int(np.prod(how["written"]))
        if count:
            values = np.frombuffer(random.bytes(count * dtype.itemsize), dtype)
            if dtype.kind in "b":
                values = random.integers(0, 2, count).astype("?")
            dataset[where] = values.reshape(how["written"])


def _expected(whole: np.ndarray[Any, Any], selection: tuple[Any, ...]) -> Any:
    out = whole
    for axis in range(len(selection) - 1, -1, -1):
        out = out[(slice(None),) * axis + (selection[axis],)]
    return out


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(how=datasets(), data=st.data())
def test_a_selection_is_what_numpy_takes(how: dict[str, Any], data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "one.h5"
    _make(path, how)
    with h5py.File(path) as file:
        whole = np.asarray(file["data"][()])
    group = insitu.scan(path, decode=False)
    assert not different_values(insitu.read(group, "data", decode=False), whole)
    for _ in range(3):
        selection = tuple(data.draw(axis_indices(length)) for length in how["shape"])
        read = insitu.read(group, "data", selection, decode=False)
        assert not different_values(read, _expected(whole, selection)), selection


@pytest.mark.parametrize("selection", [(...,), (slice(1, 3), ...), (..., 2), (2,), (slice(None), None)])
def test_ellipsis_and_missing_axes_are_filled_in(selection: tuple[Any, ...], tmp_path: Path) -> None:
    path = tmp_path / "one.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("data", data=np.arange(60).reshape(5, 4, 3), chunks=(2, 3, 2), compression="gzip")
    whole = np.arange(60).reshape(5, 4, 3)
    if None in selection:
        with pytest.raises(insitu.errors.SelectionError):
            insitu.read(path, "data", selection, decode=False)
        return
    assert not different_values(insitu.read(path, "data", selection, decode=False), whole[selection])
