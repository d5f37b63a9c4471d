"""A reduction that a server cannot do is done here: with a warning each time that it moves much, or
as an error. Tokens are never shown.

Modules: process_options.py
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from insitu import storage
from insitu.active.client import Active
from insitu.active.fallback import bytes_to_move
from insitu.active.transport import ServerClient, ServerError, client_for
from insitu.errors import ActiveWarning, InsituError
from insitu.model import Codec, Encoding
from insitu.open_options import OpenOptions, ScanOptions
from insitu.process_options import options
from insitu.reading import ReadContext
from insitu.reducing import ReductionQuery
from insitu.reducing.chunk_storage import chunk_array
from insitu.scanning.scan_member import Job
from insitu.server import Settings
from insitu.server.authentication import Credentials
from insitu.sources.object_store.credentials import CredentialProcess, FoundCredentials
from insitu.sources.redaction import redact_text, redact_url
from insitu.sources.retry_policy import RetryPolicy
from ports import free_port

VALUES = np.random.default_rng(0).normal(size=(40, 50, 60))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("fallback") / "a.nc"
    made = xr.Dataset({"t": (("time", "y", "x"), VALUES)})
    made.t.encoding = {"zlib": True, "chunksizes": (10, 50, 60)}
    made.to_netcdf(found, engine="netcdf4")
    return found


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a server that is not there."""
    monkeypatch.setattr("insitu.active.transport.RETRIES", RetryPolicy(attempts=5, first_pause=0.001))
    monkeypatch.setattr("insitu.active.fallback._warned", set())
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture(params=[0, 1 << 40])
def threshold(request: pytest.FixtureRequest) -> Iterator[int]:
    before = insitu.options.fallback_bytes
    insitu.options.fallback_bytes = request.param
    assert options.fallback_bytes == request.param
    yield request.param
    insitu.options.fallback_bytes = before


OPERATIONS: dict[str, Any] = {
    "mean": lambda d: d.t.mean().values,
    "part": lambda d: d.t[:10].max("time").values,
    "what servers do not compute": lambda d: d.t.cumsum("time").values,
    "weighted": lambda d: d.t.weighted(xr.DataArray(np.arange(40.0), dims="time")).mean().values,
    "groups": lambda d: (
        d.assign_coords(g=("time", np.arange(40) % 3))[["t"]].insitu.groupby("g").mean().load().t.values
    ),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_much_is_warned_of_every_time(path: Path, nowhere: str, threshold: int, name: str) -> None:
    there = insitu.open_dataset(path, active=nowhere)
    counts = []
    for _ in range(3):
        with warnings.catch_warnings(record=True) as seen:
            warnings.resetwarnings()
            warnings.simplefilter("always", ActiveWarning)
            OPERATIONS[name](there)
        counts.append(len([one for one in seen if issubclass(one.category, ActiveWarning)]))
    assert counts[0] >= 1
    if threshold:
        assert counts[1:] == [0, 0]  # little: once is enough
    else:
        assert counts[1:] == [counts[0]] * 2


def test_python_shows_it_every_time_by_default() -> None:
    """Without a filter of ours Python shows a warning of one line once; a filter of the user's goes
    before ours.
    """
    code = (
        "import warnings\n"
        "from insitu.errors import SourceError\n"
        "from insitu.active.fallback import warn_of_fallback\n"
        "for _ in range(3): warn_of_fallback('http://host', SourceError('gone'), 't', 1 << 40, stacklevel=1)\n"
    )
    for flags, count in (([], 3), (["-W", "ignore"], 0)):
        done = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, check=True)
        assert done.stderr.count("moves about 1,099,511,627,776 bytes") == count


def test_the_bytes_are_named(path: Path, nowhere: str) -> None:
    there = insitu.open_dataset(path, active=nowhere)
    stored = insitu.open_dataset(path)[["t"]].insitu.nbytes_stored
    assert 0 < stored < VALUES.nbytes
    with pytest.warns(ActiveWarning, match=f"moves about {stored:,} bytes.*active_required=True"):
        there.t.mean()
    part = insitu.open_dataset(path)[["t"]].isel(time=slice(0, 10)).insitu.nbytes_stored
    insitu.options.fallback_bytes = 0
    try:
        with pytest.warns(ActiveWarning, match=f"moves about {part:,} bytes"):
            there.t[:10].mean()
    finally:
        insitu.options.fallback_bytes = 16 << 20


def test_what_moves_is_known_without_reading() -> None:
    packed = Encoding(np.dtype("<f8"), (Codec("zlib", {}),))
    assert bytes_to_move(chunk_array("s3://b/k", 0, 123, packed, (100,))) == 123
    assert bytes_to_move(chunk_array("s3://b/k", 0, None, packed, (100,))) == 800  # up to the end of the object
    raw = chunk_array("s3://b/k", 0, 800, Encoding(np.dtype("<f8")), (100,))
    assert bytes_to_move(raw) == 800
    assert bytes_to_move(raw[3:5]) == 16


