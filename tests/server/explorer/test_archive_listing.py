"""Which archives the explorer lists and opens: folders, stores, patterns, collections, groups, broken files; and
nothing outside of the roots.

Modules: server/explorer/recognise_archives.py
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
import zarr
from obstore.store import HTTPStore

import insitu
from fixtures.tree_products import write_swath_product
from forecast_files import open_with_cfgrib, same_values, write_runs
from server.explorer.client import Explorer
from server.serving import Server

FILES = Path(__file__).parents[2] / "files"


@pytest.fixture(scope="session")
def folder(root: Path) -> Path:
    place = root / "explorer archives"
    (place / "deep" / "deeper").mkdir(parents=True)
    for year in (2000, 2001, 2002):
        times = np.arange(f"{year}-01-01", f"{year}-01-05", dtype="M8[D]").astype("M8[ns]")
        values = np.random.default_rng(year).random((4, 5, 6))
        xarray.Dataset({"tas": (("time", "y", "x"), values)}, {"time": times}).to_netcdf(place / f"tas_{year}.nc")
    with h5py.File(place / "deep" / "nameless", "w") as file:
        file["inside"] = np.arange(3)
    xarray.Dataset({"a": ("x", [1.0, 2.0])}).to_zarr(place / "deep" / "store.zarr", consolidated=False)
    insitu.open_mfdataset(f"{place}/tas_*.nc").insitu.save(f"{place}/deep/deeper/saved.insitu")
    (place / "README.md").write_text("nothing to see")
    (place / ".hidden.nc").write_text("nothing to see")
    (place / "broken_off.nc").touch()
    return place


@pytest.fixture
def listing(server: Server) -> Explorer:
    return Explorer(server)


def names(listed: Any) -> list[str]:
    return [entry["name"] for entry in listed["entries"]]


def test_roots_and_folders(listing: Explorer, root: Path, folder: Path) -> None:
    top = listing.json("list")
    assert [(entry["url"], entry["kind"]) for entry in top["entries"]] == [(str(root), "folder")]
    assert (top["folder"], top["parents"], top["combined"]) == (None, [], None)
    found = listing.json("list", folder=str(folder))
    assert names(found) == ["deep", "tas_2000.nc", "tas_2001.nc", "tas_2002.nc"]
    assert found["parents"] == [{"name": str(root), "url": str(root)}]
    assert found["combined"] == f"{folder}/*.nc"
    file = found["entries"][1]
    assert (file["kind"], file["format"], file["bytes"]) == (
        "archive",
        "netcdf",
        os.path.getsize(folder / file["name"]),
    )
    assert file["modified"].endswith("Z")
    deep = {
        entry["name"]: (entry["kind"], entry["format"])
        for entry in listing.json("list", folder=f"{folder}/deep")["entries"]
    }
    assert deep == {"deeper": ("folder", None), "store.zarr": ("archive", "zarr"), "nameless": ("archive", "hdf5")}


def test_search(listing: Explorer, folder: Path) -> None:
    assert names(listing.json("list", search="TAS_2001")) == ["tas_2001.nc"]
    assert names(listing.json("list", folder=str(folder), search="saved")) == ["saved.insitu"]
    assert names(listing.json("list", search="no such thing")) == []
    assert "zarr.json" not in str(listing.json("list", search="zarr"))


@pytest.mark.parametrize("place", ["deep/nameless", "deep/store.zarr", "deep/deeper/saved.insitu", "tas_2000.nc"])
def test_every_entry_opens(server: Server, folder: Path, place: str) -> None:
    found = Explorer(server, f"{folder}/{place}").json("archive")
    assert [variable["shape"] for group in found["groups"] for variable in group["variables"]]


@pytest.mark.parametrize("place", ["tas_*.nc", "deep/deeper/saved.insitu"])
def test_patterns_and_saved_archives_are_one_dataset(server: Server, folder: Path, place: str) -> None:
    explorer = Explorer(server, f"{folder}/{place}")
    with xarray.open_mfdataset(f"{folder}/tas_*.nc") as truth:
        values = truth.tas.values
    assert explorer.variable("tas")["shape"] == list(values.shape)
    assert explorer.json("archive")["files"] == 3
    found = explorer.picture("field", variable="tas", index={"time": 9})
    np.testing.assert_array_equal(found.arrays["values"], values[9])
    line = explorer.picture("line", variable="tas", dim="time", index={"y": 2, "x": 3})
    np.testing.assert_array_equal(line.arrays["values"], values[:, 2, 3])


def test_a_pattern_over_zarr(server: Server, folder: Path) -> None:
    """What the snippet for xarray opens is what the page shows."""
    link = root_link(folder)
    try:
        pattern, address = f"{folder}/tas_*.nc", f"{server.url}/zarr{link}/tas_*.nc!/"
        with xarray.open_zarr(zarr_client(address)) as found, xarray.open_mfdataset(pattern) as truth:
            np.testing.assert_array_equal(found.tas.values, truth.tas.values)
    finally:
        link.unlink()


def test_patterns_of_files_with_groups(server: Server, root: Path) -> None:
    place = root / "swaths"
    place.mkdir()
    for number in range(3):
        write_swath_product(place / f"swath_{number}.nc", number, number != 1)
    explorer = Explorer(server, f"{place}/swath_*.nc")
    groups = {group["path"] for group in explorer.json("archive")["groups"]}
    name = "PRODUCT/SUPPORT_DATA/DETAILED_RESULTS/fit"
    assert {"PRODUCT", "PRODUCT/SUPPORT_DATA/DETAILED_RESULTS"} <= groups
    tree = insitu.open_mfdatatree(f"{place}/swath_*.nc")
    found = explorer.picture("line", variable=name, dim="time", index={"scanline": 1, "ground_pixel": 2})
    np.testing.assert_array_equal(found.arrays["values"], tree[name].values[:, 1, 2])
    store = zarr_client(f"{server.url}/zarr{place}/swath_*.nc!/")
    with xarray.open_datatree(store, engine="zarr") as shown:
        xarray.testing.assert_identical(shown.load(), tree.load())
    with xarray.open_zarr(store, group="PRODUCT") as shown:
        xarray.testing.assert_identical(shown.load(), tree["PRODUCT"].to_dataset())


def test_a_collection_of_forecasts(server: Server, root: Path) -> None:
    """Reduced next to the data, listed, drawn and read as Zarr, with a lead time that a run lacks."""
    pytest.importorskip("eccodes")
    pytest.importorskip("cfgrib")
    place = root / "forecasts"
    paths = write_runs(place, [(0, 0), (0, 3), (3, 0), (3, 3), (6, 0)])
    insitu.open_forecasts(paths).insitu.save(place / "runs.insitu")
    expected = open_with_cfgrib(paths)
    there = insitu.open_dataset(place / "runs.insitu", active=server.url, active_required=True)
    for dim in ("time", "step", None):
        np.testing.assert_array_equal(there.t.max(dim), expected.t.max(dim))
        np.testing.assert_allclose(there.t.mean(dim), expected.t.mean(dim), rtol=1e-6)
    newest = np.stack([expected.t[0, 0], expected.t[1, 0], expected.t[2, 0]])
    best = there[["t"]].insitu.best()
    np.testing.assert_array_equal(best.t.max("valid_time"), newest.max(0))
    explorer = Explorer(server, str(place / "runs.insitu"))
    assert "runs.insitu" in names(Explorer(server).json("list", folder=str(place)))
    shown = explorer.picture("field", variable="t", index={"time": 1, "step": 1}).arrays["values"]
    assert sorted(shown.ravel().tolist()) == sorted(expected.t[1, 1].values.ravel().tolist())
    assert np.isnan(explorer.picture("field", variable="t", index={"time": 2, "step": 1}).arrays["values"]).all()
    store = zarr_client(f"{server.url}/zarr{place}/runs.insitu!/")
    with xarray.open_zarr(store, decode_timedelta=True) as found:
        same_values(found.load(), expected)


def zarr_client(address: str) -> zarr.storage.ObjectStore[HTTPStore]:
    """A store of zarr-python over HTTP."""
    return zarr.storage.ObjectStore(HTTPStore.from_url(address, client_options={"allow_http": True}))


def root_link(folder: Path) -> Path:
    """A name of the folder without a space."""
    link = folder.parent / "linked_archives"
    link.symlink_to(folder)
    return link


def test_a_changed_file_is_shown_as_it_is_now(server: Server, root: Path) -> None:
    path = root / "changing.nc"
    explorer = Explorer(server, str(path))
    tags = []
    for value in (1.0, 2.0):
        xarray.Dataset({"a": (("y", "x"), np.full((2, 3), value))}).to_netcdf(path)
        answer = explorer.ask("field", variable="a")
        tags.append(answer.headers["ETag"])
        np.testing.assert_array_equal(explorer.picture("field", variable="a").arrays["values"], np.full((2, 3), value))
    assert tags[0] != tags[1]


def test_groups(server: Server, root: Path) -> None:
    path = root / "grouped.nc"
    xarray.Dataset(coords={"lat": ("lat", [10.0, 20.0], {"units": "degrees_north"})}).to_netcdf(path)
    values = np.arange(6.0).reshape(2, 3)
    xarray.Dataset({"v": (("lat", "lon"), values)}).to_netcdf(path, group="forecast/run", mode="a")
    explorer = Explorer(server, str(path))
    assert [group["path"] for group in explorer.json("archive")["groups"]] == ["", "forecast", "forecast/run"]
    about = explorer.variable("forecast/run/v")
    assert about["coordinates"] == {"lat": "lat", "lon": None}
    found = explorer.picture("field", variable="forecast/run/v")
    np.testing.assert_array_equal(found.arrays["values"], values)
    np.testing.assert_array_equal(found.arrays["y"], [10, 20])
    assert found.header["x"]["kind"] == "index"


def test_what_cannot_be_read_is_named(server: Server, root: Path) -> None:
    path = root / "partly.h5"
    with h5py.File(path, "w") as file:
        file["good"] = np.arange(4.0)
        space = h5py.h5s.create_simple((4,))
        create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        create.set_chunk((4,))
        create.set_filter(299, h5py.h5z.FLAG_OPTIONAL, ())
        h5py.h5d.create(file.id, b"bad", h5py.h5t.py_create(np.dtype("<f8")), space, create)
    (group,) = Explorer(server, str(path)).json("archive")["groups"]
    assert [variable["name"] for variable in group["variables"]] == ["good"]
    assert [problem["name"] for problem in group["problems"]] == ["bad"]
    assert "299" in group["problems"][0]["reason"]


def test_many_netcdf3_records_of_several_values_each(server: Server, root: Path) -> None:
    bounds = np.arange(4000.0).reshape(2000, 2)
    data = xarray.Dataset({"bounds": (("x", "bnds"), bounds), "other": ("x", np.zeros(2000))})
    data.to_netcdf(root / "records.nc", format="NETCDF3_CLASSIC", unlimited_dims=["x"])
    explorer = Explorer(server, str(root / "records.nc"))
    (group,) = explorer.json("archive")["groups"]
    assert {variable["name"]: variable["unreadable"] for variable in group["variables"]} == dict.fromkeys(data)
    shown = explorer.picture("field", variable="bounds", columns=2000).arrays["values"]
    np.testing.assert_array_equal(shown, bounds.T)


def test_files_that_are_left_out_of_a_pattern(server: Server, root: Path, folder: Path) -> None:
    place = root / "with_bad"
    place.mkdir()
    shutil.copy(folder / "tas_2000.nc", place)
    (place / "tas_bad.nc").write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 100)
    found = Explorer(server, f"{place}/*.nc").json("archive")
    assert [note["path"] for note in found["notes"]] == [str(place / "tas_bad.nc")]
    assert "left out" in found["notes"][0]["text"]


def test_an_image_with_overviews(server: Server, root: Path) -> None:
    """A field that is too large is read from the overview that is large enough."""
    tifffile = pytest.importorskip("tifffile")
    path = root / "pyramid.tif"
    side = 9000
    rows = np.arange(side, dtype="f4")[:, np.newaxis]
    image = np.broadcast_to(rows, (side, side))
    with tifffile.TiffWriter(path, bigtiff=True) as writer:
        how: dict[str, Any] = {"tile": (512, 512), "compression": "zlib", "photometric": "minisblack"}
        writer.write(np.ascontiguousarray(image), subifds=2, **how)
        for factor in (3, 9):
            small = image.reshape(side // factor, factor, side // factor, factor).mean((1, 3))
            writer.write(small.astype("f4"), subfiletype=1, **how)
    explorer = Explorer(server, str(path))
    groups = explorer.json("archive")["groups"]
    assert [group["path"] for group in groups] == ["", "overview_0", "overview_1"]
    name = next(one["path"] for one in groups[0]["variables"] if len(one["shape"]) >= 2)
    found = explorer.picture("field", variable=name, rows=500, columns=500)
    assert found.header["sampling"]["method"] == "overview"
    assert found.header["sampling"]["step"] == [18, 18]
    expected = np.arange(side).reshape(-1, 18).mean(1)
    np.testing.assert_allclose(found.arrays["values"], np.broadcast_to(expected[:, np.newaxis], (500, 500)), rtol=1e-6)
    part = explorer.picture("field", variable=name, rows=500, columns=500, box=[4500, 5500, 0, 1000])
    assert part.header["sampling"]["method"] == "mean"
    np.testing.assert_allclose(part.arrays["values"][:, 0], 4500.5 + 2 * np.arange(500))


OUTSIDE = [
    "/etc/passwd",
    "/",
    "../",
    "{root}/../outside.nc",
    "{root}/{{x,../../etc}}/*",
    "{root}/*/../../*.nc",
    "file:///etc/passwd",
    "http://127.0.0.1:1/x.nc",
    "s3://bucket/x.nc",
    "https://example.org/",
    "collection:0",
    "@/etc/passwd",
    "/etc/*",
    "{root}/link/passwd",
    "{root}/link/*",
    "memory://x",
    "\0",
]


@pytest.mark.parametrize("url", OUTSIDE)
def test_nothing_outside_of_the_roots(server: Server, root: Path, url: str) -> None:
    link = root / "link"
    if not link.exists():
        link.symlink_to("/etc")
    place = url.format(root=root)
    for name, fields in (("archive", {"url": place}), ("field", {"url": place, "variable": "a"})):
        answer = Explorer(server).ask(name, **fields)
        assert answer.status in (403, 404), answer.body
        assert b"root:" not in answer.body
    if not any(mark in url for mark in "*@:"):
        assert Explorer(server).ask("list", folder=place).status == 403
        assert Explorer(server).ask("list", folder=place, search="pass").status == 403


def test_links_that_lead_out_are_not_listed(listing: Explorer, root: Path) -> None:
    link = root / "link"
    if not link.exists():
        link.symlink_to("/etc")
    assert "link" not in names(listing.json("list", folder=str(root)))
    assert not listing.json("list", search="passwd")["entries"]


@pytest.mark.parametrize("place", sorted(str(p.relative_to(FILES)) for p in FILES.glob("*/*.*") if p.is_file())[::7])
def test_real_files_are_shown_or_refused_with_a_reason(server: Server, root: Path, place: str) -> None:
    """No file makes the explorer fail: every variable has a summary, and its first values a picture or a table."""
    path = root / Path(place).name
    shutil.copy(FILES / place, path)
    explorer = Explorer(server, str(path))
    answer = explorer.ask("archive")
    assert answer.status in (200, 422), answer.body
    if answer.status != 200:
        assert answer.message
        return
    for group in answer.json["groups"]:
        for variable in group["variables"][:6]:
            if 0 in variable["shape"]:
                continue
            name = "field" if len(variable["shape"]) > 1 and variable["kind"] in ("number", "time", "bool") else "table"
            found = explorer.ask(name, variable=variable["path"], rows=20, columns=20)
            assert found.status in (200, 400, 413, 422), (variable["path"], found.body)
            assert found.status != 200 or variable["unreadable"] is None
