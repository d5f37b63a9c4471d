"""Every object is found once, by every kind of link, and cycles of links end.

Modules: formats/hdf5/structures/local_heap.py, formats/hdf5/structures/message_cache.py
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from insitu.errors import FormatError, VariableError


@pytest.mark.parametrize("count", [0, 1, 7, 300])
@pytest.mark.parametrize("libver", ["earliest", "v108", "latest"])
def test_groups_of_any_size(tmp_path: Path, scan, libver, count) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver=libver) as file:
        for number in range(count):
            file[f"dataset with a rather long name {number:04d}"] = number
            file.create_group(f"group {number}/inner")
    group = scan(path)
    with h5py.File(path) as file:
        assert list(group.arrays) == [name for name in file if isinstance(file[name], h5py.Dataset)]
        assert set(group.groups) == {name for name in file if isinstance(file[name], h5py.Group)}
    assert all("inner" in inner.groups for inner in group.groups.values())


def test_creation_order_where_it_is_kept(tmp_path: Path, scan) -> None:
    for count in (3, 30):
        path = tmp_path / f"{count}.h5"
        with h5py.File(path, "w", track_order=True) as file:
            for number in reversed(range(count)):
                file[f"x{number:03d}"] = number
        assert list(scan(path).arrays) == [f"x{number:03d}" for number in reversed(range(count))]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_links(tmp_path: Path, scan, libver) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file["a/x"] = np.arange(3)
        file["hard"] = file["a/x"]
        file["soft"] = h5py.SoftLink("/a/x")
        file["a/relative"] = h5py.SoftLink("x")
        file["chain"] = h5py.SoftLink("a/relative")
        file["group"] = h5py.SoftLink("/a")
        file["through"] = h5py.SoftLink("/group/x")
        file["dangling"] = h5py.SoftLink("/nowhere")
        file["circle"] = h5py.SoftLink("/circle")
        file["a/up"] = file["/"]
    group = scan(path)
    assert set(group.arrays) == {"hard", "soft", "chain", "through"}
    assert set(group.groups) == {"a", "group"}
    assert set(group.groups["group"].arrays) == {"x", "relative"}
    places = {array.tiles[0].chunks[0].offset for _, array in group.all_arrays()}
    assert len(places) == 1
    assert set(group.problems) == {"dangling", "circle", "a/up", "group/up"}


def test_groups_that_link_crosswise_do_not_explode(tmp_path: Path, scan) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        here = file.create_group("g0")
        for number in range(1, 60):
            there = file.create_group(f"g{number}")
            here["left"] = there
            here["right"] = there
            here = there
    with pytest.raises(FormatError, match="paths"):
        scan(path)


def test_subtree_and_variables(tmp_path: Path, scan) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["t"] = np.arange(3.0)
        file["t"].make_scale("t")
        for name in ("a/b/x", "a/b/y", "a/z"):
            file.create_dataset(name, (3, 4), "f4", chunks=(2, 2))
            file[name].dims[0].attach_scale(file["t"])
    whole = scan(path)
    part = scan(path, group="a/b")
    assert set(part.arrays) == {"x", "y"}
    assert part.arrays["x"].dims == whole.groups["a"].groups["b"].arrays["x"].dims
    assert part.arrays["x"].dims[0] == "t"
    one = scan(path, variables=["a/b/x"])
    assert {name for name, _ in one.all_arrays()} == {"a/b/x", "t"}
    assert {name for name, _ in scan(path, group="/a", variables=["b/x"]).all_arrays()} == {"b/x"}
    with pytest.raises(VariableError, match="nothing"):
        scan(path, variables=["a/nothing"])
    with pytest.raises(VariableError, match="a/nothing"):
        scan(path, group="a/nothing")
    with pytest.raises(VariableError, match="a/z"):
        scan(path, group="a/z")
