"""Save what a form of references cannot hold as native chunks beside the references, or in the repository.

kerchunk's formats and Icechunk hold arrays of one chunk shape, codec chain and packing. Other variables are copied:
for kerchunk into the folder `x.json.native`, for Icechunk into the repository, in the commit that has the references.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from insitu.copying.copy_options import CopyOptions
from insitu.copying.native_chunks import plan_zarr_chunks
from insitu.copying.object_writers import PrefixWriter
from insitu.errors import UnsupportedError
from insitu.maintenance.adopt_chunks import find_pinned_elsewhere
from insitu.maintenance.unused_chunks import JOURNALS, remove_folder
from insitu.model import VirtualArray, VirtualGroup
from insitu.model.description import count_text, format_bytes
from insitu.model.group import nest_groups
from insitu.reading import ReadContext
from insitu.scanning.scan_member import make_loader
from insitu.scanning.stored_view import zarr_tree
from insitu.sources.listing import local_path
from insitu.sources.user_folders import user_cache_folder

__all__ = ["NATIVE_WHERE_NEEDED", "save_native_where_needed"]

NATIVE_WHERE_NEEDED = "where needed"
SUFFIX = ".native"


def save_native_where_needed(
    tree: VirtualGroup,
    target: str,
    kind: str,
    *,
    announce: Callable[[str], None] | None = None,
    copy_options: CopyOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **how: Any,
) -> None:
    """Save a tree of decoded arrays as references; what the form cannot hold becomes native chunks.

    Parameters
    ----------
    tree
        What to save.
    target, kind
        Where, and one of the formats that hold Zarr arrays.
    announce
        Told before anything is written which variables are copied, why, and how many bytes that is.
    copy_options
        Chunks, codec and memory of the copies.
    storage_options, **how
        See `insitu.references.save`.
    """
    from insitu import references
    from insitu.references.open_and_save import is_occupied

    if how.get("mode") == "x" and is_occupied(target, storage_options):
        raise UnsupportedError("the target exists already", url=target, hint='Use mode="w" to replace it')
    load = make_loader(storage_options)
    ready = zarr_tree(tree, load, int(how.get("inline_threshold", 0)))
    zarr_format, refused = references.find_refused(ready, kind, how.get("zarr_format"), storage_options)
    refused.update(
        {path: f"its chunks are pinned inside {store}" for path, (store, _) in find_pinned_elsewhere(tree).items()}
    )
    if not refused:
        references.save(ready, target, format=kind, storage_options=storage_options, **how)
        return
    if kind != "icechunk":
        how["zarr_format"] = zarr_format
    parts = _select(tree, refused)
    if announce is not None:
        arrays = dict(parts.all_arrays())
        total = format_bytes(sum(array.nbytes for array in arrays.values()))
        announce(f"{target}: {count_text(len(refused), 'variable')} of {total} are copied, as native chunks:")
        for path, reason in refused.items():
            announce(f"{path}: {format_bytes(arrays[path].nbytes)}: {reason}")
    folder = _staging_folder(target) if kind == "icechunk" else f"{_plain(target)}{SUFFIX}"
    options = replace(copy_options or CopyOptions(), storage_options=storage_options, zarr_format=zarr_format)
    plan = plan_zarr_chunks(
        parts, folder, options, ReadContext(None, storage_options), mark=_mark(target, kind, storage_options)
    )

    def publish(native: Sequence[VirtualArray]) -> None:
        whole = _with_arrays(ready, dict(zip(plan.paths, native, strict=True)))
        copied: dict[str, Any] = {"copied_from": f"{plan.copy.target.url}/"} if kind == "icechunk" else {}
        references.save(whole, target, format=kind, storage_options=storage_options, **how, **copied)

    plan.execute(publish)
    used = () if kind == "icechunk" else (os.path.basename(plan.copy.target.url),)
    _remove_other_folders(folder, used, storage_options)


def _select(tree: VirtualGroup, paths: Mapping[str, str]) -> VirtualGroup:
    """Return a tree with some of its arrays only."""
    groups = {
        path: replace(
            group,
            arrays={
                name: array for name, array in group.arrays.items() if (f"{path}/{name}" if path else name) in paths
            },
        )
        for path, group in tree.walk()
    }
    return nest_groups(groups)


def _with_arrays(tree: VirtualGroup, arrays: Mapping[str, VirtualArray]) -> VirtualGroup:
    """Return a tree with other arrays in the places of some."""
    groups = {
        path: replace(
            group,
            arrays={
                name: arrays.get(f"{path}/{name}" if path else name, array) for name, array in group.arrays.items()
            },
        )
        for path, group in tree.walk()
    }
    return nest_groups(groups)


def _plain(target: str) -> str:
    return (local_path(target) or target).rstrip("/")


def _staging_folder(target: str) -> str:
    """Return where chunks of a repository are written before the commit."""
    path = local_path(target.split("?")[0])
    if path is not None:
        return f"{os.path.abspath(path)}{SUFFIX}"
    return str(user_cache_folder("copies") / f"{hashlib.sha256(target.encode()).hexdigest()[:24]}{SUFFIX}")


def _mark(target: str, kind: str, storage_options: Mapping[str, Any] | None) -> str:
    """Return what tells the state that is replaced: chunks that present references name are not written again."""
    from insitu.errors import NotFoundError
    from insitu.sources import open_source, read_all

    if kind == "icechunk":
        return ""
    name = f"{target.rstrip('/')}/.zmetadata" if kind == "kerchunk-parquet" else target
    try:
        with open_source(name, storage_options) as source:
            return hashlib.sha256(read_all(source)).hexdigest()
    except NotFoundError:
        return ""


def _remove_other_folders(folder: str, used: Sequence[str], storage_options: Mapping[str, Any] | None) -> None:
    """Remove chunks of references that were replaced."""
    path = local_path(folder)
    if path is None:
        writer = PrefixWriter(folder, storage_options)
        for key, _, _ in writer.list_objects():
            if key.partition("/")[0] not in used:
                writer.remove(key)
        return
    if not os.path.isdir(path):
        return
    for name in {name.removesuffix(JOURNALS) for name in os.listdir(path)} - {*used}:
        remove_folder(Path(path) / name)
    with suppress(OSError):  # chunks lie there
        os.rmdir(path)
