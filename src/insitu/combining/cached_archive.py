"""Archives in the scan cache: what files make together, or one file, found again without a scan.

Only what is the same every time is kept: files that could all be read, opened with options that can
be written as text. Everything else is scanned each time.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import pickle
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from insitu.combining.recipe import Recipe
from insitu.errors import InsituError
from insitu.model import VirtualGroup
from insitu.model.group import nest_groups
from insitu.open_options import DecodeOptions
from insitu.scanning.member import Load, Member
from insitu.scanning.saved_members import member_from_tree, tree_from_member
from insitu.scanning.scan_member import Job
from insitu.sources import redact_url
from insitu.sources.address import file_url_path, is_remote, scheme_of
from insitu.sources.storage_options import options_for

if TYPE_CHECKING:
    from insitu.scanning.scan_cache import ScanCache

__all__ = ["CachedArchive"]

MIN_SCAN_SECONDS = 0.25
"""What takes less time to scan is not kept: it is scanned again as fast as it would be found."""
MIN_FILE_SECONDS = 1.0
"""The same for a single local file. In a new process its scan includes the import of its format."""
MIN_FILE_BYTES = 1 << 20
"""A single local file that is smaller never takes so long."""
MAX_PACKED_CHUNKS = 1 << 16
"""An archive of so many chunks is pickled: to read that takes some milliseconds, to import Arrow for an insitu
store 0.3 s. Of a larger one only the parts of its tables that are used are read, which a store is made for.
"""
CHECKSUM_BYTES = 16
OWN_PACKAGES = ("insitu.model.", "insitu.formats.", "insitu.scanning.")
"""What a packed member consists of: classes of these, and `OTHER_NAMES`. Nothing else is made when one is read."""
OTHER_NAMES = frozenset(
    {
        ("insitu.model.chunks", "_assemble_columns"),
        *(("numpy", name) for name in ("dtype", "ndarray")),
        *(("numpy._core.multiarray", name) for name in ("_reconstruct", "scalar")),
        ("numpy._core.numeric", "_frombuffer"),
        *(("builtins", name) for name in ("complex", "frozenset", "range", "set", "slice")),
        *(("datetime", name) for name in ("date", "datetime", "time", "timedelta")),
        ("cftime._cftime", "_create_datetime"),
        *(
            ("cftime._cftime", f"Datetime{calendar}")
            for calendar in ("360Day", "AllLeap", "Gregorian", "Julian", "NoLeap", "ProlepticGregorian")
        ),
    }
)


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
        from insitu.scanning.scan_cache import ScanRecorder

        self.cache = cache
        self.key = key
        self.urls = urls
        self.recorder = ScanRecorder()
        self.recipe: Recipe | None = None
        """With the places of the files, of what was found."""
        self._began = time.perf_counter()

    @classmethod
    def of(cls, urls: Sequence[Any], places: Sequence[Any] | None, job: Job, recipe: Recipe) -> CachedArchive | None:
        """Return the place of an archive; None if it is not to be cached.

        Parameters
        ----------
        urls, places
            The files, and their positions in nested lists; None: one file that is not combined.
        job, recipe
            How they are opened.
        """
        if job.finish is not None or not all(isinstance(url, (str, os.PathLike)) for url in urls):
            return None
        names = [os.fspath(url) for url in urls]
        if not all(map(_can_be_cached, names)) or (places is None and _is_small(names[0])):
            return None
        # Not at the top: a small file needs neither.
        from insitu.scanning.scan_cache import default_scan_cache, make_key
        from insitu.sources.cached_source import cache_scope

        cache = default_scan_cache()
        if cache is None:
            return None
        options = recipe.scan_key()
        if options is None:
            return None
        paths = [name if is_remote(name) else _absolute_path(name) for name in names]
        scopes = {cache_scope(path, options_for(path, job.scan.storage_options)) for path in paths if is_remote(path)}
        at = places and [list(place) for place in places]
        return cls(cache, make_key(paths, {**options, "places": at, "scopes": sorted(scopes)}), paths)

    def find(self, job: Job, load: Load) -> Member | None:
        """Return what the files make together; None if they must be scanned."""
        from insitu.scanning.scan_cache import ask_versions

        found = self.cache.find(self.key, self.urls, ask_versions(job.scan.storage_options))
        if found is None:
            return None
        if "recipe" in found.notes:
            self.recipe = Recipe.from_document(found.notes["recipe"])
        try:
            if os.path.isfile(found.store):
                return _read_packed(found.store)
            from insitu.references.store import open_store  # not at the top: Arrow takes long to import

            tree = open_store(found.store, allow_local=True).group()
            # It was saved as this job decodes it: what follows takes it as it is.
            groups = {
                path: member_from_tree(group, DecodeOptions(), load, url=found.notes["source"])
                for path, group in tree.walk()
            }
            member = groups.pop("")
            member = replace(member, below=groups, groups=() if groups else member.groups)
        except (InsituError, OSError):  # damaged: the files are scanned again
            return None
        return replace(member, encoding={**member.encoding, **found.notes["encoding"]})

    def keep(self, member: Member, recipe: Recipe) -> None:
        """Write to the cache what the files make together, if they took long to scan."""
        enough = MIN_SCAN_SECONDS if len(self.urls) > 1 or is_remote(self.urls[0]) else MIN_FILE_SECONDS
        if time.perf_counter() - self._began < enough or member.problems or member.groups or member.order:
            return
        placed = {} if recipe.placed is None else {"recipe": recipe.to_document()}
        encoding = {key: value for key, value in member.encoding.items() if isinstance(value, str)}
        try:
            tree = nest_groups({path: tree_from_member(group) for path, group in member.walk()})
            # The versions of remote objects are those that the scan saw: what it did not take chunks from is unknown.
            scanned = {source.url: source for source in tree.sources}
            self.cache.put(
                self.key,
                self.recorder,
                self.urls,
                lambda path: _write(member, tree, path),
                {"encoding": encoding, "source": member.source, **placed},
                lambda urls: scanned,
            )
        except InsituError:  # values of a type that cannot be saved
            return


def _has_few_chunks(tree: VirtualGroup) -> bool:
    cells = sum(math.prod(tile.chunks.shape) for _, array in tree.all_arrays() for tile in array.tiles)
    return cells <= MAX_PACKED_CHUNKS


def _pack(member: Member) -> bytes:
    """Return a member with a checksum: what is damaged is never unpickled."""
    content = pickle.dumps(member, pickle.HIGHEST_PROTOCOL)
    return _checksum(content) + content


def _write(member: Member, tree: VirtualGroup, path: str) -> None:
    """Write a member to a file, or its tree as an insitu store."""
    if _has_few_chunks(tree):
        Path(path).write_bytes(_pack(member))
        if _read_packed(path) is not None:
            return
        os.unlink(path)  # it has parts that are not read back: tables of a kind that a user brought, say
    from insitu.references.store import write_store  # not at the top: Arrow takes long to import

    write_store(tree, path)


def _read_packed(path: str) -> Member | None:
    """Return the member that was written; None if the file is damaged."""
    data = Path(path).read_bytes()
    content = data[CHECKSUM_BYTES:]
    if data[:CHECKSUM_BYTES] != _checksum(content):
        return None
    try:
        member: Member = _MemberUnpickler(io.BytesIO(content)).load()
    except (AttributeError, ImportError, pickle.UnpicklingError):  # of another version of NumPy, say
        return None
    return member


class _MemberUnpickler(pickle.Unpickler):
    """Makes what a member consists of, and runs nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what a pickle names."""
        is_ours = module.startswith(OWN_PACKAGES)
        if is_ours or (module, name) in OTHER_NAMES:
            found = super().find_class(module, name)
            if (module, name) in OTHER_NAMES or isinstance(found, type):
                return found
        raise pickle.UnpicklingError(f"a member has no {module}.{name}")


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=CHECKSUM_BYTES).digest()


def _can_be_cached(name: str) -> bool:
    """Return whether a name is that of a file or of a remote object, without a secret, which must not
    be written to disk.
    """
    return "::" not in name and redact_url(name) == name and (is_remote(name) or scheme_of(name) in (None, "file"))


def _is_small(name: str) -> bool:
    """Return whether a file is local and small, or no file."""
    try:
        return not is_remote(name) and os.path.getsize(_absolute_path(name)) < MIN_FILE_BYTES
    except OSError:
        return True


def _absolute_path(name: str) -> str:
    return os.path.abspath(file_url_path(name) or os.path.expanduser(name))
