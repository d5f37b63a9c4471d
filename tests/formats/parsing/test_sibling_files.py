"""Files that a file names are opened with its options, and only where access is allowed."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import insitu
from access_policies import PathPolicy
from insitu.errors import AccessError
from insitu.formats.parsing import sibling_files
from insitu.sources import open_source
from insitu.sources.access_policy import access_policy_scope


@pytest.fixture
def virtual(tmp_path: Path) -> Path:
    """A virtual dataset of two sources, one of them in another folder, and links to both."""
    for name in ("inside/near.h5", "outside/far.h5"):
        (tmp_path / name).parent.mkdir()
        with h5py.File(tmp_path / name, "w") as file:
            file["x"] = np.arange(3) + 1
    path = tmp_path / "inside" / "virtual.h5"
    layout = h5py.VirtualLayout((2, 3), "i8")
    layout[0] = h5py.VirtualSource("near.h5", "x", (3,))
    layout[1] = h5py.VirtualSource("../outside/far.h5", "x", (3,))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("virtual", layout, fillvalue=-1)
        file["near"] = h5py.ExternalLink("near.h5", "x")
        file["far"] = h5py.ExternalLink("../outside/far.h5", "x")
        file["own"] = np.arange(4)
    return path


def test_options_go_along(virtual: Path, monkeypatch) -> None:
    requested = []

    def note_url(url, options):
        requested.append((Path(url).name, options))
        return open_source(url, options)

    monkeypatch.setattr(sibling_files, "open_source", note_url)
    insitu.scan(virtual, storage_options={"key": "k"}, decode=False)
    assert sorted(requested) == [("far.h5", {"key": "k"}), ("near.h5", {"key": "k"})]


def test_nothing_gets_past_a_gate(virtual: Path) -> None:
    with access_policy_scope(PathPolicy(lambda path: path.startswith(str(virtual.parent)))):
        with pytest.raises(AccessError):
            insitu.scan(virtual, decode=False)
        with pytest.warns(match="left out"):
            group = insitu.scan(virtual, errors="warn", decode=False)
        assert set(group.arrays) == {"near", "own"}
        assert set(group.problems) == {"virtual", "far"}


def test_what_may_not_be_read_is_no_fill_value(virtual: Path, monkeypatch) -> None:
    def deny(url, options):
        if "far" in url:
            raise AccessError("may not be read", url=url)
        return open_source(url, options)

    monkeypatch.setattr(sibling_files, "open_source", deny)
    with pytest.raises(AccessError):
        insitu.scan(virtual, variables=["virtual"], decode=False)
    assert insitu.scan(virtual, variables=["near"], decode=False).arrays["near"].shape == (3,)


def test_beside_what_a_symbolic_link_leads_to(virtual: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "linked.h5").symlink_to(virtual)
    values = insitu.read(tmp_path / "elsewhere" / "linked.h5", "virtual", decode=False)
    assert values.tolist() == [[1, 2, 3], [1, 2, 3]]


def test_many_that_are_far_away_are_opened_at_once(tmp_path: Path, monkeypatch) -> None:
    layout = h5py.VirtualLayout((8, 3), "i8")
    for number in range(8):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file["x"] = np.full(3, number)
        layout[number] = h5py.VirtualSource(f"{number}.h5", "x", (3,))
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        file.create_virtual_dataset("virtual", layout)
    batches = []
    monkeypatch.setattr(sibling_files.ReadCache, "local", property(lambda self: False))
    monkeypatch.setattr(
        sibling_files, "gather", lambda function, items: batches.append([function(item, None) for item in items])
    )
    group = insitu.scan(tmp_path / "virtual.h5", decode=False)
    assert [len(batch) for batch in batches] == [8]
    assert insitu.read(group, "virtual", decode=False)[:, 0].tolist() == list(range(8))


def test_names_that_are_no_text() -> None:
    assert sibling_files.sibling_urls("https://host/a/b.h5", "x\udce6 y.h5") == ["https://host/a/x%E6%20y.h5"]
    assert sibling_files.sibling_urls("s3://bucket/a/b.h5", "x\udce6.h5") == []
    assert sibling_files.sibling_urls("s3://bucket/a/b.h5", "ü y.h5") == ["s3://bucket/a/ü y.h5"]
    assert sibling_files.sibling_urls("/data/b.h5", "x\udce6.h5")[0] == "/data/x\udce6.h5"
