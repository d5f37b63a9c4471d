"""Journal of a long scan, so that an interrupted scan goes on where it stopped.

The result of each batch of files is kept in the user's cache folder until the scan is complete. The
same command finds it there, if the files (by size and modification time, where they are local) and
the options are the same. Results are pickled, so only a folder that nobody else can write to is
used.
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

from insitu.cli.screen import stderr
from insitu.errors import AccessError
from insitu.sources.address import scheme_of

__all__ = ["Journal", "ResumingExecutor", "journal_for"]


def journal_for(target: str, question: str) -> Journal:
    """Return the journal of a scan, by its target and its options."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "insitu" / "scans"
    name = hashlib.sha256(
        f"{target if scheme_of(target) else os.path.abspath(target)}\n{question}".encode()
    ).hexdigest()
    return Journal(root / name[:24])


class Journal:
    """Results of the batches that are scanned so far, in a folder of its own.

    If the folder cannot be written to, or the disk is full, the scan goes on without a journal,
    with one note.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found = 0
        """Number of files whose results were taken from the journal."""
        self.usable = True
        """Whether results can be written."""
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

    def load(self, batch: Sequence[Any]) -> list[Any] | None:
        """Return the results of a batch; None if there are none."""
        path = self.folder / _batch_key(batch)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        try:
            kept: list[Any] = pickle.loads(data)
        except Exception:  # incomplete, or of another version, whose classes may raise anything: scan again
            return None
        self.found += len(batch)
        return kept

    def keep(self, batch: Sequence[Any], found: list[Any]) -> None:
        """Save the results of a batch atomically, if the journal is usable."""
        if not self.usable:
            return
        name = None
        try:
            handle, name = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                pickle.dump(found, file, protocol=pickle.HIGHEST_PROTOCOL)
            os.replace(name, self.folder / _batch_key(batch))
        except OSError as error:
            if name is not None:
                with suppress(OSError):
                    os.unlink(name)
            self._give_up(error)

    def done(self) -> None:
        """Remove the journal: the scan is complete."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _give_up(self, error: OSError) -> None:
        if self.usable:
            self.usable = False
            stderr.print(
                f"{self.folder}: {error.strerror or error}. The scan goes on, but cannot be resumed if it is "
                "interrupted. Set XDG_CACHE_HOME to a folder that can be written to.",
                style="yellow",
                markup=False,
                soft_wrap=True,
            )


def _batch_key(batch: Sequence[Any]) -> str:
    """Return the key of a batch: its files, with their sizes and modification times."""
    mark = hashlib.sha256()
    for url in batch:
        mark.update(str(url).encode())
        try:
            about = os.stat(url)
            mark.update(f"|{about.st_size}|{about.st_mtime_ns}".encode())
        except (OSError, ValueError):  # a URL, or text that is no path
            mark.update(b"|")
        mark.update(b"\n")
    return mark.hexdigest()[:32]


class ResumingExecutor(Executor):
    """Executor that runs batches on another executor and saves their results in a journal.

    Parameters
    ----------
    inner
        Runs the batches; None: the calling thread does.
    journal
        Saves the results.
    """

    def __init__(self, inner: Executor | None, journal: Journal) -> None:
        self.inner, self.journal = inner, journal

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a call to the inner executor, without the journal: only `map` handles batches."""
        assert self.inner is not None
        return self.inner.submit(fn, *args, **kwargs)

    def map(
        self, fn: Callable[..., Any], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[Any]:
        """Yield the results in order; each is saved as soon as it is there."""
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
        """Shut down the inner executor."""
        if self.inner is not None:
            self.inner.shutdown(wait, cancel_futures=cancel_futures)
