"""Stores that are appended to: in them nothing changes before all that is new lies beside them, ready to be put there.

What is new is written into the folder of the copy first. Then a mark says that it is complete, and its objects are
put to their places: chunks that begin behind the end of their array, the last ones that are there, which are written
again with the values that they have, and at the end the metadata, that of the root last. Until then readers see the
array as long as it was. If that is interrupted, the next append puts the rest to its place before anything else.

An Icechunk repository gets a commit instead.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from insitu.copying.append_documents import lengthen_arrays, read_documents, sort_documents
from insitu.copying.append_plan import AppendPlan, ExistingTarget
from insitu.copying.check_target import check_place
from insitu.copying.copy_options import CopyOptions
from insitu.copying.icechunk_target import check_commit_every, read_in_parts
from insitu.copying.journal import Journal
from insitu.copying.object_writers import FolderWriter, ObjectWriter, PrefixWriter
from insitu.copying.target_arrays import TargetArray
from insitu.copying.targets import Target
from insitu.errors import SourceError, UnsupportedError
from insitu.formats.detect import scan_folder
from insitu.formats.scan_request import ScanRequest
from insitu.model import VirtualGroup
from insitu.references.file_systems import hold_file_lock, retry_while_open, sync_directory
from insitu.references.icechunk.repository import parse_version
from insitu.references.icechunk.repository_reader import has_version, open_icechunk, open_session, run_async
from insitu.references.icechunk.repository_writer import commit, lock_repository, put_objects
from insitu.scanning.scan_member import make_loader
from insitu.sources.listing import local_path

__all__ = ["AppendTarget", "IcechunkAppend", "ZarrAppend", "open_append"]

COMPLETE = "complete"
PUT_AT_ONCE = 16
"""Objects that are put to their places at the same time."""


class AppendTarget(Target):
    """What stores that are appended to have in common."""

    plan: AppendPlan | None = None

    def exists(self) -> bool:
        """Return whether there is a store to append to."""
        raise NotImplementedError

    def check(self, tree: VirtualGroup) -> None:
        """Raise an error if the target lies around the source, or cannot be written."""
        check_place(self.path, self.url, tree)

    def read(self) -> ExistingTarget:
        """Return the store as it is."""
        raise NotImplementedError

    def set_plan(self, existing: ExistingTarget, plan: AppendPlan) -> None:
        """Remember what is appended to what."""
        self.plan, self._existing = plan, existing

    def finish_interrupted(self) -> None:
        """Put to its place what an interrupted append has left complete."""

    def complete(
        self, arrays: Sequence[TargetArray], groups: Mapping[str, Mapping[str, Any]], journal: Journal
    ) -> None:
        """Do nothing: the documents are those that are there, with other shapes."""

    def _change_error(self) -> SourceError:
        return SourceError(
            "the target has changed since the append began; nothing was added to it",
            url=self.url,
            hint="Start the same append again",
        )


class ZarrAppend(AppendTarget):
    """A Zarr store in a folder of this machine, or in an object store."""

    kind = "zarr"

    def __init__(self, url: str, options: CopyOptions) -> None:
        super().__init__(url, options)
        self._place: ObjectWriter
        if self.path is not None:
            self._place = FolderWriter(self.path)
        else:
            self._place = PrefixWriter(self.url, options.storage_options)

    def exists(self) -> bool:
        """Return whether there is a store to append to: one without metadata was never complete."""
        return any(data is not None for data in self._documents(["zarr.json", ".zgroup", ".zmetadata"]))

    def _was_published(self) -> bool:
        return False  # see `finish_interrupted`

    def read(self) -> ExistingTarget:
        """Return the store as it is."""
        options = self.options.storage_options
        tree = scan_folder(self.path or self.url, ScanRequest(storage_options=options))
        if tree is None:
            raise UnsupportedError("this is no Zarr store", url=self.url, hint="Choose another target")
        documents = read_documents(self._documents, [path for path, _ in tree.all_arrays()])
        return ExistingTarget(self.url, tree, documents, options, make_loader(options))

    def _documents(self, keys: Sequence[str]) -> list[bytes | None]:
        with ThreadPoolExecutor(PUT_AT_ONCE, "insitu-append") as pool:
            return list(pool.map(self._place.get, keys))

    def finish_interrupted(self) -> None:
        """Put to its place what an interrupted append has left complete."""
        if not self._mark.exists():
            return
        with hold_file_lock(str(self.folder / "lock")):
            if self._is_complete():
                self._put_to_place()
                shutil.rmtree(self.folder, ignore_errors=True)

    def _is_complete(self) -> bool:
        try:
            return self._mark.read_text() == COMPLETE
        except OSError:
            return False

    def publish(self) -> None:
        """Mark what is written as complete, and put it to its place."""
        assert self.plan is not None
        existing = self._existing.documents
        if read_documents(self._documents, [path for path, _ in self._existing.tree.all_arrays()]) != existing:
            raise self._change_error()
        for key, data in lengthen_arrays(existing, self.plan.shapes).items():
            self.content.put(key, data)
        self.content.sync()
        self.mark_publishing(COMPLETE)
        self._put_to_place()

    def _put_to_place(self) -> None:
        """Put every object of the append to its place, the metadata last; what is there already is not asked for."""
        keys = list(self._waiting())
        documents = [key for key in keys if key.rpartition("/")[2] in ("zarr.json", ".zarray", ".zmetadata")]
        rest = sorted(set(keys) - set(documents))
        with ThreadPoolExecutor(PUT_AT_ONCE, "insitu-append") as pool:
            for _ in pool.map(self._put, rest):
                pass
        self._sync(rest)
        for key in sort_documents(documents):
            self._put(key)
        self._sync(documents)

    def _waiting(self) -> Iterator[str]:
        """Yield the keys of objects that are not at their places yet."""
        for folder, _, names in os.walk(self.content.folder):
            for name in names:
                yield os.path.relpath(os.path.join(folder, name), self.content.folder).replace(os.sep, "/")

    def _put(self, key: str) -> None:
        place = self._place
        if isinstance(place, FolderWriter):
            path = place.path(key)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            retry_while_open(os.replace, self.content.path(key), path)
            return
        data = self.content.get(key)
        assert data is not None
        place.put(key, data)

    def _sync(self, keys: Sequence[str]) -> None:
        if isinstance(self._place, FolderWriter):
            for folder in sorted({os.path.dirname(self._place.path(key)) for key in keys}):
                sync_directory(folder)


class IcechunkAppend(AppendTarget):
    """A branch of an Icechunk repository: what is added is a commit, or several."""

    kind = "icechunk"

    def __init__(self, url: str, options: CopyOptions) -> None:
        super().__init__(url, options)
        check_commit_every(options.commit_every)
        self.version = parse_version(url)
        self._snapshot = ""
        """The version that is appended to."""

    def exists(self) -> bool:
        """Return whether there is a version to append to."""
        return not self._mark.exists() and has_version(self.version.url, self.options.storage_options)

    def read(self) -> ExistingTarget:
        """Return the newest version of the branch."""
        options = self.options.storage_options
        tree = open_icechunk(self.url, storage_options=options)
        _, session = open_session(self.version, options)
        self._snapshot = str(tree.details.notes["snapshot"])
        documents = read_documents(
            lambda keys: run_async(_get_objects(session.store, keys)), [path for path, _ in tree.all_arrays()]
        )
        if session.snapshot_id != self._snapshot:
            raise self._change_error()
        return ExistingTarget(self.url, tree, documents, options, make_loader(options))

    def publish(self) -> None:
        """Commit what is new."""
        assert self.plan is not None
        with lock_repository(self.version):
            repository, _ = open_session(self.version, self.options.storage_options)
            for begin, end in self._portions():
                session = repository.writable_session(self.version.name)
                if session.snapshot_id != self._snapshot:
                    raise self._change_error()
                run_async(put_objects(session.store, lengthen_arrays(self._existing.documents, self._shapes(end))))
                for objects in self._objects_between(begin, end):
                    run_async(put_objects(session.store, objects))
                message = f"Appended by insitu: {self.plan.dim} up to {end:,}"
                self._snapshot = commit(session, message, self.version)

    def _portions(self) -> Iterator[tuple[int, int]]:
        """Yield from where to where along the dimension each commit goes."""
        assert self.plan is not None
        path, shape = next(iter(self.plan.shapes.items()))
        axis = self._axis(path)
        end, begin = shape[axis], shape[axis] - self.plan.labels
        every = self.options.commit_every or self.plan.labels
        yield from ((at, min(at + every, end)) for at in range(begin, end, every))

    def _axis(self, path: str) -> int:
        assert self.plan is not None
        return dict(self._existing.tree.all_arrays())[path].dims.index(self.plan.dim)

    def _shapes(self, end: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of arrays that end at a place along the dimension."""
        assert self.plan is not None
        found = {}
        for path, shape in self.plan.shapes.items():
            axis = self._axis(path)
            found[path] = (*shape[:axis], end, *shape[axis + 1 :])
        return found

    def _objects_between(self, begin: int, end: int) -> Iterator[dict[str, bytes]]:
        """Yield the objects that a commit adds or replaces, in parts."""
        assert self.plan is not None
        parts: list[tuple[TargetArray, list[range]]] = []
        for array in self.plan.arrays:
            extension = array.extension
            assert extension is not None
            size = array.objects[extension.axis]
            ranges = [range(count) for count in array.grid]
            low, high = begin // size - extension.first, -(-end // size) - extension.first
            ranges[extension.axis] = range(max(low, 0), min(high, array.grid[extension.axis]))
            parts.append((array, ranges))
        yield from read_in_parts(self.content, parts)


async def _get_objects(store: Any, keys: Sequence[str]) -> list[bytes | None]:
    from zarr.core.buffer import default_buffer_prototype

    found = []
    for key in keys:
        data = await store.get(key, default_buffer_prototype())
        found.append(None if data is None else data.to_bytes())
    return found


def open_append(url: str, kind: str, options: CopyOptions) -> AppendTarget | None:
    """Return the target of an append; None if there is nothing yet to append to.

    Raises
    ------
    UnsupportedError
        If nothing can be appended to targets of a kind.
    """
    if options.overwrite:
        raise UnsupportedError("a target is either appended to or replaced", url=url, hint="Leave overwrite out")
    if kind == "netcdf":
        path = local_path(url)
        if path is None or not os.path.lexists(path):
            return None
        raise UnsupportedError(
            "a NetCDF file cannot be appended to: its chunk indexes lie in front of its chunks",
            url=url,
            hint="Copy to .zarr or .icechunk, or to a file for each year: tas_{time:%Y}.nc",
        )
    found: AppendTarget = ZarrAppend(url, options) if kind == "zarr" else IcechunkAppend(url, options)
    return found if found.exists() else None
