"""Combined archives in the scan cache: what many files make together, found again without a scan.

Only what is the same every time is kept: local files, opened with the usual decoding, all of which
could be read. Everything else is scanned each time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from insitu.combining.member import Load, Member
from insitu.combining.recipe import Recipe
from insitu.combining.saved_members import member_from_tree, tree_from_member
from insitu.combining.scan_member import Job
from insitu.errors import InsituError
from insitu.scanning.scan_cache import ScanCache, ScanRecorder, default_scan_cache, make_key
from insitu.sources.address import is_remote

__all__ = ["CachedArchive"]

MIN_SCAN_SECONDS = 0.25
"""What takes less time to scan is not kept: it is scanned again as fast as it would be found."""


class CachedArchive:
    """The place of one archive in the scan cache. Create it with `of`.

    Parameters
    ----------
    cache
        The scan cache.
    key
        What was asked for.
    urls
        The files.
    """

    def __init__(self, cache: ScanCache, key: str, urls: Sequence[str]) -> None:
        self.cache = cache
        self.key = key
        self.urls = urls
        self.recorder = ScanRecorder()
        self._began = time.perf_counter()

    @classmethod
    def of(cls, urls: Sequence[Any], places: Sequence[Any], job: Job, recipe: Recipe) -> CachedArchive | None:
        """Return the place of an archive; None if it is not to be cached."""
        cache = default_scan_cache()
        if cache is None or job.finish is not None or job.errors != "raise" or recipe.decoding or recipe.unknown:
            return None
        if job.storage_options or not all(isinstance(url, (str, os.PathLike)) for url in urls):
            return None
        names = [os.fspath(url) for url in urls]
        if any(is_remote(name) or "::" in name for name in names):
            return None
        try:
            options = {**recipe.to_document(), "verify": job.verify, "places": [list(place) for place in places]}
        except (InsituError, TypeError):  # a recipe that holds functions
            return None
        paths = [os.path.abspath(os.path.expanduser(name.removeprefix("file://"))) for name in names]
        return cls(cache, make_key(paths, options), paths)

    def find(self, job: Job, load: Load) -> Member | None:
        """Return what the files make together; None if they must be scanned."""
        found = self.cache.find(self.key, self.urls)
        if found is None:
            return None
        from insitu.references.store import open_store  # not at the top: Arrow takes long to import

        try:
            member = member_from_tree(open_store(found.store, allow_local=True).group(), job.how, load)
        except (InsituError, OSError):  # damaged: the files are scanned again
            return None
        return replace(member, encoding={**member.encoding, **found.notes["encoding"]})

    def keep(self, member: Member) -> None:
        """Write to the cache what the files make together, if they took long to scan."""
        if time.perf_counter() - self._began < MIN_SCAN_SECONDS or member.problems or member.groups or member.order:
            return
        from insitu.references.store import write_store

        encoding = {key: value for key, value in member.encoding.items() if isinstance(value, str)}
        try:
            tree = tree_from_member(member)
            self.cache.put(
                self.key, self.recorder, self.urls, lambda path: write_store(tree, path), {"encoding": encoding}
            )
        except InsituError:  # values of a type that cannot be saved
            return
