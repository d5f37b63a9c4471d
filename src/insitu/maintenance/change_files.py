"""Take files out of a saved archive, put others in their place, and renew those that changed.

A change says which files the archive is made of afterwards, in order, and which of them have a new
content. What opening these files gives is taken from the saved archive as far as it has it; where
that cannot be known, all files are scanned and combined anew.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from insitu.combining.file_ranges import FileLayout
from insitu.combining.recipe import Recipe
from insitu.errors import CombineError, NotFoundError, StaleSourceError, UnsupportedError
from insitu.maintenance.carry_pinned import open_for_update
from insitu.maintenance.conflicts import ATTEMPTS, COMBINE_ANEW, lost_race_error, read_saved_member
from insitu.maintenance.rebuild import combine_again, is_representative, rebuild
from insitu.model import VirtualArray, VirtualGroup
from insitu.model.group import nest_groups
from insitu.scanning.member import Member
from insitu.scanning.saved_members import tree_from_member
from insitu.scanning.scan_member import Job, make_loader

__all__ = [
    "INDEXES",
    "change_files",
    "combine_anew",
    "drop",
    "files_of",
    "find_file",
    "tree_from_root",
]

INDEXES = (".idx", ".index")
"""Ends of names of indexes of GRIB files, which are never the sources of chunks themselves."""
DATA_FILES = ("", ".grib2", ".grib", ".grb2")
"""Ends of names of what they are of, in place of theirs."""


def drop(
    target: str,
    urls: Collection[str],
    replacement: Sequence[str] = (),
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[str, ...]:
    """Take files out of a saved archive, and put others in their place, in one step.

    Parameters
    ----------
    target
        The saved archive.
    urls
        The files to take out: URLs or paths.
    replacement
        Files that take the place of the first of these.
    storage_options
        See `insitu.scan`.

    Returns
    -------
    tuple of str
        The URLs of the files that were taken out.

    Raises
    ------
    NotFoundError
        If a file is not in the archive.
    UnsupportedError
        If nothing would be left, or if the recipe of the archive does not say how others are joined.
    """
    for _ in range(ATTEMPTS):
        opened = open_for_update(target, storage_options)
        recipe: Recipe = opened.recipe(Recipe)
        known = files_of(opened.tree, recipe)
        chosen = tuple(_find_known_file(known, url, target) for url in urls)
        if not chosen:
            return ()
        at = min(map(known.index, chosen))
        taken = set(chosen)
        files = [*known[:at], *replacement, *(url for url in known[at:] if url not in taken)]
        if not files:
            raise UnsupportedError(
                "cannot take out all files of an archive", url=target, hint="Delete the archive itself"
            )
        saved = read_saved_member(opened.tree, make_loader(storage_options), target)
        is_known = opened.recipe_document is not None
        whole, changed = change_files(saved, recipe, files, (), storage_options, target, has_recipe=is_known)
        tree = tree_from_root(whole) if whole.below else tree_from_member(whole, opened.tree.groups)
        if opened.replace(tree, recipe=changed.to_document() if is_known else None):
            return chosen
    raise lost_race_error(target)


def files_of(tree: VirtualGroup, recipe: Recipe) -> list[str]:
    """Return the files that an archive is made of: as its recipe lists them, or in the order of their parts."""
    if recipe.files:
        return list(recipe.files)
    layout = FileLayout.of(tree)
    return layout.urls_in_order(layout.joined_dim(padded=recipe.options.combine.pad))


def change_files(
    saved: Member,
    recipe: Recipe,
    files: Sequence[str],
    renewed: Collection[str],
    storage_options: Mapping[str, Any] | None,
    target: str,
    *,
    has_recipe: bool = True,
) -> tuple[Member, Recipe]:
    """Return an archive that is made of these files, and its recipe: what opening all of them gives.

    Parameters
    ----------
    saved, recipe
        The archive as it is; of a tree its root is enough.
    files
        The files that it is made of afterwards, in order.
    renewed
        Those of them whose content is another one.
    storage_options
        See `insitu.scan`.
    target
        The archive, for messages.
    has_recipe
        Whether the recipe was saved with it. References of other tools do not say how they were made: what
        is saved of files that stay is taken as it is.
    """
    listed = replace(recipe, files=tuple(files) if recipe.files else ())
    if recipe.options.scan.tree and recipe.files:
        return combine_anew(files, listed, storage_options)
    if recipe.placed is not None and not recipe.rebuilds_by_labels:
        return combine_anew(files, listed, storage_options)
    if recipe.placed is not None:
        from insitu.maintenance.change_placed import rebuild_files  # imports xarray and pandas

        done = rebuild_files(saved, recipe, files, renewed, storage_options, target)
        return done.member, done.recipe
    if recipe.options.combine.forecasts and recipe.needs_order and not recipe.files:
        raise UnsupportedError(
            "files of forecasts that may overlap cannot be taken out or renewed: an earlier version of insitu saved "
            "them, without their order",
            url=target,
            hint="Keep the last runs instead (insitu drop --keep-last time=30), or open the other files anew and "
            "save them",
        )
    layout = FileLayout.of(tree_from_member(saved))
    whole = _join_to_saved(saved, layout, recipe, files, renewed, storage_options, has_recipe)
    if whole is None:
        whole, listed = combine_anew(files, listed, storage_options)
    return _with_computed_variables(whole, saved, layout, set(layout.spans) - set(files)), listed


def _join_to_saved(
    saved: Member,
    layout: FileLayout,
    recipe: Recipe,
    files: Sequence[str],
    renewed: Collection[str],
    storage_options: Mapping[str, Any] | None,
    has_recipe: bool,
) -> Member | None:
    """Return what is saved of files that follow each other, joined with those that are new or renewed; None
    if the files can only be combined anew.

    The first of the files that stay is scanned, too: it gives what is not joined, and tells whether
    the others are of the same types, so that nothing of what is saved follows from a file that is
    gone.
    """
    options, dim = recipe.options.combine, layout.joined_dim()
    stay = [url for url in files if url in layout.spans and url not in renewed]
    is_listed = not recipe.files or set(recipe.files) == set(layout.spans)
    if dim is None or not stay or not is_listed or options.pad or options.forecasts:
        return None
    load = make_loader(storage_options)
    new = [url for url in files if url not in stay]
    if not new and (recipe.unknown is not None or not has_recipe):  # what was computed is cut as well
        return rebuild(saved, dim, layout.ranges_without(dim, set(layout.spans) - set(stay)), (), recipe, load)
    if len(files) == 1 or (new and isinstance(options.concat_dim, Mapping)) or options.merges_attributes:
        return None
    opened = recipe.for_more_files(storage_options=storage_options)
    job = Job(opened.scan, opened.decode)
    first = min(stay, key=lambda url: layout.spans[url][dim])
    scanned = {url: combine_again([url], recipe, job)[0] for url in ([first, *new] if has_recipe else new)}
    if has_recipe and not is_representative(saved, scanned[first], [dim], recipe.rules(load)):
        return None
    starts = {url: layout.spans[url][dim][0] for url in files if url in layout.spans}
    at = saved.sizes.get(dim, 1)
    for url in reversed(files):  # what is new lies before the next one that stays
        at = starts.setdefault(url, at)
    added = [(starts[url], scanned[url]) for url in files if url in scanned]
    gone = set(layout.spans) - (set(stay) - set(scanned))
    return rebuild(saved, dim, layout.ranges_without(dim, gone), added, recipe, load)


def combine_anew(
    files: Sequence[str], recipe: Recipe, storage_options: Mapping[str, Any] | None = None
) -> tuple[Member, Recipe]:
    """Return what files make by a recipe, of a tree its root, and the recipe of that; all of them are scanned.

    Raises
    ------
    CombineError
        If the recipe does not say how, or the files lie in a grid of lists, which it does not keep.
    """
    options = recipe.for_more_files(storage_options=storage_options)
    if len(recipe.concat_dims()) > 1:
        raise CombineError(f"the files lie in a grid of {' × '.join(map(str, recipe.new_dims()))}", hint=COMBINE_ANEW)
    return combine_again(files, recipe, Job(options.scan, options.decode))


def tree_from_root(root: Member) -> VirtualGroup:
    """Return all groups of a combined tree as they are saved."""
    return nest_groups({path: tree_from_member(member) for path, member in root.walk()})


def find_file(known: Collection[str], url: str) -> str | None:
    """Return which of these files a URL, path or relative path names.

    One may be named by its index and known by itself (chunks say no more), or the other way round.
    """
    for name in (url, os.path.abspath(url)):
        stem, suffix = os.path.splitext(name)
        ends = (*INDEXES, *DATA_FILES) if suffix in INDEXES else INDEXES
        for own in (name, *(f"{base}{end}" for base in (name, stem) for end in ends)):
            if own in known:
                return own
    return None


def _find_known_file(known: Sequence[str], url: str, target: str) -> str:
    if (found := find_file(known, url)) is not None:
        return found
    example = f"Its first file is {known[0]}" if known else "It has no files"
    raise NotFoundError(f"the archive has no file {url}", url=target, hint=example)


def _with_computed_variables(whole: Member, before: Member, layout: FileLayout, removed: Collection[str]) -> Member:
    """Return a changed group with the variables that no file holds: they were computed before
    saving.
    """
    lost = []
    for name in before.variables:
        if name in whole.variables:
            continue
        data = before.variables[name].data
        if isinstance(data, VirtualArray) and data.sources:
            given = {url for url in FileLayout.of(VirtualGroup({name: data})).spans if url not in removed}
            if not given:
                continue
            raise StaleSourceError(f"the file no longer has the variable {name!r}", url=min(given), hint=COMBINE_ANEW)
        sizes = before.variables[name].sizes
        if any(whole.sizes.get(dim, length) != length for dim, length in sizes.items()):
            raise StaleSourceError(
                f"{name!r} was computed when the archive was saved, and no longer has the right shape",
                url=next(iter(layout.spans)),
                hint=COMBINE_ANEW,
            )
        lost.append(name)
    rest = {name: before.variables[name] for name in lost}
    coords = whole.coords | {name for name in lost if name in before.coords}
    order = [*(name for name in before.variables if name in whole.variables), *whole.variables]
    variables = {name: whole.variables[name] for name in dict.fromkeys(order)}
    return whole.with_variables({**variables, **rest}, coords)
