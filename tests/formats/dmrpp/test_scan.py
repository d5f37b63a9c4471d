"""Is a dataset opened by its DMR++ document the same as by our own scan of the file?

The documents are written from that scan (`dmrpp_documents`).

Modules: formats/dmrpp/chunk_lists.py, formats/dmrpp/chunk_runs.py, formats/dmrpp/dap_types.py,
formats/dmrpp/data_file.py, formats/dmrpp/embedded.py, formats/dmrpp/text_values.py
"""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray

import insitu
from damaged_bytes import count_refused, flip
from dmrpp_documents import document
from insitu.errors import FormatError, UnsupportedError, VariableError
from insitu.model import Inline, Stored, Unwritten, VirtualGroup
from insitu.sources import CountingSource, MemorySource


def _described(path: Path) -> Path:
    side = path.with_name(path.name + ".dmrpp")
    side.write_text(document(insitu.scan(path, decode=False), path.name))
    return side


def _same(path: Path) -> VirtualGroup:
    expected, found = insitu.scan(path, decode=False), insitu.scan(_described(path), decode=False)
    actual = dict(found.all_arrays())
    assert actual.keys() == {name for name, _ in expected.all_arrays()}
    for name, array in expected.all_arrays():
        assert actual[name].shape == array.shape
        assert actual[name].dtype == array.dtype
        assert repr(dict(actual[name].attributes)) == repr(dict(array.attributes))
        np.testing.assert_array_equal(insitu.read(found, name, decode=False), insitu.read(expected, name, decode=False))
    return found


