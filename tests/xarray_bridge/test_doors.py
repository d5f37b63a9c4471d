"""Opening of bytes, open files and signed URLs, and what a dataset remembers of them.

Modules: scanning/scan_url.py
"""

from __future__ import annotations

import gc
import io
import pickle
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import xarray as xr

import insitu
from fixtures.make_archive import Part, write_all
from insitu.errors import InsituError
from insitu.scanning import scan_url
from insitu.xarray_bridge import open_dataset, open_datatree, open_mfdataset
from insitu.xarray_bridge.engine import InsituBackendEntrypoint
from waiting import LONG


class TestInMemory:
    """Nobody but the dataset holds what it was opened from."""

    @pytest.mark.parametrize("kind", [bytes, io.BytesIO])
    def test_one(self, varied: Path, kind: Any) -> None:
        ds = open_dataset(kind(varied.read_bytes()))
        gc.collect()
        xr.testing.assert_identical(ds.load(), open_dataset(varied).load())

    def test_tree(self, varied: Path) -> None:
        tree = open_datatree(io.BytesIO(varied.read_bytes()))
        gc.collect()
        xr.testing.assert_identical(tree.load(), open_datatree(varied).load())

    def test_many(self, tmp_path: Path) -> None:
        paths = write_all(tmp_path, [Part(first=2 * i) for i in range(3)])
        ds = open_mfdataset([io.BytesIO(Path(path).read_bytes()) for path in paths])
        half = ds.isel(time=slice(0, 3))
        del ds
        gc.collect()
        xr.testing.assert_identical(half.load(), open_mfdataset(paths).isel(time=slice(0, 3)).load())

    def test_an_open_file(self, varied: Path) -> None:
        with open(varied, "rb") as file:
            ds = open_dataset(file)
            assert ds.insitu.sources == [str(varied)]
        xr.testing.assert_identical(pickle.loads(pickle.dumps(ds)).load(), open_dataset(varied).load())

    def test_joined_by_xarray(self, varied: Path) -> None:
        ds = open_dataset(varied)[["tas"]].drop_vars(["height", "scalar"])
        data = varied.read_bytes()
        parts = [open_dataset(data)[["tas"]].drop_vars(["height", "scalar"]).isel(time=[i]) for i in range(3)]
        joined = xr.concat(parts, "time")
        del parts, data
        gc.collect()
        xr.testing.assert_identical(joined.load(), ds.isel(time=slice(0, 3)).load())


class TestCache:
    def test_a_number_of_bytes(self, varied: Path) -> None:
        ds = open_dataset(varied, cache=1 << 20)
        cache = ds.tas.variable._data.context.cache
        first = ds.tas.isel(time=0).load()
        assert cache.misses > 0
        before = cache.misses
        xr.testing.assert_identical(ds.tas.isel(time=0).load(), first)
        assert cache.misses == before
        assert cache.hits > 0
        xr.testing.assert_identical(first, open_dataset(varied).tas.isel(time=0).load())

    def test_shared_by_datasets(self, varied: Path, tmp_path: Path) -> None:
        cache = insitu.ChunkCache(1 << 20)
        open_dataset(varied, cache=cache).tas.load()
        before = cache.misses
        open_mfdataset([varied], cache=cache, combine="nested").tas.load()
        assert cache.misses == before
        assert cache.nbytes > 0


@dataclass
class Web:
    """A server that asks for a signature."""

    root: Path
    url: str = ""
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    server_side = Web(tmp_path)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(False)

        def do_GET(self) -> None:
            self.answer(True)

        def answer(self, body: bool) -> None:
            parts = urlsplit(self.path)
            server_side.requests.append(self.path)
            if parse_qs(parts.query).get("X-Amz-Signature") != ["open-sesame"]:
                self.send_response(403)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            data = (tmp_path / parts.path.lstrip("/")).read_bytes()
            wanted = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            begin = int(wanted[1]) if wanted else 0
            end = min(int(wanted[2]) + 1, len(data)) if wanted and wanted[2] else len(data)
            self.send_response(206 if wanted else 200)
            if wanted:
                self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(end - begin))
            self.end_headers()
            if body:
                self.wfile.write(data[begin:end])

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    server_side.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield server_side
    server.shutdown()
    server.server_close()
    thread.join(LONG)


