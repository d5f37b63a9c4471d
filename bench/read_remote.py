"""How fast are a thousand small chunks read that lie scattered over a remote file?

A variable of 102,400 chunks of 4 kB, of which a strided selection touches 1,024; HTTP, 50 ms added
to each request. Everybody has what it needs to know where they lie (references, a repository, a
scan) before the clock starts, except those that cannot keep it. The server counts requests and
bytes, those of the preparation included.

    python bench/read_remote.py [--quick] [--case scattered|files|again]

`files` reads one chunk of each of 200 files; `again` reads the scattered chunks a second time, in
another process, with a cache on disk.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import machine
from archives import archive, folder
from latency_server import LatencyServer
from table import Contestant, Target, arguments, compete, show

__all__ = ["check"]

Work = Callable[[], Any]


def check(values: Any) -> str:
    """A number that all contestants must agree on."""
    return f"{int(np.ascontiguousarray(values).reshape(-1).view('u4').sum(dtype='u8')):x}"


def _selection(step: int) -> tuple[Any, ...]:
    return 0, slice(None, None, step), slice(None, None, step)


# -- one file


def insitu(url: str, path: str, step: int, cache: str | None = None) -> Work:
    """Our own, scanned before."""
    import insitu as ours

    options = {"cache": cache} if cache else None
    group = ours.scan(url, storage_options=options)
    return lambda: ours.read(group, "t", _selection(step), storage_options=options)


def _references(url: str, path: str) -> dict[str, Any]:
    """Kerchunk's references of the local copy, kept beside it, with the remote URL in the place of
    its own.
    """
    from kerchunk.hdf import SingleHdf5ToZarr

    kept = Path(path).with_suffix(".kerchunk.json")
    if not kept.exists():
        part = kept.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(SingleHdf5ToZarr(path, inline_threshold=0).translate()))
        part.rename(kept)
    references: dict[str, Any] = json.loads(kept.read_text())
    for value in references["refs"].values():
        if isinstance(value, list):
            value[0] = url
    return references


def zarr_references(url: str, path: str, step: int) -> Work:
    """zarr over kerchunk references, by fsspec."""
    import fsspec
    import zarr

    system = fsspec.filesystem(
        "reference",
        fo=_references(url, path),
        asynchronous=True,
        remote_protocol="http",
        remote_options={"asynchronous": True},
    )
    array = zarr.open_group(zarr.storage.FsspecStore(system, read_only=True), mode="r")["t"]
    return lambda: array[_selection(step)]


def _manifest(url: str, path: str) -> Any:
    """VirtualiZarr's ManifestStore on the remote file."""
    import obstore.store
    from obspec_utils.registry import ObjectStoreRegistry
    from virtualizarr.parsers import KerchunkJSONParser

    base = url.rpartition("/")[0]
    remote = obstore.store.HTTPStore.from_url(base, client_options={"allow_http": True})
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "references.json"
        file.write_text(json.dumps(_references(url, path)))
        registry = ObjectStoreRegistry({base: remote, "file://": obstore.store.LocalStore()})
        return KerchunkJSONParser()(url=f"file://{file}", registry=registry)


def manifest_store(url: str, path: str, step: int) -> Work:
    """zarr over VirtualiZarr's ManifestStore, by obstore."""
    import zarr

    array = zarr.open_group(_manifest(url, path), mode="r")["t"]
    return lambda: array[_selection(step)]


def icechunk(url: str, path: str, step: int) -> Work:
    """zarr over virtual references in an Icechunk repository, which is local."""
    import icechunk as library
    import zarr

    prefix = url.rpartition("/")[0] + "/"
    config = library.RepositoryConfig.default()
    config.set_virtual_chunk_container(library.VirtualChunkContainer(prefix, library.http_store()))
    credentials = library.containers_credentials({prefix: None})
    place = tempfile.mkdtemp()
    made = library.Repository.create(
        library.local_filesystem_storage(place), config=config, authorize_virtual_chunk_access=credentials
    )
    session = made.writable_session("main")
    _manifest(url, path).to_virtual_dataset(loadable_variables=[]).vz.to_icechunk(session.store)
    session.commit("virtual")
    array = zarr.open_group(made.readonly_session("main").store, mode="r")["t"]

    def work() -> Any:
        found = array[_selection(step)]
        shutil.rmtree(place, ignore_errors=True)
        return found

    return work


def xarray_h5netcdf(url: str, path: str, step: int) -> Work:
    """xarray with the engine h5netcdf, by fsspec."""
    import fsspec
    import xarray

    dataset = xarray.open_dataset(fsspec.open(url).open(), engine="h5netcdf", cache=False)
    return lambda: dataset["t"][_selection(step)].values