def test_a_netcdf4_file(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.title = "a < b & c"
        for dim, size in (("time", 20), ("lat", 12), ("lon", 18)):
            file.createDimension(dim, size)
            file.createVariable(dim, "f8", (dim,))[:] = np.arange(size)
        how = {"zlib": True, "complevel": 3, "shuffle": True, "fletcher32": True, "chunksizes": (7, 5, 18)}
        variable = file.createVariable("tas", "i2", ("time", "lat", "lon"), fill_value=-9, **how)
        variable.scale_factor, variable.units, variable.valid_range = np.float32(0.5), "K", np.array([0, 9], "i2")
        variable[:] = np.arange(20 * 12 * 18).reshape(20, 12, 18) % 3000
        inner = file.createGroup("inner")
        inner.note = "in a group"
        inner.createVariable("mean", "f4", ("lat", "lon"), contiguous=True)[:] = 1.5
        inner.createVariable("scalar", "i4")[...] = 7
    group = _same(tmp_path / "a.nc")
    assert group.arrays["tas"].dims == ("time", "lat", "lon")
    assert group.attributes == {"title": "a < b & c"}
    assert group.groups["inner"].attributes == {"note": "in a group"}


def test_missing_chunks_filter_masks_compact_data_and_byte_orders(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        sparse = file.create_dataset(
            "sparse", (10, 10), "f4", chunks=(5, 5), fillvalue=-1.5, compression="gzip", shuffle=True
        )
        sparse[:5, 5:] = 3
        masked = file.create_dataset("masked", (4,), "i4", chunks=(2,), compression="gzip", shuffle=True)
        masked[:2] = [1, 2]
        masked.id.write_direct_chunk((2,), np.array([3, 4], "<i4").tobytes(), filter_mask=0b11)
        file["big"] = np.arange(6, dtype=">i4")
        file.create_dataset("text", data=np.array([b"ab", b"cde"]))
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((3,))
        compact = h5py.h5d.create(file.id, b"compact", h5py.h5t.IEEE_F64LE, space, layout)
        compact.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([1.0, 2.0, 3.0]))
    group = _same(tmp_path / "a.h5")
    assert isinstance(group.arrays["sparse"].tiles[0].chunks[0, 0], Unwritten)
    assert isinstance(group.arrays["compact"].tiles[0].chunks[0], Inline)
    assert insitu.read(group, "sparse", decode=False)[0, 0] == -1.5
    assert insitu.read(group, "masked", decode=False).tolist() == [1, 2, 3, 4]


def _wrapped(inside: str, href: str = "OPeNDAP_DMRpp_DATA_ACCESS_URL") -> bytes:
    return (
        '<Dataset xmlns="http://xml.opendap.org/ns/DAP/4.0#" xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#" '
        f'name="a" dmrpp:href="{href}">{inside}</Dataset>'
    ).encode()


def _open(inside: str, href: str = "memory://data.nc", **options: Any) -> VirtualGroup:
    return insitu.scan(MemorySource(_wrapped(inside, href)), **options, decode=False)


def test_missing_data_is_deflated_in_the_document() -> None:
    data = np.arange(100.0)
    text = base64.b64encode(zlib.compress(data.tobytes())).decode()
    inside = (
        '<Dimension name="x" size="100"/><Float64 name="v"><Dim name="/x"/>'
        f"<dmrpp:missingdata>\n {text[:40]}\n {text[40:]}</dmrpp:missingdata></Float64>"
    )
    np.testing.assert_array_equal(insitu.read(_open(inside), "v", decode=False), data)
    with pytest.raises(FormatError, match="1600 are needed"):
        _open(inside.replace('size="100"', 'size="200"'))


def test_the_data_file_is_found() -> None:
    inside = (
        '<Float32 name="v"><Dim size="2"/><dmrpp:chunks byteOrder="LE"><dmrpp:chunk offset="8" '
        'nBytes="8"/></dmrpp:chunks></Float32>'
    )
    for name, href, expected in (
        ("data.nc.dmrpp", "OPeNDAP_DMRpp_DATA_ACCESS_URL", "memory://data.nc"),
        ("data.nc.dmrpp", "https://example.com/x.nc", "https://example.com/x.nc"),
        ("data.nc.dmrpp", "file:///etc/passwd", "memory://data.nc"),
        ("data.nc.dmrpp", "/etc/passwd", "memory://data.nc"),
    ):
        group = insitu.scan(MemorySource(_wrapped(inside, href), name), decode=False)
        assert [source.url for source in group.sources] == [expected]
    with pytest.raises(FormatError, match="does not name its data file"):
        insitu.scan(MemorySource(_wrapped(inside), "nameless"), decode=False)


def test_chunks_may_lie_in_several_files() -> None:
    rows = "".join(
        f'<dmrpp:chunk offset="{n}" nBytes="8" chunkPositionInArray="[{2 * n}]"{href}/>'
        for n, href in ((0, ""), (2, ' href="https://example.com/other.nc"'))
    )
    inside = (
        '<Float32 name="v"><Dim '
        f'size="6"/><dmrpp:chunks><dmrpp:chunkDimensionSizes>2</dmrpp:chunkDimensionSizes>{rows}</dmrpp:chunks></Float32>'
    )
    chunks = _open(inside).arrays["v"].tiles[0].chunks
    found = [chunks[n] for n in range(3)]
    assert isinstance(found[0], Stored)
    assert isinstance(found[1], Unwritten)
    assert isinstance(found[2], Stored)
    assert [found[0].source.url, found[2].source.url] == ["memory://data.nc", "https://example.com/other.nc"]


def test_what_is_not_read_is_refused_by_name() -> None:
    fine = '<Int8 name="fine"><dmrpp:compact>BQ==</dmrpp:compact></Int8>'
    bad = (
        '<String name="text"><Dim size="2"/><dmrpp:chunks><dmrpp:chunk offset="0" nBytes="2"/></dmrpp:chunks></String>'
    )
    with pytest.raises(UnsupportedError, match=r"length of these texts.*data file does not help: there is no such"):
        _open(fine + bad)
    with pytest.warns(insitu.formats.InsituWarning):
        group = _open(fine + bad, errors="warn")
    assert insitu.read(group, "fine", decode=False) == 5
    assert list(group.problems) == ["text"]
    with pytest.raises(VariableError, match="fine"):
        _open(fine, variables=["coarse"])


@pytest.mark.parametrize(
    "inside",
    [
        '<Int8 name="v"><Dim name="/nowhere"/></Int8>',
        '<Int8 name="v"><Dim size="-4"/></Int8>',
        '<Int8 name="v"><Dim size="4"/><dmrpp:chunks><dmrpp:chunkDimensionSizes>2 '
        "2</dmrpp:chunkDimensionSizes></dmrpp:chunks></Int8>",
        '<Int8 name="v"><Dim size="4"/><dmrpp:chunks><dmrpp:chunkDimensionSizes>0</dmrpp:chunkDimensionSizes>'
        "</dmrpp:chunks></Int8>",
        '<Int8 name="v"><Dim size="4"/><dmrpp:chunks><dmrpp:chunkDimensionSizes>2</dmrpp:chunkDimensionSizes>'
        '<dmrpp:chunk offset="0" nBytes="2" chunkPositionInArray="[9]"/></dmrpp:chunks></Int8>',
        '<Int8 name="v"><Dim size="4"/><dmrpp:chunks><dmrpp:chunkDimensionSizes>2</dmrpp:chunkDimensionSizes>'
        '<dmrpp:chunk offset="0" nBytes="2" chunkPositionInArray="[1]"/></dmrpp:chunks></Int8>',
        '<Int8 name="v"><Dim size="4"/><dmrpp:chunks><dmrpp:chunk offset="x" nBytes="2"/></dmrpp:chunks></Int8>',
        '<Int8 name="v"><Dim size="4"/><dmrpp:compact>!!</dmrpp:compact></Int8>',
        '<Int8 name="v"><Dim size="4"/><dmrpp:chunks fillValue="many"/></Int8>',
        "<Int8",
    ],
)
def test_nonsense_is_refused(inside: str) -> None:
    with pytest.raises(FormatError):
        _open(inside)


def test_a_prefix_that_is_not_declared() -> None:
    """OPeNDAP's own parser takes it as it is."""
    inside = '<Int8 name="v"><Dim size="2"/><dmrpp:compact>BQY=</dmrpp:compact></Int8>'
    document = _wrapped(inside).replace(b' xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#"', b"")
    assert b"xmlns:dmrpp" not in document
    found = insitu.scan(MemorySource(document, "data.nc.dmrpp"), decode=False)
    assert insitu.read(found, "v", decode=False).tolist() == [5, 6]
    with pytest.raises(FormatError, match="not valid XML"):
        insitu.scan(MemorySource(document.replace(b"dmrpp:compact>", b"other:compact>"), "data.nc.dmrpp"))


def test_entities_are_refused() -> None:
    bomb = b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaa">]>' + _wrapped("")
    with pytest.raises(FormatError, match="entities"):
        insitu.scan(MemorySource(bomb), decode=False)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_entities_are_refused_in_any_encoding(encoding: str) -> None:
    """The bytes of a document type depend on the encoding, and the document chooses it."""
    entities = '<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">'
    text = _wrapped("").decode()
    start = text.index(">", text.index("<Dataset")) + 1
    text = (
        f"<!DOCTYPE x [{entities}]>{text[:start]}<Int8 name='v'><Attribute name='t' "
        "type='String'><Value>&b;</Value></Attribute></Int8></Dataset>"
    )
    with pytest.raises(FormatError, match="entities"):
        insitu.scan(MemorySource(text.encode(encoding)), format="dmrpp", decode=False)


def test_flipped_bytes_do_no_harm(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", data=np.arange(40.0).reshape(8, 5), chunks=(4, 5), compression="gzip")
    data = _described(tmp_path / "a.h5").read_bytes()

    def scan(data: bytes) -> None:
        insitu.scan(MemorySource(data, "flipped.h5.dmrpp"), decode=False)

    assert count_refused(flip(data, range(len(data)), (0x01, 0x02, 0x80)), scan)


def test_a_large_document_takes_two_requests() -> None:
    rows = "".join(f'<dmrpp:chunk offset="{n}" nBytes="8" chunkPositionInArray="[{2 * n}]"/>' for n in range(20000))
    inside = (
        '<Float32 name="v"><Dim '
        f'size="40000"/><dmrpp:chunks><dmrpp:chunkDimensionSizes>2</dmrpp:chunkDimensionSizes>{rows}</dmrpp:chunks></Float32>'
    )
    counted = CountingSource(MemorySource(_wrapped(inside), "large.nc.dmrpp"))
    assert insitu.scan(counted, decode=False).arrays["v"].tiles[0].chunks.shape == (20000,)
    assert counted.batches == 2


def test_groups_open_as_a_tree(tmp_path: Path) -> None:
    """One document, opened by xarray's means, is what the file is."""
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("time", 3)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = np.arange(3)
        group = file.createGroup("ocean")
        variable = group.createVariable("sst", "i2", ("time",), fill_value=-9)
        variable.scale_factor, variable.coordinates = 0.5, "time"
        variable[:] = [1, 2, -9]
    side = tmp_path / "a.nc.dmrpp"
    side.write_text(document(insitu.scan(tmp_path / "a.nc", decode=False), "a.nc"))
    actual, own = insitu.open_datatree(side), insitu.open_datatree(tmp_path / "a.nc")
    assert actual.groups == own.groups
    for path in own.groups:
        xarray.testing.assert_identical(actual[path].to_dataset().load(), own[path].to_dataset().load())
