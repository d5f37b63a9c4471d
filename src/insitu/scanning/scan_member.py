"""Scanning and decoding of one file, one Zarr store or one set of references into a member.

A member is made of tables, without open files and xarray objects, so it travels between processes.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from typing import Any

from insitu.codecs.undecodable import find_undecodable
from insitu.errors import (
    AccessError,
    CodecError,
    FormatError,
    InsituError,
    UnknownCodecError,
    UnsupportedError,
    VariableError,
)
from insitu.formats import InsituWarning
from insitu.formats.containers import open_location
from insitu.model import VirtualArray, VirtualGroup
from insitu.model.group import hint_for_names
from insitu.open_options import DecodeOptions, ScanOptions
from insitu.reading import read_arrays
from insitu.scanning.conventions import referenced_variables
from insitu.scanning.decode_member import decode_member, find_unreadable
from insitu.scanning.decoding_cache import DecodingCache, cache_of_thread
from insitu.scanning.file_labels import with_labels
from insitu.scanning.forecast_axes import ForecastAxes
from insitu.scanning.group_tree import tree_of_groups
from insitu.scanning.member import Load, Member
from insitu.scanning.saved_members import member_from_tree
from insitu.scanning.scan_url import apply_verify, can_be_collection, is_saved_tree, scan_source, scan_stored
from insitu.scanning.vendor_conventions import Rescan, apply_vendor_conventions
from insitu.sources import ByteSource, redact_url
from insitu.sources.address import is_remote
from insitu.sources.remembering_source import RememberingSource

__all__ = ["Failure", "Job", "make_loader", "scan_groups", "scan_member", "scan_tree"]

DEFECT = (
    "This is a defect of insitu, not of the file (unless an argument is of a wrong type): "
    "please report it, with the traceback"
)


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that could not be opened, and why."""

    url: str
    reason: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Job:
    """What is done with each file of a scan; travels to workers."""

    scan: ScanOptions = field(default=ScanOptions())
    """Of these, `errors` says what happens to a bad file (returned as a `Failure`) or variable (left
    out).
    """
    decode: DecodeOptions = field(default=DecodeOptions())
    finish: Callable[[Member], Member] | None = None
    """Done to each member where it was made (a preprocess)."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """New dimensions: what in the file labels them."""
    forecasts: ForecastAxes | None = None
    """Where files are forecasts: the axes that each gets."""

    def warn(self, text: str) -> None:
        """Warn about what is left out, with errors="warn"."""
        if self.scan.errors == "warn":
            warnings.warn(text, InsituWarning, stacklevel=3)

    def one(self, url: Any, cache: DecodingCache | None = None) -> Member | Failure:
        """Return the member of one file."""
        try:
            member = scan_groups(url, self, cache) if self.scan.tree else scan_member(url, self, cache)
        except (InsituError, OSError, MemoryError) as error:
            return self.failure(url, error)
        except Exception as error:
            error.add_note(DEFECT)
            return self.failure(url, error, f"{DEFECT}\n{''.join(traceback.format_exception(error)).rstrip()}")
        if self.finish is not None:
            try:
                member = self.finish(member)
            except Exception as error:  # the caller's own function may raise anything
                return self.failure(url, error)
        if not self.labels and self.forecasts is None:
            return member
        load = make_loader(self.scan.storage_options)
        try:
            if self.labels:
                member = with_labels(member, self.labels, load)
            return member if self.forecasts is None else self.forecasts.of_file(member, load)
        except (InsituError, OSError) as error:
            return self.failure(url, error)

    def failure(self, url: Any, error: Exception, more: str = "") -> Failure:
        """Return the failure of a file; raise its error, with errors="raise".

        Credentials that have expired are no failure of a file: all others would be left out, too.
        """
        if not self.scan.skips_failures or _has_expired(error):
            error.add_note(f"while opening {url}")
            raise error
        return Failure(str(url), f"{type(error).__name__}: {error}" + (f". {more}" if more else ""), error)


def _has_expired(error: Exception) -> bool:
    return isinstance(error, AccessError) and "expired" in str(error).lower()


def make_loader(storage_options: Mapping[str, Any] | None) -> Callable[[list[VirtualArray]], list[Any]]:
    """Return a function that reads the values of arrays with these options."""

    def load(arrays: list[VirtualArray]) -> list[Any]:
        return read_arrays([(array, ...) for array in arrays], storage_options=storage_options)

    return load


def scan_member(
    url: Any, job: Job, cache: DecodingCache | None = None, from_server: VirtualGroup | None = None
) -> Member:
    """Return one group of the file, store or references at a URL, decoded.

    Parameters
    ----------
    url, job
        What, and how.
    cache
        What was found out about files like it.
    from_server
        The group as a server has scanned and decoded it.
    """
    load = make_loader(job.scan.storage_options)
    if from_server is not None:
        return member_from_tree(
            apply_verify(from_server, job.scan.verify),
            job.decode,
            load,
            url=_location_name(url),
            only=job.scan.variables,
        )
    is_collection = _may_be_collection(url, job)
    if is_collection and _is_saved(url, job):
        return member_from_tree(
            _scan_collection(url, job), job.decode, load, url=_location_name(url), only=job.scan.variables
        )
    if is_collection:
        group = apply_vendor_conventions(_scan_collection(url, job), job.scan.group, _make_rescan(url, job))
        return _decode_group(group, job, load, cache=cache, url=_location_name(url), only=job.scan.variables)
    with _open(url, job) as source:
        group = apply_vendor_conventions(_scan_wanted(source, job), job.scan.group, _make_rescan(source, job))
        return _decode_group(group, job, load, source=source, cache=cache, url=source.url, only=job.scan.variables)


def scan_groups(url: Any, job: Job, cache: DecodingCache | None = None) -> Member:
    """Return all groups of the file, store or references at a URL as the root of a tree: see
    `scan_member`.
    """
    groups = dict(scan_tree(url, job, cache=cache))
    return tree_of_groups(groups, groups[""].source or "the file", job.warn if job.scan.skips_failures else None)


def scan_tree(
    url: Any, job: Job, *, remember: bool = False, cache: DecodingCache | None = None
) -> Iterator[tuple[str, Member]]:
    """Iterate over all groups of the file, store or references at a URL: path and decoded member.

    Parameters
    ----------
    url, job
        What, and how.
    cache
        What was found out about files like it.
    remember
        Whether files that this thread scans later may be decoded like this one. Then attributes and
        labels of the members are shared: the caller must not change them, nor hand them out.
    """
    remember = remember and job.decode == DecodeOptions()
    load = make_loader(job.scan.storage_options)
    is_collection = _may_be_collection(url, job)
    if is_collection and _is_saved(url, job):
        for path, node in _scan_collection(url, job).walk():
            yield path, member_from_tree(node, job.decode, load, url=_location_name(url))
        return
    if is_collection:
        tree = apply_vendor_conventions(_scan_collection(url, job), job.scan.group, _make_rescan(url, job))
        for path, node in tree.walk():
            own = None if cache is None else cache.of_group(path)
            yield path, _decode_group(node, job, load, url=_location_name(url), cache=own)
        return
    with _open(url, job) as source:
        scanned = scan_source(source, replace(job.scan, variables=None))
        tree = apply_vendor_conventions(scanned, job.scan.group, _make_rescan(source, job))
        for path, node in tree.walk():
            own = cache_of_thread(node.arrays) if remember else None if cache is None else cache.of_group(path)
            yield path, _decode_group(node, job, load, source=source, url=source.url, cache=own)


def _open(url: Any, job: Job) -> ByteSource:
    """Open a file for its scan and for the values that are needed with it: no byte is requested twice."""
    source = open_location(url, job.scan.storage_options)
    # What a cache on disk is asked for decides what it has the next time. An entry of an archive is a source that
    # scans itself, which a source around it would hide: all entries were scanned in its place.
    scans_itself = hasattr(source, "scan")
    remembers = is_remote(source.url) and not scans_itself and not getattr(source, "keeps_ranges", False)
    return RememberingSource(source) if remembers else source


def _is_saved(url: Any, job: Job) -> bool:
    return job.scan.format is None and is_saved_tree(url)


def _make_rescan(place: Any, job: Job) -> Rescan:
    """Return a function that scans another group of the same file.

    Variables that cannot be read there give a warning.
    """

    def rescan(group: str) -> VirtualGroup:
        options = replace(job.scan, group=group, variables=None, errors="warn")
        if isinstance(place, (str, PathLike, Mapping)):
            return scan_stored(place, options)
        return scan_source(place, options)

    return rescan


def _decode_group(
    group: VirtualGroup,
    job: Job,
    load: Load,
    *,
    url: str,
    source: ByteSource | None = None,
    cache: DecodingCache | None = None,
    only: Sequence[str] | None = None,
) -> Member:
    """Return a group as a member.

    Unless errors raise, variables that cannot be decoded, and labels that cannot be read, are left
    out.
    """

    def decode(chosen: VirtualGroup) -> Member:
        return decode_member(chosen, job.decode, load, source=source, cache=cache, url=url, only=only)

    if job.scan.skips_failures:
        undecoded = {
            name: str(problem)
            for name, array in group.arrays.items()
            for problem in find_undecodable(array)
            if isinstance(problem, UnknownCodecError)
        }
        group = _drop_variables(group, undecoded, url, job)
    try:
        return decode(group)
    except (FormatError, UnsupportedError, CodecError):
        if not job.scan.skips_failures:
            raise
        bad = find_unreadable(group.arrays, load)
        if not bad:
            raise
    return decode(_drop_variables(group, bad, url, job))


def _drop_variables(group: VirtualGroup, bad: Mapping[str, str], url: str, job: Job) -> VirtualGroup:
    """Return the group without some variables; a warning and its problems name each and the reason."""
    for name, why in bad.items():
        job.warn(f"left out: {name} of {redact_url(url)}: {why}")
    rest = {name: array for name, array in group.arrays.items() if name not in bad}
    return replace(group, arrays=rest, problems={**group.problems, **bad}) if bad else group


def _may_be_collection(url: Any, job: Job) -> bool:
    """Return whether a URL may name more than a file: references, a Zarr store."""
    if isinstance(url, Mapping):
        return True
    return job.scan.format is None and isinstance(url, (str, PathLike)) and can_be_collection(fspath(url))


def _location_name(url: Any) -> str:
    """Return a location as messages name it."""
    return "references in memory" if isinstance(url, Mapping) else fspath(url)


def _scan_collection(url: Any, job: Job) -> VirtualGroup:
    # All of it, whichever variables are wanted: there is little to read, and what they refer to is
    # needed too.
    group = scan_stored(url, replace(job.scan, variables=None))
    _check_wanted(group, job, _location_name(url))
    return group


def _check_wanted(group: VirtualGroup, job: Job, url: str) -> None:
    """Raise if a group has none of the wanted variables; the error lists those that it has."""
    if job.scan.variables is None or any(name in group.arrays for name in job.scan.variables):
        return
    raise VariableError(
        f"no variable {', '.join(map(repr, job.scan.variables))}",
        url=url,
        hint=hint_for_names([path for path, _ in group.all_arrays()], job.scan.variables),
    )


def _scan_wanted(source: ByteSource, job: Job) -> VirtualGroup:
    """Return the file, or just the wanted variables and what they refer to."""
    wanted = job.scan.variables
    while wanted is not None:
        try:
            group = scan_one_group(source, job, wanted)
        except VariableError:  # some file may lack a variable that others have
            break
        named = {name for array in group.arrays.values() for name in referenced_variables(array.attributes)}
        missing = named - group.arrays.keys() - set(wanted)
        if not missing:
            return group
        wanted = (*wanted, *sorted(missing))
    group = scan_one_group(source, job)
    _check_wanted(group, job, source.url)
    return group


def scan_one_group(source: ByteSource, job: Job, variables: tuple[str, ...] | None = None) -> VirtualGroup:
    """Return one scanned group of a file.

    Variables of groups below it that cannot be read do not matter.

    Parameters
    ----------
    source
        The file.
    job
        Which group. Unless errors raise, a variable of the group that cannot be read is left out,
        with a warning.
    variables
        Which of the group; all if not given.
    """
    wanted = replace(job.scan, variables=variables, errors="raise")
    try:
        return scan_source(source, wanted)
    except (UnsupportedError, FormatError, CodecError) as problem:
        if not job.scan.skips_failures and not isinstance(problem, UnsupportedError):
            raise
        found = scan_source(source, replace(wanted, errors="skip"))
        own = {path: why for path, why in found.problems.items() if "/" not in path.strip("/")}
        if own and not job.scan.skips_failures:
            raise UnsupportedError(next(iter(own.values())), url=source.url) from problem
        for why in own.values():
            job.warn(f"left out: {why}")
        return found
