"""Take files out of a saved archive, or replace them by others in one step."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from insitu.combining.file_ranges import FileLayout
from insitu.combining.recipe import Recipe
from insitu.errors import NotFoundError, UnsupportedError
from insitu.maintenance.carry_pinned import open_for_update
from insitu.maintenance.conflicts import ATTEMPTS, COMBINE_ANEW, lost_race_error, read_saved_member
from insitu.maintenance.rebuild import combine_again, rebuild
from insitu.scanning.member import Member
from insitu.scanning.saved_members import tree_from_member
from insitu.scanning.scan_member import Job, make_loader

__all__ = ["drop", "drop_from_forecasts", "find_source"]


def drop(
    target: str,
    urls: Collection[str],
    *,
    replacement: Member | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[str, ...]:
    """Take files out of a saved archive, and put a replacement in their place, in one step.

    Parameters
    ----------
    target
        The saved archive.
    urls
        The files to take out: URLs or paths.
    replacement
        What other files hold, to be put there instead.
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
        If the files are not joined along exactly one dimension: the rest would have no shape.
    """
    load = make_loader(storage_options)
    for _ in range(ATTEMPTS):
        opened = open_for_update(target, storage_options)
        layout = FileLayout.of(opened.tree)
        chosen = tuple(find_source(layout.spans, url, target) for url in urls)
        recipe = opened.recipe(Recipe)
        dim = layout.joined_dim(padded=recipe.options.combine.pad)
        if dim is None:
            raise UnsupportedError(
                "cannot take out a file: the files are not joined along exactly one dimension",
                url=target,
                hint=COMBINE_ANEW,
            )
        remaining = layout.ranges_without(dim, chosen)
        if replacement is None and not remaining:
            raise UnsupportedError(
                "cannot take out all files of an archive", url=target, hint="Delete the archive itself"
            )
        saved = read_saved_member(opened.tree, load, target)
        added = [] if replacement is None else [(min(layout.spans[url][dim][0] for url in chosen), replacement)]
        if recipe.options.combine.pad and remaining:
            # How long the others are padded may have come from what is taken out: they are scanned again.
            urls = [url for url in layout.urls_in_order(dim) if url not in chosen]
            options = recipe.for_more_files(storage_options=storage_options)
            saved = combine_again(urls, recipe, Job(options.scan, options.decode))
            end, at = saved.sizes[dim], min(layout.spans[url][dim][0] for url in chosen)
            remaining = [span for span in ((0, at), (at, end)) if span[0] < span[1]] if added else [(0, end)]
        whole = rebuild(saved, dim, remaining, added, recipe, load)
        if opened.replace(tree_from_member(whole, opened.tree.groups)):
            return chosen
    raise lost_race_error(target)


def drop_from_forecasts(
    target: str,
    urls: Collection[str],
    replacement: Sequence[str] = (),
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[str, ...]:
    """Take files out of a saved collection of forecasts, and put others in their place: see `drop`.

    A file has parts of several runs, lead times and variables, or what others repeat: those that stay
    are scanned again.
    """
    for _ in range(ATTEMPTS):
        opened = open_for_update(target, storage_options)
        recipe = opened.recipe(Recipe)
        known = list(FileLayout.of(opened.tree).spans)
        chosen = tuple(find_source(known, url, target) for url in urls)
        if recipe.options.combine.overlap not in (None, "error"):
            raise UnsupportedError(
                "cannot take out a file of forecasts that may overlap: which others it shadowed is not recorded",
                url=target,
                hint="Keep the last runs instead (insitu drop --keep-last time=30), or open the other files anew and "
                "save them",
            )
        files = [*(url for url in known if url not in chosen), *replacement]
        if not files:
            raise UnsupportedError(
                "cannot take out all files of an archive", url=target, hint="Delete the archive itself"
            )
        options = recipe.for_more_files(storage_options=storage_options)
        whole = combine_again(files, recipe, Job(options.scan, options.decode))
        if opened.replace(tree_from_member(whole, opened.tree.groups)):
            return chosen
    raise lost_race_error(target)


def find_source(known: Collection[str], url: str, target: str) -> str:
    """Return the source that a URL, path or relative path names."""
    for name in (url, os.path.abspath(url)):
        if name in known:
            return name
    example = f"Its first file is {next(iter(known))}" if known else "It has no files"
    raise NotFoundError(f"the archive has no file {url}", url=target, hint=example)
