"""`ds.insitu.explore()`: the frame, its server and its token, a selection and a formula, compared with xarray.

Modules: server/notebook_server.py
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import numpy as np
import pytest
import xarray as xr

import insitu
from forked_commands import run_command
from insitu.errors import ModelError, UnsupportedError, VariableError
from waiting import LONG

pytestmark = pytest.mark.servers


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "maps.nc"
    values = np.random.default_rng(1).random((5, 6, 8))
    xr.Dataset({"tas": (("time", "lat", "lon"), values)}, {"time": np.arange(5)}).to_netcdf(path, engine="h5netcdf")
    return path


def _ask(page: str, route: str, token: str | None, **fields: Any) -> Any:
    parts = urlsplit(page)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    address = f"{parts.scheme}://{parts.netloc}/explorer/api/{route}?{urlencode(fields)}"
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=LONG) as answer:
        return json.load(answer)


def _state(frame: Any) -> dict[str, str]:
    return {name: texts[0] for name, texts in parse_qs(urlsplit(frame.url).fragment).items()}


def test_a_selection_and_a_formula(file: Path) -> None:
    with insitu.open_dataset(file) as ds:
        part = ds.isel(time=slice(2, 5))
        frame = part.insitu.explore("tas - 0.5", {"time": -1}, height=400)
        try:
            state = _state(frame)
            assert state["variable"] == "=tas - 0.5"
            assert json.loads(state["index"]) == {"time": 2}
            place = {"url": state["url"], "variable": state["variable"]}
            found = _ask(frame.url, "point", state["token"], **place, index='{"time":2,"lat":1,"lon":3}')
            assert float(found["value"]) == float(part.tas[2, 1, 3] - 0.5)
            assert frame._repr_html_().startswith(f'<iframe src="{frame.address}#token={quote(state["token"])}&amp;')
            assert 'height="400"' in frame._repr_html_()
            assert state["token"] not in repr(frame)
            for token in (None, "another"):
                with pytest.raises(urllib.error.HTTPError, match="401"):
                    _ask(frame.url, "archive", token, url=state["url"])
            with urllib.request.urlopen(frame.address, timeout=LONG) as page:
                assert "frame-ancestors http://localhost:*" in page.headers["Content-Security-Policy"]
        finally:
            frame.close()
        assert not Path(state["url"]).exists()
        assert "closed" in repr(frame)


def test_an_unchanged_archive_is_shown_by_its_own_name(file: Path) -> None:
    with insitu.open_dataset(file) as ds:
        frame = ds.insitu.explore()
        state = _state(frame)
        assert state["url"] == str(file)
        assert _ask(frame.url, "archive", state["token"], url=state["url"])["groups"]
        frame.close()


def test_the_server_ends_with_the_process(file: Path) -> None:
    code = (
        f"import insitu, os; frame = insitu.open_dataset({str(file)!r}).insitu.explore();"
        "print(frame.address, flush=True); os._exit(1)"
    )
    address = run_command([], code=code).stdout.strip()
    assert address.startswith("http://127.0.0.1:")
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{address}health", timeout=1).close()
        except OSError:
            return
    pytest.fail("the server goes on")


def test_behind_jupyterhub(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from insitu.xarray_bridge import notebook_explorer

    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/ada/")
    packages = {"jupyter_server_proxy": None}
    monkeypatch.setattr(notebook_explorer, "find_spec", lambda name: packages.get(name, object()))
    with insitu.open_dataset(file) as ds:
        with pytest.raises(UnsupportedError, match="pip install jupyter-server-proxy"):
            ds.insitu.explore()
        packages["jupyter_server_proxy"] = object()  # type: ignore[assignment]
        frame = ds.insitu.explore()
        assert frame.url.startswith("/user/ada/proxy/")
        frame.close()
        frame = ds.insitu.explore(proxy="https://notebooks.example.org/at/{port}/")
        port = frame.address.rstrip("/").rpartition("/")[2]
        # The proxy passes on the name that the browser knows.
        request = urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"Host": "notebooks.example.org"})
        with urllib.request.urlopen(request, timeout=LONG) as answer:
            assert answer.status == 200
        frame.close()


def test_what_is_refused(file: Path) -> None:
    with insitu.open_dataset(file) as ds:
        with pytest.raises(ModelError, match="at character 6"):
            ds.insitu.explore("tas -")
        with pytest.raises(VariableError, match="no position 9 along 'time'"):
            ds.insitu.explore("tas", {"time": 9})
        computed = ds[["tas"]].assign(tas=ds.tas * 2)
        with pytest.raises(UnsupportedError, match="what is computed cannot be shown by itself"):
            computed.insitu.explore()
