"""How does each library read values out of a file?

One function for each contestant of `read.py`. It imports what it needs, prepares what a user would
have prepared once (references, a repository, a copy), warms up on a small file, and gives a
function that opens the archive and reads: all of it, or many small slabs. The clock runs from
opening to values; only what has been saved before (references) or cannot be saved (a ManifestStore)
is not counted, to the advantage of the peers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["check"]

Read = Callable[[tuple[slice, ...]], Any]
Slabs = list[list[list[int]]]


def check(values: list[Any]) -> str:
    """A number that all contestants must agree on: the sum of all bits read, in whatever order."""
    return f"{sum(int(np.ascontiguousarray(block).reshape(-1).view('u4').sum(dtype='u8')) for block in values):x}"


def _slabs(slabs: Slabs | None, ndim: int = 3) -> list[tuple[slice, ...]]:
    if slabs is None:
        return [(slice(None),) * ndim]
    return [tuple(slice(first, last) for first, last in slab) for slab in slabs]


def _work(
    opened: Callable[[str], Iterator[Read]], path: str, warm: str, slabs: Slabs | None
) -> Callable[[], list[Any]]:
    def read(where: str, wanted: list[tuple[slice, ...]]) -> list[Any]:
        for reader in opened(where):
            return [reader(slab) for slab in wanted]
        return []

    read(warm, [(slice(0, 1), slice(0, 8), slice(0, 8))])
    return lambda: read(path, _slabs(slabs))


def insitu(path: str, warm: str, slabs: Slabs | None = None) -> Callable[[], list[Any]]:
    """Our own: scan, then read."""
    import insitu as ours

    def opened(where: str) -> Iterator[Read]:
        group = ours.scan(where)
        yield lambda slab: ours.read(group, "t", slab)

    return _work(opened, path, warm, slabs)


def h5py(path: str, warm: str, slabs: Slabs | None = None) -> Callable[[], list[Any]]:
    """h5py, with the plugins for zstd."""
    import h5py as library
    import hdf5plugin  # noqa: F401  registers its filters

    def opened(where: str) -> Iterator[Read]:
        with library.File(where) as file:
            yield file["t"].__getitem__

    return _work(opened, path, warm, slabs)


def netcdf4(path: str, warm: str, slabs: Slabs | None = None) -> Callable[[], list[Any]]:
    """netCDF4, without masks and scaling."""
    import hdf5plugin

    os.environ["HDF5_PLUGIN_PATH"] = hdf5plugin.PLUGIN_PATH  # before netCDF4 loads its own HDF5
    import netCDF4

    def opened(where: str) -> Iterator[Read]:
        with netCDF4.Dataset(where) as file:
            file.set_auto_maskandscale(False)
            yield file["t"].__getitem__

    return _work(opened, path, warm, slabs)


def hidefix(path: str, warm: str, slabs: Slabs | None = None) -> Callable[[], list[Any]]:
    """hidefix: its index, then its reader."""
    import hidefix as library

    def opened(where: str) -> Iterator[Read]:
        dataset = library.Index(where)["t"]
        yield dataset.__getitem__

    return _work(opened, path, warm, slabs)


def xarray_h5netcdf(path: str, warm: str, slabs: Slabs | None = None) -> Callable[[], list[Any]]:
    """xarray with the engine h5netcdf."""
    import hdf5plugin  # noqa: F401  registers its filters
    import xarray

    def opened(where: str) -> Iterator[Read]:
        with xarray.open_dataset(where, engine="h5netcdf", cache=False) as dataset:
            yield lambda slab: dataset["t"][slab].values

    return _work(opened, path, warm, slabs)


def _beside(path: str, suffix: str) -> Path:
    return Path(path).with_suffix(suffix)


def kerchunk_zarr(path: str, warm: str, slabs: Slabs | None = None) -> Callable[[], list[Any]]:
    """zarr over kerchunk's references, saved as JSON."""
    import json

    import fsspec
    import numcodecs.zarr3
    import zarr
    from kerchunk.hdf import SingleHdf5ToZarr

    assert numcodecs.zarr3
    for one in (path, warm):
        if not _beside(one, ".kerchunk.json").exists():
            references = SingleHdf5ToZarr(one, inline_threshold=0).translate()
            part = _beside(one, f".{os.getpid()}.part")
            part.write_text(json.dumps(references))
            part.rename(_beside(one, ".kerchunk.json"))

    def opened(where: str) -> Iterator[Read]:
        system = fsspec.filesystem(
            "reference", fo=str(_beside(where, ".kerchunk.json")), asynchronous=True, remote_protocol="file"
        )
        store = zarr.storage.FsspecStore(system, read_only=True)
        yield zarr.open_group(store, mode="r")["t"].__getitem__

    return _work(opened, path, warm, slabs)


