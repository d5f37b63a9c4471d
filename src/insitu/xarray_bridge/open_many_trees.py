"""What `open_mfdatatree` does: many files, with all their groups, as one tree of virtual arrays."""

from __future__ import annotations

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
from insitu.open_options import OpenOptions, follows_pattern
from insitu.reading import ReadContext
from insitu.scanning.member import GridPosition, Member
from insitu.scanning.scan_member import make_loader
from insitu.xarray_bridge.dataset import to_dataset, to_member
from insitu.xarray_bridge.open_many import count_files
from insitu.xarray_bridge.opening import context_of, dataset_of, to_datatree
from insitu.xarray_bridge.preprocess_computed import (
    COMPUTED_LIMIT,
    combine_with_xarray,
    has_computed_variable,
    with_context,
)

__all__ = ["open_combined_tree"]


def open_combined_tree(paths: Any, options: OpenOptions) -> xarray.DataTree:
    """Open many files with all their groups as one tree: see `open_mfdatatree`."""
    options, preprocess = options.replace(tree=True), options.show.preprocess
    storage_options = options.scan.storage_options
    if preprocess is not None:
        paths = expand_paths(paths, storage_options)
    computed: list[str] = []

    def combine_found(
        found: ScannedFiles, places: Sequence[GridPosition], urls: Sequence[Any], path: str, recipe: Recipe
    ) -> Member:
        rules, combine = recipe.rules(make_loader(storage_options)), recipe.options.combine
        if not any(has_computed_variable(item) for item in found):
            return recipe.combine_found(found, places, urls, rules.load, "skip")
        named = None
        if isinstance(combine.concat_dim, Mapping):
            named = labels_of_files(urls, combine.concat_dim, FilesTable.of(found).given)
        at = places if combine.combine == "nested" else None
        context = ReadContext(None, storage_options)
        computed.append(path)
        made = combine_with_xarray(found, at, recipe.concat_dims(), named, rules, "skip", context)
        return replace(to_member(made, limit=COMPUTED_LIMIT), order=())

    finish = None if preprocess is None else _PreprocessTree(preprocess, storage_options, count_files(paths))
    archive = Archive.open_with(
        paths, options, many=True, finish=finish, combine_found=None if preprocess is None else combine_found
    )
    _check_patterns(options, archive.member())
    context = context_of(archive, options.read.cache)
    groups = {}
    for path, member in archive.all_members():
        groups[f"/{path}"] = dataset = dataset_of(member, archive, context, options.show)
        if computed:
            dataset.insitu.origin = None  # values that no file holds
            groups[f"/{path}"] = with_context(dataset, context)
    tree = to_datatree(groups, paths)
    tree.insitu.archive = archive
    return tree


def _check_patterns(options: OpenOptions, root: Member) -> None:
    """Raise for options that were given for groups which no file has."""
    paths = [path for path, _ in root.walk()] + list(root.problems)
    for pattern in options.combine.by_group or ():
        if not any(follows_pattern(path, pattern) for path in paths):
            there = ", ".join(f"/{path}" for path in paths[:8])
            raise CombineError(f"by_group= names {pattern!r}, and no file has such a group", hint=f"There are: {there}")


@dataclass(frozen=True, slots=True)
class _PreprocessTree:
    """The user's function, around which the groups of a file become a tree of datasets and back. Travels to workers."""

    function: Callable[[xarray.DataTree], xarray.DataTree]
    storage_options: Mapping[str, Any] | None
    files: int

    def __call__(self, root: Member) -> Member:
        limit = COMPUTED_LIMIT // max(self.files, 1)
        context = ReadContext(None, self.storage_options, read_limit=limit)
        given = {f"/{path}": to_dataset(member, context) for path, member in root.walk()}
        made = self.function(xarray.DataTree.from_dict(given))
        if not isinstance(made, xarray.DataTree):
            raise TypeError(f"preprocess returned {type(made).__name__}, and not the tree of a file")
        groups = {
            node.path[len(made.path) :].strip("/"): to_member(node.to_dataset(inherit=False), root.source, limit)
            for node in made.subtree
        }
        top = groups.pop("")
        return replace(top, below=groups)
