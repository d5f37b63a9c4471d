"""How are many files opened as one dataset?"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray

from insitu.combining.combine import ConcatDim
from insitu.combining.conventions import Decoding
from insitu.combining.files import combine_files, combine_named
from insitu.combining.gather import gather
from insitu.combining.member import CombineError, Member
from insitu.combining.names import found_paths, labels_from_names
from insitu.combining.order import positions
from insitu.combining.report import Survey
from insitu.combining.rules import DEFAULT, Rules
from insitu.combining.scanning import Failure, Job, loader
from insitu.formats import InsituWarning
from insitu.opening import Verify
from insitu.reading import ChunkCache
from insitu.xarray_bridge.computed import COMPUTED, combined_by_xarray, computes
from insitu.xarray_bridge.dataset import dataset_of, member_from
from insitu.xarray_bridge.engine_keywords import check_complex, without_engine_keywords
from insitu.xarray_bridge.lazy import Access
from insitu.xarray_bridge.opening import access_to, chunked, only_groups
from insitu.xarray_bridge.provenance import Provenance

__all__ = ["open_mfdataset"]


def open_mfdataset(
    paths: Any,
    *,
    combine: str = "by_coords",
    concat_dim: Any = None,
    compat: str = DEFAULT,
    data_vars: str | Sequence[str] | None = DEFAULT,
    coords: str | Sequence[str] = DEFAULT,
    join: str = DEFAULT,
    combine_attrs: str | Callable[..., Any] = "override",
    attrs_file: Any = None,
    preprocess: Callable[[xarray.Dataset], xarray.Dataset] | None = None,
    variables: Sequence[str] | None = None,
    errors: str = "raise",
    parallel: Any = None,
    progress: bool | Callable[[int, int], None] | None = None,
    group: str | None = None,
    format: str | None = None,
    chunks: Any = None,
    cache: ChunkCache | int | None = None,
    active: str | None = None,
    active_required: bool = False,
    verify: Verify = "read",
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **decode: Any,
) -> xarray.Dataset:
    r"""Open many files as one dataset of virtual arrays: what `xarray.open_mfdataset` gives, in a fraction of the time.

    Files may differ in chunk shapes, compression, stored type, packing, time units; what does not fit together stays side by side.

    Parameters
    ----------
    paths
        A pattern (`"archive/*.nc"`, `"s3://bucket/**/tas_*.nc"`), a prefix that ends in a slash, the name of a text file that lists paths
        (`"@files.txt"`), a list of any of these, or nested lists.
    combine
        `"by_coords"`: the labels of the dimensions say how files follow each other. `"nested"`: the lists do.
    concat_dim
        With `combine="nested"`: the dimension (one for each level of nesting). A mapping `{"member": how}` makes a new dimension from the
        files' names: `how` is a regular expression (its first group is the label), a function of the path, or a list of labels.
    compat, data_vars, coords, join, combine_attrs, attrs_file
        As in xarray, with the installed xarray's defaults.
    preprocess
        Called with each file's dataset. Structural changes stay virtual; what it computes is read where that is little, else it becomes a Dask
        array, and xarray combines the files.
    variables
        Only these, and their coordinates.
    errors
        What happens to a file that cannot be taken. `"raise"`, `"warn"`: left out with a warning, `"skip"`: left out. In a grid of files its place
        stays, without values. `ds.insitu.report()` names it. Of a file that can be taken, a variable that cannot is left out with a warning.
    parallel
        None: threads where they help; a number of threads; a `concurrent.futures.Executor`; `"dask"` or a Dask client.
    progress
        True: a progress bar; or a function of how many files are done and how many there are.
    group, format, chunks, cache, active, active_required, verify, allow_local, storage_options, **decode
        As for `open_dataset`.

    Returns
    -------
    xarray.Dataset
        One dataset.

    Examples
    --------
    >>> ds = insitu.open_mfdataset("archive/tas_*.nc")  # doctest: +SKIP
    >>> ds = insitu.open_mfdataset("cmip/*.nc", concat_dim={"member": r"_(r\d+)i1"})  # doctest: +SKIP
    """
    if errors not in ("raise", "warn", "skip", "ignore"):
        raise ValueError(f'errors must be "raise", "warn" or "skip", not {errors!r}')
    if combine not in ("by_coords", "nested"):
        raise ValueError(f"{combine!r} is an invalid option for the keyword argument combine")
    places, urls = _places(found_paths(paths, storage_options))
    urls, access = access_to(urls, storage_options, cache, active, active_required)
    rules = Rules(loader(access.storage_options), data_vars, coords, compat, join, combine_attrs)
    names = tuple([variables] if isinstance(variables, str) else variables) if variables is not None else None
    kept = without_engine_keywords({"format": format, **decode})
    format = kept.pop("format", None)
    job = Job(
        Decoding.of(**kept),
        group=group,
        format=format,
        variables=names,
        storage_options=access.storage_options,
        finish=_Preprocess(preprocess, access, COMPUTED // max(len(urls), 1)) if preprocess is not None else None,
        catch=errors != "raise",
        verify=verify,
        allow_local=allow_local,
    )
    named = labels_from_names(urls, concat_dim) if isinstance(concat_dim, Mapping) else None
    dims = _dims(concat_dim, combine) if named is None else []
    at = places if combine == "nested" else None
    found = gather(urls, job, parallel=parallel, progress=progress)
    if any(computes(item) for item in found):
        member = Member({}, frozenset())
        dataset = combined_by_xarray(found, at, dims, named, rules, errors, access)
    else:
        member = (
            combine_files(found, at, dims, rules, errors)
            if named is None
            else combine_named(found, named, rules, errors)
        )
        check_complex(member, decode)
        dataset = dataset_of(member, access)
    if attrs_file is not None:
        dataset.attrs = dict(_attributes_of(attrs_file, found, urls))
    empty = next((item for item in found if isinstance(item, Member) and item.groups), None)
    if empty is not None and not member.variables:
        warnings.warn(only_groups(empty, group), InsituWarning, stacklevel=2)
    survey = Survey.of(found, member)
    # The tables of ten thousand files: not needed any more, and a traceback that somebody keeps may keep this frame.
    del found
    if chunks is not None:
        dataset = chunked(dataset, chunks)
    dataset.insitu.survey = survey
    asked: dict[str, Any] = {
        "combine": combine, "concat_dim": concat_dim, "compat": compat, "data_vars": data_vars, "coords": coords, "join": join,
        "combine_attrs": combine_attrs, "attrs_file": attrs_file, "preprocess": preprocess, "variables": variables,
        "errors": errors, "group": group, "format": format, "allow_local": allow_local or None, **decode,
    }  # fmt: skip
    dataset.insitu.provenance = Provenance.of(dataset, "open_mfdataset", urls, asked, places)
    return dataset


def _places(nested: Any) -> tuple[list[tuple[int, ...]], list[Any]]:
    pairs = list(positions(nested))
    if not pairs:
        raise OSError("no files to open")
    return [place for place, _ in pairs], [url for _, url in pairs]


def _dims(concat_dim: Any, combine: str) -> list[ConcatDim]:
    """One entry for each level of nesting."""
    if combine == "by_coords":
        if concat_dim is not None:
            raise CombineError(
                "When combine='by_coords', passing a value for `concat_dim` has no effect.",
                hint="Give combine='nested' with it, or a mapping for a dimension from the files' names",
            )
        return []
    many = isinstance(concat_dim, (list, tuple))
    return [_dim(dim) for dim in (concat_dim if many else [concat_dim])]


def _dim(dim: Any) -> ConcatDim:
    if dim is None or isinstance(dim, str):
        return dim
    if isinstance(dim, (xarray.DataArray, xarray.Variable)):
        return str(dim.dims[0]), np.asarray(dim.values)
    return str(getattr(dim, "name", None) or "concat_dim"), np.asarray(dim)


def _attributes_of(path: Any, found: Sequence[Member | Failure], urls: Sequence[Any]) -> Mapping[str, Any]:
    wanted = found_paths([path])[0]
    for url, item in zip(urls, found, strict=True):
        if url == wanted and isinstance(item, Member):
            return item.attributes
    raise CombineError(f"attrs_file {path} is not one of the files")


@dataclass(frozen=True, slots=True)
class _Preprocess:
    """The user's function, around which a member becomes a dataset and back."""

    function: Callable[[xarray.Dataset], xarray.Dataset]
    access: Access
    limit: int
    """Bytes of a variable that it may read to compute with."""

    def __call__(self, member: Member) -> Member:
        dataset = dataset_of(member, replace(self.access, read_limit=self.limit))
        return member_from(self.function(dataset), member.source, self.limit)
