"""The server behind a proxy: the configuration of the documentation, in a real nginx."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from ports import free_port
from server.certificates_made import make_certificate
from server.places import servers
from server.serving import Server, serving, started
from waiting import LONG, wait_until

pytestmark = pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
HOWTO = Path(__file__).resolve().parents[2] / "docs" / "howto"


def nginx_blocks(page: str) -> list[str]:
    """The configurations of nginx that a page shows."""
    return re.findall(r"^```nginx\n(.*?)^```$", (HOWTO / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="session")
def archive(root: Path) -> Path:
    path = root / "proxied.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=np.arange(3_000_000.0), chunks=(300_000,))
    return path


@pytest.fixture(scope="session")
def proxied(root: Path, archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """A server, and what nginx shows of it."""
    if (why := servers.reason("nginx")) is not None:
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("nginx")
    make_certificate(folder, "store")
    (block,) = nginx_blocks("serving.md")
    with serving(
        [root, "http://copied.example/a=" + str(root)], folder / "serve.log", "--log-format", "json"
    ) as server:
        for old, new in (
            ("/etc/ssl/store.pem", str(folder / "store.pem")),
            ("/etc/ssl/store.key", str(folder / "store.key")),
            ("http://127.0.0.1:8080", server.url),
        ):
            assert old in block
            block = block.replace(old, new)
        (folder / "site.conf").write_text(block)
        with servers.start("nginx", folder) as nginx:
            yield server, Server(nginx.url, server.process, folder / "log")
    shutil.rmtree(folder)


def test_every_kind_of_address(proxied: tuple[Server, Server], archive: Path) -> None:
    direct, through = proxied
    assert through.url.startswith("https://")
    for path in (
        "/", "/health", "/openapi.json", "/explorer/api/server", f"/zarr2{archive}!/v/.zarray",
        f"/zarr{archive}!/v/c/3", f"/zarr/{archive}!/v/c/3", f"/zarr{str(archive).replace('prox', 'pro%78')}!/v/c/0",
        "/zarr/http://copied.example/a/proxied.h5!/v/zarr.json",
    ):  # fmt: skip
        one, other = direct.get(path), through.get(path)
        assert (one.status, one.body) == (other.status, other.body), path
        assert one.status == 200 or "copied" in path, path


def test_large_requests_and_answers(proxied: tuple[Server, Server], archive: Path) -> None:
    _, through = proxied
    job = {"url": str(archive), "variable": "v"}
    padded = {"jobs": [job | {"decode": True}], "padding": "x" * (20 << 20)}
    for body in ({"jobs": [job | {"decode": True}]}, padded):
        answer = through.post("/read", body)
        assert answer.status == (200 if "padding" not in body else 400), answer.body[:300]
    assert len(through.post("/read", {"jobs": [job | {"decode": True}]}).body) > 24_000_000


def test_the_log_names_the_client(proxied: tuple[Server, Server]) -> None:
    direct, through = proxied
    assert through.ask("GET", "/health", None, {"X-Request-ID": "behind", "X-Forwarded-For": "1.2.3.4"}).status == 200

    def entries() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in direct.log.read_text().split("\n")[:-1]]
        return [line for line in lines if line.get("request_id") == "behind"]

    (entry,) = wait_until(entries)  # the line is written after the answer
    assert entry["client"] == "127.0.0.1"


def test_an_upgrade_behind_a_proxy(root: Path, archive: Path, tmp_path: Path) -> None:
    """One server after the other is replaced, as the page says, and no client notices."""
    if (why := servers.reason("nginx")) is not None:
        pytest.skip(why)
    make_certificate(tmp_path, "store")
    (block,) = nginx_blocks("upgrading.md")
    ports = {"8081": free_port(), "8082": free_port()}
    for old, new in (*ports.items(), ("/etc/ssl/store", str(tmp_path / "store"))):
        assert old in block
        block = block.replace(old, str(new))
    (tmp_path / "site.conf").write_text(block)

    def start(port: int, name: str) -> AbstractContextManager[Server]:
        return started([str(root), "--port", str(port)], f"http://127.0.0.1:{port}", tmp_path / name)

    job = {"jobs": [{"url": str(archive), "variable": "v", "methods": ["sum"]}]}
    statuses, ended = [], threading.Event()
    with ExitStack() as stack:
        olds = [stack.enter_context(start(port, f"old-{port}")) for port in ports.values()]
        through = Server(stack.enter_context(servers.start("nginx", tmp_path)).url, olds[0].process, tmp_path / "log")

        def ask() -> None:
            while not ended.is_set():
                statuses.append(through.post("/reduce", job).status)

        load = [threading.Thread(target=ask) for _ in range(3)]
        for thread in load:
            thread.start()
        for old, port in zip(olds, ports.values(), strict=True):
            counted = len(statuses)
            wait_until(lambda counted=counted: len(statuses) > counted + 5)  # type: ignore[misc]
            old.process.terminate()
            old.process.wait(LONG)
            new = stack.enter_context(start(port, f"new-{port}"))
            wait_until(lambda new=new: "/reduce" in new.log.read_text())  # type: ignore[misc]
        ended.set()
        for thread in load:
            thread.join(LONG)
    assert set(statuses) == {200}
