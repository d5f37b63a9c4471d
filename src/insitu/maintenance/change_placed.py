"""Files of an archive that may overlap or leave gaps, taken out, renewed or added: see `rebuild_placed`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from insitu.combining.failures import drop_failures
from insitu.combining.recipe import Recipe
from insitu.combining.scan_many import scan_many
from insitu.errors import CombineError
from insitu.maintenance.conflicts import COMBINE_ANEW
from insitu.maintenance.rebuild_placed import Rebuilt, rebuild_placed
from insitu.open_options import ScanOptions
from insitu.scanning.member import Member
from insitu.scanning.scan_member import Job, make_loader
from insitu.sources import open_source
from insitu.sources.threads import gather

__all__ = ["changed_files", "job_of", "rebuild_files", "rebuild_saved"]


def job_of(recipe: Recipe, storage_options: Mapping[str, Any] | None) -> Job:
    """Return how more files of an archive are scanned."""
    saved = recipe.options.scan
    scan = ScanOptions(
        group=saved.group, variables=saved.variables, format=saved.format, storage_options=storage_options
    )
    return Job(scan, recipe.options.decode)


def rebuild_files(
    saved: Member,
    recipe: Recipe,
    files: Sequence[str],
    renewed: Collection[str],
    storage_options: Mapping[str, Any] | None,
    target: str,
) -> Rebuilt:
    """Return an archive that is made of these files: see `change_files`.

    Labels that files which are no longer there gave come from others then.
    """
    known = set(recipe.files)
    found = _scan(recipe, [url for url in files if url in renewed or url not in known], storage_options)
    return rebuild_saved(saved, recipe, files, found, storage_options, target)


def changed_files(recipe: Recipe, storage_options: Mapping[str, Any] | None, *, among: Collection[str]) -> list[str]:
    """Return which of some files, of which a recipe says so, no longer have the size or the time that they had."""
    facts = dict(recipe.shadowed)
    if (placed := recipe.placed) is not None:
        sizes = [None if size < 0 else size for size in placed.size.tolist()]
        # Without a size it is an index, and the time that of what it is of.
        times = [
            None if size is None or time != time else time
            for size, time in zip(sizes, placed.modified.tolist(), strict=True)
        ]
        facts = dict(zip(recipe.files, zip(sizes, times, strict=True), strict=True))

    def is_changed(url: str, stop: Any) -> bool:
        size, modified = facts[url]
        with open_source(url, storage_options) as source:
            now = source.describe()
        # Dates of HTTP have whole seconds.
        return (size is not None and now.size != size) or (
            modified is not None and now.modified is not None and int(now.modified) != int(modified)
        )

    urls = [url for url in facts if url in among]
    return [url for url, changed in zip(urls, gather(is_changed, urls), strict=True) if changed]


def _scan(recipe: Recipe, urls: Sequence[str], storage_options: Mapping[str, Any] | None) -> list[Member]:
    return drop_failures(scan_many(urls, job_of(recipe, storage_options)), "raise") if urls else []


def rebuild_saved(
    saved: Member,
    recipe: Recipe,
    files: Sequence[str],
    found: Sequence[Member],
    storage_options: Mapping[str, Any] | None,
    target: str,
) -> Rebuilt:
    """Return an archive that is made of these files, of which some were scanned: see `rebuild_placed`."""
    try:
        return rebuild_placed(
            saved,
            recipe,
            files,
            found,
            lambda urls: _scan(recipe, urls, storage_options),
            make_loader(storage_options),
        )
    except CombineError as problem:
        message = f"the files do not match those of {target}: {problem.message}"
        raise CombineError(message, url=problem.url, hint=problem.hint or COMBINE_ANEW) from problem
