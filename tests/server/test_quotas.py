"""Quotas by token: what is counted, over all workers, and what a client is told."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import insitu
from insitu.errors import ActiveWarning
from insitu.server.app import create_app
from insitu.server.quotas import FOLDER_PREFIX, Quota, QuotaError, Quotas, parse_quotas
from insitu.server.settings import Settings
from ports import free_port
from server.in_process import Request, ask_app
from server.serving import Server, started
from waiting import LONG

VALUES = np.random.default_rng(1).normal(size=(64, 20_000))


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("quotas") / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=VALUES, chunks=(1, 20_000), compression="gzip", compression_opts=1)
    return path


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def jobs(path: Path, **more: Any) -> dict[str, Any]:
    return {"jobs": [{"url": str(path), "variable": "v", **more}]}


def reduction(path: Path, token: str = "one") -> Request:
    return Request("POST", "/reduce", jobs(path, methods=["sum"]), bearer(token))


def app(archive: Path, quotas: dict[str, Any]) -> Any:
    return create_app(Settings(roots=(str(archive.parent),), tokens=("one", "two", "k:s"), quotas=quotas))


def left(headers: Any) -> dict[str, int]:
    """What is left of each quota, as an answer says."""
    return {name: int(rest) for name, rest in re.findall(r'"(\w+)";r=(\d+);t=\d+', headers["ratelimit"])}


def test_an_hour_begins_with_the_first_request() -> None:
    now = [10_000.0]
    quotas = Quotas({"default": Quota(requests=2, bytes=100)}, clock=lambda: now[0])
    assert quotas.begin("a")["RateLimit"] == '"requests";r=1;t=3600, "bytes";r=100;t=3600'
    now[0] += 600
    quotas.add("a", 30, 0.5)
    headers = quotas.begin("a")
    assert headers["RateLimit"] == '"requests";r=0;t=3000, "bytes";r=70;t=3000'
    assert headers["RateLimit-Policy"] == '"requests";q=2;qu="requests";w=3600, "bytes";q=100;qu="content-bytes";w=3600'
    with pytest.raises(QuotaError, match="2 requests in an hour") as caught:
        quotas.begin("a")
    assert caught.value.retry_after == 3000
    quotas.begin("b")  # another token
    quotas.add("a", 0, 0.0, -1)  # one that was refused
    quotas.begin("a")
    now[0] += 3000
    quotas.begin("a")
    quotas.add("a", 100, 0.0)
    with pytest.raises(QuotaError, match="100 bytes in an hour"):
        quotas.begin("a")
    now[0] = 0.0  # a clock that was put back
    quotas.begin("a")
    quotas.close()


def test_tokens_are_known_by_their_digests() -> None:
    one, two = (hashlib.sha256(token).hexdigest() for token in (b"one", b"two"))
    found = parse_quotas({"one": {"requests": 1}, f"sha256:{two.upper()}": {"requests": 2}, "default": {"bytes": 3}})
    assert found == {one: Quota(1), two: Quota(2), "default": Quota(bytes=3)}


def test_each_token_has_its_own(archive: Path) -> None:
    digest = hashlib.sha256(b"two").hexdigest()
    quotas = {"default": {"requests": 2}, f"sha256:{digest}": {"requests": 3}}
    requested = [reduction(archive, token) for token in ("one", "one", "one", "two", "two", "two", "two")]
    basic = {"Authorization": "Basic azpz"}  # k:s
    requested += [Request("POST", "/reduce", jobs(archive, methods=["sum"]), basic) for _ in range(3)]
    answers = ask_app(app(archive, quotas), *requested)
    assert [answer.status for answer in answers] == [200, 200, 429, 200, 200, 200, 429, 200, 200, 429]
    assert [left(answer.headers)["requests"] for answer in answers if answer.status == 200] == [1, 0, 2, 1, 0, 1, 0]
    refused = answers[2]
    assert 3500 <= int(refused.headers["retry-after"]) <= 3600
    assert refused.headers["x-insitu-error"] == "quota"
    assert "2 requests in an hour" in refused.message


def test_what_is_refused_counts_nothing(archive: Path) -> None:
    outside, one = archive.parent.parent / "outside.h5", bearer("one")
    refused = {
        reduction(outside): 403,
        reduction(archive, token="wrong"): 401,
        Request("POST", "/reduce", b"{", one): 400,
        Request("GET", "/nowhere", headers=one): 404,
        Request("GET", "/reduce", headers=one): 405,
        Request("POST", "/scan", {"url": "s3://elsewhere/x"}, one): 403,
        Request("POST", "/scan", b"x" * (2 << 20), one): 413,
        Request("GET", "/health"): 200,
        Request("GET", "/"): 200,
        Request("GET", "/metrics", headers=one): 200,
        Request("POST", "/v2/sum", {}, one): 400,
        Request("POST", "/v2/nothing", {}, one): 404,
    }
    whole = {"requests": 100, "bytes": 10**9, "processor_seconds": 1000}
    answers = ask_app(app(archive, {"default": whole}), *refused, reduction(archive), reduction(archive))
    assert [answer.status for answer in answers[: len(refused)]] == list(refused.values())
    first, second = answers[len(refused) :]
    assert left(first.headers) == {**whole, "requests": 99}  # nothing was used before
    assert left(second.headers) == {
        "requests": 98,
        "bytes": 10**9 - len(first.body),
        "processor_seconds": 999,
    }


def test_errors_that_cost_work_count(archive: Path) -> None:
    missing = archive.parent / "none.h5"
    answers = ask_app(app(archive, {"default": {"requests": 5}}), reduction(missing), reduction(archive))
    assert [answer.status for answer in answers] == [404, 200]
    assert left(answers[1].headers)["requests"] == 3


@pytest.mark.parametrize("limits", [{"bytes": 1}, {"processor_seconds": 1e-6}, {"requests": 1}])
def test_each_limit(archive: Path, limits: dict[str, Any]) -> None:
    zarr = Request("GET", f"/zarr{archive}!/v/c/0/0", headers=bearer("one"))
    page = Request("GET", "/explorer/api/archive", headers=bearer("one"), query={"archive": str(archive)})
    answers = ask_app(app(archive, {"default": limits}), reduction(archive), reduction(archive), zarr, page)
    assert [answer.status for answer in answers] == [200, 429, 429, 429]


def test_without_quotas_and_without_tokens(archive: Path) -> None:
    (answer,) = ask_app(app(archive, {}), reduction(archive))
    assert "ratelimit" not in answer.headers
    (answer,) = ask_app(app(archive, {"two": {"requests": 0}}), reduction(archive))
    assert answer.status == 200
    open_to_all = create_app(Settings(roots=(str(archive.parent),), quotas={"default": {"requests": 1}}))
    answers = ask_app(open_to_all, reduction(archive), reduction(archive, token="any"))
    assert [answer.status for answer in answers] == [200, 429]


def test_processor_time_is_that_of_all_threads(archive: Path) -> None:
    """What pools of threads decode counts, and nothing counts twice."""
    application = app(archive, {"default": {"processor_seconds": 10**6}})
    reads = [Request("POST", "/read", jobs(archive), bearer("one")) for _ in range(4)]
    before = time.process_time()
    *answers, metrics = ask_app(application, *reads, Request("GET", "/metrics", headers=bearer("one")))
    spent = time.process_time() - before
    assert [answer.status for answer in answers] == [200] * 4
    found = re.search(r"^insitu_processor_seconds_total (\S+)$", metrics.body.decode(), re.MULTILINE)
    assert found is not None
    assert 0.05 * spent < float(found[1]) <= spent


@pytest.fixture(scope="module")
def counting(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of two workers, by a file."""
    folder, port = tmp_path_factory.mktemp("served"), free_port()
    (folder / "tokens").write_text("one\ntwo\nthree\n")
    digest = hashlib.sha256(b"three").hexdigest()
    (folder / "server.toml").write_text(
        f"""
roots = ["{archive.parent}"]
port = {port}
workers = 2
log_format = "json"
token_file = "{folder / "tokens"}"
[quotas.default]
requests = 30
[quotas."sha256:{digest}"]
processor_seconds = 0.0001
"""
    )
    with started(["--config", str(folder / "server.toml")], f"http://127.0.0.1:{port}", folder / "log") as running:
        yield running


