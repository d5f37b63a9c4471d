"""Is what is not an HDF5 file, or no whole one, told so, by an error of ours that names file, place
and structure?
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from finding import BAD, lines_of
from isolation import findings_of

import insitu
from insitu.errors import FormatError, InsituError, NotFoundError


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _text(path: Path) -> None:
    path.write_text("time,temperature\n2001-01-01,281.5\n" * 50)


def _html(path: Path) -> None:
    path.write_text(
        "<!DOCTYPE html><html><head><title>Sign in</title></head><body>You must log in first.</body></html>"
    )


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "nothing here " * 100)


def _zeros(path: Path) -> None:
    path.write_bytes(bytes(5000))


def _only_signature(path: Path) -> None:
    path.write_bytes(b"\x89HDF\r\n\x1a\n")


@pytest.mark.parametrize("make", [_empty, _text, _html, _zip, _zeros, _only_signature])
def test_what_is_not_hdf5_is_refused(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    make(path)
    with pytest.raises(FormatError) as caught:
        insitu.scan(str(path), decode=False)
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        insitu.scan(str(tmp_path / "nothing.h5"), decode=False)


def test_a_directory_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InsituError):
        insitu.scan(str(tmp_path), decode=False)


def _small(path: Path, libver: str) -> None:
    """A little of everything; fletcher32 on the chunks, and no variable-length data, so that all is
    under a checksum when new.
    """
    random = np.random.default_rng(0)
    with h5py.File(path, "w", libver=libver) as file:
        how = {"chunks": (5, 4), "fletcher32": True}
        for name, maxshape in (("fixed", (20, 12)), ("extensible", (None, 12)), ("tree", (None, None))):
            file.create_dataset(name, data=random.random((20, 12), dtype="f4"), maxshape=maxshape, **how)
        file.create_dataset("deflated", data=np.arange(240).reshape(20, 12), compression="gzip", **how)
        file.create_dataset("one", data=np.arange(20), chunks=(20,), fletcher32=True)
        file["contiguous"] = np.arange(30.0)
        file["group/inner/scalar"] = 2.5
        file["fixed"].attrs["units"] = np.bytes_("K")
        for index in range(20):
            file["group"].attrs[f"attribute {index}"] = index
            file[f"dense/{index}"] = index


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_damaged_file_raises_or_reads_right(damage: str, libver: str, tmp_path: Path) -> None:
    path = tmp_path / f"small-{libver}.h5"
    _small(path, libver)
    [(_, findings)] = findings_of(damage, [path], seconds=60)
    assert len(findings) > 50
    assert not lines_of(findings, BAD)
