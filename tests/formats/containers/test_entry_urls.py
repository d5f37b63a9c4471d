"""Can a member of an archive be named wherever a file can: alone, by a pattern, as fsspec chains
it, from afar?

Modules: formats/containers/open_entries.py
"""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray
import zarr

import insitu
from insitu.errors import FormatError, InsituError, InsituWarning, NotFoundError, UnsupportedError, VariableError
from insitu.formats import scan_format
from insitu.formats.containers import ScopedArchive, expand_entries, parse_entry_url
from insitu.sources import CountingSource, MemorySource
from insitu.sources.local import LocalSource


def _netcdf(path: Path, form: str, year: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.createDimension("time", None)
        file.createDimension("x", 30)
        time = file.createVariable("time", "f8", ("time",))
        time.units = "days since 2020-01-01"
        time[:] = np.arange(12) + 365 * year
        how = {"zlib": True, "chunksizes": (5, 7)} if form == "NETCDF4" else {}
        file.createVariable("tas", "f4", ("time", "x"), **how)[:] = np.random.default_rng(year).normal(size=(12, 30))


@pytest.fixture
def years(tmp_path: Path) -> dict[str, Path]:
    """Four files; the last in a folder of its own."""
    names = {
        "runs/y0.nc": "NETCDF3_CLASSIC",
        "runs/y1.nc": "NETCDF4",
        "runs/y2.nc": "NETCDF3_64BIT_DATA",
        "runs/deep/y3.nc": "NETCDF4",
    }
    for number, (name, form) in enumerate(names.items()):
        _netcdf(tmp_path / "files" / name, form, number)
    (tmp_path / "files" / "runs" / "notes.txt").write_text("nothing")
    return {name: tmp_path / "files" / name for name in [*names, "runs/notes.txt"]}


def _zip(target: Path, files: dict[str, Path], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, path in files.items():
            archive.write(path, name)
    return target


def _tar(target: Path, files: dict[str, Path]) -> Path:
    with tarfile.open(target, "w") as archive:
        for name, path in files.items():
            archive.add(path, name)
    return target


PACK: dict[str, Any] = {"zip": _zip, "tar": _tar}


@pytest.mark.parametrize("kind", PACK)
def test_a_member_is_opened_like_a_file(tmp_path: Path, years: dict[str, Path], kind: str) -> None:
    archive = PACK[kind](tmp_path / f"a.{kind}", years)
    for name, path in years.items():
        if not name.endswith(".nc"):
            continue
        url = f"{archive}::{name}"
        expected = xarray.open_dataset(path).load()
        xarray.testing.assert_identical(insitu.open_dataset(url).load(), expected)
        xarray.testing.assert_identical(xarray.open_dataset(url, engine="insitu").load(), expected)
        assert list(insitu.open_datatree(url).groups) == ["/"]
        np.testing.assert_array_equal(
            insitu.read(url, "tas", np.s_[3:9, ::4], decode=False), expected.tas.values[3:9, ::4]
        )
        assert [source.url for source in insitu.scan(url, decode=False).sources] == [str(archive)]
        assert insitu.reduce(url, "tas", "max", decode=False) == expected.tas.max()
        store = insitu.zarr_store(url, portable=True)
        np.testing.assert_array_equal(zarr.open_group(store, mode="r")["tas"][...], expected.tas)
    assert set(insitu.scan(url, variables=["tas"], decode=False).arrays) == {"tas", "time"}
    assert insitu.scan(f"{archive}::runs/y0.nc", format="netcdf3", decode=False).arrays
    with pytest.raises(VariableError, match=r"runs/y0\.nc"):
        insitu.scan(f"{archive}::runs/none.nc", decode=False)
    with pytest.raises(FormatError, match="not known"):
        insitu.scan(f"{archive}::runs/notes.txt", decode=False)
    with pytest.raises(NotFoundError):
        insitu.scan(f"{tmp_path / 'none.zip'}::a.nc", decode=False)
    with pytest.raises(FormatError, match="not a zip or tar"):
        insitu.scan(f"{years['runs/y0.nc']}::a.nc", decode=False)


@pytest.mark.parametrize("kind", PACK)
def test_many_members_by_a_pattern(
    tmp_path: Path, years: dict[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = PACK[kind](tmp_path / f"a.{kind}", years)
    files = [path for name, path in years.items() if name.endswith(".nc")]
    parts = [xarray.open_dataset(path).load() for path in files]
    whole = xarray.concat(parts, "time")
    xarray.testing.assert_identical(insitu.open_mfdataset(f"{archive}::runs/**/y*.nc").load(), whole)
    xarray.testing.assert_identical(
        insitu.open_mfdataset(f"{archive}::runs/*.nc").load(), xarray.concat(parts[:3], "time")
    )
    xarray.testing.assert_identical(
        insitu.open_mfdataset([f"{archive}::runs/y{{0,1}}.nc", f"{archive}::runs/y2.nc"]).load(),
        xarray.concat(parts[:3], "time"),
    )
    monkeypatch.chdir(tmp_path)
    xarray.testing.assert_identical(
        insitu.open_mfdataset(f"a.{kind}::runs/y[!2].nc").load(), xarray.concat(parts[:2], "time")
    )
    with pytest.raises(NotFoundError, match="no member of the archive matches"):
        insitu.open_mfdataset(f"{archive}::*.nc")


def test_many_archives_by_a_pattern(tmp_path: Path, years: dict[str, Path]) -> None:
    for number in range(3):
        _tar(tmp_path / f"y{number}.tar", {"in/y.nc": years[f"runs/y{number}.nc"]})
    actual = insitu.open_mfdataset(f"{tmp_path}/y*.tar::in/*.nc").load()
    expected = xarray.concat([xarray.open_dataset(years[f"runs/y{n}.nc"]).load() for n in range(3)], "time")
    xarray.testing.assert_identical(actual, expected)
    assert expand_entries(f"{tmp_path}/y*.tar::in/y.nc") == [f"{tmp_path}/y{n}.tar::in/y.nc" for n in range(3)]


TARGETS = ["a.json", "a.parq", "a.insitu", "a.icechunk"]


@pytest.mark.parametrize("target", TARGETS)
def test_saved_by_plain_offsets(tmp_path: Path, years: dict[str, Path], target: str) -> None:
    """Whoever reads the references needs to know nothing of archives."""
    if target.endswith("icechunk"):
        pytest.importorskip("icechunk")
    archive = _zip(tmp_path / "a.zip", years)
    actual = insitu.open_dataset(f"{archive}::runs/y1.nc")
    actual.insitu.save(tmp_path / target)
    again = insitu.open_dataset(tmp_path / target).load()
    xarray.testing.assert_identical(again, actual.load())
    xarray.testing.assert_identical(again, xarray.open_dataset(years["runs/y1.nc"]).load())
    if target == "a.json":
        references = json.loads((tmp_path / target).read_text())["refs"]
        places = {value[0].removeprefix("file://") for value in references.values() if isinstance(value, list)}
        assert places == {str(archive)}


def test_a_mosaic_of_members_is_saved(tmp_path: Path, years: dict[str, Path]) -> None:
    archive = _zip(tmp_path / "a.zip", years)
    actual = insitu.open_mfdataset(f"{archive}::runs/**/*.nc")
    actual.insitu.save(tmp_path / "a.insitu")
    xarray.testing.assert_identical(insitu.open_dataset(tmp_path / "a.insitu").load(), actual.load())


def test_as_fsspec_chains_it(tmp_path: Path, years: dict[str, Path]) -> None:
    expected = xarray.open_dataset(years["runs/y1.nc"]).load()
    for kind, pack in PACK.items():
        archive = pack(tmp_path / f"a.{kind}", years)
        url = f"{kind}://runs/y1.nc::file://{archive}"
        xarray.testing.assert_identical(insitu.open_dataset(url).load(), expected)
        assert [source.url for source in insitu.scan(url, decode=False).sources] == [str(archive)]
    packed = _zip(tmp_path / "b.zip", years, zipfile.ZIP_DEFLATED)
    # What must be unpacked stays fsspec's.
    chained = f"zip://runs/y1.nc::file://{packed}"
    np.testing.assert_array_equal(insitu.read(chained, "tas", decode=False), expected.tas)
    with pytest.raises(VariableError, match=r"compressed.*zip -0"):
        insitu.scan(f"{packed}::runs/y1.nc", decode=False)


def test_names_that_are_no_members(tmp_path: Path, years: dict[str, Path]) -> None:
    for url in (
        "simplecache::s3://b/a.nc",
        "s3://b/a.nc",
        "filecache::zip://a.nc::s3://b/a.zip",
        "reference://::a.json",
        "a.nc",
        "::a",
        "a.zip::",
    ):
        assert parse_entry_url(url) is None, url
    odd = tmp_path / "a::b.nc"
    odd.write_bytes(years["runs/y0.nc"].read_bytes())
    assert parse_entry_url(str(odd)) is None
    assert "tas" in insitu.scan(str(odd), decode=False).arrays
    assert parse_entry_url("a.zip::../../etc/passwd") == ("a.zip", "etc/passwd", False)


@pytest.mark.parametrize("kind", PACK)
def test_few_requests(tmp_path: Path, years: dict[str, Path], kind: str, served: Any) -> None:
    with (tmp_path / "filler").open("wb") as file:
        file.truncate(5 << 20)
    archive = PACK[kind](tmp_path / f"a.{kind}", {"filler": tmp_path / "filler", **years, "more": tmp_path / "filler"})
    url = f"{served.url(archive.name)}::runs/y1.nc"
    group = insitu.scan(url, decode=False)
    assert len(served.requests) <= 8, served.requests
    assert sum(length for _, _, length in served.requests) < 2 << 20
    served.requests.clear()
    assert insitu.scan(f"{served.url(archive.name)}::runs/y2.nc", decode=False).arrays
    assert len(served.requests) <= 8, served.requests
    expected = xarray.open_dataset(years["runs/y1.nc"], decode_times=False)
    np.testing.assert_array_equal(insitu.read(group, "tas", decode=False), expected.tas)
    actual = insitu.open_mfdataset(f"{served.url(archive.name)}::runs/*.nc").load()
    parts = [xarray.open_dataset(years[f"runs/y{n}.nc"]).load() for n in range(3)]
    xarray.testing.assert_identical(actual, xarray.concat(parts, "time"))


def _store(path: Path, version: int, shards: bool = False) -> np.ndarray[Any, Any]:
    values = np.random.default_rng(version).normal(size=(20, 30)).astype("f4")
    root = zarr.open_group(path, mode="w", zarr_format=version)  # type: ignore[arg-type]
    how: dict[str, Any] = {"shards": (10, 20)} if shards else {}
    array = root.create_array("inner/tas", shape=(20, 30), chunks=(5, 10), dtype="f4", fill_value=7, **how)
    array[:15] = values[:15]
    values[15:] = 7
    scalar = root.create_array("scalar", shape=(), dtype="i4")
    scalar[...] = 5
    return values


@pytest.mark.parametrize("kind", PACK)
@pytest.mark.parametrize("form", ["v2", "v3", "shards"])
@pytest.mark.parametrize("alone", [True, False])
def test_zarr_stores_in_archives(tmp_path: Path, years: dict[str, Path], kind: str, form: str, alone: bool) -> None:
    values = _store(tmp_path / "s.zarr", 2 if form == "v2" else 3, form == "shards")
    files = {
        f"data/s.zarr/{path.relative_to(tmp_path / 's.zarr')}": path
        for path in (tmp_path / "s.zarr").rglob("*")
        if path.is_file()
    }
    archive = PACK[kind](tmp_path / f"a.{kind}", files if alone else {**years, **files})
    url = f"{archive}::data/s.zarr"
    np.testing.assert_array_equal(insitu.read(url, "inner/tas", decode=False), values)
    assert insitu.read(url, "scalar", decode=False) == 5
    np.testing.assert_array_equal(insitu.open_dataset(url, group="inner", mask_and_scale=False).tas, values)
    np.testing.assert_array_equal(insitu.open_dataset(f"{url}/inner", mask_and_scale=False).tas, values)
    whole = insitu.scan(archive, decode=False)
    path = "" if alone and kind == "tar" else "data/s.zarr/"
    if not (alone and kind == "zip"):
        np.testing.assert_array_equal(insitu.read(whole, f"{path}inner/tas", decode=False), values)
    if not alone:
        assert "y0.nc" in whole.groups["runs"].groups
        assert expand_entries(f"{archive}::data/*") == [url]


def test_a_store_at_the_root_of_a_tar(tmp_path: Path) -> None:
    values = _store(tmp_path / "s.zarr", 3)
    files = {
        str(path.relative_to(tmp_path / "s.zarr")): path for path in (tmp_path / "s.zarr").rglob("*") if path.is_file()
    }
    np.testing.assert_array_equal(insitu.read(_tar(tmp_path / "s.tar", files), "inner/tas", decode=False), values)
    packed = _zip(
        tmp_path / "p.bin",
        {"in/" + name: path for name, path in files.items()} | {"x": tmp_path / "s.tar"},
        zipfile.ZIP_DEFLATED,
    )
    with pytest.raises(UnsupportedError, match="compressed"):
        insitu.scan(f"{packed}::in", decode=False)


@pytest.mark.parametrize("inner", PACK)
@pytest.mark.parametrize("outer", PACK)
def test_archives_in_archives_are_refused_by_name(
    tmp_path: Path, years: dict[str, Path], inner: str, outer: str
) -> None:
    within = PACK[inner](tmp_path / f"in.{inner}", {"runs/y1.nc": years["runs/y1.nc"]})
    archive = PACK[outer](tmp_path / f"out.{outer}", {**years, f"a/in.{inner}": within})
    for name in (f"a/in.{inner}::runs/y1.nc", f"a/in.{inner}/runs/y1.nc", f"a/in.{inner}"):
        with pytest.raises(UnsupportedError) as caught:
            insitu.scan(f"{archive}::{name}", decode=False)
        assert f"out.{outer}::a/in.{inner}" in str(caught.value)
        assert f"{inner} archive itself" in str(caught.value)
        assert "Unpack the outer archive" in str(caught.value)
    with pytest.raises(UnsupportedError, match="archive itself"):
        insitu.scan(archive, decode=False)
    with pytest.warns(InsituWarning, match="archive itself"):
        tree = insitu.scan(archive, decode=False, errors="warn")
    assert "archive itself" in tree.problems[f"a/in.{inner}"]
    expected = xarray.open_dataset(years["runs/y1.nc"]).load()
    xarray.testing.assert_identical(insitu.open_dataset(f"{archive}::runs/y1.nc").load(), expected)


def test_a_zip_that_holds_itself_ends() -> None:
    """Its directory says that the member's bytes are the whole archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.zip", b"x")
    data = bytearray(buffer.getvalue())
    entry = data.index(b"PK\1\2")
    struct.pack_into("<II", data, entry + 20, len(data), len(data))
    with pytest.raises(InsituError):
        scan_format(MemorySource(bytes(data)))


def test_sparse_members_are_refused_by_name(tmp_path: Path, years: dict[str, Path]) -> None:
    def header(name: bytes, kind: bytes, size: int) -> bytearray:
        block = bytearray(512)
        block[: len(name)] = name
        block[124:136] = f"{size:011o} ".encode()
        block[156:157] = kind
        block[257:265] = b"ustar  \0"
        return block

    def summed(block: bytearray) -> bytes:
        block[148:156] = b" " * 8
        block[148:156] = f"{sum(block):06o}\0 ".encode()
        return bytes(block)

    sparse = header(b"sparse.nc", b"S", 512)
    sparse[482] = 1  # the map goes on for two more blocks
    more = bytearray(512)
    more[504] = 1
    inner = years["runs/y0.nc"].read_bytes()
    data = summed(sparse) + bytes(more) + bytes(512) + b"h" * 512 + summed(header(b"y0.nc", b"0", len(inner)))
    data += inner + bytes(-len(inner) % 512 + 1024)
    (tmp_path / "a.tar").write_bytes(data)
    assert "sparse" in insitu.scan(tmp_path / "a.tar", decode=False).problems["sparse.nc"]
    assert "tas" in insitu.scan(f"{tmp_path / 'a.tar'}::y0.nc", decode=False).arrays
    with pytest.raises(VariableError, match="sparse"):
        insitu.scan(f"{tmp_path / 'a.tar'}::sparse.nc", decode=False)


def test_hard_links_and_members_that_come_twice(tmp_path: Path, years: dict[str, Path]) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(years["runs/y0.nc"], "same.nc")
        archive.add(years["runs/y1.nc"], "same.nc")
        link = tarfile.TarInfo("link.nc")
        link.type, link.linkname = tarfile.LNKTYPE, "same.nc"
        archive.addfile(link)
    expected = xarray.open_dataset(years["runs/y1.nc"]).load()
    for name in ("same.nc", "link.nc"):  # the last is what an unpacked archive would have
        xarray.testing.assert_identical(insitu.open_dataset(f"{tmp_path / 'a.tar'}::{name}").load(), expected)


def test_a_comment_that_looks_like_a_directory(tmp_path: Path, years: dict[str, Path]) -> None:
    archive = _zip(tmp_path / "a.zip", years)
    with zipfile.ZipFile(archive, "a") as file:
        file.comment = b"PK\5\6" + bytes(40)
    assert "tas" in insitu.scan(f"{archive}::runs/y1.nc", decode=False).arrays


def test_a_document_in_an_archive_names_no_other_member(tmp_path: Path) -> None:
    document = (
        b'<Dataset xmlns="http://xml.opendap.org/ns/DAP/4.0#" xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#">'
        b'<Int8 name="v"><Dim size="2"/><dmrpp:chunk offset="0" nBytes="2"/></Int8></Dataset>'
    )
    (tmp_path / "d").write_bytes(document)
    archive = _zip(tmp_path / "a.zip", {"a.nc.dmrpp": tmp_path / "d"})
    with pytest.raises(UnsupportedError, match="another member"):
        insitu.scan(f"{archive}::a.nc.dmrpp", decode=False)


def test_the_list_of_members_is_read_once(tmp_path: Path, years: dict[str, Path]) -> None:
    with (tmp_path / "filler").open("wb") as file:
        file.truncate(1 << 20)
    archive = _tar(tmp_path / "a.tar", {f"filler{n}": tmp_path / "filler" for n in range(10)} | years)
    first, second = (CountingSource(LocalSource(archive)) for _ in range(2))
    for counted in (first, second):
        assert "tas" in scan_format(ScopedArchive(counted, "runs/y2.nc")).arrays
    assert first.requests > 10
    assert second.requests < 4