def test_workers_count_together(counting: Server, archive: Path) -> None:
    body = jobs(archive, methods=["max"])
    statuses: list[int] = []

    def ask() -> None:
        for _ in range(10):
            counting.pool.clear()  # a new connection: either worker takes it
            statuses.append(counting.post("/reduce", body, bearer("one")).status)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert sorted(statuses) == [200] * 30 + [429] * 30
    assert counting.post("/reduce", body, bearer("two")).status == 200
    lines = [json.loads(line) for line in counting.log.read_text().split("\n")[:-1]]
    assert len({line["worker"] for line in lines if line.get("route") == "reduce"}) == 2


def test_a_client_that_goes_has_used_a_request(counting: Server, archive: Path) -> None:
    headers = {**bearer("two"), "Content-Type": "application/json"}
    body = json.dumps(jobs(archive)).encode()
    response = counting.pool.request("POST", f"{counting.url}/read", body=body, headers=headers, preload_content=False)
    first = left(response.headers)
    response.close()
    then = counting.post("/reduce", jobs(archive, methods=["max"]), bearer("two"))
    assert left(then.headers)["requests"] < first["requests"]


def test_insitus_own_client_is_told(counting: Server, archive: Path) -> None:
    """It does not wait for an hour: it reads here, and says why."""
    url = counting.url.replace("http://", "http://:three@")
    with insitu.open_dataset(archive, active=url) as ds:
        assert float(ds.v.max()) == VALUES.max()
        with pytest.warns(ActiveWarning, match="quota of this token is used up"):
            assert float(ds.v.min()) == VALUES.min()


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_is_left_behind(archive: Path, tmp_path: Path, workers: int) -> None:
    port = free_port()
    environment = {"TMPDIR": str(tmp_path), "INSITU_SERVE_QUOTAS": '{"default": {"requests": 2}}'}
    arguments = [str(archive.parent), "--port", str(port), "--workers", str(workers)]
    with started(arguments, f"http://127.0.0.1:{port}", tmp_path / "log", environment) as running:
        assert len(list(tmp_path.glob(f"{FOLDER_PREFIX}*/usage.db"))) == (workers > 1)
        found = [running.post("/scan", {"url": str(archive)}).status for _ in range(3)]
    assert found == [200, 200, 429]
    assert not list(tmp_path.glob(f"{FOLDER_PREFIX}*"))
