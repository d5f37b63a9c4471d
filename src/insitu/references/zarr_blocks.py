"""Export a tree as Zarr arrays: metadata documents, and chunk references block by block.

kerchunk's formats and Icechunk hold Zarr arrays. Every array is checked before anything is written:
the error names all arrays that Zarr cannot hold, the files that differ, and what to do. Then the
writers take references in blocks: URL, offset and length of each chunk, or its inline bytes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.codecs.chain import decode
from insitu.errors import InsituError, TruncatedError, UnsupportedError
from insitu.forking import import_before_fork
from insitu.model import INLINE, UNWRITTEN, ChunkLocations, VirtualGroup
from insitu.model.axis import Indices
from insitu.references.to_standard_codecs import to_standard_codecs
from insitu.sources import open_source
from insitu.sources.address import scheme_of
from insitu.sources.threads import gather
from insitu.zarr_metadata import naming, to_documents
from insitu.zarr_metadata.to_zarr import ZarrArraySpec, to_zarr_spec

__all__ = ["ReferenceBlock", "ZarrExport", "fill_chunk"]

_LARGEST_FILL = 1 << 15
"""Most bytes of an encoded chunk of fill values that is written for each unwritten cell."""
_LARGEST_FILLS = 1 << 24
"""Most bytes of all of them together."""
_LARGEST_FILL_CHUNK = 1 << 28


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceBlock:
    """The references of consecutive cells of one array."""

    begin: int
    """Number of the first cell, in C order of the grid."""
    urls: list[str]
    """The URLs that `url` counts."""
    url: Indices
    """Index into `urls`; -1: none."""
    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    """-1: the whole object."""
    stored: npt.NDArray[np.bool_]
    inline: npt.NDArray[np.bool_]
    data: Mapping[int, bytes]
    """The bytes of inline cells, by row."""


@dataclass(slots=True, eq=False)
class ZarrExport:
    """A tree as Zarr arrays, ready to be written."""

    group: VirtualGroup
    arrays: dict[str, ZarrArraySpec]
    zarr_format: int
    array_documents: dict[str, Any]
    """Zarr documents of the arrays, by key."""
    inline_threshold: int = 0
    """Chunks of at most so many bytes are kept inline."""
    name_source: Callable[[str], str] = field(default=lambda url: url)
    """Formats a URL for the references."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    copied_from: str | None = None
    """Chunks whose URLs begin like this are kept inline, too."""
    filled: Mapping[str, bytes] = field(default_factory=dict)
    """Encoded fill chunk of arrays whose unwritten chunks are written inline: Zarr V2 would mask
    them.
    """

    @classmethod
    def of(
        cls,
        group: VirtualGroup,
        *,
        what: str,
        formats: tuple[int, ...] = (2, 3),
        inline_threshold: int = 0,
        name_source: Callable[[str], str] | None = None,
        rectilinear: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> ZarrExport:
        """Check a tree and prepare its documents.

        Parameters
        ----------
        group
            The tree.
        what
            Name of the target format, for messages.
        formats
            Versions of Zarr metadata that the format can hold, the preferred first.
        inline_threshold, name_source, storage_options
            See the fields.
        rectilinear
            Whether the format can hold chunks of different lengths along a dimension.

        Raises
        ------
        UnsupportedError
            If Zarr cannot hold some array.
        """
        arrays: dict[str, ZarrArraySpec] = {}
        reasons: dict[str, str] = {}
        filled: dict[str, bytes]
        documents: dict[str, Any]
        for path, array in group.all_arrays():
            try:
                known = to_zarr_spec(to_standard_codecs(array, storage_options), rectilinear=rectilinear)
                for _ in known.blocks():  # raises where cells do not match
                    pass
                arrays[path] = known
            except UnsupportedError as problem:
                reasons[path] = problem.message
        attempts: list[dict[str, str]] = []
        for number in formats:
            refused, documents, filled = dict(reasons), {}, {}
            for path, known in arrays.items():
                try:
                    documents |= {
                        f"{path}/{name}": value for name, value in to_documents.array_documents(known, number).items()
                    }
                except UnsupportedError as problem:
                    spelled = _documents_with_fill_chunk(known, number)
                    if spelled is None:
                        refused[path] = problem.message
                        continue
                    documents |= {f"{path}/{name}": value for name, value in spelled[0].items()}
                    filled[path] = spelled[1]
            if not refused:
                name = name_source or (lambda url: url)
                return cls(group, arrays, number, documents, inline_threshold, name, storage_options, filled=filled)
            attempts.append(refused)
        # Name the arrays that the most capable version cannot hold, with the reasons of all
        # versions.
        refusals = {path: [refused[path] for refused in attempts if path in refused] for path in min(attempts, key=len)}
        raise _unsupported_error({path: "; ".join(dict.fromkeys(texts)) for path, texts in refusals.items()}, what)

    def documents(self) -> dict[str, Any]:
        """Return the Zarr documents of the tree, by key."""
        return {**to_documents.group_documents(self.group, self.zarr_format), **self.array_documents}

    def blocks(self, path: str, size: int = 1 << 16) -> Iterator[ReferenceBlock]:
        """Yield the references of an array, in blocks of cells."""
        array, fill = self.arrays[path], self.filled.get(path)
        names: dict[int, int] = {}
        urls: list[str] = []
        for begin, rows in array.blocks(size):
            source = np.asarray(rows.source)
            stored = source >= 0
            used, at = np.unique(source[stored], return_inverse=True)
            for number in used.tolist():
                if number not in names:
                    names[number] = len(urls)
                    urls.append(self.name_source(_with_forward_slashes(array.tile.chunks.sources[number].url)))
            url = np.full(len(source), -1, np.int64)
            known = np.array([names[number] for number in used.tolist()] or [0], np.int64)
            url[stored] = known[at.reshape(-1)]
            offset, length = np.array(rows.offset, np.int64), np.array(rows.length, np.int64)
            self._fill_in_lengths(array, source, offset, length)
            data = self._read_inline(array, rows, source, offset, length)
            if fill is not None:
                data |= dict.fromkeys(np.flatnonzero(source == UNWRITTEN).tolist(), fill)
            inline = np.zeros(len(source), bool)
            inline[list(data)] = True
            yield ReferenceBlock(begin, urls, url, offset, length, stored & ~inline, inline, data)

    def is_copied(self, url: str) -> bool:
        """Return whether the chunks of a source are kept inline, however large they are."""
        return self.copied_from is not None and url.startswith(self.copied_from)

    def _fill_in_lengths(
        self, array: ZarrArraySpec, source: Indices, offset: npt.NDArray[np.int64], length: npt.NDArray[np.int64]
    ) -> None:
        """Fill in the lengths of chunks that reach to the end of their file: references need a
        length.
        """
        for row in np.flatnonzero((source >= 0) & (length < 0) & (offset > 0)).tolist():
            with open_source(array.tile.chunks.sources[int(source[row])].url, self.storage_options) as opened:
                length[row] = opened.size() - offset[row]

    def _read_inline(
        self,
        array: ZarrArraySpec,
        rows: ChunkLocations,
        source: Indices,
        offset: npt.NDArray[np.int64],
        length: npt.NDArray[np.int64],
    ) -> dict[int, bytes]:
        """Return the bytes of the cells that are kept inline."""
        data: dict[int, bytes] = {}
        for row in np.flatnonzero(source == INLINE).tolist():
            data[row] = rows.inline[offset[row] : offset[row] + length[row]]
        if self.inline_threshold <= 0 and self.copied_from is None:
            return data
        is_small = (source >= 0) & (length >= 0) & (length <= self.inline_threshold)
        if self.copied_from is not None:
            used = [number for number in np.unique(source).tolist() if number >= 0]
            copied = [number for number in used if self.is_copied(array.tile.chunks.sources[number].url)]
            is_small |= np.isin(source, copied)
        small = np.flatnonzero(is_small)
        small = small[np.argsort(source[small], kind="stable")]

        def read(rows: Indices, stop: threading.Event) -> dict[int, bytes]:
            source_object = array.tile.chunks.sources[int(source[rows[0]])]
            found = {}
            with open_source(source_object.url, self.storage_options) as opened:
                ranges = list(zip(offset[rows].tolist(), length[rows].tolist(), strict=True))
                for row, (begin, size), block in zip(rows.tolist(), ranges, opened.read_many(ranges), strict=True):
                    if len(block) != size:
                        raise TruncatedError(
                            "the file ends before the chunk does", url=source_object.url, offset=begin, length=size
                        )
                    found[row] = block
            return found

        groups = np.split(small, np.flatnonzero(np.diff(source[small])) + 1) if len(small) else []
        for found in gather(read, groups):
            data |= found
        return data


def _documents_with_fill_chunk(array: ZarrArraySpec, zarr_format: int) -> tuple[dict[str, Any], bytes] | None:
    """Return documents and fill chunk for writing out unwritten chunks; None if that is not
    possible.
    """
    if not array.unwritten or array.absent:
        return None
    many, array.unwritten = array.unwritten, 0
    try:
        chunk = fill_chunk(array)
        if chunk is None or len(chunk) * many > _LARGEST_FILLS:
            return None
        return to_documents.array_documents(array, zarr_format), chunk
    except UnsupportedError:
        return None
    finally:
        array.unwritten = many


def fill_chunk(array: ZarrArraySpec) -> bytes | None:
    """Return an encoded chunk of fill values; None if it is large or cannot be encoded."""
    get_codec = import_before_fork("numcodecs.registry").get_codec
    encoding = array.encoding
    if encoding.dtype.hasobject:
        return None
    filters, compressor = naming.to_v2(encoding)
    data: Any = np.full(array.chunks, encoding.fill_value(), encoding.dtype)
    if data.nbytes > _LARGEST_FILL_CHUNK:
        return None
    for row in (*(filters or ()), *([compressor] if compressor else [])):
        try:
            data = get_codec(dict(row)).encode(data)
        except Exception:  # codecs of plugins raise anything; without a chunk, documents say what is missing
            return None
    data = data.tobytes() if isinstance(data, np.ndarray) else bytes(data)
    return data if len(data) <= _LARGEST_FILL and _is_fill_chunk(data, array) else None


def _is_fill_chunk(data: bytes, array: ZarrArraySpec) -> bool:
    """Return whether a chunk decodes to fill values: some codecs cannot encode and return their
    input.
    """
    encoding = array.encoding
    try:
        found = decode(data, encoding, array.chunks)
    except InsituError:
        return False
    return found.tobytes() == np.full(array.chunks, encoding.fill_value(), encoding.dtype).tobytes()


def _with_forward_slashes(url: str) -> str:
    # fsspec takes a path with or without scheme; a Windows path only without.
    return url.replace(os.sep, "/") if scheme_of(url) is None and os.sep != "/" else url


def _unsupported_error(reasons: Mapping[str, str], what: str) -> InsituError:
    shown = "; ".join(f"{path}: {reason}" for path, reason in list(reasons.items())[:8])
    more = f" (and {len(reasons) - 8} more)" if len(reasons) > 8 else ""
    return UnsupportedError(
        f"{what} cannot hold {len(reasons)} of the arrays: {shown}{more}",
        variable=", ".join(list(reasons)[:8]),
        hint="Save as *.insitu, which holds every array, or drop these variables. Small ones can be "
        "copied: inline_threshold=",
    )
