"""Remove native chunks of a store that neither its present nor its previous state refers to."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from insitu.references.store.native_names import native_url
from insitu.sources.listing import local_path

__all__ = ["JOURNALS", "remove_folder", "remove_unused_chunks"]

DAY = 86_400
JOURNALS = ".copying"
"""What is added to the name of a folder while chunks are copied into it."""


def remove_unused_chunks(target: str, storage_options: Mapping[str, Any] | None = None) -> int:
    """Remove the folders of native chunks that nothing refers to, but not those that are being written; return
    their bytes.
    """
    from insitu.references.store.previous_root import named_native_folders

    used = named_native_folders(target, storage_options)
    folder = native_url(target)
    if local_path(target) is None:
        return _remove_remote(folder, used, storage_options)
    if not os.path.isdir(folder):
        return 0
    names = {name.removesuffix(JOURNALS) for name in os.listdir(folder)}
    return sum(remove_folder(Path(folder) / name) for name in sorted(names - used))


def remove_folder(folder: Path) -> int:
    """Remove a folder, unless a process writes to it, which holds the lock beside it; return its bytes."""
    from insitu.references.file_systems import try_file_lock

    staging = folder.with_name(folder.name + JOURNALS)
    try:
        with try_file_lock(str(staging / "lock")) as is_free:
            if not is_free:
                return 0
            nbytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            shutil.rmtree(folder, ignore_errors=True)
    except FileNotFoundError:  # nobody copies
        nbytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(staging, ignore_errors=True)
    return nbytes


def _remove_remote(folder: str, used: set[str], storage_options: Mapping[str, Any] | None) -> int:
    """Remove the objects of folders whose youngest object is a day old."""
    from insitu.copying.object_writers import PrefixWriter

    writer = PrefixWriter(folder, storage_options)
    objects: dict[str, list[tuple[str, int, float]]] = {}
    for key, size, moment in writer.list_objects():
        objects.setdefault(key.partition("/")[0], []).append((key, size, moment))
    removed = 0
    for name, listed in objects.items():
        if name in used or max(moment for _, _, moment in listed) > time.time() - DAY:
            continue
        for key, size, _ in listed:
            writer.remove(key)
            removed += size
    return removed
