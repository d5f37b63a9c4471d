"""Check saved references against their sources, refresh them after sources changed, convert them to another form.

`check` asks every source what it is now. `refresh` of a saved dataset opens its files again in the way that the store records, so that the result is what opening them anew gives. References of
stored values are renewed in place, and only where nothing but bytes and their whereabouts changed. Everything else is refused with a reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from insitu.errors import CodecError, FormatError, InsituError, NotFoundError, StaleSourceError, UnsupportedError
from insitu.model import Source, VirtualGroup
from insitu.opening import scan
from insitu.references import Renaming, Report, format_of, is_store, open_references, renamed, save
from insitu.references import check as check_group
from insitu.references.check import Finding
from insitu.references.explicit import explicit
from insitu.references.insitu_store import open_store, write_store
from insitu.references.recipe import is_portable, steps_of
from insitu.references.urls import absolute, relative_to
from insitu.renewing import ANEW, renew_in_place
from insitu.sources.listing import local_path
from insitu.xarray_bridge.recipes import repeat_recipe

__all__ = ["check", "convert", "refresh"]

Progress = Callable[[int, int], None]


def check(
    references: str | os.PathLike[str] | VirtualGroup,
    *,
    progress: Progress | None = None,
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Report:
    """Ask every source of a set of references whether it still is what was scanned, and look for sources that were added twice.

    Parameters
    ----------
    references
        Where they are, or what was opened.
    progress
        Called after each source with how many are done, and how many there are.
    allow_local, storage_options
        See `insitu.scan`.

    Examples
    --------
    >>> print(insitu.check("era5.insitu"))  # doctest: +SKIP
    120 sources: 119 ok, 1 changed
    changed: s3://bucket/2020-06.nc: its ETag was "a41…" and is now "0f2…"
    """
    group = _opened(references, allow_local, storage_options)
    return check_group(group, progress=progress, duplicates=True, storage_options=storage_options)


def refresh(
    references: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Report:
    """Make saved references true again after sources changed, as if the files had been opened and saved anew.

    A dataset in an insitu store is made again from its files, in the way that the store records. Of references to stored values (a scan that was saved, kerchunk's
    formats) only the sources that changed are scanned; their chunks take the place of the old ones if attributes, types, shapes and chunks are what they were.

    Returns
    -------
    Report
        What was found before; nothing was written if all sources are what they were. Sources of which references record nothing that tells (kerchunk's formats) are
        scanned again.

    Raises
    ------
    StaleSourceError
        If a source is gone, or does not fit in its old place, or the store does not say how it was made.
    SourceError
        If another writer has changed the store in the meantime; nothing was changed.
    """
    url = os.fspath(references)
    # Read before anything else: a store that somebody changes while its files are scanned is not overwritten.
    root = open_store(url, allow_local=allow_local, storage_options=storage_options) if is_store(url) else None
    group = _opened(url, allow_local, storage_options) if root is None else root.group()
    report = check_group(group, progress=progress, storage_options=storage_options)
    suspects = [*report.stale, *unidentified(report, group)]
    if not suspects:
        return report
    for finding in report.stale:
        if finding.status != "changed":
            raise StaleSourceError(
                finding.reason, url=finding.source.url, hint="Take it out of the archive, or bring it back"
            )
    if "coordinates" in group.details:
        renewed = _repeated(group, report, storage_options)
    else:
        fresh = {finding.source: _scanned(finding.source, storage_options) for finding in suspects}
        renewed = renew_in_place(group, fresh, storage_options)
    if root is None:
        try:
            save(renewed, url, format=format_of(url), storage_options=storage_options)
        except UnsupportedError as problem:
            raise StaleSourceError(
                f"the source changed, and this form of references cannot hold what it is now: {problem}",
                url=suspects[0].source.url,
                hint=ANEW,
            ) from problem
        return report
    relative = is_portable(root.document.get("recipe"))
    named = (lambda source: relative_to(source, url)) if relative else absolute
    renewed = explicit(renewed, storage_options)
    write_store(renewed, url, named=named, expected=root.data, storage_options=storage_options)
    return report


def unidentified(report: Report, group: VirtualGroup) -> list[Finding]:
    """The sources of which references to stored values record nothing that tells whether they changed, as kerchunk's formats do."""
    if "coordinates" in group.details or group.details.get("format") == "icechunk":
        return []
    return [finding for finding in report.findings if finding.status == "ok" and _is_unidentified(finding.source)]


def _is_unidentified(source: Source) -> bool:
    return not source.optional and source.size is None and source.etag is None and source.modified is None


def _repeated(group: VirtualGroup, report: Report, options: Mapping[str, Any] | None) -> VirtualGroup:
    """The saved dataset, made again from the files as they are now."""
    first = report.stale[0]
    recipe = group.details.get("recipe")
    steps = steps_of(recipe)
    if isinstance(steps, str):
        raise StaleSourceError(
            f"{first.reason}, and the dataset cannot be made again from its files: {steps}",
            url=first.source.url,
            hint=ANEW,
        )
    try:
        made = repeat_recipe(steps, options)
    except (InsituError, ValueError) as problem:
        raise StaleSourceError(
            f"{first.reason}, and the files do not make one dataset any more: {problem}",
            url=first.source.url,
            hint=ANEW,
        ) from problem
    return replace(made, details={**made.details, "recipe": recipe})


def _scanned(source: Source, options: Mapping[str, Any] | None) -> VirtualGroup:
    try:
        return scan(source.url, storage_options=options)
    except (FormatError, UnsupportedError, CodecError) as problem:
        raise StaleSourceError(
            f"it cannot be scanned any more: {problem.message}", url=source.url, hint=ANEW
        ) from problem


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    rename: Renaming | None = None,
    allow_local: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> VirtualGroup:
    """Save references in another form, or for another place.

    Parameters
    ----------
    source
        A saved set of references; also whatever else `insitu.scan` takes.
    target
        Where to: its name says the form.
    rename
        New URLs of the sources: a mapping of prefixes, a pair of regular expression and replacement, or a function.
    allow_local, storage_options
        See `insitu.scan`.
    options
        As for `insitu.references.save`.

    Returns
    -------
    VirtualGroup
        What was saved.
    """
    group = scan(source, allow_local=allow_local, storage_options=storage_options)
    group = group if rename is None else renamed(group, rename)
    save(group, target, storage_options=storage_options, **options)
    return group


def _opened(
    references: str | os.PathLike[str] | VirtualGroup, allow_local: bool, options: Mapping[str, Any] | None
) -> VirtualGroup:
    if isinstance(references, VirtualGroup):
        return references
    url = os.fspath(references)
    group = open_references(url, allow_local=allow_local, storage_options=options)
    if group is None:
        if (path := local_path(url)) is not None and not os.path.exists(path):
            raise NotFoundError("no such file or directory", url=url)
        raise FormatError("there are no references", url=url)
    return group
