"""Append files to an archive whose files may overlap or leave gaps, by a row for each file: see `rebuild_placed`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from insitu.combining.recipe import Recipe
from insitu.combining.scan_many import scan_many
from insitu.errors import CombineError, SelectionError, UnsupportedError
from insitu.maintenance.append_to_saved import Added, append_to_saved
from insitu.maintenance.change_placed import changed_files, job_of, rebuild_saved
from insitu.maintenance.conflicts import COMBINE_ANEW, read_saved_member
from insitu.maintenance.rebuild_placed import place_saved_files
from insitu.scanning.member import Member
from insitu.scanning.scan_member import make_loader

if TYPE_CHECKING:
    from insitu.references import AppendReport
    from insitu.references.update_references import ReferencesUpdate

__all__ = ["append_placed"]


def append_placed(
    target: str,
    urls: Sequence[str],
    dim: str,
    *,
    overlap: str | None = None,
    relative: bool = False,
    errors: str = "raise",
    progress: Callable[[int, int], None] | None = None,
    parallel: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> AppendReport:
    """Add files to an archive: each label comes from one file, as its recipe says.

    Parameters
    ----------
    target, urls
        The archive, and the files. Those that it has already, unchanged, are skipped.
    dim
        A dimension along which files are placed.
    overlap
        Another rule than that of the recipe, from now on.
    errors, progress, parallel
        See `insitu.open_mfdataset`.
    relative, storage_options
        See `append_member`.
    """
    known: dict[str, Member] = {}
    left_out: dict[str, str] = {}
    load = make_loader(storage_options)

    def add(opened: ReferencesUpdate, recipe: Recipe) -> Added:
        saved = read_saved_member(opened.tree, load, target)
        if dim not in saved.sizes:
            raise SelectionError(
                f"the archive has no dimension {dim!r}", url=target, hint=f"There are: {', '.join(saved.sizes)}"
            )
        recipe = _placed_along(saved, recipe, dim, overlap, target)
        existing = set(recipe.files)
        skipped = tuple(url for url in dict.fromkeys(urls) if url in existing)
        _check_unchanged(target, recipe, skipped, storage_options)
        new = [url for url in dict.fromkeys(urls) if url not in existing]
        if missing := [url for url in new if url not in known]:
            job = job_of(recipe, storage_options)
            job = replace(job, scan=replace(job.scan, errors=errors))
            for item in scan_many(missing, job, parallel=parallel, progress=progress):
                if isinstance(item, Member):
                    known[str(item.source)] = item
                else:
                    left_out[item.url] = item.reason
                    job.warn(f"left out: {item.url}: {item.reason}")
        found = [known[url] for url in new if url in known]
        if not found:
            return Added(None, skipped=skipped)
        files = [*recipe.files, *(str(member.source) for member in found)]
        done = rebuild_saved(saved, recipe, files, found, storage_options, target)
        _check_dimension(done.recipe, dim, target)
        shadowed = tuple(url for url, count in done.steps.items() if not count)
        return Added(done.member, done.recipe, done.count_labels(dim), tuple(done.steps), skipped, shadowed)

    report = append_to_saved(target, dim, add, relative=relative, storage_options=storage_options)
    return replace(report, left_out=left_out)


def _placed_along(saved: Member, recipe: Recipe, dim: str, overlap: str | None, target: str) -> Recipe:
    """Return the recipe of an archive with the places of its files, and another rule for labels that several have.

    Raises
    ------
    CombineError
        If it is unknown how files are opened.
    UnsupportedError
        If the places of its files, or the times that the rule needs, are unknown.
    """
    recipe.for_more_files()  # raises if it is unknown
    if overlap is not None and overlap != recipe.options.combine.overlap:
        recipe = replace(recipe, options=recipe.options.replace(overlap=overlap))
        if recipe.placed is not None and overlap == "newest":
            raise UnsupportedError(
                'when the files of the archive were written was not recorded: it was not made with overlap="newest"',
                url=target,
                hint=COMBINE_ANEW,
            )
    if recipe.placed is None:
        recipe = place_saved_files(saved, recipe, dim, target)
    return recipe


def _check_dimension(recipe: Recipe, dim: str, target: str) -> None:
    """Raise if files, with those that are new, are not placed along a dimension."""
    assert recipe.placed is not None
    dims = sorted({each for group in recipe.placed.groups for each in group.dims})
    if dim not in dims:
        raise CombineError(
            f"{target} cannot grow along {dim!r}: its files are placed along {' × '.join(dims)}", hint=COMBINE_ANEW
        )


def _check_unchanged(
    target: str, recipe: Recipe, urls: Sequence[str], storage_options: Mapping[str, Any] | None
) -> None:
    """Raise if files that the archive has are no longer what they were."""
    from insitu.references.plan_append import changed_source_error

    for url in changed_files(recipe, storage_options, among=set(urls)):
        raise changed_source_error(target, url, "its size or its time is another one")
