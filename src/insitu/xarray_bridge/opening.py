"""How is one archive opened as a dataset, or as a tree of them?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from os import PathLike, fspath
from typing import Any

import xarray

from insitu.combining.conventions import Decoding
from insitu.combining.decode import Memory, member_of
from insitu.combining.gather import Job, loader, scan_member
from insitu.formats import scan_format
from insitu.opening import Verify, may_be_many, scan, trusted
from insitu.sources import open_source
from insitu.xarray_bridge.dataset import dataset_of
from insitu.xarray_bridge.lazy import Access, LazyArray
from insitu.xarray_bridge.values import to_dask

__all__ = ["chunked", "open_dataset", "open_datatree", "open_groups"]


def open_dataset(
    url: Any,
    *,
    group: str | None = None,
    variables: Sequence[str] | None = None,
    chunks: Any = None,
    verify: Verify = "read",
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **decode: Any,
) -> xarray.Dataset:
    """Open an archive as a dataset of virtual arrays. Only metadata and the labels of dimensions are read.

    Parameters
    ----------
    url
        A path, a URL (`http://`, `https://`, `s3://`, `gs://`, `az://`), or an open source of bytes.
    group
        Which group; the root if not given.
    variables
        Only these, and their coordinates.
    chunks
        As in `xarray.open_dataset`: Dask arrays instead of virtual ones. `{}`: cut where the stored chunks end.
    verify
        When to find out whether sources are still what was scanned: `"open"`, `"read"` or `None`; see `insitu.scan`.
    allow_local
        Whether references from elsewhere may name files of this machine.
    storage_options
        Credentials and endpoints.
    **decode
        xarray's: `decode_cf`, `mask_and_scale`, `decode_times`, `decode_timedelta`, `use_cftime`, `concat_characters`, `decode_coords`,
        `drop_variables`.

    Returns
    -------
    xarray.Dataset
        The same as `xarray.open_dataset` gives, once loaded.

    Examples
    --------
    >>> ds = insitu.open_dataset("era5.nc")  # doctest: +SKIP
    >>> ds.t2m.sel(time="2020-06").mean("time")  # doctest: +SKIP
    """
    names = None if variables is None else ((variables,) if isinstance(variables, str) else tuple(variables))
    job = Job(Decoding.of(**decode), group, names, storage_options, verify=verify, allow_local=allow_local)
    dataset = dataset_of(scan_member(url, job), Access(storage_options))
    return dataset if chunks is None else chunked(dataset, chunks)


def open_datatree(
    url: Any,
    *,
    group: str | None = None,
    chunks: Any = None,
    verify: Verify = "read",
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **decode: Any,
) -> xarray.DataTree:
    """Open an archive with all its groups. See `open_dataset`."""
    return xarray.DataTree.from_dict(
        open_groups(
            url,
            group=group,
            chunks=chunks,
            verify=verify,
            allow_local=allow_local,
            storage_options=storage_options,
            **decode,
        )
    )


def open_groups(
    url: Any,
    *,
    group: str | None = None,
    chunks: Any = None,
    verify: Verify = "read",
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **decode: Any,
) -> dict[str, xarray.Dataset]:
    """Every group of an archive as a dataset, by path."""
    how = Decoding.of(**decode)
    found: dict[str, xarray.Dataset] = {}
    many = isinstance(url, (str, PathLike)) and may_be_many(fspath(url))
    with nullcontext() if many else open_source(url, storage_options) as source:
        tree = (
            scan(url, group=group, verify=verify, allow_local=allow_local, storage_options=storage_options)
            if source is None
            else trusted(scan_format(source, group=group), verify)
        )
        name = fspath(url) if source is None else source.url
        for path, node in tree.walk():
            member = member_of(node, how, loader(storage_options), source=source, memory=Memory(), url=name)
            dataset = dataset_of(member, Access(storage_options))
            found[f"/{path}"] = dataset if chunks is None else chunked(dataset, chunks)
    return found


def chunked(dataset: xarray.Dataset, chunks: Any) -> xarray.Dataset:
    """The dataset with Dask arrays in place of the virtual ones."""
    variables: dict[Any, xarray.Variable] = {}
    for name, variable in dataset.variables.items():
        if isinstance(variable._data, LazyArray):
            array = variable._data
            variables[name] = variable._replace(data=to_dask(array, _wanted(array, variable.dims, chunks)))
    return dataset.assign({name: v for name, v in variables.items() if name in dataset.data_vars}).assign_coords(
        {name: v for name, v in variables.items() if name in dataset.coords}
    )


def _wanted(array: LazyArray, dims: tuple[Any, ...], chunks: Any) -> Any:
    """The cut that was asked for; None: where the stored chunks end."""
    if isinstance(chunks, Mapping):
        if not any(dim in chunks for dim in dims):
            return None
        aligned = array.aligned_chunks
        return tuple(chunks.get(dim, own) for dim, own in zip(dims, aligned, strict=True))
    return chunks
