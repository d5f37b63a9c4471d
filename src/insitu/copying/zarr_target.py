"""Zarr as a target, in a folder or in an object store: metadata, consolidated ones too, in the order of writing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from insitu.copying.append_documents import sort_documents
from insitu.copying.check_target import STORE_FILES
from insitu.copying.copy_options import CopyOptions
from insitu.copying.journal import Journal
from insitu.copying.object_writers import PrefixWriter
from insitu.copying.target_arrays import TargetArray
from insitu.copying.targets import Target, describe_place
from insitu.errors import UnsupportedError
from insitu.references.directory_swap import replace_directory
from insitu.references.file_systems import check_names
from insitu.zarr_metadata.to_documents import consolidate, to_json_attributes

__all__ = ["ZarrFolder", "ZarrPrefix", "check_zarr_names", "zarr_target_documents"]


def zarr_target_documents(
    arrays: Sequence[TargetArray], groups: Mapping[str, Mapping[str, Any]], zarr_format: int
) -> dict[str, bytes]:
    """Return the documents by key, the root's at the end: what a reader opens first is written last."""
    documents: dict[str, Any] = {}
    for path, attributes in groups.items():
        prefix = f"{path}/" if path else ""
        shown = to_json_attributes(attributes)
        if zarr_format == 3:
            documents[f"{prefix}zarr.json"] = {"zarr_format": 3, "node_type": "group", "attributes": shown}
        else:
            documents[f"{prefix}.zattrs"] = shown
            documents[f"{prefix}.zgroup"] = {"zarr_format": 2}
    for array in arrays:
        documents |= {f"{array.path}/{name}": document for name, document in array.documents(zarr_format).items()}
    documents = consolidate(documents, zarr_format)
    return {key: json.dumps(documents[key], indent=1).encode() for key in sort_documents(documents)}


def check_zarr_names(names: Sequence[str], url: str) -> None:
    """Raise an error if Zarr cannot have an array of a name."""
    for name in names:
        parts = name.split("/")
        if any(part in ("", ".", "..") or part.startswith("__") or part in _RESERVED for part in parts):
            raise UnsupportedError(
                f"Zarr cannot have an array of the name {name!r}", url=url, variable=name, hint="Rename it"
            )


class _Zarr(Target):
    """What targets of Zarr have in common."""

    kind = "zarr"
    _documents: Mapping[str, bytes] = {}

    def check_forms(self, names: Sequence[str]) -> None:
        """Raise an error if Zarr cannot have an array of a name."""
        check_zarr_names(names, self.url)

    def complete(
        self, arrays: Sequence[TargetArray], groups: Mapping[str, Mapping[str, Any]], journal: Journal
    ) -> None:
        """Make the documents; those of arrays are written."""
        self._documents = zarr_target_documents(arrays, groups, self.options.zarr_format)


_RESERVED = frozenset({"zarr.json", ".zgroup", ".zarray", ".zattrs", ".zmetadata", "c"})


class ZarrFolder(_Zarr):
    """A Zarr store in a folder of this machine: it is made beside its place, and then put there by a rename."""

    def check_forms(self, names: Sequence[str]) -> None:
        """Raise an error if the names are not possible in this file system."""
        super().check_forms(names)
        assert self.path is not None
        check_names(names, os.path.dirname(self.path) or ".")
        if os.path.isdir(self.path) and os.listdir(self.path):
            known = any(os.path.exists(os.path.join(self.path, name)) for name in STORE_FILES)
            if not known:
                raise UnsupportedError(
                    "something else than a Zarr store lies there", url=self.url, hint="Choose another target"
                )

    def publish(self) -> None:
        """Write the documents, wait for the disk, and put the folder to its place."""
        assert self.path is not None
        if self.is_published:
            return
        for key, data in self._documents.items():
            self.content.put(key, data)
        self.content.sync()
        self.mark_publishing(describe_place(self.content.folder))
        replace_directory(self.path, self.content.folder)


class ZarrPrefix(_Zarr):
    """A Zarr store in an object store: its metadata are written last."""

    def __init__(self, url: str, options: CopyOptions) -> None:
        super().__init__(url, options)
        self.prefix = PrefixWriter(self.url, options.storage_options)
        self.writer = self.prefix

    def exists(self) -> bool:
        """Return whether there are objects that no interrupted copy has written."""
        return not self.folder.exists() and self.prefix.has_any()

    def begin(self) -> None:
        """Delete what lies there: another copy has left it, or it is replaced."""
        super().begin()
        self.prefix.clear()

    def publish(self) -> None:
        """Write the documents, that of the root at the end."""
        for key, data in self._documents.items():
            self.prefix.put(key, data)
