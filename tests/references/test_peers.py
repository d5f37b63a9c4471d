"""Interoperability: other tools read what insitu writes, and insitu reads what they write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import insitu
from insitu.model import VirtualGroup
from insitu.reading import read_array
from insitu.references import open_references, save

fsspec = pytest.importorskip("fsspec")
zarr = pytest.importorskip("zarr")
pytestmark = pytest.mark.filterwarnings("ignore:.*")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A netCDF-4 file such as there are many."""
    netcdf4 = pytest.importorskip("netCDF4")
    path = tmp_path_factory.mktemp("archive") / "a.nc"
    dice = np.random.default_rng(1)
    with netcdf4.Dataset(path, "w") as file:
        for name, size in {"time": 20, "lat": 7, "lon": 9}.items():
            file.createDimension(name, size)
        tas = file.createVariable(
            "tas", "f4", ("time", "lat", "lon"), zlib=True, shuffle=True, chunksizes=(3, 4, 9), fill_value=1e20
        )
        tas[:20] = dice.random((20, 7, 9))
        tas.units = "K"
        packed = file.createVariable("pr", "i2", ("time", "lat"), zlib=True, chunksizes=(6, 7), fill_value=-99)
        packed.scale_factor, packed.add_offset = 0.5, 10.0
        packed[:6] = 1 + dice.random((6, 7))
        time = file.createVariable("time", "f8", ("time",))
        time[:20] = np.arange(20)
        time.units = "days since 2000-01-01"
        file.createVariable("lat", "f8", ("lat",))[:] = np.arange(7)
        file.title = "an archive"
    return path


def assert_reads_like_h5py(group: VirtualGroup | None, archive: Path) -> None:
    """Our references of it, or what a peer made of it, hold the file's values."""
    assert group is not None
    with h5py.File(archive) as file:
        for name in ("tas", "pr", "time", "lat"):
            found = read_array(group.array(name))
            assert found.tolist() == file[name][...].tolist(), name
        assert group.array("tas").dims == ("time", "lat", "lon")
        assert group.array("tas").attributes["units"] == "K"


def write(archive: Path, target: Path, **options: Any) -> Path:
    save(insitu.scan(archive, decode=False), target, **options)
    return target


