"""How are many files scanned? On threads, on any executor, on a Dask cluster; a bad one is named, and may be left out.

What comes back from each file is a member: tables, no open file and no xarray object, so it travels between processes.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from os import PathLike, fspath
from typing import Any

from insitu.combining.conventions import Decoding, referred
from insitu.combining.decode import Memory, member_of
from insitu.combining.member import Member
from insitu.errors import UnsupportedError, VariableError
from insitu.formats import InsituWarning, scan_format
from insitu.model import VirtualArray, VirtualGroup
from insitu.opening import Verify, may_be_many, scan, trusted
from insitu.reading import read_arrays
from insitu.sources import ByteSource, open_source

__all__ = ["Failure", "Job", "gather", "loader", "scan_member", "scan_one"]


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that could not be taken."""

    url: str
    reason: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Job:
    """What to do with each file; travels to workers."""

    how: Decoding = field(default_factory=Decoding)
    group: str | None = None
    variables: tuple[str, ...] | None = None
    storage_options: Mapping[str, Any] | None = None
    finish: Callable[[Member], Member] | None = None
    """Done to each member where it was made (a preprocess)."""
    catch: bool = False
    """Whether a bad file is returned as a `Failure` instead of raised."""
    verify: Verify = "read"
    """When to find out whether sources are what was scanned: see `insitu.scan`."""
    allow_local: bool = False
    """Whether references from elsewhere may name files of this machine."""

    def __call__(self, urls: Sequence[Any]) -> list[Member | Failure]:
        """The members of some files, in order."""
        memory = Memory()
        return [self.one(url, memory) for url in urls]

    def one(self, url: Any, memory: Memory | None = None) -> Member | Failure:
        """The member of one file."""
        try:
            member = scan_member(url, self, memory)
            return member if self.finish is None else self.finish(member)
        except Exception as error:
            if not self.catch:
                error.add_note(f"while opening {url}")
                raise
            return Failure(str(url), f"{type(error).__name__}: {error}", error)


def loader(storage_options: Mapping[str, Any] | None) -> Callable[[list[VirtualArray]], list[Any]]:
    """What reads values with these options."""

    def load(arrays: list[VirtualArray]) -> list[Any]:
        return read_arrays([(array, ...) for array in arrays], storage_options=storage_options)

    return load


def scan_member(url: Any, job: Job, memory: Memory | None = None) -> Member:
    """Scan and decode one file, one Zarr store or one set of references."""
    if isinstance(url, (str, PathLike)) and may_be_many(fspath(url)):
        group = scan(
            url,
            group=job.group,
            variables=job.variables,
            verify=job.verify,
            allow_local=job.allow_local,
            storage_options=job.storage_options,
        )
        load = loader(job.storage_options)
        return member_of(group, job.how, load, memory=memory, url=fspath(url), only=job.variables)
    with open_source(url, job.storage_options) as source:
        group = trusted(_scanned(source, job), job.verify)
        return member_of(
            group,
            job.how,
            loader(job.storage_options),
            source=source,
            memory=memory,
            url=source.url,
            only=job.variables,
        )


def _scanned(source: ByteSource, job: Job) -> VirtualGroup:
    """The file, or just the wanted variables and what they refer to."""
    if job.variables is None:
        return scan_one(source, job.group, lenient=job.catch)
    try:
        group = scan_one(source, job.group, job.variables, lenient=job.catch)
    except VariableError:  # some file may lack a variable that others have
        group = scan_one(source, job.group, lenient=job.catch)
        if not any(name in group.arrays for name in job.variables):
            raise
        return group
    named = {name for array in group.arrays.values() for name in referred(array.attributes)}
    return scan_one(source, job.group, lenient=job.catch) if named - group.arrays.keys() else group


def scan_one(
    source: ByteSource, group: str | None, variables: Sequence[str] | None = None, *, lenient: bool = False
) -> VirtualGroup:
    """Scan a file for one of its groups: what cannot be taken in the groups below does not matter.

    Parameters
    ----------
    source
        The file.
    group, variables
        Which group; which variables of it.
    lenient
        Whether a variable of the group itself that cannot be taken is left out, with a warning.
    """
    try:
        return scan_format(source, group=group, variables=variables)
    except UnsupportedError as problem:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InsituWarning)
            found = scan_format(source, group=group, variables=variables, errors="warn")
        own = {path: why for path, why in found.problems.items() if "/" not in path.strip("/")}
        if own and not lenient:
            raise UnsupportedError(next(iter(own.values())), url=source.url) from problem
        for why in own.values():
            warnings.warn(f"left out: {why}", InsituWarning, stacklevel=2)
        return found


