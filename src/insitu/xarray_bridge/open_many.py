"""What `open_mfdataset` does: many files as one dataset of virtual arrays."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import xarray

from insitu.archive import Archive
from insitu.combining.file_names import expand_paths, labels_of_files
from insitu.combining.files_table import FilesTable
from insitu.combining.portion import ScannedFiles
from insitu.combining.recipe import Recipe
from insitu.errors import CombineError
from insitu.formats import InsituWarning
from insitu.open_options import OpenOptions
from insitu.reading import ReadContext
from insitu.scanning.member import GridPosition, Member
from insitu.scanning.scan_member import Failure, make_loader
from insitu.xarray_bridge.dataset import to_dataset, to_member
from insitu.xarray_bridge.engine_keywords import check_complex
from insitu.xarray_bridge.opening import context_of, no_variables_message, to_dask_dataset
from insitu.xarray_bridge.origin import Origin
from insitu.xarray_bridge.preprocess_computed import (
    COMPUTED_LIMIT,
    combine_with_xarray,
    has_computed_variable,
    with_context,
)

__all__ = ["count_files", "open_combined"]


def open_combined(paths: Any, options: OpenOptions) -> xarray.Dataset:
    """Open many files as one dataset of virtual arrays: see `open_mfdataset`."""
    preprocess, attrs_file = options.show.preprocess, options.show.attrs_file
    storage_options = options.scan.storage_options
    if preprocess is not None:
        paths = expand_paths(paths, storage_options)
    computed: list[xarray.Dataset] = []

    def combine_found(found: ScannedFiles, places: Sequence[GridPosition], urls: Sequence[Any]) -> Member:
        recipe, errors, concat_dim = Recipe(options), options.scan.errors, options.combine.concat_dim
        rules = recipe.rules(make_loader(storage_options))
        if not any(has_computed_variable(item) for item in found):
            return recipe.combine_found(found, places, urls, rules.load, errors)
        named = None
        if isinstance(concat_dim, Mapping):
            named = labels_of_files(urls, concat_dim, FilesTable.of(found).given)
        at = places if options.combine.combine == "nested" else None
        context = ReadContext(None, storage_options)
        computed.append(combine_with_xarray(found, at, recipe.concat_dims(), named, rules, errors, context))
        return Member({}, frozenset())

    archive = Archive.open_with(
        paths,
        options,
        many=True,
        finish=None if preprocess is None else _Preprocess(preprocess, storage_options, count_files(paths)),
        combine_found=None if preprocess is None else combine_found,
    )
    if options.show.auto_complex and not computed:
        check_complex(archive.member())
    context = context_of(archive, options.read.cache)
    dataset = with_context(computed[0], context) if computed else to_dataset(archive.member(), context)
    if attrs_file is not None:
        dataset.attrs = dict(_attributes_of_file(attrs_file, archive))
    if archive.only_groups is not None and not archive.member().variables:
        warnings.warn(no_variables_message(archive.only_groups, options.scan.group), InsituWarning, stacklevel=3)
    if options.show.chunks is not None:
        dataset = to_dask_dataset(dataset, options.show.chunks)
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


def count_files(nested: Any) -> int:
    """Return how many files nested lists hold."""
    return sum(map(count_files, nested)) if isinstance(nested, list) else 1


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
