"""Refresh a saved archive: scan changed sources again and combine them with the unchanged ones."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from insitu.combining.file_names import one_location
from insitu.combining.file_ranges import FileLayout
from insitu.combining.recipe import Recipe
from insitu.errors import CombineError, SourceError, StaleSourceError, UnsupportedError, VariableError
from insitu.maintenance.carry_pinned import open_for_update
from insitu.maintenance.change_files import change_files, files_of
from insitu.maintenance.checking import Progress, open_saved_tree
from insitu.maintenance.conflicts import COMBINE_ANEW
from insitu.maintenance.saving import save_tree
from insitu.model import VirtualArray
from insitu.model.group import nest_groups
from insitu.open_options import CombineOptions, ScanOptions
from insitu.scanning.member import Member
from insitu.scanning.saved_members import member_from_tree, tree_from_member
from insitu.scanning.scan_member import Job, make_loader, scan_tree
from insitu.sources.listing import local_path

if TYPE_CHECKING:
    from insitu.references import CheckReport

__all__ = ["refresh"]


def refresh(
    references: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> CheckReport:
    """Scan changed sources again, combine them with the rest of the archive, and save it.

    Everything that comes from a changed file is renewed: chunk locations, encodings, packings,
    attributes, labels, its length. An insitu store records how its files were combined; references
    of other tools keep the variables that they have.

    Returns
    -------
    Report
        The state before the refresh. Nothing is written if no source changed.

    Raises
    ------
    StaleSourceError
        If a source is gone, or if its new content does not match the rest of the archive.
    """
    from insitu import references as forms
    from insitu.references.urls import UrlResolver

    url = os.fspath(one_location(references))
    # Opened first: a store that another writer changes during the scan is not overwritten.
    update = open_for_update(url, storage_options) if forms.detect_format(url) == "insitu" else None
    names = UrlResolver(local_path(url) or url, allow_local)
    tree = open_saved_tree(url, allow_local, storage_options, names) if update is None else update.tree
    report = forms.check(tree, progress=progress, storage_options=storage_options)
    suspects = [*report.stale, *report.by_size_only, *_findings_without_identity(report)]
    known = update is not None and update.recipe_document is not None
    recipe = update.recipe(Recipe) if update is not None else Recipe()
    checked = {finding.source.url for finding in report.findings}  # of what is shadowed wholly nothing is used
    shadowed: set[str] = set()
    if recipe.placed is not None or recipe.shadowed:
        from insitu.maintenance.change_placed import changed_files  # imports xarray and pandas

        unchecked = {*recipe.files, *recipe.shadowed} - checked
        shadowed = set(changed_files(recipe, storage_options, among=unchecked))
    if not suspects and not shadowed:
        return report
    for finding in report.stale:
        if finding.status != "changed":
            raise StaleSourceError(
                finding.reason, url=finding.source.url, hint=f"Bring it back, or take it out: insitu drop {url} FILE"
            )
    changed = {finding.source.url for finding in suspects} | shadowed
    if recipe.unknown is not None:
        raise StaleSourceError(
            f"{url} cannot be rebuilt from its files: {recipe.unknown}", url=min(changed), hint=COMBINE_ANEW
        )
    job = Job(ScanOptions(storage_options=storage_options, allow_local=allow_local), recipe.options.decode)
    load = make_loader(storage_options)
    is_combined_tree = recipe.options.scan.tree and (
        len(recipe.files) > 1 or (recipe.files and recipe.options.combine != CombineOptions())
    )
    fresh: dict[str, Member] = dict(
        scan_tree(url, job)
        if update is None  # else what the files hold, without what is pinned
        else ((path, member_from_tree(group, job.decode, load, url=url)) for path, group in tree.walk())
    )
    document = None
    try:
        if is_combined_tree or recipe.placed is not None:
            whole, made = change_files(fresh[""], recipe, recipe.files, changed, storage_options, url)
            fresh |= dict(whole.walk())
            document = made.to_document()
        else:
            for path, member in list(fresh.items()):
                tree_of_group, own = tree_from_member(member), _recipe_of_group(recipe, path)
                used = changed.intersection(FileLayout.of(tree_of_group).spans)
                if not used and not (shadowed and not path):
                    continue
                files = files_of(tree_of_group, own)
                fresh[path], made = change_files(member, own, files, used, storage_options, url, has_recipe=known)
                if not known:
                    fresh[path] = _keep_saved_variables(fresh[path], member, changed)
                elif not path:
                    document = replace(recipe, shadowed=made.shadowed).to_document()
        renewed = nest_groups({path: tree_from_member(member) for path, member in fresh.items()})
        if update is None:
            how: dict[str, Any] = {"relative": True} if names.has_relative else {}
            save_tree(renewed, url, format=forms.format_from_name(url), storage_options=storage_options, **how)
    except (CombineError, VariableError, UnsupportedError) as problem:
        raise StaleSourceError(
            f"the changed sources do not match the rest of the archive: {problem.message}",
            url=next(iter(changed)) if len(changed) == 1 else url,
            hint=COMBINE_ANEW,
        ) from problem
    if update is not None and not update.replace(renewed, recipe=document):
        raise SourceError(
            "another writer changed the store at the same time; nothing was refreshed", url=url, hint="Try again"
        )
    return report


def _findings_without_identity(report: CheckReport) -> list[Any]:
    """Return the findings about sources without size, ETag or time: kerchunk's formats record none."""
    return [
        finding
        for finding in report.findings
        if finding.status == "ok"
        and not finding.source.optional
        and finding.source.size is None
        and finding.source.etag is None
        and finding.source.modified is None
    ]


