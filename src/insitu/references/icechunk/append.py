"""How is a tree added to a repository along a dimension, so that every value stays what it was?

Where the array ends on the border of a chunk, the references of the new chunks follow the old ones. Where it ends within a chunk, references cannot follow: they would be shown at the wrong place, which is how others
corrupt such arrays in silence. Then the new values are read and written natively, if they are few (coordinates nearly always are); else the append is refused and nothing is changed.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.codecs import decode
from insitu.errors import FormatError, InsituError, ModelError, NotFoundError, UnsupportedError
from insitu.model import ABSENT, INLINE, UNWRITTEN, VirtualGroup
from insitu.references.icechunk.place import exists, wanted
from insitu.references.icechunk.read import waited
from insitu.references.icechunk.write import committed, put, refer, repository, writing_of
from insitu.references.writing import Writing
from insitu.sources import open_source
from insitu.zarr_metadata.said import Said

__all__ = ["append_icechunk"]

REWRITE = 64 << 20
"""Bytes of an array that an append may write natively."""
_ALIKE = ("data_type", "codecs", "fill_value", "dimension_names", "chunk_key_encoding")
_MEANING = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned", "units", "calendar", "dtype")
"""Attributes that say how stored values are meant: one array has one of each."""


def append_icechunk(
    group: VirtualGroup,
    url: str,
    dim: str,
    *,
    message: str | None = None,
    rewrite: int = REWRITE,
    storage_options: Mapping[str, Any] | None = None,
) -> str:
    """Add a tree along a dimension, as a new version.

    Parameters
    ----------
    group
        What is added; it has the arrays that the repository has.
    url
        The repository; `?branch=…` names a branch.
    dim
        The dimension that grows.
    message
        Of the commit.
    rewrite
        Bytes that may be written natively for an array that ends within a chunk; 0: such an append is refused.
    storage_options
        See `insitu.sources.open_source`.

    Returns
    -------
    str
        The id of the new snapshot.
    """
    version = wanted(url)
    if version.kind != "branch":
        raise UnsupportedError(f"a {version.kind} cannot be written to", url=url, hint="Name a branch: ?branch=NAME")
    if not exists(version.url, storage_options):
        raise NotFoundError("there is no Icechunk repository", url=version.url)
    writing = writing_of(group, 0, storage_options)
    session = repository(version, writing, storage_options).writable_session(version.name)
    store = session.store
    new = {path: writing.array_documents[f"{path}/zarr.json"] for path in writing.arrays}
    grown = [path for path, array in writing.arrays.items() if dim in array.array.dims]
    if not grown:
        raise ModelError(f"no array has a dimension {dim!r}", hint="Name one of its dimensions")
    old = waited(_fetched(store, list(new)))
    plans = {}
    # Everything is looked at before anything is written.
    for path in new:
        plans[path] = _plan(path, old.get(path), new[path], dim, rewrite, writing) if path in grown else None
    for path, plan in plans.items():
        if plan is not None:
            _grow(store, writing, path, old[path], plan)
    return committed(session, message or f"Appended along {dim} by insitu", version)


async def _fetched(store: Any, paths: list[str]) -> dict[str, dict[str, Any]]:
    from zarr.core.buffer import default_buffer_prototype

    found = {path: await store.get(f"{path}/zarr.json", default_buffer_prototype()) for path in paths}
    return {path: json.loads(data.to_bytes()) for path, data in found.items() if data is not None}


def _plan(
    path: str, old: Mapping[str, Any] | None, new: Mapping[str, Any], dim: str, rewrite: int, writing: Writing
) -> tuple[int, int, bool]:
    """The axis that grows, its old length, and whether references can follow."""
    if old is None:
        raise UnsupportedError("the repository does not have this array", variable=path)
    for name in _ALIKE:
        if not _equal(old.get(name), new.get(name)):
            raise _differs(path, name, old.get(name), new.get(name))
    for name in _MEANING:
        one, other = (document.get("attributes", {}).get(name) for document in (old, new))
        if one != other:
            raise _differs(path, f"attribute {name}", one, other)
    axis = new["dimension_names"].index(dim)
    if [n for i, n in enumerate(old["shape"]) if i != axis] != [n for i, n in enumerate(new["shape"]) if i != axis]:
        raise _differs(path, "shape", old["shape"], new["shape"])
    length = int(old["shape"][axis])
    same_grid = old["chunk_grid"] == new["chunk_grid"] and old["chunk_grid"]["name"] == "regular"
    if same_grid and length % int(old["chunk_grid"]["configuration"]["chunk_shape"][axis]) == 0:
        return axis, length, True
    array = writing.arrays[path]
    nbytes = array.array.size * max(array.encoding.dtype.itemsize, 1)
    if nbytes > rewrite:
        why = (
            f"ends within a chunk along {dim!r} ({length} elements in chunks of "
            f"{old['chunk_grid']['configuration']['chunk_shape'][axis]})"
            if same_grid
            else "is cut into chunks of another shape"
        )
        raise UnsupportedError(
            f"the array {why}: references cannot follow, and its {nbytes:,} new bytes are more than may be copied",
            variable=path,
            hint="Append to an *.insitu store, which holds such arrays, or allow the copy with rewrite=",
        )
    return axis, length, False


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))


def _differs(path: str, what: str, old: Any, new: Any) -> InsituError:
    return UnsupportedError(
        f"{what} is {old!r} in the repository and {new!r} in what is added: one Zarr array has one",
        variable=path,
        hint="Append to an *.insitu store, which holds arrays whose files differ",
    )


def _grow(store: Any, writing: Writing, path: str, old: Mapping[str, Any], plan: tuple[int, int, bool]) -> None:
    axis, length, follows = plan
    array = writing.arrays[path]
    shape = list(old["shape"])
    shape[axis] += array.array.shape[axis]
    if follows:
        waited(put(store, {f"{path}/zarr.json": json.dumps({**old, "shape": shape}).encode()}))
        size = int(old["chunk_grid"]["configuration"]["chunk_shape"][axis])
        shift = tuple(length // size if number == axis else 0 for number in range(len(shape)))
        refer(store, writing, path, shift)
        return
    import zarr

    place = tuple(slice(length if number == axis else 0, None) for number in range(len(shape)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that numcodecs' codecs are no part of the V3 specification
        target = zarr.open_array(store, path=path, mode="r+")
        target.resize(tuple(shape))
        target[place] = _values(writing, path, array)


def _values(writing: Writing, path: str, array: Said) -> npt.NDArray[Any]:
    """The stored values of an array that Zarr can say, chunk by chunk."""
    encoding = array.encoding
    values = np.full(array.array.shape, encoding.fill_value(), encoding.dtype)
    for begin, rows in array.blocks():
        for row, number in enumerate(np.asarray(rows.source).tolist()):
            if number in (ABSENT, UNWRITTEN):
                continue
            offset, length = int(rows.offset[row]), int(rows.length[row])
            if number == INLINE:
                data = rows.inline[offset : offset + length]
            else:
                about = array.tile.chunks.sources[number]
                with open_source(about.url, writing.storage_options, expected=about) as source:
                    data = source.read(offset, length if length >= 0 else source.size() - offset)
            cell = np.unravel_index(begin + row, array.grid) if array.grid else ()
            chunk = _decoded(data, array, path)
            corner = [int(i) * size for i, size in zip(cell, array.chunks, strict=True)]
            place = tuple(slice(at, at + size) for at, size in zip(corner, array.chunks, strict=True))
            room = values[place].shape
            values[place] = chunk[tuple(slice(n) for n in room)]
    return values


def _decoded(data: bytes, array: Said, path: str) -> npt.NDArray[Any]:
    if array.cuts:
        raise UnsupportedError("chunks of different lengths cannot be rewritten", variable=path)
    try:
        return decode(data, array.encoding, array.chunks)
    except InsituError as problem:
        raise problem.located(variable=path) from None
    except ValueError as problem:
        raise FormatError(f"a chunk cannot be decoded: {problem}", variable=path) from None
