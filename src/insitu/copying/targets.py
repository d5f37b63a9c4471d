"""`Target`: where a copy goes, how far an earlier run came, and how it becomes visible in one step.

Beside a local target `x.zarr` lies a folder `x.zarr.copying` while it is made, with the objects, the journal, and
arrays between two passes. Of a target in an object store, that folder is in the user's cache, without the objects,
which are in their places already: nobody sees them before the metadata are written, last of all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from insitu.copying.check_target import check_place
from insitu.copying.copy_options import CopyOptions
from insitu.copying.journal import Finished, Journal, read_question
from insitu.copying.object_writers import FolderWriter, ObjectWriter
from insitu.copying.target_arrays import TargetArray
from insitu.errors import UnsupportedError
from insitu.model import VirtualGroup
from insitu.references.atomic_write import to_source_error
from insitu.references.file_systems import hold_file_lock
from insitu.sources.listing import local_path
from insitu.sources.user_folders import user_cache_folder

__all__ = ["Target", "describe_place", "forget_missing"]

CHECKED_AT_ONCE = 4
"""Threads that look through what an interrupted run has left."""


class Target:
    """What all kinds of targets have: the folder of a copy that is under way, and its journal.

    Parameters
    ----------
    url
        Where the target appears.
    options
        Of the copy.
    """

    kind = ""

    def __init__(self, url: str, options: CopyOptions) -> None:
        self.url = url.rstrip("/") if len(url) > 1 else url
        self.options = options
        self.path = local_path(self.url.split("?")[0])
        """The path, if it is on this machine."""
        if self.path is not None:
            self.path = os.path.abspath(self.path)
            self.folder = Path(f"{self.path}.copying")
        else:
            self.folder = user_cache_folder("copies") / hashlib.sha256(self.url.encode()).hexdigest()[:24]
        self.content = FolderWriter(str(self.folder / "content"))
        self.writer: ObjectWriter = self.content
        """Where objects are written."""
        self.journal: Journal | None = None
        self.is_published = False
        """Whether an earlier run has published the target, and was killed before it had tidied up."""

    # What kinds of targets do.

    def exists(self) -> bool:
        """Return whether something lies at the target."""
        return self.path is not None and os.path.lexists(self.path)

    def check_forms(self, names: Sequence[str]) -> None:
        """Raise an error that names a variable that the target cannot hold."""

    def check_arrays(self, arrays: Sequence[TargetArray], groups: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise an error that names an array, or an attribute of one or of a group, that the target cannot hold."""

    def complete(
        self, arrays: Sequence[TargetArray], groups: Mapping[str, Mapping[str, Any]], journal: Journal
    ) -> None:
        """Make everything ready to be published: all objects are written."""
        raise NotImplementedError

    def publish(self) -> None:
        """Let the target appear, in one step."""
        raise NotImplementedError

    def read_object(self, array: TargetArray, cell: tuple[int, ...]) -> bytes | None:
        """Return an object of the target that is ready to be published."""
        return self.writer.get(array.key(cell))

    def forget(self) -> None:
        """Remove what an interrupted copy has left: there is nothing to do."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def begin(self) -> None:
        """Prepare the place for a new copy: what another one has left is removed."""
        self.content.clear()

    # What all have in common.

    def check(self, tree: VirtualGroup) -> None:
        """Raise an error if the target cannot be written, before anything is."""
        check_place(self.path, self.url, tree)
        self.check_forms([path for path, _ in tree.all_arrays()])
        if self.exists() and not self.options.overwrite and not self._was_published():
            raise UnsupportedError(
                "there is something already", url=self.url, hint="Choose another target, or replace it with overwrite"
            )

    @contextmanager
    def staging(self, question: bytes) -> Iterator[Journal]:
        """Give the journal of the copy: that of an interrupted run, if it was the same copy.

        Parameters
        ----------
        question
            The digest of what is copied and how.
        """
        try:
            os.makedirs(self.folder, exist_ok=True)
            lock = hold_file_lock(str(self.folder / "lock"))
            lock.__enter__()
        except OSError as error:
            raise to_source_error(error, str(self.folder)) from error
        try:
            self.is_published = self._was_published() and read_question(self._journal_path) == question
            if read_question(self._journal_path) != question:
                self._clear()
                self.begin()
            self.journal = Journal(self._journal_path, question)
            yield self.journal
            self.journal.close()
            self._clear(with_journal=True)
        except OSError as error:
            raise to_source_error(error, self.url) from error
        finally:
            if self.journal is not None:
                self.journal.close()
            lock.__exit__(None, None, None)
        shutil.rmtree(self.folder, ignore_errors=True)

    def scratch(self, name: str) -> str:
        """Return a folder for what is needed while the copy runs."""
        return str(self.folder / name)

    @property
    def _journal_path(self) -> Path:
        return self.folder / "journal"

    @property
    def _mark(self) -> Path:
        return self.folder / "publishing"

    def mark_publishing(self, what: str) -> None:
        """Note that the target appears now; `what` tells it from another one that lies there."""
        self._mark.write_text(what)

    def _was_published(self) -> bool:
        """Return whether what lies at the target was published by the run whose folder is still there."""
        try:
            published = self._mark.read_text()
        except OSError:
            return False
        return published == self.describe_published()

    def describe_published(self) -> str:
        """Return what tells the target that lies there from others."""
        return describe_place(self.path)

    def _clear(self, with_journal: bool = False) -> None:
        """Remove what a copy has left: the mark and the journal last, as they tell that the copy is complete."""
        last = (self._mark, self._journal_path)
        for entry in list(self.folder.iterdir()):
            if entry.name == "lock" or entry in last:
                continue
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
        self._mark.unlink(missing_ok=True)
        if with_journal or not self.is_published:
            self._journal_path.unlink(missing_ok=True)


def describe_place(path: str | None) -> str:
    """Return the number of a file or folder in its file system; empty: there is none."""
    try:
        about = os.lstat(path or "")
    except OSError:
        return ""
    return f"{about.st_dev}:{about.st_ino}"


def forget_missing(journal: Journal, arrays: Sequence[TargetArray], writer: ObjectWriter) -> None:
    """Forget objects of an interrupted run that are not what the journal says: they are written again."""

    def is_wrong(item: tuple[TargetArray, Finished]) -> bool:
        array, record = item
        cell = tuple(int(at) for at in np.unravel_index(record.number, array.grid)) if array.grid else ()
        data = writer.get(array.key(cell))
        return data is None or len(data) != record.nbytes or google_crc32c.value(data) != record.checksum

    items = [(arrays[record.array], record) for record in journal.finished.values() if record.array < len(arrays)]
    with ThreadPoolExecutor(CHECKED_AT_ONCE, "insitu-copy") as pool:
        wrong = [record for (_, record), bad in zip(items, pool.map(is_wrong, items), strict=True) if bad]
    journal.forget(wrong)
