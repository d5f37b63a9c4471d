"""PyActiveStorage, unmodified, in an environment of its own, against our server: over S3 with keys
and without, and over HTTP.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docs.running import blocks
from script_modules import load_script
from server.places import put_object, servers
from server.serving import serving
from waiting import LONG

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
SELECTION = [[0, 20, 1], [2, 11, 1], [0, 18, 2]]
FILL = np.float32(1e20)
TOKEN = "a-token"


active_storage = load_script("active_storage")


@pytest.fixture(scope="module")
def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(8)
    masked = rng.normal(280, 5, (20, 12, 18)).astype("f4")
    masked[rng.random(masked.shape) < 0.1] = FILL
    holes, land = masked.copy(), rng.normal(size=(20, 12, 18))
    holes[5:10, 6:12, 9:18] = holes[0:5, :6] = FILL  # whole chunks of nothing
    land[4:8, :, 6:12] = -30_000
    return {
        "holes": np.ma.masked_equal(holes, FILL),
        "land": np.ma.masked_equal(land, -30_000),
        "masked": np.ma.masked_equal(masked, FILL),
        "plain": np.ma.asarray(rng.normal(size=(20, 12, 18))),
        "whole": np.ma.asarray(rng.integers(-100, 100, (20, 12, 18)).astype("i4")),
        "big": np.ma.asarray(rng.normal(size=(20, 12, 18)).astype(">f4")),
    }


@pytest.fixture(scope="module")
def places(arrays: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    h5py = pytest.importorskip("h5py")
    if active_storage.python() is None:
        pytest.skip(active_storage.reason())
    for name in ("seaweedfs", "nginx"):
        if (why := servers.reason(name)) is not None:
            pytest.skip(why)
    folder = tmp_path_factory.mktemp("website")
    (folder / "files").mkdir()
    path = folder / "files" / "archive.nc"
    with h5py.File(path, "w") as file:
        made = file.create_dataset(
            "masked", data=arrays["masked"].data, chunks=(5, 6, 9), compression="gzip", shuffle=True
        )
        made.attrs["_FillValue"] = FILL
        made = file.create_dataset("holes", data=arrays["holes"].data, chunks=(5, 6, 9), compression="gzip")
        made.attrs["_FillValue"] = FILL
        made = file.create_dataset("land", data=arrays["land"].data, chunks=(4, 12, 6), compression="gzip")
        made.attrs["_FillValue"] = np.float64(-30_000)
        file.create_dataset("plain", data=arrays["plain"].data, chunks=(7, 5, 18))
        file.create_dataset("whole", data=arrays["whole"].data, chunks=(4, 12, 6), compression="gzip")
        file.create_dataset("big", data=arrays["big"].data, chunks=(5, 6, 9), compression="gzip")
    tokens = ("--token", f"{servers.KEY}:{servers.SECRET}", "--token", TOKEN)
    with (
        servers.start("seaweedfs", tmp_path_factory.mktemp("seaweed")) as s3,
        servers.start("nginx", folder) as web,
        serving([s3.url, web.url], folder / "serve.log") as running,
        serving([s3.url, web.url], folder / "guarded.log", *tokens) as guarded,
    ):
        for bucket in ("private", "public"):
            put_object(s3.url, bucket, "archive.nc", path.read_bytes())
        how = {"client_kwargs": {"endpoint_url": s3.url}}
        keys = {"key": servers.KEY, "secret": servers.SECRET}
        yield {
            "keys": {
                "url": "private/archive.nc",
                "interface": "s3",
                "storage_options": {**keys, **how},
                "server": running.url,
            },
            "anonymous": {
                "url": "public/archive.nc",
                "interface": "s3",
                "storage_options": {"anon": True, **how},
                "server": running.url,
            },
            "web": {"url": f"{web.url}/archive.nc", "interface": "https", "storage_options": {}, "server": running.url},
            "guarded": {"server": guarded.url},
        }


def _run(cases: list[dict[str, Any]]) -> list[Any]:
    client = Path(__file__).with_name("active_client.py")
    done = subprocess.run(
        [active_storage.python(), client],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
        timeout=LONG,
    )
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("place", ["keys", "anonymous", "web"])
def test_statistics_are_numpys(places: dict[str, dict[str, Any]], arrays: dict[str, Any], place: str) -> None:
    part = tuple(slice(*entry) for entry in SELECTION)
    cases, expected = [], []
    for variable, array in arrays.items():
        for method in ("mean", "min", "max", "sum", None):
            # Flat counts let it take means of everything only, and dropped dimensions reduce
            # leading axes only. A place where there is nothing at all is not masked by it.
            some = (None, [0], [0, 1]) if variable not in ("holes", "land") else (None, [0])
            for axis in some if method in ("min", "max", "sum") else (None,):
                cases.append(
                    {**places[place], "variable": variable, "method": method, "axis": axis, "selection": SELECTION}
                )
                chosen = array[part]
                along = None if axis is None else tuple(axis)
                want = (
                    chosen if method is None else getattr(np.ma, method)(chosen.astype("f8"), axis=along, keepdims=True)
                )
                expected.append(np.ma.filled(want.astype("f8"), np.nan))
    for case, want, found in zip(cases, expected, _run(cases), strict=True):
        assert "error" not in found, (case, found)
        values = np.array(found["values"])
        if case["method"] is None:
            values = np.where(
                np.isin(values, (FILL, -30_000)), np.nan, values
            )  # a selection is raw: the mask is the reader's business
        np.testing.assert_allclose(
            values, want, rtol=1e-6, atol=1e-5, err_msg=str(case)
        )  # partial sums are float32 on the wire


def test_any_axes_where_dimensions_are_kept(places: dict[str, dict[str, Any]], arrays: dict[str, Any]) -> None:
    part = tuple(slice(*entry) for entry in SELECTION)
    cases, expected = [], []
    for method in ("mean", "min", "max"):
        for axis in ([1], [2], [0, 2], [1, 2], [0, 1, 2]):
            where = {**places["keys"], "server": f"{places['keys']['server']}/keepdims"}
            cases.append({**where, "variable": "masked", "method": method, "axis": axis, "selection": SELECTION})
            want = getattr(np.ma, method)(arrays["masked"][part].astype("f8"), axis=tuple(axis), keepdims=True)
            expected.append(np.ma.filled(want, np.nan))
    for case, want, found in zip(cases, expected, _run(cases), strict=True):
        assert "error" not in found, (case, found)
        np.testing.assert_allclose(np.array(found["values"]), want, rtol=1e-6, err_msg=str(case))


def test_the_page_about_it(places: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    """Both halves of the page run as they are printed, each in its own environment, and give the same."""
    endpoint = places["keys"]["storage_options"]["client_kwargs"]["endpoint_url"]
    named = {
        "https://s3.example": endpoint, "http://store.example:8080": places["keys"]["server"],
        "bucket/era5.nc": "private/archive.nc", '"tas"': '"masked"', "ds.tas": "ds.masked",
        '"KEY"': repr(servers.KEY), '"SECRET"': repr(servers.SECRET),
    }  # fmt: skip
    page = SCRIPTS.parent / "docs" / "howto" / "from_pyactivestorage.md"
    with_active_storage, with_insitu = (text for _, text in blocks(page))
    found = []
    for code, interpreter in ((with_active_storage, active_storage.python()), (with_insitu, sys.executable)):
        for old, new in named.items():
            code = code.replace(old, new)
        shown = "\nimport json, sys, numpy as np\nprint(json.dumps("
        shown += "[np.ma.filled(np.ma.asarray(np.asanyarray(v), 'f8'), np.nan).ravel().tolist()"
        shown += " for v in (average, warmest, maps)]))"
        # An error instead of the warning that is given where the server is not asked.
        strict = "import warnings; warnings.simplefilter('error', UserWarning)\n"
        done = subprocess.run([interpreter, "-c", strict + code + shown], capture_output=True, text=True, timeout=LONG)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout.splitlines()[-1]))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)  # partial sums of theirs are float32 on the wire
        assert np.isfinite(other).all()


def test_a_server_with_tokens(places: dict[str, dict[str, Any]], arrays: dict[str, Any]) -> None:
    """It sends nothing but Basic credentials: they are a pair that the server accepts, or hold a token."""
    what = {**places["guarded"], "variable": "plain", "method": "max", "axis": None, "selection": SELECTION}
    by_password = {"username": "anybody", "password": TOKEN}
    let_in = [
        {**places["keys"], **what},
        {**places["web"], "storage_options": by_password, **what},
    ]
    kept_out = [
        {**places["anonymous"], **what},
        {**places["web"], **what},
        {**places["web"], "storage_options": {**by_password, "password": "wrong"}, **what},
    ]
    found = _run([*let_in, *kept_out])
    expected = arrays["plain"][tuple(slice(*entry) for entry in SELECTION)].max()
    for answer in found[: len(let_in)]:
        assert "error" not in answer, answer
        np.testing.assert_allclose(np.ravel(answer["values"]), expected)
    for answer in found[len(let_in) :]:
        assert "401" in answer["error"]


def test_what_storage_refuses(places: dict[str, dict[str, Any]]) -> None:
    """The statuses of the protocol, with the words that clients look for."""
    from base64 import b64encode

    from server.serving import Server

    server = Server(places["keys"]["server"], None, Path())  # type: ignore[arg-type]
    endpoint = places["keys"]["storage_options"]["client_kwargs"]["endpoint_url"]
    body = {"interface_type": "s3", "url": f"{endpoint}/private/archive.nc", "dtype": "int32", "size": 8}
    good = {"Authorization": "Basic " + b64encode(f"{servers.KEY}:{servers.SECRET}".encode()).decode()}
    wrong = {"Authorization": "Basic " + b64encode(f"{servers.KEY}:nonsense".encode()).decode()}
    nobody = {"Authorization": "Basic " + b64encode(b"who:what").decode()}
    assert server.post("/v2/sum", body, good).status == 200
    for headers in (wrong, nobody, {}, {"Authorization": "Basic %%%"}):
        answer = server.post("/v2/sum", body, headers)
        assert answer.status == 401, (headers, answer.body)
        assert "Access Denied" in answer.message
    for path in ("private/nothing.nc", "nowhere/archive.nc"):
        answer = server.post("/v2/sum", {**body, "url": f"{endpoint}/{path}"}, good)
        assert answer.status == 400, answer.body
        assert "NoSuchKey" in answer.message
    assert server.post("/v2/sum", {**body, "url": f"{endpoint}/private//archive.nc"}, good).status == 200
    assert server.post("/v2/sum", {**body, "url": f"{endpoint}//private/archive.nc"}, good).status == 200
    assert server.post("/v2/sum", {**body, "url": f"{endpoint}/private/arch%69ve.nc"}, good).status == 200
    assert server.post("/v2/sum", {**body, "url": f"{endpoint}/public/archive.nc"}).status == 200
    assert server.post("/v2/sum", {**body, "size": 10**9, "offset": 4}, good).status == 400
