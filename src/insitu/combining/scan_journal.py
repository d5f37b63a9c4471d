"""Journal of a long scan, so that an interrupted scan goes on where it stopped.

The result of each portion of files is kept in the user's cache folder until the scan is complete.
The same call finds it there, if the files (by size and modification time, where they are local) and
the options of scanning are the same: how files are combined is no part of it, so a scan goes on if
that was wrong. Results are pickled, so only a folder that nobody else can write to is used.
Credentials are no part of a journal: a scan goes on with new ones.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from insitu.errors import AccessError
from insitu.formats import InsituWarning
from insitu.open_options import CombineOptions, OpenOptions
from insitu.scanning.file_labels import label_rules
from insitu.sources.address import scheme_of
from insitu.sources.user_folders import user_cache_folder

__all__ = ["Journal", "identity_of", "journal_for", "journal_of_files", "scanning_options"]

_FOLDER = "scans"
_FORMAT = "2"
"""Of what is kept of a portion: what an earlier version left is not taken."""
HASH = 16
"""Bytes of a hash."""
MAX_AGE_DAYS = 30
"""Days after which what an interrupted scan has left is deleted."""


def scanning_options(options: OpenOptions) -> OpenOptions:
    """Return options without how files are combined; of that only what a scan notes of each file remains."""
    combine = options.combine
    rules = combine.concat_dim if combine.forecasts else label_rules(combine) or None
    return replace(options, combine=CombineOptions(concat_dim=rules, forecasts=combine.forecasts))


def journal_for(target: str, question: str, notify: Callable[[str], None] | None = None) -> Journal:
    """Return the journal of a scan that is saved, by its target and the options of scanning."""
    place = target if scheme_of(target) else os.path.abspath(target)
    return Journal(user_cache_folder(_FOLDER) / _hash(f"{place}\n{question}"), notify)


def journal_of_files(urls: Sequence[Any], question: str) -> Journal | None:
    """Return the journal of files that are opened as one dataset, by their names and the options of
    scanning.

    None if the folder is not to be trusted, or a file is no name but an open object.
    """
    if not all(isinstance(url, (str, os.PathLike)) for url in urls):
        return None
    _delete_old_journals()
    named = "\n".join(map(os.fspath, urls))
    try:
        return Journal(user_cache_folder(_FOLDER) / _hash(f"{named}\n{question}"))
    except AccessError:
        return None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:24]


def _delete_old_journals() -> None:
    oldest = time.time() - MAX_AGE_DAYS * 86400
    with suppress(OSError):
        for folder in user_cache_folder(_FOLDER).iterdir():
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True) if folder.is_dir() else folder.unlink()


class Journal:
    """Results of the portions that are scanned so far, in a folder of its own.

    If the folder cannot be written to, or the disk is full, the scan goes on without a journal,
    with one note.

    Parameters
    ----------
    folder
        Where the results are kept.
    notify
        Called with that note; None: it is a warning.
    """

    def __init__(self, folder: Path, notify: Callable[[str], None] | None = None) -> None:
        self.folder = folder
        self.found = 0
        """Number of files whose results were taken from the journal."""
        self.saved = 0
        """Number of files whose results are in the journal."""
        self.usable = True
        """Whether results can be written."""
        self._notify = notify or _warn
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            about = folder.stat()
        except OSError as error:
            self._give_up(error)
            return
        if os.name == "posix" and (about.st_uid != os.getuid() or about.st_mode & 0o022):
            raise AccessError(
                "other users may write to the folder of interrupted scans, so it is not used",
                url=str(folder),
                hint="Remove the folder, or set XDG_CACHE_HOME to a folder of yours",
            )

    def load(self, files: Sequence[Any]) -> bytes | None:
        """Return the result of a portion of these files; None if there is none."""
        try:
            data = (self.folder / _portion_key(files)).read_bytes()
        except OSError:
            return None
        checksum, identity, result = data[:HASH], data[HASH : 2 * HASH], data[2 * HASH :]
        if checksum != _hash_bytes(data[HASH:]) or identity != identity_of(files):  # incomplete, or of other files
            return None
        self.found += len(files)
        self.saved += len(files)
        return result

    def keep(self, files: Sequence[Any], result: bytes, identity: bytes) -> None:
        """Save the result of a portion atomically, if the journal is usable.

        Parameters
        ----------
        files, result
            The files of the portion, and what was scanned.
        identity
            What `identity_of` said of the files before they were scanned.
        """
        if not self.usable:
            return
        name = None
        try:
            handle, name = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(_hash_bytes(identity + result) + identity + result)
            os.replace(name, self.folder / _portion_key(files))
            self.saved += len(files)
        except OSError as error:
            if name is not None:
                with suppress(OSError):
                    os.unlink(name)
            self._give_up(error)

    def begin_saving(self, files: Sequence[Any], combining: str) -> None:
        """Note that the files are scanned and combined, and that the result is saved now where nothing
        lies.

        Parameters
        ----------
        files, combining
            The files, and how they are combined.
        """
        if self.usable:
            try:
                self._saving.write_bytes(_saving_note(files, combining))
            except OSError as error:
                self._give_up(error)

    def has_begun_saving(self, files: Sequence[Any], combining: str) -> bool:
        """Return whether an earlier run of the same scan got so far, with the files combined so."""
        try:
            return self._saving.read_bytes() == _saving_note(files, combining)
        except OSError:
            return False

    @property
    def _saving(self) -> Path:
        return self.folder.with_suffix(".saving")

    def done(self) -> None:
        """Remove the journal: the scan is complete. The note of `begin_saving` goes last: a run that is
        killed here has saved all.
        """
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self._saving.unlink()

    def _give_up(self, error: OSError) -> None:
        if self.usable:
            self.usable = False
            self._notify(
                f"{self.folder}: {error.strerror or error}. The scan goes on, but cannot be resumed if it is "
                "interrupted. Set XDG_CACHE_HOME to a folder that can be written to."
            )


def _warn(text: str) -> None:
    warnings.warn(text, InsituWarning, stacklevel=4)


def _hash_bytes(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=HASH).digest()


def _portion_key(files: Sequence[Any]) -> str:
    """Return the key of a portion: its files."""
    named = "\n".join([_FORMAT, *map(str, files)])
    return hashlib.sha256(named.encode(errors="surrogateescape")).hexdigest()[:32]


def _saving_note(files: Sequence[Any], combining: str) -> bytes:
    return _hash("\n".join([combining, *map(str, files)])).encode() + identity_of(files)


def identity_of(files: Sequence[Any]) -> bytes:
    """Return what identifies the contents of files: sizes and modification times, if they are local."""
    mark = hashlib.blake2b(digest_size=HASH)
    for url in files:
        try:
            about = os.stat(url)
            mark.update(f"{about.st_size}|{about.st_mtime_ns}\n".encode())
        except (OSError, ValueError, TypeError):  # a URL, text that is no path, an open file
            mark.update(b"\n")
    return mark.digest()
