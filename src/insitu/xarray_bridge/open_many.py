"""`open_mfdataset`: many files as one dataset of virtual arrays."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import xarray

from insitu.archive import Archive, ScannedFiles
from insitu.combining.combine_rules import DEFAULT
from insitu.combining.file_names import expand_paths, labels_from_names
from insitu.combining.member import CombineError, GridPosition, Member
from insitu.combining.recipe import Recipe
from insitu.combining.scan_member import make_loader, scan_member
from insitu.formats import InsituWarning
from insitu.lazy_array.deferred_values import Access
from insitu.reading import ChunkCache
from insitu.scanning.scan_url import Verify
from insitu.xarray_bridge.dataset import to_dataset, to_member
from insitu.xarray_bridge.engine_keywords import check_complex
from insitu.xarray_bridge.opening import OpenOptions, access_to, no_variables_message, to_dask_dataset
from insitu.xarray_bridge.origin import Origin
from insitu.xarray_bridge.preprocess_computed import COMPUTED_LIMIT, combine_with_xarray, has_computed_variable

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
    cache: ChunkCache | int | bool | None = None,
    active: str | None = None,
    active_required: bool = False,
    verify: Verify = "read",
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **decode: Any,
) -> xarray.Dataset:
    r"""Open many files as one dataset of virtual arrays.

    The result is that of `xarray.open_mfdataset`, in a fraction of the time.

    Files may differ in chunk shapes, compression, stored type, packing and time units.

    Parameters
    ----------
    paths
        A pattern (`"archive/*.nc"`, `"s3://bucket/**/tas_*.nc"`), a prefix that ends in a slash,
        the name of a text file that lists paths (`"@files.txt"`), a list of any of these, or nested
        lists.
    combine
        `"by_coords"`: files are ordered by the labels of their dimensions. `"nested"`: as in the
        lists.
    concat_dim
        With `combine="nested"`: the dimension (one for each level of nesting). A mapping
        `{"member": how}` makes a new dimension from the files' names: `how` is a regular expression
        (its first group is the label), a function of the path, or a list of labels.
    compat, data_vars, coords, join, combine_attrs, attrs_file
        As in xarray, with the installed xarray's defaults.
    preprocess
        Called with each file's dataset. Structural changes stay virtual. Small computed
        variables are read; larger ones become Dask arrays, and xarray combines the files.
    variables
        Only these, and their coordinates.
    errors
        What happens to a file that cannot be opened. `"raise"`: an error. `"warn"`: it is left out
        with a warning. `"skip"`: it is left out. In a grid of files its place stays, without
        values. `ds.insitu.report()` names it. Variables that cannot be read are treated alike.
    parallel
        None: threads where they help; a number of threads; a `concurrent.futures.Executor`;
        `"dask"` or a Dask client.
    progress
        True: a progress bar; or a function that is called with the numbers of scanned and of all
        files.
    group, format, chunks, cache, active, active_required, verify, allow_local
        As for `open_dataset`.
    storage_options, **decode
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
    if combine not in ("by_coords", "nested"):
        raise ValueError(f"{combine!r} is an invalid option for the keyword argument combine")
    options = OpenOptions(
        group=group,
        variables=variables,
        format=format,
        errors=errors,
        cache=cache,
        active=active,
        active_required=active_required,
        verify=verify,
        allow_local=allow_local,
        storage_options=storage_options,
        decode=decode,
    )
    paths = expand_paths(paths, storage_options)
    computed: list[xarray.Dataset] = []

    def combine_found(found: ScannedFiles, places: Sequence[GridPosition], urls: Sequence[Any]) -> Member:
        rules = archive_recipe.rules(make_loader(storage_options))
        if not any(has_computed_variable(item) for item in found):
            return archive_recipe.combine_found(found, places, urls, rules.load, errors)
        named = labels_from_names(urls, concat_dim) if isinstance(concat_dim, Mapping) else None
        dims = archive_recipe.dims() if named is None else []
        at = places if combine == "nested" else None
        computed.append(combine_with_xarray(found, at, dims, named, rules, errors, Access(storage_options)))
        return Member({}, frozenset())

    how: dict[str, Any] = {
        "combine": combine,
        "concat_dim": concat_dim,
        "data_vars": data_vars,
        "coords": coords,
        "compat": compat,
        "join": join,
        "combine_attrs": combine_attrs,
    }
    archive_recipe = Recipe(**how)
    archive = options.open_archive(
        paths,
        parallel=parallel,
        progress=progress,
        finish=None if preprocess is None else _Preprocess(preprocess, storage_options, _count_files(paths)),
        combine_found=None if preprocess is None else combine_found,
        **how,
    )
    if not computed:
        check_complex(archive.member(), decode)
    dataset = computed[0] if computed else to_dataset(archive.member(), access_to(archive, cache))
    if attrs_file is not None:
        dataset.attrs = dict(_attributes_of_file(attrs_file, archive))
    if archive.only_groups is not None and not archive.member().variables:
        warnings.warn(no_variables_message(archive.only_groups, group), InsituWarning, stacklevel=2)
    if chunks is not None:
        dataset = to_dask_dataset(dataset, chunks)
    dataset.insitu.survey = archive.survey
    if attrs_file is not None:
        archive.recipe = replace(archive.recipe, unknown="it was opened with attrs_file=, which is not saved")
    if not computed:
        dataset.insitu.origin = Origin.of(dataset, archive)
    return dataset


def _attributes_of_file(path: Any, archive: Archive) -> Mapping[str, Any]:
    wanted = expand_paths([path])[0]
    if str(wanted) not in map(str, archive.urls):
        raise CombineError(f"attrs_file {path} is not one of the opened files")
    known = archive.attributes_by_url.get(str(wanted))
    return scan_member(wanted, archive.job).attributes if known is None else known


def _count_files(nested: Any) -> int:
    return sum(map(_count_files, nested)) if isinstance(nested, list) else 1


@dataclass(frozen=True, slots=True)
class _Preprocess:
    """The user's function, around which a member becomes a dataset and back. Travels to workers."""

    function: Callable[[xarray.Dataset], xarray.Dataset]
    storage_options: Mapping[str, Any] | None
    files: int

    def __call__(self, member: Member) -> Member:
        limit = COMPUTED_LIMIT // max(self.files, 1)
        dataset = to_dataset(member, Access(self.storage_options, read_limit=limit))
        return to_member(self.function(dataset), member.source, limit)