@pytest.mark.parametrize("options", [{}, {"inline_threshold": 500}, {"zarr_format": 3}])
def test_json_by_fsspec_and_zarr(archive: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    path = write(archive, tmp_path / "x.json", **options)
    files = fsspec.filesystem("reference", fo=str(path), remote_protocol="file")
    group = zarr.open_group(files.get_mapper(""), mode="r")
    with h5py.File(archive) as file:
        for name in ("tas", "pr", "time", "lat"):
            assert group[name][...].tolist() == file[name][...].tolist()


@pytest.mark.parametrize("options", [{}, {"inline_threshold": 500}, {"record_size": 5}])
def test_parquet_by_fsspecs_lazy_mapper(archive: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    from fsspec.implementations.reference import LazyReferenceMapper

    path = write(archive, tmp_path / "x.parq", **options)
    mapper = LazyReferenceMapper(str(path), engine="pyarrow")
    chunks = insitu.scan(archive, decode=False).array("tas").tiles[0].chunks
    for cell in np.ndindex(*chunks.shape):
        found, state = mapper["tas/" + ".".join(map(str, cell))], chunks[cell]
        if isinstance(found, bytes):
            assert len(found) == state.length
        else:
            assert [str(found[0]), int(found[1]), int(found[2])] == [str(archive), state.offset, state.length]


def test_parquet_by_fsspec_and_zarr(archive: Path, tmp_path: Path) -> None:
    pytest.importorskip("fastparquet")
    path = write(archive, tmp_path / "x.parq", record_size=5)
    files = fsspec.filesystem("reference", fo=str(path), remote_protocol="file")
    group = zarr.open_group(files.get_mapper(""), mode="r")
    with h5py.File(archive) as file:
        for name in ("tas", "pr", "time", "lat"):
            assert group[name][...].tolist() == file[name][...].tolist()


@pytest.mark.parametrize("name", ["x.json", "x.json.gz", "x.parq"])
def test_xarrays_kerchunk_engine(archive: Path, tmp_path: Path, name: str) -> None:
    xr = pytest.importorskip("xarray")
    pytest.importorskip("kerchunk")
    if name.endswith(".parq"):
        pytest.importorskip("fastparquet")
    path = write(archive, tmp_path / name)
    options: dict[str, Any] = {"remote_protocol": "file"}
    if name.endswith(".gz"):
        options["target_options"] = {"compression": "gzip"}
    actual = xr.open_dataset(str(path), engine="kerchunk", storage_options=options).load()
    xr.testing.assert_identical(actual.drop_encoding(), xr.open_dataset(archive).load().drop_encoding())


@pytest.mark.parametrize("name", ["x.json", "x.parq"])
def test_virtualizarrs_parsers(archive: Path, tmp_path: Path, name: str) -> None:
    pytest.importorskip("virtualizarr", reason="needs Python 3.12")
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import KerchunkJSONParser, KerchunkParquetParser

    path = write(archive, tmp_path / name)
    parser = KerchunkJSONParser() if name.endswith(".json") else KerchunkParquetParser()
    store = parser(f"file://{path}", ObjectStoreRegistry({"file://": LocalStore()}))
    group = zarr.open_group(store, mode="r")
    with h5py.File(archive) as file:
        for variable in ("tas", "pr", "time", "lat"):
            assert group[variable][...].tolist() == file[variable][...].tolist()


def scan_with_kerchunk(archive: Path, **options: Any) -> dict[str, Any]:
    hdf = pytest.importorskip("kerchunk.hdf")
    found: dict[str, Any] = hdf.SingleHdf5ToZarr(str(archive), **options).translate()
    return found


@pytest.mark.parametrize("threshold", [0, 1000])
def test_kerchunks_json(archive: Path, tmp_path: Path, threshold: int) -> None:
    refs = scan_with_kerchunk(archive, inline_threshold=threshold)
    (tmp_path / "k.json").write_text(json.dumps(refs))
    assert_reads_like_h5py(open_references(str(tmp_path / "k.json")), archive)


@pytest.mark.parametrize("record_size", [10, 10_000])
def test_kerchunks_parquet(archive: Path, tmp_path: Path, record_size: int) -> None:
    pytest.importorskip("fastparquet")
    df = pytest.importorskip("kerchunk.df")
    refs = scan_with_kerchunk(archive, inline_threshold=300)
    df.refs_to_dataframe(refs, str(tmp_path / "k.parq"), record_size=record_size)
    # kerchunk leaves files out in which no chunk was written.
    assert_reads_like_h5py(open_references(str(tmp_path / "k.parq"), missing="unwritten"), archive)


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_virtualizarrs_references(archive: Path, tmp_path: Path, form: str) -> None:
    virtualizarr = pytest.importorskip("virtualizarr", reason="needs Python 3.12")
    if form == "parquet":
        pytest.importorskip("fastparquet")
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import HDFParser

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    dataset = virtualizarr.open_virtual_dataset(
        f"file://{archive}", registry=registry, parser=HDFParser(), loadable_variables=[]
    )
    target = tmp_path / ("v.json" if form == "json" else "v.parq")
    dataset.vz.to_kerchunk(str(target), format=form)
    assert_reads_like_h5py(open_references(str(target), missing="unwritten"), archive)


def test_virtualizarrs_objects(tmp_path: Path) -> None:
    """A store of manifests is accepted wherever a file is, and so is a group of them."""
    pytest.importorskip("virtualizarr", reason="needs Python 3.12")
    import xarray as xr
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import HDFParser

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    paths, stores = [tmp_path / f"{number}.nc" for number in range(2)], []
    for number, path in enumerate(paths):
        values = np.random.default_rng(number).integers(0, 99, (4, 50)) / 2
        days = ("time", np.arange(4) + 4 * number, {"units": "days since 2001-01-01"})
        packing = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1, "zlib": True, "chunksizes": (3, 20)}
        made = xr.Dataset({"t": (("time", "x"), values), "scalar": 3.5}, {"time": days})
        made.to_netcdf(path, engine="h5netcdf", encoding={"t": packing})
        made.to_netcdf(path, engine="h5netcdf", encoding={"t": packing}, group="deep/er", mode="a")
        stores.append(HDFParser()(url=f"file://{path}", registry=registry))
    expected = xr.open_dataset(paths[0], engine="h5netcdf").load()
    group = stores[0]._group
    for given in (stores[0], group, [stores[0]]):
        for _ in range(2):
            xr.testing.assert_identical(insitu.open_dataset(given).load(), expected)
    xr.testing.assert_identical(xr.open_dataset(stores[0], engine="insitu").load(), expected)
    whole = xr.open_datatree(paths[0], engine="h5netcdf").load()
    xr.testing.assert_identical(insitu.open_datatree(stores[0]).load(), whole)
    joined = xr.open_mfdataset(paths, engine="h5netcdf", data_vars="minimal", coords="minimal", compat="override")
    actual = insitu.open_mfdataset(stores, data_vars="minimal", coords="minimal", compat="override")
    xr.testing.assert_identical(actual.load(), joined.load())
    np.testing.assert_array_equal(insitu.read(stores[1], "deep/er/t"), insitu.read(paths[1], "deep/er/t"))
    assert insitu.reduce(stores[0], "t", "max") == expected.t.max()
    insitu.open_dataset(stores[0]).insitu.save(tmp_path / "x.insitu")
    xr.testing.assert_identical(insitu.open_dataset(tmp_path / "x.insitu").load(), expected)


@pytest.mark.parametrize("threshold", [0, 10_000])
def test_kerchunks_combination_of_files(tmp_path: Path, threshold: int) -> None:
    """Three files along time, joined by kerchunk: what xarray makes of the files, we make of its
    references.
    """
    xr = pytest.importorskip("xarray")
    combine = pytest.importorskip("kerchunk.combine")
    paths = []
    for number in range(3):
        path = tmp_path / f"{number}.nc"
        data = np.random.default_rng(number).random((4, 5)).astype("f4")
        variables = {"t": (("time", "x"), data, {"units": "K"}), "flag": (("x",), np.arange(5, dtype="i2"))}
        days = {"time": ("time", np.arange(4) + 4 * number, {"units": "days since 2001-01-01"})}
        encoding = {"t": {"zlib": True, "chunksizes": (2, 5)}}
        xr.Dataset(variables, days).to_netcdf(path, engine="h5netcdf", encoding=encoding)
        paths.append(str(path))
    parts = [scan_with_kerchunk(Path(path)) for path in paths]
    joined = combine.MultiZarrToZarr(
        parts, concat_dims=["time"], identical_dims=["x", "flag"], remote_protocol="file", inline_threshold=threshold
    ).translate()
    (tmp_path / "k.json").write_text(json.dumps(joined))
    with xr.open_mfdataset(paths, engine="h5netcdf", data_vars="minimal") as files:
        xr.testing.assert_identical(insitu.open_dataset(tmp_path / "k.json").load(), files.load())


def test_kerchunks_netcdf3(tmp_path: Path) -> None:
    """Record variables, which kerchunk takes out of whole records by a codec of its own."""
    netcdf3 = pytest.importorskip("kerchunk.netCDF3")
    scipy = pytest.importorskip("scipy.io")
    path = tmp_path / "a.nc"
    with scipy.netcdf_file(str(path), "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 3)
        for name, kind in (("a", "f4"), ("b", "i2"), ("c", "f8")):
            file.createVariable(name, kind, ("time", "x"))[:5] = np.arange(15).reshape(5, 3)
        file.createVariable("still", "f8", ("x",))[:] = [1, 2, 3]
    refs = netcdf3.NetCDF3ToZarr(str(path), inline_threshold=0).translate()
    (tmp_path / "k.json").write_text(json.dumps(refs))
    found = open_references(str(tmp_path / "k.json"))
    assert found is not None
    actual = insitu.scan(path, decode=False)
    for name in ("a", "b", "c", "still"):
        assert read_array(found.array(name)).tolist() == read_array(actual.array(name)).tolist(), name
    # And the other way round: kerchunk's codec reads what we say.
    save(actual, tmp_path / "x.json")
    files = fsspec.filesystem("reference", fo=str(tmp_path / "x.json"), remote_protocol="file")
    group = zarr.open_group(files.get_mapper(""), mode="r")
    for name in ("a", "b", "c", "still"):
        assert group[name][...].tolist() == read_array(actual.array(name)).tolist(), name
