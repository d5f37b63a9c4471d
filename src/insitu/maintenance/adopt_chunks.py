"""Native chunks of other stores in a tree that is saved: they are copied or refused, since unpinning removes them
there.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event
from typing import Any

from insitu.copying.object_writers import FolderWriter, ObjectWriter, PrefixWriter
from insitu.errors import UnsupportedError
from insitu.maintenance.unused_chunks import JOURNALS, remove_folder
from insitu.model import Source, VirtualGroup
from insitu.references.store.native_names import native_url, store_of_chunk
from insitu.sources import open_source, read_all
from insitu.sources.listing import local_path
from insitu.sources.threads import gather

__all__ = ["adopt_chunks", "find_pinned_elsewhere", "refuse_pinned_elsewhere"]

COPIED_AT_ONCE = 16


def find_pinned_elsewhere(tree: VirtualGroup, target: str = "") -> dict[str, tuple[str, set[str]]]:
    """Return which arrays show native chunks of stores other than the target: by path a store, and all URLs."""
    from insitu.references.chunk_places import iter_source_lists, used_urls

    # Tables list more sources than they use, but these are few beside the cells.
    if not any(map(_may_be_native, iter_source_lists(array for _, array in tree.all_arrays()))):
        return {}
    own = f"{native_url(target)}/" if target else None
    found: dict[str, tuple[str, set[str]]] = {}
    for path, array in tree.all_arrays():
        stores = {url: store for url in used_urls(array) if (store := store_of_chunk(url)) is not None}
        if own is not None:
            stores = {url: store for url, store in stores.items() if not url.startswith(own)}
        if stores:
            found[path] = next(iter(stores.values())), set(stores)
    return found


def _may_be_native(sources: Sequence[Source]) -> bool:
    """Return whether some of these sources are native chunks of a store."""
    from insitu.references.store.stored_sources import StoredSources

    if isinstance(sources, StoredSources) and not sources.may_be_native():
        return False
    return any(store_of_chunk(source.url) is not None for source in sources)


def refuse_pinned_elsewhere(tree: VirtualGroup, hint: str, target: str = "") -> None:
    """Raise an error if arrays show native chunks of stores other than the target."""
    for path, (store, _) in find_pinned_elsewhere(tree, target).items():
        raise UnsupportedError(
            f"its chunks are pinned inside {store}, and go when they are unpinned there",
            variable=path,
            url=target or None,
            hint=hint,
        )


@contextmanager
def adopt_chunks(
    tree: VirtualGroup, target: str, storage_options: Mapping[str, Any] | None = None
) -> Iterator[VirtualGroup]:
    """Copy native chunks of other stores into the store at a URL, and give the tree that names the copies.

    The tree is to be saved before this ends. After an error the copies are removed.
    """
    from insitu import references
    from insitu.references.file_systems import hold_file_lock

    urls = sorted(set().union(*(urls for _, urls in find_pinned_elsewhere(tree, target).values())))
    if not urls:
        yield tree
        return
    folder = f"{native_url(target)}/{uuid.uuid4().hex[:20]}"
    is_remote = local_path(folder) is None
    writer: ObjectWriter = PrefixWriter(folder, storage_options) if is_remote else FolderWriter(folder)
    # The folder of each copy that they come from stays a part of their name: keys of two of them may be the same.
    keys = {url: url.removeprefix(f"{native_url(str(store_of_chunk(url)))}/") for url in urls}

    def copy(url: str, stop: Event) -> None:
        with open_source(url, storage_options) as source:
            writer.put(keys[url], bytes(read_all(source)))

    staging = Path(f"{folder}{JOURNALS}")
    try:
        if not is_remote:
            staging.mkdir(parents=True)
        with nullcontext() if is_remote else hold_file_lock(str(staging / "lock")):
            gather(copy, urls, width=COPIED_AT_ONCE, ends_together=True)
            writer.sync()
            yield references.with_renamed_sources(tree, lambda url: f"{folder}/{keys[url]}" if url in keys else url)
    except BaseException:
        if is_remote:
            writer.clear()
        else:
            remove_folder(Path(folder))
        raise
    finally:
        if not is_remote:
            shutil.rmtree(staging, ignore_errors=True)
