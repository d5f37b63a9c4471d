"""Any archive as a Zarr store over HTTP: read by zarr-python, xarray, GDAL and zarrita.js."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.errors import InsituError
from insitu.server.zarr_view import archive_and_key
from server.serving import Server, serving
from waiting import LONG

zarr = pytest.importorskip("zarr")
from obstore.store import HTTPStore  # noqa: E402
from zarr.storage import ObjectStore  # noqa: E402

CLIENTS = Path(__file__).parents[2] / ".clients"
INSTALL = "install it with python scripts/clients.py install"

pytestmark = pytest.mark.filterwarnings(
    "ignore:Numcodecs codecs are not in the Zarr", "ignore:.*Zarr V3 specification", "ignore:Consolidated metadata"
)


@pytest.fixture(scope="session")
def archive(root: Path) -> Path:
    """One dataset of two files that are chunked and packed differently, saved as references."""
    folder = root / "zarr view"
    folder.mkdir()
    for number, (begin, days, scale) in enumerate([("2000-01-01", 31, 0.5), ("2000-02-01", 29, 0.25)]):
        time = (np.arange(days) + np.datetime64(begin)).astype("M8[ns]")
        values = (np.arange(days * 24.0).reshape(days, 4, 6) + number) * 0.5
        made = xr.Dataset(
            {"t": (("time", "lat", "lon"), values, {"units": "K"})},
            {"time": time, "lat": [-30.0, -10.0, 10.0, 30.0], "lon": np.arange(6) * 60.0},
            {"title": "for everybody"},
        )
        packing = {
            "dtype": "i2",
            "scale_factor": scale,
            "_FillValue": -9,
            "chunksizes": (10, 4, 2 + 2 * number),
            "zlib": True,
        }
        made.to_netcdf(folder / f"{number}.nc", engine="netcdf4", encoding={"t": packing})
    insitu.open_mfdataset(sorted(folder.glob("*.nc"))).insitu.save(folder / "all.insitu")
    return folder / "all.insitu"


@pytest.fixture(scope="session")
def plain(root: Path) -> Path:
    """A file that Zarr can say, in two ways of compression, with a group."""
    path = root / "plain.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "v", data=np.arange(70, dtype="f4").reshape(10, 7), chunks=(4, 7), compression="gzip", shuffle=True
        )
        file.create_dataset("g/w", data=np.arange(12, dtype="i2"), chunks=(5,))
        file["v"].attrs["units"] = "m"
    return path


def address(server: Server, archive: Path, version: int = 3) -> str:
    return f"{server.url}/zarr{'' if version == 3 else version}{archive}!"


def store(server: Server, archive: Path, version: int = 3) -> Any:
    url = address(server, archive, version).replace(" ", "%20")
    return ObjectStore(HTTPStore.from_url(url, client_options={"allow_http": True}), read_only=True)


@pytest.mark.parametrize("version", [3, 2])
def test_zarr_python(server: Server, archive: Path, plain: Path, version: int) -> None:
    group = zarr.open_group(store(server, archive, version), mode="r", use_consolidated=True, zarr_format=version)
    expected = insitu.open_dataset(archive)
    np.testing.assert_array_equal(group["t"][:], expected.t.values)
    np.testing.assert_array_equal(group["t"][5:50:7, 1, ::2], expected.t.values[5:50:7, 1, ::2])
    group = zarr.open_group(store(server, plain, version), mode="r", use_consolidated=True, zarr_format=version)
    np.testing.assert_array_equal(group["g/w"][:], np.arange(12))
    np.testing.assert_array_equal(group["v"][3:8], np.arange(70, dtype="f4").reshape(10, 7)[3:8])


@pytest.mark.parametrize("version", [3, 2])
def test_xarray(server: Server, archive: Path, version: int) -> None:
    with xr.open_zarr(store(server, archive, version), consolidated=True, zarr_format=version) as shown:
        xr.testing.assert_equal(shown.load(), insitu.open_dataset(archive).load())
        assert shown.attrs == {"title": "for everybody"}
        assert shown.t.attrs["units"] == "K"


def test_insitu_reads_its_own_view(server: Server, archive: Path) -> None:
    url = address(server, archive) + "/"
    np.testing.assert_array_equal(insitu.read(url, "t", np.s_[40, :, 3]), insitu.read(archive, "t", np.s_[40, :, 3]))


@pytest.mark.parametrize("version", [3, 2])
def test_zarrita(server: Server, archive: Path, plain: Path, version: int) -> None:
    node = shutil.which("node")
    if node is None or not (CLIENTS / "node_modules" / "zarrita").is_dir():
        pytest.skip(f"no node, or no zarrita.js: {INSTALL}")
    script = CLIENTS / "read_zarr.mjs"
    shutil.copy(Path(__file__).parent / "read_zarr.mjs", script)  # where node finds zarrita

    def seen(path: Path, *names: str) -> Any:
        url = address(server, path, version).replace(" ", "%20")
        done = subprocess.run([node, script, url, str(version), *names], capture_output=True, text=True, timeout=LONG)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    expected = insitu.open_dataset(archive)
    found = seen(archive, "t", "lat")
    assert found["t"]["shape"] == [60, 4, 6]
    np.testing.assert_array_equal(np.reshape(found["t"]["values"], (60, 4, 6)), expected.t.values)
    np.testing.assert_array_equal(np.reshape(found["t"]["part"], (30, 2, 3)), expected.t.values[::2, ::2, ::2])
    assert found["t"]["attributes"]["units"] == "K"
    np.testing.assert_array_equal(found["lat"]["values"], expected.lat.values)
    found = seen(plain, "v", "g/w")
    np.testing.assert_array_equal(found["v"]["values"], np.arange(70))
    np.testing.assert_array_equal(found["g/w"]["values"], np.arange(12))


def test_gdal(server: Server, archive: Path, plain: Path) -> None:
    """Debian's GDAL (3.6) speaks V2."""
    tool = shutil.which("gdalmdiminfo")
    if tool is None:
        pytest.skip(f"no GDAL: {INSTALL}")
    for path, name, expected in (
        (archive, "/t", insitu.open_dataset(archive).t.values),
        (plain, "/v", np.arange(70.0).reshape(10, 7)),
    ):
        url = f'ZARR:"/vsicurl/{address(server, path, 2).replace(" ", "%20")}"'
        done = subprocess.run(
            [tool, "-detailed", "-array", name, url],
            capture_output=True,
            text=True,
            timeout=LONG,
            env={**os.environ, "GDAL_HTTP_TIMEOUT": "900", "no_proxy": "*"},
        )
        assert done.returncode == 0, done.stderr
        printed = json.loads(done.stdout)
        values = np.array(printed["values"], float)
        np.testing.assert_array_equal(values.reshape(expected.shape), expected)


