"""How does each library build, join, write and open references?

One function for each contestant of `references.py`: it imports and prepares what it needs and gives
a function that does the work. The references are those of an archive of 1,000 files with
86-character URLs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["check"]

URL = "https://data.example.org/archive/cmip/model/experiment/variable/version/file-{:06d}.nc"
FILES = 1000
Work = Callable[[], Any]


def check(answer: Any) -> str:
    """Whatever a contestant says that it did."""
    return str(answer)


def _rows(count: int) -> tuple[Any, Any, Any]:
    """File, offset and length of every chunk."""
    per = count // FILES
    length = np.random.default_rng(11).integers(35_000, 49_000, (FILES, per))
    offset = 8192 + np.cumsum(length, axis=1) - length
    return np.repeat(np.arange(FILES), per), offset.reshape(-1), length.reshape(-1)


# Build


def build_insitu(count: int) -> Work:
    """One array of `count` chunks from columns."""
    from insitu.model import Axis, Columns, Encoding, Source, Tile, VirtualArray

    source, offset, length = _rows(count)

    def work() -> int:
        grid = (count // 1000, 1000)
        sources = tuple(Source(URL.format(n)) for n in range(FILES))
        table = Columns(grid, sources, source.reshape(grid), offset.reshape(grid), length.reshape(grid))
        axes = (Axis.regular(grid[0], 1), Axis.regular(grid[1], 1))
        array = VirtualArray.of(Tile(axes, (Encoding(np.dtype("f4")),), table), dims=("t", "x"))
        _keep.append(array)
        return array.size

    return work


_keep: list[Any] = []


def _manifest(rows: tuple[Any, Any, Any], grid: tuple[int, ...]) -> Any:
    from virtualizarr.manifests import ChunkManifest

    source, offset, length = rows
    names = np.array([URL.format(n) for n in range(FILES)], np.dtypes.StringDType())
    return ChunkManifest.from_arrays(
        paths=names[source].reshape(grid),
        offsets=offset.reshape(grid).astype("u8"),
        lengths=length.reshape(grid).astype("u8"),
    )


def _manifest_array(manifest: Any, shape: tuple[int, ...], chunks: tuple[int, ...]) -> Any:
    from virtualizarr.manifests import ManifestArray
    from virtualizarr.manifests.utils import create_v3_array_metadata

    metadata = create_v3_array_metadata(
        shape=shape,
        data_type=np.dtype("f4"),
        chunk_shape=chunks,
        fill_value=0.0,
        codecs=[{"name": "bytes", "configuration": {"endian": "little"}}],
        dimension_names=[f"d{i}" for i in range(len(shape))],
    )
    return ManifestArray(metadata=metadata, chunkmanifest=manifest)


def build_virtualizarr(count: int) -> Work:
    """The same as a ManifestArray."""
    import virtualizarr  # noqa: F401

    rows = _rows(count)

    def work() -> int:
        grid = (count // 1000, 1000)
        array = _manifest_array(_manifest(rows, grid), grid, (1, 1))
        _keep.append(array)
        return int(np.prod(array.shape))

    return work


# Join


def join_insitu(parts: int, count: int) -> Work:
    """Concatenate arrays of `count` chunks each."""
    from insitu.model import Axis, Columns, Encoding, Source, Tile, VirtualArray, concatenate

    grid = (count // 100, 100)
    _, offset, length = _rows(FILES * count)
    arrays = []
    for number in range(parts):
        here = slice(number * count, (number + 1) * count)
        table = Columns(
            grid, (Source(URL.format(number)),), np.asarray(0), offset[here].reshape(grid), length[here].reshape(grid)
        )
        axes = (Axis.regular(grid[0], 1), Axis.regular(grid[1], 1))
        arrays.append(VirtualArray.of(Tile(axes, (Encoding(np.dtype("f4")),), table), dims=("t", "x")))
    return lambda: concatenate(arrays, 0).size


def join_virtualizarr(parts: int, count: int) -> Work:
    """The same with ManifestArrays."""
    from virtualizarr.manifests import ChunkManifest

    grid = (count // 100, 100)
    _, offset, length = _rows(FILES * count)
    arrays = []
    for number in range(parts):
        here = slice(number * count, (number + 1) * count)
        paths = np.full(grid, URL.format(number), np.dtypes.StringDType())
        manifest = ChunkManifest.from_arrays(
            paths=paths,
            offsets=offset[here].reshape(grid).astype("u8"),
            lengths=length[here].reshape(grid).astype("u8"),
            validate_paths=False,
        )
        arrays.append(_manifest_array(manifest, grid, (1, 1)))
    return lambda: int(np.prod(np.concatenate(arrays, axis=0).shape))


# Write


def write_insitu(count: int, target: str) -> Work:
    """Save references of `count` chunks, in the form that the target's name says."""
    from insitu.model import VirtualGroup
    from insitu.references import save

    build_insitu(count)()
    group = VirtualGroup({"a": _keep[-1]})
    _remove(target)

    def work() -> int:
        save(group, target)
        return count

    return work


