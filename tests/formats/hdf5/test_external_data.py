"""External storage and external links are followed into other files."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import insitu
from insitu.errors import NotFoundError, VariableError


def test_external_storage(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # h5py looks there
    values = np.arange(60, dtype="<i4")
    (tmp_path / "a.bin").write_bytes(b"head" + values[:40].tobytes())
    (tmp_path / "b.bin").write_bytes(values[40:].tobytes())
    path = tmp_path / "x.h5"
    cases = {
        "one": ((10, 4), [("a.bin", 4, 160)]),
        "endless": ((10, 4), [("a.bin", 4, h5py.h5f.UNLIMITED)]),
        "rows": ((15, 4), [("a.bin", 4, 160), ("b.bin", 0, 80)]),
        "elements": ((12, 5), [("a.bin", 4, 148), ("b.bin", 0, 40), ("b.bin", 8, 60)]),
        "short": ((7, 4), [("b.bin", 0, 112)]),
        "scalar": ((), [("b.bin", 4, 4)]),
        "split": ((4,), [("a.bin", 4, 6), ("b.bin", 0, 10)]),
        "shreds": ((2, 2), [("a.bin", 4, 1), ("b.bin", 1, 2), ("b.bin", 9, 3), ("a.bin", 11, 8), ("b.bin", 70, 40)]),
    }
    with h5py.File(path, "w") as file:
        for name, (shape, segments) in cases.items():
            file.create_dataset(name, shape, "<i4", external=segments)
        file.create_dataset("gone", (4,), "<i4", external=[("gone.bin", 0, 16)])
    for name in cases:
        with h5py.File(path) as file:
            np.testing.assert_array_equal(insitu.read(path, name, decode=False), file[name][...], err_msg=name)
    with pytest.raises(NotFoundError, match="gone"):
        insitu.scan(path, variables=["gone"], decode=False)


@pytest.fixture
def linking_file(tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["g/x"] = np.arange(4.0)
        file["g/deep/y"] = np.arange(3)
        file["soft"] = h5py.SoftLink("/g/x")
        file["back"] = h5py.ExternalLink("main.h5", "/")
        file["further"] = h5py.ExternalLink("third.h5", "/z")
    with h5py.File(tmp_path / "third.h5", "w") as file:
        file["z"] = np.arange(5)
    path = tmp_path / "main.h5"
    with h5py.File(path, "w") as file:
        file["own"] = np.arange(7)
        file["dataset"] = h5py.ExternalLink("other.h5", "/g/x")
        file["soft"] = h5py.ExternalLink("other.h5", "soft")
        file["group"] = h5py.ExternalLink("other.h5", "/g")
        file["all"] = h5py.ExternalLink("other.h5", "/")
        file["twice"] = h5py.ExternalLink("other.h5", "/further")
        file["through"] = h5py.SoftLink("/group/deep/y")
        file["no_file"] = h5py.ExternalLink("gone.h5", "/x")
        file["no_object"] = h5py.ExternalLink("other.h5", "/gone")
    return path


def test_external_links(linking_file: Path) -> None:
    group = insitu.scan(linking_file, decode=False)
    assert set(group.problems) == {"no_file", "no_object", "all/back"}
    names = {name for name, _ in group.all_arrays()}
    assert names == {
        *("own", "dataset", "soft", "twice", "through", "group/x", "group/deep/y"),
        *("all/soft", "all/further", "all/g/x", "all/g/deep/y"),
    }
    with h5py.File(linking_file) as file:
        for name in names:
            np.testing.assert_array_equal(insitu.read(group, name, decode=False), file[name][...], err_msg=name)
    lengths: dict[str, int] = {}
    for array in group.arrays.values():
        for dim, length in zip(array.dims, array.shape, strict=True):
            assert lengths.setdefault(dim, length) == length


def test_parts_through_external_links(linking_file: Path) -> None:
    assert {name for name, _ in insitu.scan(linking_file, variables=["all/g/x"], decode=False).all_arrays()} == {
        "all/g/x"
    }
    assert {name for name, _ in insitu.scan(linking_file, variables=["dataset"], decode=False).all_arrays()} == {
        "dataset"
    }
    assert set(insitu.scan(linking_file, group="all/g", decode=False).arrays) == {"x"}
    assert set(insitu.scan(linking_file, group="group/deep", variables=["y"], decode=False).arrays) == {"y"}
    assert insitu.read(linking_file, "through", decode=False).tolist() == [0, 1, 2]
    with pytest.raises(VariableError):
        insitu.scan(linking_file, variables=["group/gone"], decode=False)
    with pytest.raises(VariableError):
        insitu.scan(linking_file, group="no_file", decode=False)


def test_files_that_link_to_each_other(tmp_path: Path) -> None:
    for name, others in (("a", "bc"), ("b", "ca"), ("c", "ab")):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["x"] = 1
            for other in others:
                file[f"to_{other}"] = h5py.ExternalLink(f"{other}.h5", "/")
                file[f"x_{other}"] = h5py.ExternalLink(f"{other}.h5", f"/x_{name}")
    group = insitu.scan(tmp_path / "a.h5", errors="warn", decode=False)
    assert {"x", "to_b/x", "to_b/to_c/x", "to_c/x", "to_c/to_b/x"} == {name for name, _ in group.all_arrays()}


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/.", "link/g/x"),
        (".", "link/g/x"),
        ("/g/.", "link/x"),
        ("/./g", "link/x"),
        ("g/./x", "link"),
        ("/g//x", "link"),
    ],
)
def test_dots_in_the_path_of_a_link(tmp_path: Path, target: str, path: str) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["g/x"] = np.arange(3)
    with h5py.File(tmp_path / "main.h5", "w") as file:
        file["link"] = h5py.ExternalLink("other.h5", target)
    with h5py.File(tmp_path / "main.h5") as file:
        expected = file[path][:]
    np.testing.assert_array_equal(insitu.read(tmp_path / "main.h5", path, decode=False), expected)