def gather(
    urls: Sequence[Any], job: Job, *, parallel: Any = None, progress: bool | Callable[[int, int], None] | None = None
) -> list[Member | Failure]:
    """Scan many files, in order.

    Parameters
    ----------
    urls
        The files.
    job
        What to do with each.
    parallel
        None: threads, as many as help; a number: so many threads; any `concurrent.futures.Executor`; `"dask"` or a Dask client.
    progress
        True: a bar; or a function of how many are done, and of how many.
    """
    batches = _batches(urls, parallel)
    results: list[Member | Failure] = []
    with _shown(progress, len(urls)) as tell:
        for done in _run(job, batches, parallel):
            results += done
            tell(len(results), len(urls))
    return results


def _batches(urls: Sequence[Any], parallel: Any) -> list[Sequence[Any]]:
    """Files in groups: a worker remembers from file to file what they have in common."""
    size = 16 if parallel is None or isinstance(parallel, int) else 64
    size = max(min(size, len(urls) // (4 * _threads(urls, parallel))), 1)
    return [urls[begin : begin + size] for begin in range(0, len(urls), size)]


def _threads(urls: Sequence[Any], parallel: Any) -> int:
    if isinstance(parallel, int) and not isinstance(parallel, bool):
        return max(parallel, 1)
    remote = any("://" in str(url) and not str(url).startswith("file:") for url in urls[:1])
    # A local scan is bound by the interpreter; a remote one waits.
    return 16 if remote else 1


def _run(job: Job, batches: list[Sequence[Any]], parallel: Any) -> Iterator[list[Member | Failure]]:
    if parallel == "dask" or hasattr(parallel, "scheduler_info"):
        yield from _on_dask(job, batches, parallel)
        return
    if isinstance(parallel, Executor):
        yield from parallel.map(job, batches)
        return
    if parallel not in (None, True, False) and not isinstance(parallel, int):
        raise TypeError(f"parallel must be None, a number, an Executor, 'dask' or a Dask client, not {parallel!r}")
    count = 1 if parallel is False else _threads(batches[0] if batches else [], None if parallel is True else parallel)
    memory = _Remembered()
    if count == 1 or len(batches) <= 1:
        for batch in batches:
            yield [job.one(url, memory.here()) for url in batch]
        return
    with ThreadPoolExecutor(count, thread_name_prefix="insitu-scan") as pool:
        futures = [pool.submit(lambda b: [job.one(url, memory.here()) for url in b], batch) for batch in batches]
        try:
            for future in futures:
                yield future.result()
        except BaseException:
            for future in futures:
                future.cancel()
            raise


class _Remembered(threading.local):
    """A memory for each thread."""

    def __init__(self) -> None:
        self.memory = Memory()

    def here(self) -> Memory:
        return self.memory


def _on_dask(job: Job, batches: list[Sequence[Any]], client: Any) -> Iterator[list[Member | Failure]]:
    if client == "dask":
        dask: Any = import_module("dask")
        yield from dask.compute(*(dask.delayed(job, pure=False)(batch) for batch in batches))
        return
    futures = client.map(job, batches, pure=False)
    for future in futures:
        yield future.result()


Tell = Callable[[int, int], None]


def _shown(progress: bool | Tell | None, total: int) -> AbstractContextManager[Tell]:
    if not progress:
        return nullcontext(lambda done, of: None)
    if callable(progress):
        return nullcontext(progress)
    return _Bar(total)


class _Bar:
    """A progress bar on standard error."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._progress = Progress(console=Console(file=sys.stderr), transient=True)
        self._task = self._progress.add_task("scanning", total=total)

    def __enter__(self) -> Tell:
        self._progress.start()
        return lambda done, of: self._progress.update(self._task, completed=done)

    def __exit__(self, *exc: object) -> None:
        self._progress.stop()
