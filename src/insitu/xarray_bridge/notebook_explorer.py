"""The explorer's page in a notebook: a frame, and a server of this process behind it.

The server runs in a process of its own with a token of its own, listens on this machine only, and
ends with this process.
"""

from __future__ import annotations

import atexit
import html
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote

import xarray

from insitu.errors import InsituError, UnsupportedError, VariableError
from insitu.expressions.parse_formula import parse_formula
from insitu.xarray_bridge.backend_array import find_lazy_array

__all__ = ["ExplorerFrame", "explore_dataset"]

START_SECONDS = 120
"""Seconds that the server may take to start."""
HUB_HINT = (
    "On JupyterHub the browser reaches this machine through jupyter-server-proxy only: pip install "
    "jupyter-server-proxy where the notebook server runs, restart it, and call explore() again; or give proxy=, the "
    "address under which your installation passes ports on, with {port} in it"
)


class ExplorerFrame:
    """A frame with the explorer's page, as the result of a notebook's cell.

    Parameters
    ----------
    process
        The server.
    address
        Its address on this machine.
    fragment
        What is shown, with the token.
    height
        Of the frame, in pixels.
    proxy
        The address under which a browser finds a port of this machine, with `{port}` in it.
    folder
        What is removed when it is closed.
    """

    def __init__(
        self,
        process: subprocess.Popen[str],
        address: str,
        fragment: str,
        height: int,
        proxy: str | None,
        folder: tempfile.TemporaryDirectory[str] | None,
    ) -> None:
        self._process, self._folder, self.height = process, folder, height
        port = address.rstrip("/").rpartition(":")[2]
        self.address = address if proxy is None else proxy.replace("{port}", port)
        self.url = f"{self.address}#{fragment}"
        """The page with the token: whoever has it sees the dataset."""
        atexit.register(self.close)

    def close(self) -> None:
        """End the server."""
        atexit.unregister(self.close)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _repr_html_(self) -> str:
        source = html.escape(self.url, quote=True)
        return (
            f'<iframe src="{source}" width="100%" height="{self.height}" style="border:1px solid #8888" '
            'allow="clipboard-write" title="insitu explorer"></iframe>'
        )

    def __repr__(self) -> str:
        state = "closed" if self._process.poll() is not None else f"at {self.address}"
        return f"<insitu explorer {state}; .url is its address with the token>"


def explore_dataset(
    dataset: xarray.Dataset,
    shown: str | None,
    index: Mapping[str, int],
    address: str | None,
    storage_options: Mapping[str, Any] | None,
    height: int,
    proxy: str | None,
) -> ExplorerFrame:
    """Return a frame that shows a dataset.

    Parameters
    ----------
    dataset
        The dataset.
    shown
        A variable, or a formula; None: the one that the page chooses.
    index
        Position along dimensions.
    address
        Path or URL of the dataset if it is an archive as it was opened; None: its references are saved for the server.
    storage_options
        Options that its sources are read with.
    height, proxy
        As for `ExplorerFrame`.
    """
    variable = _find_shown(dataset, shown)
    for dim, position in index.items():
        if dim not in dataset.sizes or not -dataset.sizes[dim] <= position < dataset.sizes[dim]:
            raise VariableError(
                f"there is no position {position} along {dim!r}",
                hint=f"The dataset has {', '.join(f'{name}: {size}' for name, size in dataset.sizes.items())}",
            )
    if find_spec("uvicorn") is None or find_spec("starlette") is None:
        raise UnsupportedError("the explorer needs the packages of the server", hint="pip install 'insitu[serve]'")
    proxy = _find_proxy() if proxy is None else proxy
    folder = None
    if address is None:
        folder = tempfile.TemporaryDirectory(prefix="insitu-explore-")
        address = os.path.join(folder.name, "dataset.insitu")
        try:
            _stored_part(dataset).insitu.save(address)
        except BaseException:
            folder.cleanup()
            raise
    token = secrets.token_urlsafe(24)
    process = subprocess.Popen(
        [sys.executable, "-m", "insitu.server.notebook_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    settings = {
        "archive": address,
        "roots": [] if "::" in address else [address],
        "token": token,
        "storage_options": dict(storage_options or {}),
    }
    found = _start(process, json.dumps(settings))
    parts = {"token": token, "url": address}
    if variable is not None:
        parts["variable"] = variable
    if index:
        parts["index"] = json.dumps({dim: int(at) % dataset.sizes[dim] for dim, at in index.items()})
    fragment = "&".join(f"{name}={quote(text, safe='/:,')}" for name, text in parts.items())
    return ExplorerFrame(process, found, fragment, height, proxy, folder)


def _start(process: subprocess.Popen[str], settings: str) -> str:
    """Return the address of a server that was started, once it accepts connections."""
    assert process.stdin is not None
    assert process.stdout is not None
    timer = threading.Timer(START_SECONDS, process.kill)
    timer.start()
    try:
        process.stdin.write(settings + "\n")
        process.stdin.flush()
        found = process.stdout.readline().strip()
    except OSError:
        found = ""
    finally:
        timer.cancel()
    if not found:
        process.kill()
        process.wait()
        raise InsituError("the server of the explorer did not start", hint="Its messages stand above")
    return found


def _find_shown(dataset: xarray.Dataset, shown: str | None) -> str | None:
    if shown is None or shown in dataset.variables:
        return shown
    formula = shown.removeprefix("=").strip()
    parse_formula(formula)  # raises if it is neither
    return f"={formula}"


def _find_proxy() -> str | None:
    """Return the address under which jupyter-server-proxy passes ports on; None on a machine of one's own."""
    prefix = os.environ.get("JUPYTERHUB_SERVICE_PREFIX")
    if prefix is None:
        return None
    if find_spec("jupyter_server_proxy") is None:
        raise UnsupportedError("the browser cannot reach a server on this machine", hint=HUB_HINT)
    return f"{prefix.rstrip('/')}/proxy/{{port}}/"


def _stored_part(dataset: xarray.Dataset) -> xarray.Dataset:
    """Return a dataset without variables that are computed: references cannot hold them."""
    lazy = {name: find_lazy_array(variable) for name, variable in dataset.variables.items()}
    computed = [name for name, found in lazy.items() if found is not None and not found.is_stored]
    if len(computed) == len(dataset.data_vars) > 0:
        raise UnsupportedError(
            f"{', '.join(map(str, computed[:5]))}: what is computed cannot be shown by itself",
            hint='Call explore() of the dataset that it was computed from, with the formula: explore("tas - 273.15")',
        )
    return dataset.drop_vars(computed)
