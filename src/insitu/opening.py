"""From a URL to an archive, or to values: whatever lies there.

The only place that knows both how archives are found (`formats`) and how they are read (`reading`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from insitu.errors import SelectionError, UnsupportedError, VariableError
from insitu.formats import scan_format
from insitu.formats.archives import names_member, open_place
from insitu.model import Selection, VirtualArray, VirtualGroup
from insitu.reading import ChunkCache, Tally, read_array, read_points, summary
from insitu.sources import ByteSource, detach_secrets

if TYPE_CHECKING:
    from insitu.reading.zarr_store.store import InsituStore

__all__ = ["Verify", "may_be_many", "read", "scan", "trusted", "zarr_store"]

Location = str | PathLike[str] | ByteSource
Errors = Literal["raise", "warn"]
Verify = Literal["open", "read"] | None


def scan(
    url: Location,
    *,
    group: str | None = None,
    variables: Collection[str] | None = None,
    errors: Errors = "raise",
    format: str | None = None,
    verify: Verify = "read",
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> VirtualGroup:
    """Find where every chunk of an archive lies and how it is encoded. Reads metadata only.

    Parameters
    ----------
    url
        A path, a URL (`http://`, `https://`, `s3://`, `gs://`, `az://`), or an open source of bytes: an archive file, a Zarr store
        (directory, prefix, zip), a saved set of references, or a member of a zip or tar archive (`runs.zip::2024/jan.nc`).
    group
        Scan this group only.
    variables
        Scan only these variables, and the dimension scales that they refer to.
    errors
        `"raise"`: a variable that cannot be taken is an error. `"warn"`: it is left out, with a warning, and its reason is kept in
        `problems`.
    format
        The format of a file by name, if its first bytes should not decide.
    verify
        When to find out whether sources still are what was scanned. `"read"`: when one is opened to read from it, which costs no request
        more. `"open"`: now too; a set of references asks every source that it names. `None`: never. What is not raises
        `StaleSourceError`.
    allow_local
        Whether references from elsewhere may name files of this machine.
    storage_options
        Credentials and endpoints: `anon`, `key`, `secret`, `token`, `endpoint_url`, `region`, `headers`; or a mapping of URL prefix →
        such options.

    Returns
    -------
    VirtualGroup
        The tree of arrays, with attributes.

    Examples
    --------
    >>> group = insitu.scan("era5.nc")  # doctest: +SKIP
    >>> group.arrays["t2m"].tiles[0].chunks[0, 0, 0]  # doctest: +SKIP
    Stored(source=Source(url='era5.nc', …), offset=8192, length=52311, filter_mask=0, encoding=0, packing=0)
    """
    if errors not in ("raise", "warn"):
        raise ValueError(f'errors must be "raise" or "warn", not {errors!r}')
    if verify not in ("open", "read", None):
        raise ValueError(f'verify must be "open", "read" or None, not {verify!r}')
    if isinstance(variables, str):
        variables = [variables]
    if isinstance(url, PathLike):
        url = os.fspath(url)
    if isinstance(url, str):
        # A signed URL is a secret: what identifies the file must not carry it.
        url, storage_options = detach_secrets(url, storage_options)
        if format is None and may_be_many(url):
            found = _many(url, group, variables, errors, verify, allow_local, storage_options)
            if found is not None:
                return found
    with _source(url, storage_options) as source:
        whole = scan_format(
            source, group=group, variables=variables, errors=errors, format=format, storage_options=storage_options
        )
        return trusted(whole, verify)


def trusted(group: VirtualGroup, verify: Verify) -> VirtualGroup:
    """The tree; if nobody wants to know whether its sources are what they were, it does not know what they were."""
    if verify is not None:
        return group
    from insitu.references import unverified

    return unverified(group)


# Names of things that are more than one file of one format: reference sets and Zarr stores.
_COLLECTED = re.compile(r"(\.(json|parq|parquet|insitu|icechunk|zarr|zip)(\.(zst|gz))?|/)$", re.IGNORECASE)
_COLLECTING = re.compile(r"(reference\+json|reference\+parquet|virtualizarr)://", re.IGNORECASE)


def may_be_many(url: str) -> bool:
    """Whether a reference set or a Zarr store may lie at a URL: by its name, and on this machine by a look."""
    found = bool(_COLLECTED.search(url.partition("?")[0]) or _COLLECTING.match(url)) or os.path.isdir(url)
    return found and names_member(url) is None


def _many(
    url: str,
    group: str | None,
    variables: Collection[str] | None,
    errors: str,
    verify: Verify,
    allow_local: bool,
    storage_options: Mapping[str, Any] | None,
) -> VirtualGroup | None:
    """The reference set or the Zarr store at a URL; None if there is none."""
    from insitu import references  # not at the top: Arrow takes longer to import than a file to scan
    from insitu.formats import zarr
    from insitu.formats.choosing import below, picked

    if references.matches(url):
        found = references.open_references(url, errors=errors, allow_local=allow_local, storage_options=storage_options)
        if found is not None:
            found = picked(below(found, group, url=url), variables, url=url)
            if verify == "open":
                references.check(found, storage_options=storage_options).raise_stale()
            return trusted(found, verify)
    if zarr.matches(url):
        stored = zarr.open_zarr(url, group=group, variables=variables, errors=errors, storage_options=storage_options)
        if stored is not None:
            return stored
    if url.endswith("/") and references.is_repository(url, storage_options):
        found = references.open_references(
            url, format="icechunk", errors=errors, allow_local=allow_local, storage_options=storage_options
        )
        return None if found is None else picked(below(found, group, url=url), variables, url=url)
    return None


@contextmanager
def _source(url: Location, storage_options: Mapping[str, Any] | None) -> Iterator[ByteSource]:
    """An open source; one that the caller opened stays open."""
    # A text first: to ask a protocol takes longer than to open a file.
    if not isinstance(url, str) and isinstance(url, ByteSource):
        yield url
        return
    with open_place(url, storage_options) as source:
        yield source


def read(
    url: Location | VirtualGroup | VirtualArray,
    path: str | None = None,
    selection: Any = ...,
    *,
    start: Sequence[int] | None = None,
    count: Sequence[int] | None = None,
    points: Sequence[Any] | None = None,
    out: npt.NDArray[Any] | None = None,
    cache: ChunkCache | None = None,
    verbose: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    tally: Tally | None = None,
) -> npt.NDArray[Any]:
    """Read one hyperslab as an array: the stored values, as h5py gives them (no CF decoding).

    Parameters
    ----------
    url
        Where the archive is, or what `scan` returned (then nothing is scanned again).
    path
        The variable, e.g. `"forecast/tas"`.
    selection
        Integers, slices of any step, Ellipsis, index arrays and boolean arrays (each axis on its own).
    start, count
        Instead of a selection: the corner and the extent, as in the netCDF library. Without `count`, up to the end.
    points
        Instead of a selection: index arrays that are paired up (stations on a grid), or slices; each touched chunk is decoded once.
    out
        Where to put the values.
    cache
        Keeps decoded chunks for the next reads.
    verbose
        Say on standard error what the read did: type, shape, chunks, codecs, requests, bytes, seconds. The logger `insitu.read` says the
        same at level DEBUG.
    storage_options
        See `scan`.
    tally
        The same as an object: counts requests, bytes and seconds, if given.

    Examples
    --------
    >>> insitu.read("era5.nc", "t2m", np.s_[0, ::-1, 100:200])  # doctest: +SKIP
    """
    if isinstance(url, VirtualArray):
        array = url
    else:
        if path is None:
            raise VariableError("which variable?", hint="Give its path as the second argument")
        if isinstance(url, VirtualGroup):
            group = url
        else:
            # Only this variable is looked at: a file may hold others that cannot be taken.
            group = scan(url, variables=[path], storage_options=storage_options)
        array = group.array(path)
    if start is not None or count is not None:
        if selection is not Ellipsis:
            raise SelectionError("give either a selection or start and count")
        selection = _box(array, start, count)
    tally = tally if tally is not None else Tally()
    if points is not None:
        if selection is not Ellipsis or out is not None:
            raise SelectionError("points go with neither a selection nor an output")
        values = read_points(array, points, name=path, storage_options=storage_options, tally=tally)
    else:
        values = read_array(
            array, selection, out=out, name=path, storage_options=storage_options, tally=tally, cache=cache
        )
    if verbose:
        print(summary(array, values.shape, tally, path), file=sys.stderr)
    return values


def _box(array: VirtualArray, start: Sequence[int] | None, count: Sequence[int] | None) -> Selection:
    corner = [0] * array.ndim if start is None else [int(number) for number in np.atleast_1d(start)]
    if len(corner) != array.ndim:
        raise SelectionError(f"start {corner} must have {array.ndim} numbers")
    extent = (
        [n - s for n, s in zip(array.shape, corner, strict=True)] if count is None else np.atleast_1d(count).tolist()
    )
    return Selection.box(corner, extent, array.shape)


_VIEW_CACHE = 128 << 20
"""Bytes of decoded chunks that a Zarr view keeps: neighbouring chunks of a mosaic that was cut anew need the same ones."""


def zarr_store(
    url: Location | VirtualGroup,
    *,
    group: str | None = None,
    zarr_format: Literal[2, 3] = 3,
    compression: str | None = None,
    portable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> InsituStore:
    """Any archive as a read-only Zarr store, for every tool that reads Zarr. Copies nothing.

    Arrays that Zarr can say keep their chunks: the bytes are passed on as they lie in the archive. Mosaics (files that are chunked, encoded or packed differently) are cut into a regular grid, and each chunk is read and
    encoded when it is asked for.

    Parameters
    ----------
    url
        Where the archive is, or what `scan` returned.
    group
        Show this group only.
    zarr_format
        Which version of Zarr the store speaks.
    compression
        Of chunks that are encoded anew: "gzip", "zlib" (version 2), "zstd"; None: none.
    portable
        Pass on only chunks whose codecs readers other than zarr-python know too; encode the others anew.
    storage_options
        See `scan`.

    Returns
    -------
    zarr.abc.store.Store
        What `zarr.open` and `xarray.open_zarr` take.

    Examples
    --------
    >>> zarr.open_group(insitu.zarr_store("era5.nc"), mode="r")["t2m"][0, :10]  # doctest: +SKIP
    """
    from insitu.formats.choosing import below
    from insitu.reading.zarr_store import ZarrTree

    try:
        from insitu.reading.zarr_store.store import InsituStore  # not at the top: zarr-python takes long to import
    except ModuleNotFoundError as problem:
        raise UnsupportedError("a Zarr store needs zarr-python", hint="pip install 'insitu[zarr]'") from problem

    if isinstance(url, VirtualGroup):
        tree = below(url, group, url="this archive")
    else:
        tree = scan(url, group=group, errors="warn", storage_options=storage_options)
    kept = ChunkCache(_VIEW_CACHE)
    return InsituStore(ZarrTree(tree, zarr_format, compression, portable, storage_options, kept))