def _manifest(path: str) -> Any:
    import obstore.store
    from obspec_utils.registry import ObjectStoreRegistry
    from virtualizarr.parsers import HDFParser

    return HDFParser()(url=f"file://{path}", registry=ObjectStoreRegistry({"file://": obstore.store.LocalStore()}))


def manifest_store(path: str, warm: str, slabs: Slabs | None = None) -> Callable[[], list[Any]]:
    """zarr over VirtualiZarr's ManifestStore, parsed before the clock starts."""
    import zarr

    stores = {where: _manifest(where) for where in (path, warm)}

    def opened(where: str) -> Iterator[Read]:
        yield zarr.open_group(stores[where], mode="r")["t"].__getitem__

    return _work(opened, path, warm, slabs)


def icechunk(path: str, warm: str, slabs: Slabs | None = None) -> Callable[[], list[Any]]:
    """zarr over virtual references in an Icechunk repository."""
    import icechunk as library
    import zarr

    prefix = f"file://{Path(path).parent}/"
    config = library.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        library.VirtualChunkContainer(prefix, library.local_filesystem_store(str(Path(path).parent)))
    )
    credentials = library.containers_credentials({prefix: None})

    def repository(where: str) -> Any:
        storage = library.local_filesystem_storage(str(_beside(where, ".icechunk")))
        return library.Repository.open(storage, config=config, authorize_virtual_chunk_access=credentials)

    for one in (path, warm):
        target = _beside(one, ".icechunk")
        if not target.exists():
            part = target.with_name(f"part-{os.getpid()}-{target.name}")
            shutil.rmtree(part, ignore_errors=True)
            made = library.Repository.create(
                library.local_filesystem_storage(str(part)),
                config=config,
                authorize_virtual_chunk_access=credentials,
            )
            session = made.writable_session("main")
            _manifest(one).to_virtual_dataset(loadable_variables=[]).vz.to_icechunk(session.store)
            session.commit("virtual")
            part.rename(target)

    def opened(where: str) -> Iterator[Read]:
        yield zarr.open_group(repository(where).readonly_session("main").store, mode="r")["t"].__getitem__

    return _work(opened, path, warm, slabs)


def tensorstore(path: str, warm: str, slabs: Slabs | None = None) -> Callable[[], list[Any]]:
    """TensorStore on a native Zarr copy."""
    import tensorstore as library

    def opened(where: str) -> Iterator[Read]:
        array = library.open(
            {"driver": "zarr3", "kvstore": {"driver": "file", "path": where}}, read=True, open=True
        ).result()
        yield lambda slab: array[slab].read().result()

    return _work(opened, path, warm, slabs)


def zarrs(path: str, warm: str, slabs: Slabs | None = None) -> Callable[[], list[Any]]:
    """zarr with the zarrs codec pipeline on a native Zarr copy."""
    import zarr
    import zarrs as library

    assert library
    zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})

    def opened(where: str) -> Iterator[Read]:
        yield zarr.open_array(where, mode="r").__getitem__

    return _work(opened, path, warm, slabs)


def zarr_native(path: str, warm: str, slabs: Slabs | None = None) -> Callable[[], list[Any]]:
    """zarr-python on a native Zarr copy."""
    import zarr

    def opened(where: str) -> Iterator[Read]:
        yield zarr.open_array(where, mode="r").__getitem__

    return _work(opened, path, warm, slabs)


def preadv(path: str, warm: str, slabs: Slabs | None = None, threads: int = 1) -> Callable[[], list[Any]]:
    """No library: the bytes of the uncompressed chunks, in file order, into one new buffer. What
    the disk (or its cache) can give, to one thread or several.
    """
    from concurrent.futures import ThreadPoolExecutor

    import h5py as library

    with library.File(path) as file:
        found: list[Any] = []
        file["t"].id.chunk_iter(found.append)
    ranges = sorted((info.byte_offset, info.size) for info in found)
    begins = np.cumsum([0, *(size for _, size in ranges)]).tolist()

    def work() -> list[Any]:
        out = np.empty(begins[-1], "u1")
        view = memoryview(out)
        descriptor = os.open(path, os.O_RDONLY)

        def fill(part: range) -> None:
            for number in part:
                offset, size = ranges[number]
                os.preadv(descriptor, [view[begins[number] : begins[number] + size]], offset)

        edges = [len(ranges) * number // threads for number in range(threads + 1)]
        try:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(fill, map(range, edges, edges[1:])))
        finally:
            os.close(descriptor)
        return [out]

    return work


def preadv_two(path: str, warm: str, slabs: Slabs | None = None) -> Callable[[], list[Any]]:
    """The same by two threads, each its half of the file."""
    return preadv(path, warm, slabs, 2)