class TestSignedAddresses:
    def test_read_and_never_kept(self, web: Web) -> None:
        paths = write_all(web.root, [Part(first=2 * i) for i in range(3)])
        wanted = open_mfdataset(paths).load()
        urls = [f"{web.url}/{Path(path).name}?X-Amz-Signature=open-sesame&part=1" for path in paths]
        ds = open_mfdataset(urls)
        ds.insitu.save(web.root / "refs.insitu")
        ds.isel(time=[0]).insitu.save(web.root / "refs.json")
        shown = repr(ds.insitu.sources) + repr(ds) + str(ds.insitu.report()) + repr(ds.tas.encoding) + repr(ds.encoding)
        contents = b"".join(file.read_bytes() for file in (web.root / "refs.insitu").iterdir())
        contents += (web.root / "refs.json").read_bytes()
        assert b"127.0.0.1" in contents
        assert b"sesame" not in contents
        assert "sesame" not in shown
        xr.testing.assert_identical(ds.load(), wanted)
        # Saved, they are opened with the same key again.
        options = {f"{web.url}/": {"query": "X-Amz-Signature=open-sesame&part=1"}}
        found = open_dataset(web.root / "refs.insitu", storage_options=options)
        xr.testing.assert_identical(found.load(), wanted)

    def test_one(self, web: Web) -> None:
        (path,) = write_all(web.root, [Part()])
        url = f"{web.url}/{Path(path).name}?X-Amz-Signature=open-sesame"
        ds = open_dataset(url)
        assert "sesame" not in repr(ds.encoding) + repr(ds.insitu.sources)
        xr.testing.assert_identical(ds.load(), open_dataset(path).load())
        xr.testing.assert_identical(open_datatree(url).to_dataset().load(), ds)
        with pytest.raises(InsituError) as refused:
            open_dataset(f"{web.url}/{Path(path).name}?X-Amz-Signature=wrong-word")
        assert "wrong-word" not in str(refused.value)


class TestFewVariables:
    def test_only_they_are_scanned(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        paths = write_all(tmp_path, [Part(first=2 * i, level=1.0) for i in range(2)])
        requested = []
        original = scan_url.scan_format

        def watched(source: Any, **how: Any) -> Any:
            found = original(source, **how)
            requested.append(set(found.arrays))
            return found

        monkeypatch.setattr(scan_url, "scan_format", watched)
        ds = open_mfdataset(paths, variables="wind")
        assert set(ds.variables) == {"wind", "time", "time_bnds", "lon"}
        assert requested
        assert not any({"tas", "height", "level", "lat"} & found for found in requested)

    def test_some_files_lack_one(self, tmp_path: Path) -> None:
        paths = write_all(tmp_path, [Part(first=2 * i, has_wind=i != 1) for i in range(3)])
        how: dict[str, Any] = {"combine": "nested", "concat_dim": "time"}
        ds = open_mfdataset(paths, variables=["wind", "tas"], **how)
        whole = open_mfdataset(paths, **how).load()
        xr.testing.assert_identical(ds.load(), whole[list(ds.data_vars)])
        with pytest.raises(InsituError, match="snow"):
            open_mfdataset(paths, variables=["snow"])

    def test_of_a_store(self, varied: Path, tmp_path: Path) -> None:
        open_dataset(varied).insitu.save(tmp_path / "refs.insitu")
        ds = open_dataset(tmp_path / "refs.insitu", variables=["number"])
        assert set(ds.data_vars) == {"number"}


class TestEngine:
    def test_guess(self, varied: Path, tmp_path: Path) -> None:
        engine = InsituBackendEntrypoint()
        for target in ("refs.json", "refs.parq", "refs.insitu"):
            open_dataset(varied)[["tas"]].insitu.save(tmp_path / target)
            # Whatever another engine may open is left to it, unless insitu is asked for by name.
            assert engine.guess_can_open(tmp_path / target) == target.endswith(".insitu"), target
            found = xr.open_dataset(tmp_path / target, engine=InsituBackendEntrypoint)
            xr.testing.assert_identical(found.load(), open_dataset(varied)[["tas"]].load())
        (tmp_path / "empty.insitu").mkdir()
        for other in ("empty.insitu", "missing.insitu", ""):
            assert not engine.guess_can_open(tmp_path / other), other
        assert not engine.guess_can_open(varied)

    def test_zarr_is_left_to_zarr(self, varied: Path, tmp_path: Path) -> None:
        pytest.importorskip("zarr")
        ds = open_dataset(varied)[["number"]].load().drop_encoding()
        ds.to_zarr(tmp_path / "a.zarr", zarr_format=2, consolidated=False)
        assert not InsituBackendEntrypoint().guess_can_open(tmp_path / "a.zarr")
        xr.testing.assert_identical(
            xr.open_dataset(tmp_path / "a.zarr", engine=InsituBackendEntrypoint).load(), ds.load()
        )