# -- many files


def insitu_files(urls: list[str], local: list[str]) -> Work:
    """Our own: the files as one array."""
    import insitu as ours
    from insitu.model import concatenate

    groups = [ours.scan(url) for url in urls]
    array = concatenate([group.arrays["tas"] for group in groups], "time")
    return lambda: ours.read(array, "tas", np.s_[::20])


def zarr_files(urls: list[str], local: list[str]) -> Work:
    """zarr over kerchunk's references of all files, joined by hand: their chunks follow each other."""
    import fsspec
    import zarr
    from kerchunk.hdf import SingleHdf5ToZarr

    refs: dict[str, Any] = {".zgroup": '{"zarr_format": 2}'}
    for number, (url, path) in enumerate(zip(urls, local, strict=True)):
        found = SingleHdf5ToZarr(path, inline_threshold=0).translate()["refs"]
        if number == 0:
            refs["tas/.zattrs"] = found["tas/.zattrs"]
            meta = json.loads(found["tas/.zarray"])
            steps = meta["shape"][0]
            meta["shape"][0] *= len(urls)
            refs["tas/.zarray"] = json.dumps(meta)
        for name, value in found.items():
            if name.startswith("tas/") and isinstance(value, list):
                first, rest = name[4:].split(".", 1)
                refs[f"tas/{int(first) + number * steps}.{rest}"] = [url, *value[1:]]
    system = fsspec.filesystem(
        "reference", fo={"version": 1, "refs": refs}, asynchronous=True, remote_protocol="http",
        remote_options={"asynchronous": True},
    )  # fmt: skip
    array = zarr.open_group(zarr.storage.FsspecStore(system, read_only=True), mode="r")["tas"]
    return lambda: array[::20]


PEERS = {
    "zarr over kerchunk references": "zarr_references",
    "VirtualiZarr ManifestStore": "manifest_store",
    "Icechunk virtual": "icechunk",
    "xarray + h5netcdf (fsspec)": "xarray_h5netcdf",
}
TARGETS = [Target("zarr over kerchunk references", 5), Target("VirtualiZarr ManifestStore", 5)]


def _scattered(options: Any, server: LatencyServer) -> None:
    path = archive("small_chunks", quick=options.quick)
    told = {"url": f"{server.url}/{path.name}", "path": str(path), "step": 64 if options.quick else 320}
    contestants = [Contestant("insitu", "read_remote:insitu", told)] + [
        Contestant(label, f"read_remote:{call}", told)
        for label, call in PEERS.items()
        if not options.only or label in options.only
    ]
    results = compete(contestants, rounds=options.rounds, before=server.reset, after=server.stats)
    show("1,024 scattered chunks of 4 kB; HTTP, 50 ms added to each request", results, targets=TARGETS)


def _files(options: Any, server: LatencyServer) -> None:
    whole = archive("cmip_like", quick=options.quick)
    names = sorted(path.name for path in whole.glob("*.nc"))[:200]
    told = {
        "urls": [f"{server.url}/{whole.name}/{name}" for name in names], "local": [str(whole / name) for name in names]
    }  # fmt: skip
    contestants = [
        Contestant("insitu", "read_remote:insitu_files", told),
        Contestant("zarr over kerchunk references", "read_remote:zarr_files", told),
    ]
    results = compete(contestants, rounds=options.rounds, before=server.reset, after=server.stats)
    title = f"one chunk of each of {len(names)} files; HTTP, 50 ms added to each request"
    show(title, results)


def _again(options: Any, server: LatencyServer) -> None:
    path = archive("small_chunks", quick=options.quick)
    told = {"url": f"{server.url}/{path.name}", "path": str(path), "step": 64 if options.quick else 320}
    with tempfile.TemporaryDirectory() as cache:
        contestants = [
            Contestant("insitu, cache on disk", "read_remote:insitu", {**told, "cache": cache}),
            Contestant("insitu", "read_remote:insitu", told),
        ]
        results = compete(contestants, rounds=max(options.rounds, 2), before=server.reset, after=server.stats)
    for result in results:
        if "cache" in result.name:
            result.seconds = result.seconds[1:]  # the first round fills it
    show("the same chunks a second time, in another process", results)


def main() -> None:
    """Run the cases."""
    options = arguments(__doc__)
    print(machine.describe())
    cases = {"scattered": _scattered, "files": _files, "again": _again}
    with LatencyServer(folder()) as server:
        for case in options.case or cases:
            cases[case](options, server)


if __name__ == "__main__":
    main()
