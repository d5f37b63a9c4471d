"""An Icechunk repository as a target: the objects of a copy in one commit, or in a commit for each portion.

Objects are written beside the target first (those of a repository in an object store into the user's cache), so that
an interrupted copy goes on where it was. Nothing is visible before a commit.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from insitu.copying.copy_options import CopyOptions
from insitu.copying.journal import Journal
from insitu.copying.object_writers import ObjectWriter
from insitu.copying.target_arrays import TargetArray
from insitu.copying.targets import Target
from insitu.copying.zarr_target import check_zarr_names, zarr_target_documents
from insitu.errors import SelectionError
from insitu.model import VirtualGroup
from insitu.references.icechunk.repository import import_icechunk, parse_version
from insitu.references.icechunk.repository_reader import has_version, run_async
from insitu.references.icechunk.repository_writer import (
    clear_store,
    commit,
    encode_document,
    icechunk_export,
    lock_repository,
    open_repository,
    put_objects,
    to_finite_attributes,
)

__all__ = ["IcechunkRepository", "check_commit_every", "read_in_parts"]

PUT_BYTES = 64 << 20
"""Bytes of objects that are handed over together."""
DONE = "done"


def check_commit_every(every: int | None) -> None:
    """Raise an error if there cannot be a commit for so many steps."""
    if every is not None and every < 1:
        raise SelectionError(f"a commit every {every} steps is not possible", hint="Give 1 or more")


class IcechunkRepository(Target):
    """A branch of an Icechunk repository."""

    kind = "icechunk"

    def __init__(self, url: str, options: CopyOptions) -> None:
        super().__init__(url, options)
        self.version = parse_version(url)
        self._arrays: Sequence[TargetArray] = ()
        self._groups: Mapping[str, Mapping[str, Any]] = {}

    def exists(self) -> bool:
        """Return whether there is a version, or something else, that no interrupted run of a copy has made."""
        return not self._progress() and has_version(self.version.url, self.options.storage_options)

    def check_forms(self, names: Sequence[str]) -> None:
        """Raise an error if icechunk is missing, or Zarr cannot have an array of a name."""
        import_icechunk()
        check_zarr_names(names, self.url)
        check_commit_every(self.options.commit_every)

    def check_arrays(self, arrays: Sequence[TargetArray], groups: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise an error if Icechunk cannot hold an attribute."""
        for path, attributes in [*((array.path, array.form.attributes) for array in arrays), *groups.items()]:
            to_finite_attributes({key: value for key, value in attributes.items() if key != "_FillValue"}, path)

    def complete(
        self, arrays: Sequence[TargetArray], groups: Mapping[str, Mapping[str, Any]], journal: Journal
    ) -> None:
        """Remember what the commits are made of."""
        self._arrays, self._groups = arrays, groups

    def _was_published(self) -> bool:
        return self._progress() == DONE

    def _progress(self) -> str:
        try:
            return self._mark.read_text()
        except OSError:
            return ""

    def publish(self) -> None:
        """Commit the objects; portions that an interrupted run has committed stay."""
        if self.is_published:
            return
        begun = int(self._progress() or 0)
        portions = list(self._portions())
        options = self.options.storage_options
        with lock_repository(self.version):
            repository = open_repository(self.version, icechunk_export(VirtualGroup({}), 0, options), options)
            for number, (before, upto) in enumerate(portions):
                if number < begun:
                    continue
                session = repository.writable_session(self.version.name)
                if not number:
                    run_async(clear_store(session.store))
                run_async(put_objects(session.store, self._documents(upto)))
                for objects in self._objects(before, upto):
                    run_async(put_objects(session.store, objects))
                where = "" if upto is None else f", {self._dim} up to {upto:,}"
                commit(session, f"Copied by insitu{where}", self.version)
                self.mark_publishing(str(number + 1))
        self.mark_publishing(DONE)

    @property
    def _dim(self) -> str | None:
        """The dimension of which portions are committed: the first of the first variable that has several."""
        return next((array.form.dims[0] for array in self._arrays if len(array.shape) > 1), None)

    def _portions(self) -> Iterator[tuple[int, int | None]]:
        """Yield from where to where along the dimension each commit goes; None: everything at once."""
        every, dim = self.options.commit_every, self._dim
        lengths = [
            n for array in self._arrays for name, n in zip(array.form.dims, array.shape, strict=True) if name == dim
        ]
        if every is None or dim is None or not lengths or max(lengths) <= every:
            yield 0, None
            return
        for begin in range(0, max(lengths), every):
            yield begin, min(begin + every, max(lengths))

    def _documents(self, upto: int | None) -> dict[str, bytes]:
        """Return the documents, with arrays that end at a place along the dimension of the portions."""
        encoded = zarr_target_documents(self._arrays, self._groups, 3)
        documents = {key: json.loads(data) for key, data in encoded.items()}
        documents["zarr.json"].pop("consolidated_metadata")  # a repository has all metadata at hand
        for array in self._arrays if upto is not None else ():
            if self._dim in array.form.dims:
                documents[f"{array.path}/zarr.json"]["shape"][array.form.dims.index(str(self._dim))] = upto
        return {key: encode_document(document, key) for key, document in documents.items()}

    def _objects(self, before: int, upto: int | None) -> Iterator[dict[str, bytes]]:
        """Yield the objects that a commit adds, in parts: those that a part of the portion lies in."""
        parts: list[tuple[TargetArray, list[range]]] = []
        for array in self._arrays:
            ranges = [range(count) for count in array.grid]
            if upto is not None and self._dim in array.form.dims:
                axis = array.form.dims.index(str(self._dim))
                size = array.objects[axis]
                ranges[axis] = range(-(-before // size), -(-upto // size))
            elif before:
                continue
            parts.append((array, ranges))
        yield from read_in_parts(self.content, parts)


def read_in_parts(
    content: ObjectWriter, parts: Iterable[tuple[TargetArray, Sequence[range]]]
) -> Iterator[dict[str, bytes]]:
    """Yield the objects of ranges of the grids of arrays by their keys, so many at a time as are committed at once.

    Chunks that the source never wrote are left out.
    """
    found: dict[str, bytes] = {}
    nbytes = 0
    for array, ranges in parts:
        for cell in itertools.product(*ranges):
            data = content.get(array.key(cell))
            if data is None:
                continue
            found[array.key(cell)] = data
            nbytes += len(data)
            if nbytes >= PUT_BYTES:
                yield found
                found, nbytes = {}, 0
    if found:
        yield found
