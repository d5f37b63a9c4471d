"""Is an array said to be undecodable only if it is?"""

from __future__ import annotations

import warnings
from pathlib import Path

import netCDF4
import numpy as np
import pytest

import insitu
from insitu.cli.info import notes
from insitu.codecs.undecodable import find_undecodable
from insitu.errors import InsituError, UnknownCodecError
from insitu.model import Axis, Codec, Columns, Encoding, Tile, VirtualArray
from insitu.open_options import ScanOptions
from insitu.reading import read_array
from insitu.scanning.scan_url import scan_stored
from real_files import FILES, list_files


def test_record_variables_of_several_values_a_record(tmp_path: Path) -> None:
    """They are read in blocks of whole records, which a codec takes apart."""
    path = tmp_path / "records.nc"
    bounds = np.arange(4000.0).reshape(2000, 2)
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("time", None)
        file.createDimension("bnds", 2)
        file.createDimension("x", 3)
        file.createVariable("time_bnds", "f8", ("time", "bnds"))[:] = bounds
        file.createVariable("tas", "f4", ("time", "bnds", "x"))[:] = np.ones((2000, 2, 3))
    group = scan_stored(str(path), ScanOptions())
    assert group.arrays["time_bnds"].tiles[0].encodings[0].codecs[0].name == "record_member"
    assert notes(group) == []
    assert np.array_equal(insitu.read(path, "time_bnds"), bounds)


@pytest.mark.parametrize("folder", sorted(path.name for path in FILES.iterdir() if path.is_dir()))
def test_what_is_read_is_not_said_to_be_undecodable(folder: str) -> None:
    for path in list_files(FILES / folder):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                group = scan_stored(str(path), ScanOptions(errors="warn"))
            except InsituError:
                continue
        for _, array in group.all_arrays():
            if find_undecodable(array):
                with pytest.raises(InsituError):
                    read_array(array)


def test_an_unknown_codec_is_named_whatever_stands_before_it() -> None:
    """Here `record_member` would refuse a chunk of one element."""
    pairs = Codec("record_member", {"member": "own", "dtype": [["own", "<f4", [2]], ["behind", "V4"]]})
    encoding = Encoding(np.dtype("<f4"), (pairs, Codec("nonsense")))
    axes = (Axis.regular(5, 5), Axis.regular(2, 2))
    array = VirtualArray.of(Tile(axes, (encoding,), Columns.of_unwritten((1, 1))), dims=["x", "pair"])
    (problem,) = find_undecodable(array)
    assert isinstance(problem, UnknownCodecError)
    assert "nonsense" in str(problem)


def test_chunks_without_an_axis_of_the_array() -> None:
    """The encoding orders the axes that its chunks have."""
    encoding = Encoding(np.dtype("<f4"), order=(1, 0))
    axes = (Axis.broadcast(7), Axis.regular(4, 4), Axis.regular(3, 3))
    array = VirtualArray.of(Tile(axes, (encoding,), Columns.of_unwritten((1, 1, 1))), dims=["t", "y", "x"])
    assert find_undecodable(array) == []


def test_files_that_are_cut_differently() -> None:
    """Each encoding is that of some cells of the tile: it need not fit the others."""
    first, second = (
        Codec("record_member", {"member": "own", "dtype": [["own", "<f4", [many]], ["behind", "V4"]]})
        for many in (5, 7)
    )
    encodings = tuple(Encoding(np.dtype("<f4"), (codec,)) for codec in (first, second))
    axis = Axis.irregular([5, 7], stored=[5, 7])
    array = VirtualArray.of(Tile((axis,), encodings, Columns.of_unwritten((2,))), dims=["x"])
    assert find_undecodable(array) == []
