"""How does a scan that was killed go on where it was?

What was found in each batch of files is kept in the user's cache until the scan is complete. The same command finds it there: same files (by size and time of change, where they lie on this machine), same questions. What is kept
is pickled, so only a directory that nobody else can write to is believed.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from insitu.cli.screen import problems
from insitu.errors import AccessError

__all__ = ["Journal", "Resuming", "journal_for"]


def journal_for(target: str, question: str) -> Journal:
    """The journal of a scan, by where it writes to and what it asks."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "insitu" / "scans"
    name = hashlib.sha256(
        f"{os.path.abspath(target) if '://' not in target else target}\n{question}".encode()
    ).hexdigest()
    return Journal(root / name[:24])


class Journal:
    """What was found so far, in a directory of its own.

    A directory that cannot be written to, or a disk that is full, ends the journal and not the scan: a note says so once.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found = 0
        """Files that were found here instead of scanned."""
        self.usable = True
        """Whether anything can be kept."""
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            about = folder.stat()
        except OSError as error:
            self._give_up(error)
            return
        if os.name == "posix" and (about.st_uid != os.getuid() or about.st_mode & 0o022):
            raise AccessError(
                "others may write to the directory that keeps interrupted scans",
                url=str(folder),
                hint="Remove it, or set XDG_CACHE_HOME to a directory of yours",
            )

    def load(self, batch: Sequence[Any]) -> list[Any] | None:
        """What was found in these files; None if that is not known."""
        path = self.folder / _key(batch)
        try:
            with open(path, "rb") as file:
                kept: list[Any] = pickle.load(file)
        except (OSError, EOFError, pickle.UnpicklingError, AttributeError, ImportError, IndexError, TypeError):
            return None  # not there, of another version, or cut short: it is scanned again
        self.found += len(batch)
        return kept

    def keep(self, batch: Sequence[Any], found: list[Any]) -> None:
        """Write down what was found, in one step, as long as that is possible."""
        if not self.usable:
            return
        name = None
        try:
            handle, name = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                pickle.dump(found, file, protocol=pickle.HIGHEST_PROTOCOL)
            os.replace(name, self.folder / _key(batch))
        except OSError as error:
            if name is not None:
                with suppress(OSError):
                    os.unlink(name)
            self._give_up(error)

    def done(self) -> None:
        """The scan is complete: nothing needs to be kept."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _give_up(self, error: OSError) -> None:
        if self.usable:
            self.usable = False
            problems.print(
                f"{self.folder}: {error.strerror or error}. The scan goes on; if it is interrupted, it will begin anew. "
                "XDG_CACHE_HOME says where its journal may lie.",
                style="yellow",
                markup=False,
                soft_wrap=True,
            )


def _key(batch: Sequence[Any]) -> str:
    """What tells a batch from others: its files, and what they are now."""
    mark = hashlib.sha256()
    for url in batch:
        mark.update(str(url).encode())
        try:
            about = os.stat(url)
            mark.update(f"|{about.st_size}|{about.st_mtime_ns}".encode())
        except (OSError, TypeError, ValueError):
            mark.update(b"|")
        mark.update(b"\n")
    return mark.hexdigest()[:32]


class Resuming(Executor):
    """Runs batches on another executor, and remembers what came of them.

    Parameters
    ----------
    inner
        Does the work; None: the calling thread does.
    journal
        Remembers.
    """

    def __init__(self, inner: Executor | None, journal: Journal) -> None:
        self.inner, self.journal = inner, journal

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Not remembered: only `map` knows what a batch is."""
        assert self.inner is not None
        return self.inner.submit(fn, *args, **kwargs)

    def map(
        self, fn: Callable[..., Any], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[Any]:
        """The results in order; each is written down as soon as it is there."""
        batches = [*iterables[0]]
        known = {number: kept for number, batch in enumerate(batches) if (kept := self.journal.load(batch)) is not None}
        if self.inner is None:
            for number, batch in enumerate(batches):
                if number in known:
                    yield known.pop(number)
                    continue
                result = fn(batch)
                self.journal.keep(batch, result)
                yield result
            return
        waiting: dict[int, Future[Any]] = {}
        for number, batch in enumerate(batches):
            if number not in known:
                waiting[number] = self.inner.submit(fn, batch)
                waiting[number].add_done_callback(lambda future, batch=batch: self._keep(batch, future))  # type: ignore[misc]
        try:
            for number in range(len(batches)):
                yield known.pop(number) if number in known else waiting.pop(number).result()
        finally:
            for future in waiting.values():
                future.cancel()

    def _keep(self, batch: Sequence[Any], future: Future[Any]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.journal.keep(batch, future.result())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the inner executor."""
        if self.inner is not None:
            self.inner.shutdown(wait, cancel_futures=cancel_futures)