def test_it_can_be_an_error_everywhere(path: Path, nowhere: str) -> None:
    array = insitu.scan(path, decode=False).array("t")
    chunk = array.tiles[0].chunks[0, 0, 0]
    assert hasattr(chunk, "offset")
    server, stored = Active(nowhere, required=True), storage.StoredChunk(str(path), 0, 80, "<f8")
    calls = [
        lambda: insitu.open_dataset(path, active=nowhere, active_required=True).t.mean(),
        lambda: insitu.open_mfdataset([path], active=nowhere, active_required=True).t.mean(),
        lambda: insitu.reduce(path, "t", "mean", active=nowhere, active_required=True, decode=False),
        lambda: insitu.reduce(array, method="mean", active=nowhere, active_required=True, decode=False),
        lambda: storage.read(stored, active=server),
        lambda: storage.reduce(stored, ReductionQuery.of("sum"), active=server),
        lambda: server.read(array),
    ]
    for call in calls:
        with pytest.raises(InsituError):
            call()


# -- nothing shows a token, a key or a signed address

HUSH = "hush-hush"
SECRETS = {"key": "AK", "secret": HUSH, "headers": {"Authorization": f"Bearer {HUSH}"}, "query": f"sig={HUSH}"}


@pytest.mark.parametrize(
    "thing",
    [
        Active("http://host", token=HUSH),
        Active(f"https://:{HUSH}@host:8080", True),
        ServerClient("http://host", HUSH),
        ServerClient(f"http://:{HUSH}@host"),
        ReadContext("t", SECRETS, active=Active("http://host", token=HUSH)),
        Job(ScanOptions(storage_options=SECRETS)),
        OpenOptions.of(storage_options=SECRETS),
        Settings(tokens=(HUSH,), storage_options={"s3://": SECRETS}),
        Credentials("me", HUSH),
        FoundCredentials({"secret_access_key": HUSH}),
        CredentialProcess(f"get-keys --password {HUSH}", "s3://b"),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_no_representation_shows_a_secret(thing: Any) -> None:
    assert HUSH not in repr(thing)
    assert HUSH not in str(thing)
    assert HUSH not in f"{[thing]}"


def test_a_pickled_connection_still_works() -> None:
    active = pickle.loads(pickle.dumps(Active(f"https://:{HUSH}@host", True, "t")))
    assert active == Active(f"https://:{HUSH}@host", True, "t")
    assert pickle.loads(pickle.dumps(ServerClient(f"http://:{HUSH}@host"))).token == HUSH


def test_no_message_shows_a_token(path: Path, nowhere: str) -> None:
    url = nowhere.replace("http://", f"http://:{HUSH}@")
    with pytest.warns(ActiveWarning) as seen:
        insitu.open_dataset(path, active=url).t.mean()
    assert all(HUSH not in str(one.message) for one in seen)
    with pytest.raises(InsituError) as problem:
        insitu.open_dataset(path, active=url, active_required=True).t.mean()
    assert HUSH not in f"{problem.value!r} {problem.value}"
    with pytest.raises(ServerError) as wrong:
        client_for(f"ftp://:{HUSH}@host")
    assert HUSH not in str(wrong.value)
    dataset = insitu.open_dataset(path, active=url, storage_options={"secret": HUSH})
    shown = f"{dataset!r} {dataset._repr_html_()} {dataset.t.variable._data!r} {dataset.encoding} {dataset.t.encoding}"
    assert HUSH not in shown


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {HUSH}",
        f"Authorization: Basic {HUSH}",
        f"{{'Authorization': 'Bearer {HUSH}', 'x': 1}}",
        f'{{"token": "{HUSH}"}}',
        f"secret_access_key={HUSH}",
        f"X-Insitu-Token: {HUSH}",
        f"Cookie: {HUSH}",
        f"GET https://me:{HUSH}@host/x?sig={HUSH}",
        f"simplecache::https://me:{HUSH}@host/x",
        f"zip://a.nc::https://me:{HUSH}@host/x.zip?X-Amz-Signature={HUSH}",
        f"https://[2001:db8::1]:80/x?sig={HUSH}",
    ],
)
def test_no_text_shows_a_secret(text: str) -> None:
    assert HUSH not in redact_text(f"it failed: {text}, and so on")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"https://host/x.zip?sig={HUSH}::a/b.nc", "https://host/x.zip::a/b.nc"),
        (f"simplecache::https://me:{HUSH}@host/x", "simplecache::https://host/x"),
        (f"https://[2001:db8::1]:80/x?sig={HUSH}", "https://[2001:db8::1]:80/x"),
        ("s3://bucket/what?sig=1#2", "s3://bucket/what?sig=1#2"),
        ("s3://bucket/a?&&b#", "s3://bucket/a?&&b#"),
        ("https://host/x?a&&b", "https://host/x?a&&b"),
    ],
)
def test_what_is_shown_of_a_url(url: str, shown: str) -> None:
    assert redact_url(url) == shown