def write_virtualizarr(count: int, target: str, form: str) -> Work:
    """The same through VirtualiZarr's accessor."""
    import virtualizarr  # noqa: F401
    import xarray as xr

    grid = (count // 1000, 1000)
    array = _manifest_array(_manifest(_rows(count), grid), grid, (1, 1))
    dataset = xr.Dataset({"a": xr.Variable(("t", "x"), array)})
    _remove(target)

    def work() -> int:
        dataset.vz.to_kerchunk(target, format=form)
        return count

    return work


def _remove(target: str) -> None:
    path = Path(target)
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()


# Open, up to the whereabouts of one chunk


def open_insitu(target: str, row: int, column: int) -> Work:
    """Open saved references and look one chunk up."""
    from insitu.references import open_references

    def work() -> list[int]:
        group = open_references(target)
        assert group is not None
        state: Any = group.array("a").tiles[0].chunks[row, column]
        return [state.offset, state.length]

    return work


def open_fsspec(target: str, row: int, column: int) -> Work:
    """The same through fsspec's lazy mapper."""
    from fsspec.implementations.reference import LazyReferenceMapper

    def work() -> list[int]:
        mapper = LazyReferenceMapper(target, engine="pyarrow")
        return [int(n) for n in mapper[f"a/{row}.{column}"][1:]]

    return work


def open_virtualizarr(target: str, row: int, column: int) -> Work:
    """The same through VirtualiZarr's parser."""
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import KerchunkParquetParser

    def work() -> list[int]:
        store = KerchunkParquetParser()(f"file://{target}", ObjectStoreRegistry({"file://": LocalStore()}))
        manifest = store._group.arrays["a"].manifest
        return [int(manifest._offsets[row, column]), int(manifest._lengths[row, column])]

    return work


# First value


def value_insitu(target: str) -> Work:
    """Open saved references of a real file and read one value."""
    from insitu.reading import read_array
    from insitu.references import open_references

    def work() -> str:
        group = open_references(target)
        assert group is not None
        return str(read_array(group.array("x"), (500, slice(0, 4))).tolist())

    return work


def value_fsspec(target: str) -> Work:
    """The same by zarr over fsspec."""
    import fsspec
    import zarr

    def work() -> str:
        files = fsspec.filesystem("reference", fo=target, remote_protocol="file")
        return str(zarr.open_group(files.get_mapper(""), mode="r")["x"][500, 0:4].tolist())

    return work


def value_virtualizarr(target: str) -> Work:
    """The same by zarr over VirtualiZarr's store."""
    import zarr
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import KerchunkParquetParser

    def work() -> str:
        store = KerchunkParquetParser()(f"file://{target}", ObjectStoreRegistry({"file://": LocalStore()}))
        return str(zarr.open_group(store, mode="r")["x"][500, 0:4].tolist())

    return work
