"""Real servers on the loopback interface, started once for all tests of this folder; skipped, with
the reason, where one cannot be had.

`python scripts/servers.py install` gets them (`make test` does).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from script_modules import load_script
from waiting import LONG

HERE = Path(__file__).resolve().parent
DATA = np.random.default_rng(11).integers(0, 256, 300_000, dtype=np.uint8).tobytes()


servers = load_script("servers")


@pytest.fixture
def options(seaweed: Any) -> dict[str, Any]:
    """Storage options for the private bucket."""
    return {"key": servers.KEY, "secret": servers.SECRET, "endpoint_url": seaweed.url}


@pytest.fixture
def bucket(seaweed: Any) -> Any:
    """The private bucket, as obstore writes to it."""
    from obstore.store import S3Store

    return S3Store("private", config=seaweed.config, client_options={"allow_http": True})


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without credentials, proxies or habits."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")) or name.lower() in ("http_proxy", "all_proxy", "netrc"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def _running(
    name: str, tmp_path_factory: pytest.TempPathFactory, prepare: Callable[[Path], None] | None = None
) -> Iterator[Any]:
    why = servers.reason(name)
    if why is not None:
        pytest.skip(why)
    folder = tmp_path_factory.mktemp(name)
    if prepare is not None:
        prepare(folder)
    with servers.start(name, folder) as running:
        yield running


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with many small chunks, compressed."""
    h5py = pytest.importorskip("h5py")
    path: Path = tmp_path_factory.mktemp("archive") / "archive.h5"
    values = np.random.default_rng(5).integers(0, 1000, (60, 40, 40)).astype("i4")
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=values, chunks=(2, 10, 10), compression="gzip", shuffle=True)
        file.create_dataset("plain", data=values[:10])
        file["t"].attrs["units"] = "K"
    return path


@pytest.fixture(scope="session")
def data() -> bytes:
    return DATA


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> Iterator[Any]:
    for running in _running("seaweedfs", tmp_path_factory):
        import obstore
        from obstore.store import S3Store

        config = {
            "endpoint": running.url,
            "access_key_id": servers.KEY,
            "secret_access_key": servers.SECRET,
            "region": "us-east-1",
        }
        for bucket in ("private", "public"):
            store = S3Store(bucket, config=config, client_options={"allow_http": True})
            _patiently(lambda store=store: obstore.put(store, "x.bin", DATA))
            obstore.put(store, "empty", b"")
            obstore.put(store, "archive.h5", archive.read_bytes())
            for name in ("1999/tas_1.nc", "1999/tas_2.nc", "1999/pr_1.nc", "2000/deep/tas_3.nc", "readme.txt"):
                obstore.put(store, f"era5/{name}", name.encode())
        running.config = config
        yield running


def _patiently(act: Callable[[], object], seconds: float = LONG) -> None:
    """A store that answers may not be ready to store."""
    until = time.monotonic() + seconds
    while True:
        try:
            act()
            return
        except Exception:
            if time.monotonic() > until:
                raise
            time.sleep(0.3)


@pytest.fixture(scope="session")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    def prepare(folder: Path) -> None:
        (folder / "files" / "box").mkdir(parents=True)
        (folder / "files" / "box" / "x.bin").write_bytes(DATA)

    yield from _running("rclone", tmp_path_factory, prepare)


def _website(folder: Path) -> None:
    import gzip

    files = folder / "files"
    (files / "era5" / "1999").mkdir(parents=True)
    (files / "x.bin").write_bytes(DATA)
    (files / "empty").write_bytes(b"")
    for name in ("1999/tas_1.nc", "1999/a b.nc", "tas_2.nc", "readme.txt"):
        (files / "era5" / name).write_text(name)
    (folder / "compressed").mkdir()
    (folder / "compressed" / "x.bin").write_bytes(gzip.compress(DATA, 1))


@pytest.fixture(scope="session")
def nginx(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> Iterator[Any]:
    def prepare(folder: Path) -> None:
        _website(folder)
        (folder / "files" / "archive.h5").write_bytes(archive.read_bytes())

    yield from _running("nginx", tmp_path_factory, prepare)


@pytest.fixture(scope="session")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from _running("apache", tmp_path_factory, _website)


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> Iterator[Any]:
    for running in _running("azurite", tmp_path_factory):
        import obstore
        from obstore.store import AzureStore

        from remote.azure_containers import make_container

        running.endpoint = f"{running.url}/{running.extra['account']}"
        config = {
            "account_name": running.extra["account"], "account_key": running.extra["key"], "endpoint": running.endpoint
        }  # fmt: skip
        for box in ("private", "public"):
            make_container(
                running.endpoint, running.extra["account"], running.extra["key"], box, public=box == "public"
            )
            store = AzureStore(box, config=config, client_options={"allow_http": True})
            obstore.put(store, "x.bin", DATA)
            obstore.put(store, "empty", b"")
            obstore.put(store, "archive.h5", archive.read_bytes())
            for name in ("1999/tas_1.nc", "1999/tas_2.nc", "2000/deep/tas_3.nc"):
                obstore.put(store, f"era5/{name}", name.encode())
        yield running
