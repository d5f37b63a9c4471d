"""Archives that are open in the explorer: all groups decoded, with the virtual array of each variable.

They are kept in the scan cache of the worker while their files are unchanged. Each has a version, a
text that changes with its content, from which the ETags of answers are made.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from insitu.archive import Archive
from insitu.cancellation import check_deadline
from insitu.combining.file_names import expand_paths, is_many
from insitu.combining.survey import Survey
from insitu.errors import NotFoundError, VariableError
from insitu.model import Source, VirtualArray
from insitu.scanning.member import Member, Variable
from insitu.scanning.saved_members import array_from_variable
from insitu.server.authentication import Credentials
from insitu.server.explorer.recognise_archives import is_folder
from insitu.server.requested_arrays import archive_options, storage_options
from insitu.server.roots import local_path, report_archive_on_refusal
from insitu.server.scanned_archives import content_version
from insitu.server.worker import Worker

__all__ = ["COLLECTION", "ArchiveOpener", "OpenedArchive"]

COLLECTION = "collection:0"
"""Name of all archives of the command line as one dataset."""
MAX_VERSIONED_FILES = 100_000
"""Files of a pattern whose state is compared before they are scanned again."""


@dataclass(slots=True, eq=False)
class OpenedArchive:
    """An archive whose groups are scanned and decoded."""

    url: str
    """As the client names it."""
    archive: Archive = field(repr=False)
    members: Mapping[str, Member] = field(repr=False)
    """Every group by its path; the root is empty."""
    options: dict[str, Any] = field(repr=False)
    """How its sources are opened."""
    version: str
    """Changes with the content."""
    stored: OpenedArchive | None = None
    """What this is a view of."""
    _arrays: dict[str, VirtualArray] = field(default_factory=dict, repr=False)
    memo: dict[str, Any] = field(default_factory=dict, repr=False)
    """What was computed about it, by name, for as long as it stays open."""

    def member(self, group: str) -> Member:
        """Return a group by its path."""
        found = self.members.get(group.strip("/"))
        if found is None:
            raise VariableError(f"no group {group[:200]!r}", hint=f"There are: {', '.join(self.members) or 'none'}")
        return found

    def variable(self, path: str) -> Variable:
        """Return a variable by its path, decoded."""
        group, _, name = path.strip("/").rpartition("/")
        member = self.member(group)
        if name not in member.variables:
            shown = ", ".join(list(member.variables)[:12]) or "none"
            raise VariableError(f"no variable {path[:200]!r}", hint=f"There are: {shown}")
        return member.variables[name]

    def array(self, path: str) -> VirtualArray:
        """Return a variable as a virtual array with the values that xarray shows."""
        path = path.strip("/")
        if path not in self._arrays:
            self._arrays[path] = array_from_variable(path, self.variable(path))
        return self._arrays[path]

    @property
    def left_out(self) -> Mapping[str, str]:
        """Files of a combination that could not be opened, and why."""
        return self.archive.survey.left_out if isinstance(self.archive.survey, Survey) else {}

    @property
    def left_out_groups(self) -> Mapping[str, str]:
        """Groups that the files of a combination do not make, and why."""
        return self.archive.member().problems if self.archive.location is None else {}


class ArchiveOpener:
    """Opens archives for clients, after checking that they may read them.

    Parameters
    ----------
    worker
        The state of the worker process.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def options(self, url: str, client: Credentials) -> dict[str, Any]:
        """Return how a client opens a URL; an error if it lies outside the roots."""
        if url == COLLECTION:
            return storage_options(self.worker, {}, client)
        return archive_options(self.worker, url, client)

    def open(self, url: str, client: Credentials) -> OpenedArchive:
        """Return an archive; scan it if it is not cached or has changed."""
        options = self.options(url, client)
        locations = self._locations(url)

        @cache
        def find_state() -> list[Any]:
            return [content_version(file) for file in self._files(locations, options)]

        def make() -> OpenedArchive:
            archive = Archive.open(locations, tree=True, errors="skip", storage_options=options)
            members = {}
            for path, member in archive.all_members():
                check_deadline()
                members[path] = member
            return OpenedArchive(url, archive, members, options, _version_text(find_state(), members))

        key = ("explorer", client.digest, url)
        location = locations if isinstance(locations, str) else ""
        with report_archive_on_refusal(url):
            found: OpenedArchive = self.worker.scans.get(key, location, make, find_state)
        return found

    def _locations(self, url: str) -> Any:
        """Return what `Archive.open` opens: one path or URL, or several."""
        if url != COLLECTION:
            return self.worker.roots.local_copy(url)
        archives = self.collection()
        if not archives:
            raise NotFoundError("this server has no collection", hint="`insitu explore A B …` makes one")
        return archives

    def collection(self) -> list[str]:
        """Return the archives of the command line that are one dataset together; none if it named fewer than two."""
        archives = [url for url in self.worker.settings.archives if not is_folder(url)]
        return archives if len(archives) > 1 else []

    def _files(self, locations: Any, options: Mapping[str, Any]) -> list[str]:
        """Return the files whose state says whether an archive has changed."""
        if not is_many(locations):
            return [locations]
        files = [path for path in expand_paths(locations, options) if isinstance(path, str)]
        return files if len(files) <= MAX_VERSIONED_FILES else []


def _version_text(files: Any, members: Mapping[str, Member]) -> str:
    """Return a digest of what identifies the content: the state of local files, ETags and sizes of remote ones."""
    digest, seen = hashlib.sha256(repr(files).encode()), set[Source]()
    for path, member in members.items():
        for name, variable in member.variables.items():
            digest.update(f"{path}/{name} {variable.dims} {variable.shape}".encode(errors="replace"))
            if not isinstance(variable.data, VirtualArray):
                continue
            for tile in variable.data.tiles:
                sources = tile.chunks.sources
                for source in sources if isinstance(sources, (tuple, list)) else ():
                    if source in seen:
                        continue
                    seen.add(source)
                    if source.etag is None and source.modified is None and local_path(source.url) is None:
                        return uuid.uuid4().hex  # nothing tells whether it changes
                    digest.update(repr(source).encode(errors="replace"))
    if not any(files) and not any(os.path.exists(str(member.source)) for member in members.values()):
        return uuid.uuid4().hex
    return digest.hexdigest()