def _recipe_of_group(recipe: Recipe, path: str) -> Recipe:
    """Return how one group of a file, or of files that are joined group by group, is scanned and combined."""
    saved = recipe.options.scan
    where = "/".join(part for part in ((saved.group or "").strip("/"), path) if part) or None
    options = recipe.options.replace(group=where, variables=saved.variables if not path else None, tree=False)
    return replace(recipe, options=options)


def _keep_saved_variables(renewed: Member, before: Member, changed: Collection[str]) -> Member:
    """Return the saved variables of a group after its files were scanned again.

    References of other tools do not record how they were made: they may show the steps of a file in
    another order, and then a plain scan cannot renew them.

    Raises
    ------
    CombineError
        If a variable is gone, has other dimensions, or shows its chunks in another order.
    """
    for name, variable in before.variables.items():
        old, new = variable.data, renewed.variables[name].data if name in renewed.variables else None
        if not isinstance(old, VirtualArray) or not any(source.url in changed for source in old.sources):
            continue
        if new is None or renewed.variables[name].dims != variable.dims:
            raise CombineError(
                f"the file no longer has a variable {name!r} with the dimensions {', '.join(variable.dims)}"
            )
        if isinstance(new, VirtualArray) and not _has_same_order(old, new):
            raise CombineError(
                f"the saved references show the chunks of {name!r} in another order than the file has them"
            )
    return renewed.with_variables({name: renewed.variables[name] for name in before.variables})


def _has_same_order(old: VirtualArray, new: VirtualArray) -> bool:
    """Return whether two arrays show chunks in the same order; in file order, if cut differently."""
    one, other = _file_order(old), _file_order(new)
    if one.shape == other.shape:
        return np.array_equal(one, other)
    return all(np.array_equal(order, np.arange(order.size)) for order in (one, other))


def _file_order(array: VirtualArray) -> npt.NDArray[np.intp]:
    """Return the rank of each stored chunk of an array by file and offset."""
    places: list[tuple[str, int]] = []
    for tile in array.tiles:
        shape = tuple(tile.chunks.shape)
        total = int(np.prod(shape, dtype=object))
        rows = tile.chunks.locate(list(np.unravel_index(np.arange(total), shape)) if shape else [])
        stored = np.asarray(rows.source) >= 0
        urls = [tile.chunks.sources[number].url for number in np.asarray(rows.source)[stored].tolist()]
        places += list(zip(urls, np.asarray(rows.offset)[stored].tolist(), strict=True))
    return np.argsort(sorted(range(len(places)), key=places.__getitem__))
