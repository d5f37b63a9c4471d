"""How does each library find out where the chunks of a file lie?

One function for each contestant of `scan_local.py` and `scan_remote.py`. It imports what it needs,
warms up on a small file, and gives a function that scans `paths` and returns all that it found
(kept alive, so that its memory is seen).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

__all__ = ["check"]


def check(found: Sequence[Any]) -> int:
    """How many chunks were found (contiguous data is one); the answer that all contestants must
    agree on.
    """
    return sum(count(one) for count, one in found)


def _each(
    scan: Callable[[str], Any], count: Callable[[Any], int], paths: Sequence[str], warm: str, threads: int = 1
) -> Callable[[], list[Any]]:
    scan(warm)
    if threads == 1:
        return lambda: [(count, scan(path)) for path in paths]

    def work() -> list[Any]:
        with ThreadPoolExecutor(threads) as pool:
            return [(count, found) for found in pool.map(scan, paths)]

    return work


def insitu(paths: Sequence[str], warm: str, threads: int = 1) -> Callable[[], list[Any]]:
    """Our own: the stored chunks, as the others give them."""
    import insitu as ours

    return _each(partial(ours.scan, decode=False), _stored, paths, warm, threads)


def insitu_decoded(paths: Sequence[str], warm: str, threads: int = 1) -> Callable[[], list[Any]]:
    """Our own, as xarray shows it: packing, times and labels are decoded, too."""
    import insitu as ours

    return _each(ours.scan, _stored, paths, warm, threads)


def _stored(group: Any) -> int:
    from insitu.model import INLINE

    total = 0
    for _, array in group.all_arrays():
        for tile in array.tiles:
            cells = np.indices(tile.chunks.shape).reshape(len(tile.chunks.shape), -1)
            found = tile.chunks.locate(list(cells)).source
            total += int(((found >= 0) | (found == INLINE)).sum())  # labels were read, and are kept in the table
    return total


def h5py_chunk_iter(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """h5py: visit every dataset, `chunk_iter` into a list."""
    import h5py

    def scan(path: str) -> list[Any]:
        found: list[Any] = []

        def visit(_: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                if item.chunks is not None:
                    item.id.chunk_iter(found.append)
                elif item.id.get_offset() is not None:
                    found.append((item.id.get_offset(), item.id.get_storage_size()))

        with h5py.File(path) as file:
            file.visititems(visit)
        return found

    return _each(scan, len, paths, warm)


def hidefix(paths: Sequence[str], warm: str) -> Callable[[], list[Any]]:
    """hidefix: its index. It does not tell how many chunks it holds; h5py counts them in its stead."""
    import hidefix as library

    def count(index: tuple[str, Any]) -> int:
        return len(h5py_chunk_iter([index[0]], index[0])()[0][1])

    return _each(lambda path: (path, library.Index(path)), count, paths, warm)


def pyfive(paths: Sequence[str], warm: str, threads: int = 1) -> Callable[[], list[Any]]:
    """pyfive: the chunk index of every dataset."""
    import pyfive as library

    def visit(group: Any, found: list[Any]) -> None:
        for name in group:
            item = group[name]
            if isinstance(item, library.Dataset):
                if item.chunks is not None:
                    found.append(item.id.index)
                elif b"not a netCDF variable" not in item.attrs.get("NAME", b""):  # (that has no data at all)
                    found.append([item.id])
            elif isinstance(item, library.Group):
                visit(item, found)

    def scan(path: str) -> list[Any]:
        found: list[Any] = []
        with _opened(path) as source, library.File(source) as file:
            visit(file, found)
        return found

    return _each(scan, lambda found: sum(len(index) for index in found), paths, warm, threads)


def _opened(path: str) -> Any:
    import fsspec

    return fsspec.open(path, "rb") if "://" in path else open(path, "rb")


def kerchunk(paths: Sequence[str], warm: str, threads: int = 1) -> Callable[[], list[Any]]:
    """kerchunk: references of the file; nothing inlined."""
    from kerchunk.hdf import SingleHdf5ToZarr

    def count(references: dict[str, Any]) -> int:
        return sum(isinstance(value, list) and len(value) == 3 for value in references["refs"].values())

    return _each(lambda path: SingleHdf5ToZarr(path, inline_threshold=0).translate(), count, paths, warm, threads)


def virtualizarr(paths: Sequence[str], warm: str, threads: int = 1) -> Callable[[], list[Any]]:
    """VirtualiZarr: a ManifestStore by its HDFParser."""
    import obstore.store
    from obspec_utils.registry import ObjectStoreRegistry
    from virtualizarr.parsers import HDFParser

    stores: dict[str, Any] = {"file://": obstore.store.LocalStore()}
    for path in {path.rpartition("/")[0] for path in [*paths, warm] if path.startswith("http")}:
        stores[path] = obstore.store.HTTPStore.from_url(path, client_options={"allow_http": True})
    registry, parser = ObjectStoreRegistry(stores), HDFParser()

    def count(store: Any) -> int:
        arrays = store._group.arrays.values()
        return sum(int((np.asarray(array.manifest._paths) != "").sum()) for array in arrays)

    return _each(
        lambda path: parser(url=path if "://" in path else f"file://{path}", registry=registry),
        count,
        paths,
        warm,
        threads,
    )
