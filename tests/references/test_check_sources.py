"""Changed, missing and grown sources are noticed, and a refresh repairs the references.

Modules: maintenance/checking.py, model/source.py, references/update_references.py
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.errors import StaleSourceError
from insitu.maintenance import check, refresh
from insitu.model import Source, VirtualGroup, concatenate
from insitu.reading import ReadContext, read_array
from insitu.references import open_references, save


def make(path: Path, number: int, *, chunks: tuple[int, int] = (3, 4), rows: int = 5, time: float = 0.0) -> None:
    with h5py.File(path, "w") as file:
        values = np.arange(rows * 4).reshape(rows, 4) + 100 * number
        file.create_dataset("t", data=values.astype("f4"), chunks=chunks, compression=1 + number % 5)
        file.create_dataset("time", data=np.arange(rows) + rows * number + time)
    os.utime(path, (1e9 + number, 1e9 + number + time))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    arrays: dict[str, list] = {"t": [], "time": []}
    for number in range(4):
        make(tmp_path / f"{number}.h5", number)
        for name, parts in arrays.items():
            parts.append(insitu.scan(tmp_path / f"{number}.h5", decode=False).array(name))
    save(VirtualGroup({name: concatenate(parts, 0) for name, parts in arrays.items()}), tmp_path / "x.insitu")
    return tmp_path


def values(path: Path, name: str = "t") -> np.ndarray:
    group = open_references(str(path))
    assert group is not None
    return read_array(group.array(name))


def test_nothing_changed(archive: Path) -> None:
    seen = []
    report = check(archive / "x.insitu", progress=lambda done, total: seen.append((done, total)))
    assert report.ok
    assert sorted(seen) == [(n, 4) for n in range(1, 5)]
    before = (archive / "x.insitu" / "root.json").read_bytes()
    assert refresh(archive / "x.insitu").ok
    assert (archive / "x.insitu" / "root.json").read_bytes() == before


def test_a_changed_source_is_found_and_refreshed(archive: Path) -> None:
    expected = values(archive / "x.insitu")
    make(archive / "2.h5", 7, time=-25.0)  # other values, compressed otherwise, the same times
    report = check(archive / "x.insitu")
    assert [finding.source.url for finding in report.stale] == [str(archive / "2.h5")]
    assert "1 changed" in str(report)
    with pytest.raises(StaleSourceError, match=r"2\.h5"):
        report.raise_stale()
    refresh(archive / "x.insitu")
    expected[10:15] += 500
    assert values(archive / "x.insitu").tolist() == expected.tolist()
    assert check(archive / "x.insitu").ok


def test_kerchunk_references_are_checked_by_what_they_reach(archive: Path) -> None:
    save(insitu.scan(archive / "1.h5", decode=False), archive / "y.json")
    assert check(archive / "y.json").ok
    (archive / "1.h5").write_bytes((archive / "1.h5").read_bytes()[:1000])
    (report,) = check(archive / "y.json").stale
    assert "1000" in report.reason
    (archive / "1.h5").unlink()
    (report,) = check(archive / "y.json").stale
    assert report.status == "missing"
    with pytest.raises(StaleSourceError, match="no longer exists"):
        refresh(archive / "y.json")


@pytest.mark.parametrize("change", [{"rows": 6}, {"chunks": (5, 2)}])
def test_files_of_another_length_or_chunking(archive: Path, change: dict) -> None:
    make(archive / "2.h5", 2, **change)
    os.utime(archive / "2.h5", (2e9, 2e9))
    refresh(archive / "x.insitu")
    for name in ("t", "time"):
        expected = [insitu.read(archive / f"{number}.h5", name) for number in range(4)]
        np.testing.assert_array_equal(values(archive / "x.insitu", name), np.concatenate(expected))


def test_what_does_not_fit_is_refused(archive: Path) -> None:
    before = (archive / "x.insitu" / "root.json").read_bytes()
    with h5py.File(archive / "2.h5", "w") as file:
        file.create_dataset("t", data=np.zeros((5, 7), "f4"))
        file.create_dataset("time", data=np.arange(5))
    os.utime(archive / "2.h5", (2e9, 2e9))
    with pytest.raises(StaleSourceError, match=r"(?s)do not match the rest.*2\.h5.*Combine the archive anew"):
        refresh(archive / "x.insitu")
    assert (archive / "x.insitu" / "root.json").read_bytes() == before


def test_inline_values_that_changed(archive: Path) -> None:
    group = open_references(str(archive / "x.insitu"))
    assert group is not None
    save(VirtualGroup({"time": group.array("time")}), archive / "time.json", inline_threshold=1000)
    inline = open_references(str(archive / "time.json"))
    assert inline is not None
    save(VirtualGroup({"t": group.array("t"), "time": inline.array("time")}), archive / "z.insitu")
    make(archive / "2.h5", 2, time=0.0)
    os.utime(archive / "2.h5", (2e9, 2e9))
    refresh(archive / "z.insitu")
    make(archive / "2.h5", 2, time=1.0)
    refresh(archive / "z.insitu")
    expected = [insitu.read(archive / f"{number}.h5", "time") for number in range(4)]
    np.testing.assert_array_equal(values(archive / "z.insitu", "time"), np.concatenate(expected))


# When is it found out? Each way in: references or the file itself, as arrays or as a dataset.


def change_values(path: Path) -> None:
    """Overwrite values in place, with a later time of change."""
    data = bytearray(path.read_bytes())
    data[-16:] = bytes(16)
    path.write_bytes(bytes(data))
    os.utime(path, (2e9, 2e9))


def test_verify_at_opening(archive: Path) -> None:
    assert insitu.scan(archive / "x.insitu", verify="open", decode=False).array("t").shape == (20, 4)
    change_values(archive / "2.h5")
    with pytest.raises(StaleSourceError, match=r"2\.h5"):
        insitu.scan(archive / "x.insitu", verify="open", decode=False)
    with pytest.raises(StaleSourceError, match=r"2\.h5"):
        insitu.open_dataset(archive / "x.insitu", verify="open")
    with pytest.raises(ValueError, match="verify"):
        insitu.scan(archive / "x.insitu", verify="sometimes", decode=False)  # type: ignore[arg-type]


def test_verify_when_read(archive: Path) -> None:
    group = insitu.scan(archive / "x.insitu", decode=False)
    dataset = insitu.open_dataset(archive / "x.insitu")
    file = insitu.scan(archive / "2.h5", decode=False)
    change_values(archive / "2.h5")
    assert read_array(group.array("t"), np.s_[:10]).shape == (10, 4)  # the other files are what they were
    for array in (group.array("t"), file.array("t")):
        with pytest.raises(StaleSourceError, match=r"modification date|ETag"):
            read_array(array, context=ReadContext("t"))
    with pytest.raises(StaleSourceError):
        dataset.t.load()


def test_verify_never(archive: Path) -> None:
    fresh = values(archive / "x.insitu")
    group = insitu.scan(archive / "x.insitu", verify="never", decode=False)
    dataset = insitu.open_dataset(archive / "x.insitu", verify="never")
    file = insitu.scan(archive / "2.h5", verify="never", decode=False)
    os.utime(archive / "2.h5", (2e9, 2e9))
    assert read_array(group.array("t")).tolist() == fresh.tolist()
    assert dataset.t.values.tolist() == fresh.tolist()
    assert read_array(file.array("t")).tolist() == fresh[10:15].tolist()
    assert read_array(pickle.loads(pickle.dumps(group)).array("t")).tolist() == fresh.tolist()


def test_two_marks_of_one_file() -> None:
    scanned = Source("/a", 10, "a-12f", 1.5)
    assert scanned.compare(Source("/a")).same is None
    assert scanned.compare(Source("/a", 10, "a-130", 1.5)).same is False
    # restored from an archive that keeps whole seconds
    assert scanned.compare(Source("/a", 10, "a-130", 1.0)).same is True
    assert scanned.compare(Source("/a", 10, "a-130", 2.0)).same is False
    assert Source("/a", 10, '"x"', 1.0).compare(Source("/a", 10, '"y"', 1.0)).same is False
    assert Source("/a", 10, '"x"', 1.0).compare(Source("/a", 10, 'W/"x"', 9.0)).same is True


@pytest.mark.parametrize(
    ("found", "same", "same_copy"),
    [
        (Source("x", 11, '"v"', 1.0), False, False),  # a size counts always
        (Source("x", 10, '"v"', 1.0), True, True),  # so does an equal date
        (Source("x", 10, '"v"', 9.0), None, None),
        (Source("x", 10, '"v"'), None, None),
        (Source("x", 10, None, 9.0), None, None),
        (Source("x", None, '"v"'), None, None),
        (Source("x", 10, "a-12f", 1.5), True, True),
        (Source("x", 10, "a-77f", 9.5), False, None),  # a copy has another date
    ],
)
def test_identities_of_different_kinds(found: Source, same: bool | None, same_copy: bool | None) -> None:
    scanned = Source("/a", 10, "a-12f", 1.5)
    assert (scanned.compare(found).same, found.compare(scanned).same) == (same, same)
    assert (scanned.compare(found, copied=True).same, found.compare(scanned, copied=True).same) == (same_copy,) * 2


def test_etags_of_copies() -> None:
    scanned = Source("x", 10, '"v"', 1.0)
    assert scanned.compare(Source("x", 10, '"w"', 1.0), copied=True).same is True
    assert scanned.compare(Source("x", 10, '"w"', 2.0), copied=True).same is None


def test_a_saved_dataset_is_refreshed(tmp_path: Path) -> None:
    """Decoded values, each file with a packing of its own, and labels that are kept inline."""

    def dataset(number: int, seed: int, scale: float) -> None:
        random = np.random.default_rng(seed)
        path = tmp_path / f"{number}.nc"
        variables = {
            "t": (("time", "x"), random.random((6, 3)) * 30 + 270, {"units": "K"}),
            "seen": ("time", random.integers(0, 99, 6), {"units": "hours since 2001-01-01"}),
        }
        days = {"time": ("time", np.arange(6) + 6 * number, {"units": "days since 2000-01-01"})}
        packed = {
            "dtype": "i2",
            "scale_factor": scale,
            "add_offset": 280.0,
            "_FillValue": -1,
            "zlib": True,
            "chunksizes": (4, 3),
        }
        xr.Dataset(variables, days).to_netcdf(path, engine="h5netcdf", encoding={"t": packed})
        os.utime(path, (1e9 + seed, 1e9 + seed))

    paths = [str(tmp_path / f"{number}.nc") for number in range(3)]
    for number in range(3):
        dataset(number, number, 0.01)
    insitu.open_mfdataset(paths).insitu.save(tmp_path / "x.insitu")
    dataset(1, 50, 0.02)
    with pytest.raises(StaleSourceError, match=r"1\.nc"):
        insitu.open_dataset(tmp_path / "x.insitu").load()
    assert [finding.source.url for finding in refresh(tmp_path / "x.insitu").stale] == paths[1:2]
    with xr.open_mfdataset(paths, engine="h5netcdf") as files:
        xr.testing.assert_identical(insitu.open_dataset(tmp_path / "x.insitu").load(), files.load())
    dataset(2, 51, 0.01)
    refresh(tmp_path / "x.insitu")
    assert check(tmp_path / "x.insitu").ok