def test_over_http(server: Server, archive: Path, plain: Path) -> None:
    at = f"/zarr{plain}!"
    root = server.get(f"{at}/zarr.json")
    assert root.status == 200
    assert root.headers["Content-Type"] == "application/json"
    assert root.headers["Access-Control-Allow-Origin"] == "*"
    assert set(root.json["consolidated_metadata"]["metadata"]) == {"v", "g", "g/w"}
    key = f"{at}/g/w/c/0"
    whole = server.get(key)
    assert whole.body == np.arange(5, dtype="<i2").tobytes()
    for header, body, place in (
        ("bytes=2-5", whole.body[2:6], "bytes 2-5/10"),
        ("bytes=4-", whole.body[4:], "bytes 4-9/10"),
        ("bytes=-3", whole.body[-3:], "bytes 7-9/10"),
        ("bytes=8-99", whole.body[8:], "bytes 8-9/10"),
    ):
        part = server.get(key, {"Range": header})
        assert (part.status, part.body, part.headers["Content-Range"]) == (206, body, place)
    assert server.get(key, {"Range": "bytes=20-30"}).status == 416
    assert server.get(key, {"Range": "lines=1-2"}).body == whole.body
    head = server.ask("HEAD", key)
    assert (head.status, head.headers["Content-Length"], head.body) == (200, "10", b"")
    assert server.ask("OPTIONS", key).headers["Access-Control-Allow-Headers"].startswith("Range")
    for missing in (f"{at}/g/w/c/9", f"{at}/g/nothing/zarr.json", f"{at}/v/c/0", f"{at}/v/zarr.jso", f"{at}/"):
        assert server.get(missing).status == 404, missing
    assert server.get("/zarr/").status == 400
    assert server.get(f"/zarr{plain}/zarr.json").status == 400
    assert server.get(f"/zarr{plain.parent}/never_made.nc!/zarr.json").status == 404
    assert server.ask("PUT", f"{at}/x", b"").status == 405
    first = server.get(f"/zarr{archive}!/t/c/0/0/0".replace(" ", "%20"))
    assert first.status == 200
    part = server.get(f"/zarr{archive}!/t/c/0/0/0".replace(" ", "%20"), {"Range": "bytes=5-9"})
    assert part.body == first.body[5:10]


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd!/zarr.json",
        "{root}/../../../../etc/passwd!/zarr.json",
        "http://169.254.169.254/x!/zarr.json",
        "s3://other/x.nc!/zarr.json",
    ],
)
def test_only_what_lies_under_the_roots(server: Server, root: Path, path: str) -> None:
    answer = server.get("/zarr/" + path.replace("{root}", str(root)).lstrip("/"))
    assert answer.status in (403, 404)
    assert b"root:" not in answer.body


def test_references_that_lead_out_are_refused(server: Server, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "secret.h5"
    with h5py.File(outside, "w") as file:
        file["v"] = np.arange(1000, dtype="i4")
    insitu.references.save(insitu.scan(outside, decode=False), root / "leads-out.insitu")
    answer = server.get(f"/zarr{root}/leads-out.insitu!/v/c/0")
    assert answer.status == 403


def test_a_changed_archive_is_seen(server: Server, root: Path) -> None:
    path = root / "changes.h5"
    for value in (1, 2):
        path.unlink(missing_ok=True)
        with h5py.File(path, "w") as file:
            file["v"] = np.full(10, value, "i4")
        assert server.get(f"/zarr{path}!/v/c/0").body == np.full(10, value, "<i4").tobytes()


def test_tokens(root: Path, plain: Path, tmp_path: Path) -> None:
    with serving([root], tmp_path / "log", "--token", "secret") as closed:
        assert closed.get(f"/zarr{plain}!/zarr.json").status == 401
        assert closed.get(f"/zarr{plain}!/zarr.json", {"Authorization": "Bearer secret"}).status == 200


def test_paths() -> None:
    assert archive_and_key("data/x.nc!/a/c/0") == ("/data/x.nc", "a/c/0")
    assert archive_and_key("/data/x.nc!") == ("/data/x.nc", "")
    assert archive_and_key("s3://bucket/x.nc!/zarr.json") == ("s3://bucket/x.nc", "zarr.json")
    for wrong in ("data/x.nc", "!/zarr.json", ""):
        with pytest.raises(InsituError, match="names no archive"):
            archive_and_key(wrong)
