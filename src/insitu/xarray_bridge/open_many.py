"""What `open_mfdataset` does: many files as one dataset of virtual arrays."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import xarray

from insitu.archive import Archive, ScannedFiles
from insitu.combining.file_names import expand_paths, labels_from_names
from insitu.combining.recipe import Recipe
from insitu.errors import CombineError
from insitu.formats import InsituWarning
from insitu.reading import ReadContext
from insitu.scanning.member import GridPosition, Member
from insitu.scanning.scan_member import Failure, make_loader
from insitu.xarray_bridge.dataset import to_dataset, to_member
from insitu.xarray_bridge.engine_keywords import check_complex
from insitu.xarray_bridge.opening import OpenOptions, context_of, no_variables_message, to_dask_dataset
from insitu.xarray_bridge.origin import Origin
from insitu.xarray_bridge.preprocess_computed import (
    COMPUTED_LIMIT,
    combine_with_xarray,
    has_computed_variable,
    with_context,
)

__all__ = ["open_combined"]


def open_combined(
    paths: Any,
    options: OpenOptions,
    how: Mapping[str, Any],
    *,
    attrs_file: Any,
    preprocess: Callable[[xarray.Dataset], xarray.Dataset] | None,
    parallel: Any,
    progress: bool | Callable[[int, int], None] | None,
    resume: bool | None,
) -> xarray.Dataset:
    """Open many files as one dataset of virtual arrays: see `open_mfdataset`.

    Parameters
    ----------
    paths, attrs_file, preprocess, parallel, progress, resume
        As there.
    options
        Its other options of opening.
    how
        Its keywords of combining, but for `attrs_file`.
    """
    combine, concat_dim = how["combine"], how["concat_dim"]
    if combine not in ("by_coords", "nested"):
        raise ValueError(f"{combine!r} is an invalid option for the keyword argument combine")
    storage_options = options.storage_options
    if preprocess is not None:
        paths = expand_paths(paths, storage_options)
    computed: list[xarray.Dataset] = []

    def combine_found(found: ScannedFiles, places: Sequence[GridPosition], urls: Sequence[Any]) -> Member:
        rules = archive_recipe.rules(make_loader(storage_options))
        if not any(has_computed_variable(item) for item in found):
            return archive_recipe.combine_found(found, places, urls, rules.load, options.errors)
        named = labels_from_names(urls, concat_dim) if isinstance(concat_dim, Mapping) else None
        dims = archive_recipe.dims() if named is None else []
        at = places if combine == "nested" else None
        computed.append(
            combine_with_xarray(found, at, dims, named, rules, options.errors, ReadContext(None, storage_options))
        )
        return Member({}, frozenset())

    archive_recipe = Recipe(**how)
    archive = options.open_archive(
        paths,
        many=True,
        parallel=parallel,
        progress=progress,
        resume=resume,
        finish=None if preprocess is None else _Preprocess(preprocess, storage_options, _count_files(paths)),
        combine_found=None if preprocess is None else combine_found,
        **how,
    )
    if not computed:
        check_complex(archive.member(), options.decode)
    context = context_of(archive, options.cache)
    dataset = with_context(computed[0], context) if computed else to_dataset(archive.member(), context)
    if attrs_file is not None:
        dataset.attrs = dict(_attributes_of_file(attrs_file, archive))
    if archive.only_groups is not None and not archive.member().variables:
        warnings.warn(no_variables_message(archive.only_groups, options.group), InsituWarning, stacklevel=3)
    if options.chunks is not None:
        dataset = to_dask_dataset(dataset, options.chunks)
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
    # One file is scanned again rather than all attributes kept: of ten thousand files they are more than the tables.
    found = archive.job.one(wanted)
    if isinstance(found, Failure):
        raise found.error
    return found.attributes


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
        dataset = to_dataset(member, ReadContext(None, self.storage_options, read_limit=limit))
        return to_member(self.function(dataset), member.source, limit)
