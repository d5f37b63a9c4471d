"""The functions `insitu.scan`, `read`, `reduce` and `zarr_store`. Each opens an `Archive`."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt

from insitu.archive import Archive, open_variable, zarr_store_of
from insitu.combining.file_names import one_location
from insitu.errors import ModelError, VariableError
from insitu.model import VirtualArray, VirtualGroup
from insitu.open_options import OpenOptions, Verify
from insitu.reading import ChunkCache, ReadContext, ReadStatistics, cache_from_option, format_summary, read_selection
from insitu.scanning.scan_member import make_loader
from insitu.scanning.scan_url import scan_stored

if TYPE_CHECKING:
    from insitu.active.placement import Servers
    from insitu.reading.zarr_store.store import InsituStore

__all__ = ["read", "reduce", "scan", "zarr_store"]


def scan(
    url: Any,
    *,
    group: str | None = None,
    variables: Collection[str] | None = None,
    tree: bool = False,
    errors: str = "raise",
    format: str | None = None,
    decode: bool = True,
    verify: Verify = "read",
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> VirtualGroup:
    """Scan an archive: find where every chunk lies, how it is encoded and packed. Reads metadata
    and labels only.

    Parameters
    ----------
    url
        A path, a URL (`http://`, `https://`, `s3://`, `gs://`, `az://`), or an open source of
        bytes: an archive file, a Zarr store (directory, prefix, zip), saved references, or a member
        of a zip or tar archive (`runs.zip::2024/jan.nc`). The files of a list or a pattern are
        combined, as by `open_mfdataset`, if `decode` is not False.
    group
        Scan this group only.
    variables
        Scan only these variables, and the labels that they refer to.
    tree
        Whether the files of a list or a pattern are combined with all their groups: see
        `insitu.open_mfdatatree`. One file always has all.
    errors
        `"raise"`: a variable that cannot be read is an error. `"warn"`: it is left out with a
        warning, and the reason is kept in `problems`.
    format
        The format of a file; if not given, its first bytes decide.
    decode
        Whether arrays have the shapes, types and values that xarray shows, or the stored ones.
    verify
        When to check that sources did not change since they were scanned. `"read"`: when one is
        opened for reading, which takes no additional request. `"open"`: also now, for every source
        of saved references. `"never"`: not at all. A changed source raises `StaleSourceError`.
    allow_local
        Whether remote references may name local files.
    storage_options
        Credentials and endpoints: `anon`, `key`, `secret`, `token`, `endpoint_url`, `region`,
        `headers`; or a mapping of URL prefix → such options.

    Returns
    -------
    VirtualGroup
        The tree of arrays, with attributes.

    Examples
    --------
    >>> group = insitu.scan("era5.nc")  # doctest: +SKIP
    >>> group.arrays["t2m"].tiles[0].chunks[0, 0, 0]  # doctest: +SKIP
    Stored(source=Source(url='era5.nc', …), offset=8192, length=52311, filter_mask=0, encoding=0,
    packing=0)
    """
    options = OpenOptions.of_call(locals(), {})
    if not decode:
        return scan_stored(one_location(url), options.scan)
    return Archive.open_with(url, options.replace(variables=None)).subtree(options.scan.variables)


def read(
    url: Any,
    path: str | None = None,
    selection: Any = ...,
    *,
    start: Sequence[int] | None = None,
    count: Sequence[int] | None = None,
    points: Sequence[Any] | None = None,
    out: npt.NDArray[Any] | None = None,
    decode: bool = True,
    cache: ChunkCache | int | bool | None = None,
    verbose: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    tally: ReadStatistics | None = None,
) -> npt.NDArray[Any]:
    """Read one hyperslab as an array: the values that xarray shows.

    Parameters
    ----------
    url
        A path or URL, or what `scan` returned (then nothing is scanned again).
    path
        The variable, e.g. `"forecast/tas"`.
    selection
        Integers, slices of any step, Ellipsis, index arrays and boolean arrays, each axis
        independently.
    start, count
        Instead of a selection: corner and extent, as in the netCDF library. Without `count`, up to
        the end.
    points
        Instead of a selection: index arrays of equal shape (stations on a grid), or slices. Each
        chunk is decoded once.
    out
        The array to read into.
    decode
        False: return the stored values, as h5py does, without scale, offset, missing values and
        times. An error if the files of the variable are packed differently.
    cache
        Keeps decoded chunks for later reads: see `insitu.open_dataset`.
    verbose
        Print to standard error what the read did: type, shape, chunks, codecs, requests, bytes,
        seconds. The logger `insitu.read` logs the same at level DEBUG.
    storage_options
        See `scan`.
    tally
        An object that counts requests, bytes and seconds.

    Examples
    --------
    >>> insitu.read("era5.nc", "t2m", np.s_[0, ::-1, 100:200])  # doctest: +SKIP
    """
    array = _array(url, path, decode, storage_options)
    tally = tally if tally is not None else ReadStatistics()
    context = ReadContext(path, storage_options, cache=cache_from_option(cache), tally=tally)
    values = read_selection(array, selection, context, start=start, count=count, points=points, out=out)
    if verbose:
        print(format_summary(array, values.shape, tally, path), file=sys.stderr)
    return values


def reduce(
    url: Any,
    path: str | None = None,
    method: str = "mean",
    *,
    dim: str | Sequence[str] | None = None,
    axes: int | Sequence[int] | None = None,
    selection: Any = ...,
    skipna: bool | None = None,
    q: Any = None,
    edges: Any = None,
    decode: bool = True,
    active: Servers | None = None,
    active_required: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    tally: ReadStatistics | None = None,
) -> npt.NDArray[Any]:
    """Reduce a variable chunk by chunk, in bounded memory. The result is that of xarray.

    Parameters
    ----------
    url
        Where the archive is, or what `scan` returned.
    path
        The variable; or a formula of variables after `=`, as `"=tas - 273.15"`, with the grammar of
        the explorer.
    method
        `sum`, `mean`, `min`, `max`, `std`, `var`, `count`, `any`, `all`, `argmin`, `argmax`,
        `prod`, `median`; `quantile` and `tdigest`, which need `q`; `histogram`, which needs
        `edges`.
    dim
        The dimensions to reduce, by name; all if not given.
    axes
        The same by number, counted in the selection.
    selection
        As for `read`.
    skipna
        Whether to skip NaN; by default yes for floating-point values.
    q
        Quantiles from 0 to 1; several make a first axis. `tdigest` estimates quantiles of more
        values than fit into memory, with an error of rank of at most 0.6 %.
    edges
        Edges of the bins, increasing. The bins are the first axis of the result.
    decode
        False: reduce the stored values, as for `read`.
    active, active_required
        The servers that reduce next to the data, and whether it is an error if they cannot: see
        `open_dataset`.
    storage_options, tally
        As for `read`.

    Examples
    --------
    >>> insitu.reduce("era5.nc", "t2m", "max", dim="time")  # doctest: +SKIP
    >>> insitu.reduce("era5.nc", "=sqrt(u10**2 + v10**2)", "mean")  # doctest: +SKIP
    """
    from insitu.active import Active, answer_array  # not at the top: scanning and reading need none of this
    from insitu.reducing import ReductionQuery, axes_of_dims

    server = None if active is None else Active(active, active_required)
    if path is not None and path.startswith("="):
        if isinstance(url, (VirtualArray, VirtualGroup)):
            raise ModelError("a formula needs the archive, not what scan returned", hint="Give its path or URL")
        archive, _ = open_variable(url, path, storage_options=storage_options, active=server)
        given = {"dim": dim, "axes": axes, "selection": selection, "skipna": skipna, "q": q, "edges": edges}
        found: npt.NDArray[Any] = archive.reduce(path, method, decode=decode, tally=tally, **given)
        return found
    array = _array(url, path, decode, storage_options)
    along = axes_of_dims(array.dims, array.shape, selection, dim, axes)
    query = ReductionQuery.of(method, along, selection, skipna=skipna, q=q, edges=edges)
    in_memory = () if isinstance(url, (str, os.PathLike)) else (url,)  # objects in memory are only here
    context = ReadContext(path, storage_options, tally=tally, keep_alive=in_memory)
    return answer_array(array, query, context, server)[method]


def _array(url: Any, path: str | None, decode: bool, storage_options: Mapping[str, Any] | None) -> VirtualArray:
    """Return the variable that a call names."""
    if isinstance(url, VirtualArray):
        return url if decode else _stored_view(url, path, storage_options)
    if path is None:
        raise VariableError("no variable was given", hint='Give its path as the second argument, e.g. "forecast/tas"')
    if isinstance(url, VirtualGroup):
        array = url.array(path)
        return array if decode else _stored_view(array, path, storage_options)
    archive, name = open_variable(url, path, storage_options=storage_options)
    return archive.array(name, decode=decode)


def _stored_view(array: VirtualArray, path: str | None, storage_options: Mapping[str, Any] | None) -> VirtualArray:
    from insitu.scanning.stored_view import stored_view  # not at the top: seldom needed

    return stored_view(array, path, make_loader(storage_options))


def zarr_store(
    url: Any,
    *,
    group: str | None = None,
    zarr_format: Literal[2, 3] = 3,
    compression: str | None = None,
    portable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> InsituStore:
    """Return a read-only Zarr store that shows any archive to tools that read Zarr. Copies nothing.

    Arrays that fit into Zarr keep their chunks: the bytes are passed on unchanged. Mosaics (files
    that are chunked, encoded or packed differently) get a regular chunk grid, and each chunk is
    read and encoded when it is requested.

    Parameters
    ----------
    url
        Where the archive is, or what `scan` returned.
    group
        Show this group only.
    zarr_format
        The Zarr version of the store.
    compression
        Compression of chunks that are encoded anew: "gzip", "zlib" (version 2), "zstd"; None: none.
    portable
        Pass on only chunks with codecs that readers other than zarr-python have too; encode the
        others anew.
    storage_options
        See `scan`.

    Returns
    -------
    zarr.abc.store.Store
        A store for `zarr.open` and `xarray.open_zarr`.

    Examples
    --------
    >>> zarr.open_group(insitu.zarr_store("era5.nc"), mode="r")["t2m"][0, :10]  # doctest: +SKIP
    """
    from insitu.formats.variable_filter import subtree

    how: dict[str, Any] = {"zarr_format": zarr_format, "compression": compression, "portable": portable}
    if isinstance(url, VirtualGroup):
        return zarr_store_of(subtree(url, group), storage_options=storage_options, **how)
    return Archive.open(url, group=group, errors="warn", storage_options=storage_options).zarr_store(**how)
