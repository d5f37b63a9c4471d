"""The explorer over a bucket and over a web server that lists its folders: listings, search, patterns, and whose
credentials are used.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

from server.explorer.client import Explorer
from server.explorer.process import exploring
from server.places import servers
from server.serving import serving


def file_of(year: int) -> bytes:
    times = np.arange(f"{year}-01-01", f"{year}-01-04", dtype="M8[D]").astype("M8[ns]")
    data = xarray.Dataset({"v": (("time", "y", "x"), np.full((3, 40, 50), float(year)))}, {"time": times})
    out = io.BytesIO()
    data.to_netcdf(out, engine="h5netcdf")
    return out.getvalue()


@pytest.fixture(scope="module")
def endpoint(store: Any) -> str:
    """A store with a folder of two files in a bucket that needs a key."""
    if store is None:
        pytest.skip(servers.reason("seaweedfs"))
    import obstore
    from obstore.store import S3Store

    config: Any = {
        "endpoint": store.url,
        "access_key_id": servers.KEY,
        "secret_access_key": servers.SECRET,
        "region": "us-east-1",
    }
    bucket = S3Store("explored", config=config, client_options={"allow_http": True})
    for year in (2000, 2001):
        obstore.put(bucket, f"runs/deep/v_{year}.nc", file_of(year))
    return str(store.url)


def environment() -> dict[str, str]:
    return {"AWS_ACCESS_KEY_ID": servers.KEY, "AWS_SECRET_ACCESS_KEY": servers.SECRET, "AWS_REGION": "us-east-1"}


def test_a_bucket_with_the_keys_of_the_user(endpoint: str, tmp_path: Path) -> None:
    where = ("s3://explored/runs/", "-O", f"endpoint_url={endpoint}")
    with exploring(*where, folder=tmp_path, environment=environment()) as server:
        listing = Explorer(server)
        assert listing.json("server")["open"] is None
        (top,) = listing.json("list")["entries"]
        assert (top["kind"], top["url"]) == ("folder", "s3://explored/runs/")
        (deep,) = listing.json("list", folder=top["url"])["entries"]
        found = listing.json("list", folder=deep["url"])
        assert [entry["name"] for entry in found["entries"]] == ["v_2000.nc", "v_2001.nc"]
        assert [entry["bytes"] for entry in found["entries"]] == [len(file_of(2000)), len(file_of(2001))]
        assert listing.json("list", search="2001")["entries"] == [found["entries"][1]]
        file = Explorer(server, found["entries"][1]["url"])
        np.testing.assert_array_equal(file.picture("field", variable="v").arrays["values"], np.full((40, 50), 2001.0))
        together = Explorer(server, found["combined"])
        assert together.variable("v")["shape"] == [6, 40, 50]
        assert Explorer(server, "s3://other/x.nc").ask("archive").status == 403


def test_without_keys_the_store_refuses(endpoint: str, tmp_path: Path) -> None:
    with exploring("s3://explored/runs/deep/v_2000.nc", "-O", f"endpoint_url={endpoint}", "-O", "anon=true",
                   folder=tmp_path) as server:  # fmt: skip
        answer = Explorer(server, "s3://explored/runs/deep/v_2000.nc").ask("archive")
        assert answer.status == 401, answer.body


@pytest.fixture
def website(tmp_path: Path) -> Iterator[str]:
    """A web server that shows its folders as pages."""
    folder = tmp_path / "site"
    (folder / "data" / "sub folder").mkdir(parents=True)
    (folder / "secret").mkdir()
    for year in (2000, 2001):
        (folder / "data" / "sub folder" / f"v_{year}.nc").write_bytes(file_of(year))
        (folder / "secret" / f"v_{year}.nc").write_bytes(file_of(year))
    handler = partial(QuietHandler, directory=str(folder))
    site = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=site.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{site.server_address[1]}"
    site.shutdown()
    site.server_close()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


def test_a_website_under_a_root(website: str, tmp_path: Path) -> None:
    with serving([f"{website}/data"], tmp_path / "log") as server:
        listing = Explorer(server)
        (top,) = listing.json("list")["entries"]
        assert (top["kind"], top["url"]) == ("folder", f"{website}/data")
        (sub,) = listing.json("list", folder=top["url"])["entries"]
        assert (sub["name"], sub["kind"], sub["url"]) == ("sub folder", "folder", f"{website}/data/sub%20folder/")
        found = listing.json("list", folder=sub["url"])
        assert [entry["url"] for entry in found["entries"]] == [
            f"{website}/data/sub%20folder/v_2000.nc",
            f"{website}/data/sub%20folder/v_2001.nc",
        ]
        assert [parent["name"] for parent in found["parents"]] == [f"{website}/data"]
        assert [entry["name"] for entry in listing.json("list", search="v_2000")["entries"]] == ["v_2000.nc"]
        for outside in (f"{website}/secret", website, f"{website}/data/../secret"):
            assert listing.ask("list", folder=outside).status == 403


class Signed(SimpleHTTPRequestHandler):
    """Gives a file to whoever has its signature, and everything to a user and his password."""

    def send_head(self) -> Any:
        known = self.path.endswith("?year=1&sig=hush") or self.headers.get("Authorization") == "Basic bWU6aHVzaA=="
        if not known:
            self.send_error(403)
            return None
        return super().send_head()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("signed")
    for year in (2000, 2001):
        (folder / f"v_{year}.nc").write_bytes(file_of(year))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Signed, directory=str(folder)))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "given",
    [
        ["http://{}/v_2000.nc?year=1&sig=hush"],
        ["http://{}/v_2000.nc?year=1&sig=hush", "http://{}/v_2001.nc?year=1&sig=hush"],
        ["http://me:hush@{}/v_2000.nc"],
        ["http://me:hush@{}/v_*.nc"],
        ["http://me:hush@{}/"],
    ],
)
def test_signatures_and_passwords_stay_with_the_server(signed: str, given: list[str], tmp_path: Path) -> None:
    """Everybody on the machine could read them, from the state of the server; and the listing cut URLs at `=`."""
    urls = [url.format(signed) for url in given]
    with exploring(*urls, "--token", "sesame", folder=tmp_path) as server:
        stranger, user = Explorer(server), Explorer(server, headers={"Authorization": "Bearer sesame"})
        assert stranger.json("server")["open"] is None
        listed = [entry["url"] for entry in user.json("list")["entries"]]
        public = [url.replace("me:hush@", "").replace("&sig=hush", "") for url in urls]
        assert listed == (public if len(public) == 1 else [*public, "collection:0"])
        is_folder = public[0].endswith("/")
        assert user.json("server")["open"] == (public[0] if len(public) == 1 and not is_folder else None)
        for url in [f"{public[0]}v_2001.nc"] if is_folder else listed:
            for _ in range(2):
                archive = Explorer(server, url, user.headers)
                assert archive.ask("field", variable="v").status == 200
                assert b"hush" not in archive.ask("archive").body
        if is_folder:
            assert len(user.json("list", folder=public[0])["entries"]) == 2
    assert "hush" not in (tmp_path / "explore.log").read_text()
