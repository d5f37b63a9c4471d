"""Chunks and filters of a DMR++ variable, as columns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.dmrpp.chunk_runs import ChunkRun
from insitu.formats.dmrpp.text_values import local_name
from insitu.model import Codec

__all__ = ["ChunkList", "codecs_of", "grid_positions", "parse_chunks", "parse_single_chunk"]

LINKED = ("LinkedBlockIndex", "LBIndex")
LARGEST = 1 << 62
ORDER = ("shuffle", "zlib", "fletcher32")
"""Order of filters that old documents name in any order."""


@dataclass(slots=True)
class ChunkList:
    """The chunks of one variable, as columns."""

    attributes: dict[str, str]
    """Attributes of the element: compressionType, fillValue, byteOrder."""
    chunk_shape: tuple[int, ...] | None = None
    """Shape of a chunk; None: contiguous."""
    offset: list[int] = field(default_factory=list)
    length: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    position: list[str] = field(default_factory=list)
    href: list[str] = field(default_factory=list)
    blocks: bool = False
    """Whether the rows are consecutive pieces of the whole, not chunks."""
    run: ChunkRun | None = None
    """All chunks, if the list is uniform; then the columns are empty."""

    @property
    def count(self) -> int:
        """Number of chunks."""
        return len(self.offset) if self.run is None else len(self.run.offset)

    def columns(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return offset, length and filter mask of each chunk."""
        if self.run is not None:
            return self.run.offset, self.run.length, np.zeros(self.count, np.int64)
        offset, length, mask = (np.array(column, np.int64) for column in (self.offset, self.length, self.mask))
        return offset, length, mask


def parse_chunks(element: Any) -> ChunkList:
    """Return the chunks that an element `chunks` lists."""
    found = ChunkList(dict(element.attrib))
    linked: list[str] = []
    for child in element:
        kind, attributes = local_name(child), child.attrib
        if kind == "chunkDimensionSizes":
            if found.chunk_shape is None:  # only the first counts
                found.chunk_shape = tuple(_to_integer(size, kind) for size in (child.text or "").split())
        elif kind in ("chunk", "block") and "offset" in attributes:  # one without it holds the fill value
            found.blocks |= kind == "block"
            _add(found, attributes)
            if found.attributes.get("LBChunk") == "true" or LINKED[1] in attributes:
                linked.append(attributes.get(LINKED[0], attributes.get(LINKED[1], "")))
    _check(found)
    if any(linked):
        _join_linked_blocks(found)
    return found


def parse_single_chunk(element: Any) -> ChunkList:
    """Return the chunk of an element without a list: data in one piece."""
    found = ChunkList({})
    _add(found, element.attrib)
    _check(found)
    return found


def _add(found: ChunkList, attributes: Any) -> None:
    found.offset.append(_to_integer(attributes.get("offset"), "offset"))
    found.length.append(_to_integer(attributes.get("nBytes"), "nBytes"))
    found.mask.append(_to_integer(attributes.get("fm", "0"), "fm"))
    found.position.append(attributes.get("chunkPositionInArray", ""))
    found.href.append(attributes.get("href", ""))


def _check(found: ChunkList) -> None:
    for column in (found.offset, found.length, found.mask, found.chunk_shape or ()):
        if column and not 0 <= min(column) <= max(column) <= LARGEST:
            raise FormatError(f"numbers from {min(column)} to {max(column)} are out of range", structure="chunk")


def _to_integer(text: str | None, name: str) -> int:
    if text is None:
        raise FormatError(f"a chunk has no {name}", structure="chunk")
    try:
        return int(text)
    except ValueError:
        raise FormatError(f"{name} of a chunk is not an integer: {text[:40]!r}", structure="chunk") from None


def _join_linked_blocks(found: ChunkList) -> None:
    """Join blocks of one chunk into one row, if they are contiguous; a chunk is one range."""
    rows: dict[str, list[int]] = {}
    for row, position in enumerate(found.position):
        first = rows.setdefault(position, [row])
        if first[0] == row:
            continue
        first_row = first[0]
        if (
            found.offset[first_row] + found.length[first_row] != found.offset[row]
            or found.href[first_row] != found.href[row]
        ):
            found.attributes["scattered"] = position
        found.length[first_row] += found.length[row]
    first_rows = [first[0] for first in rows.values()]
    for name in ("offset", "length", "mask", "position", "href"):
        column = getattr(found, name)
        setattr(found, name, [column[row] for row in first_rows])


def grid_positions(chunks: ChunkList, ndim: int) -> npt.NDArray[np.int64]:
    """Return the grid cell of each chunk; a document gives the position of its first element."""
    assert chunks.chunk_shape is not None
    if chunks.run is not None:
        if chunks.run.first.shape[1] != ndim:
            raise FormatError(
                f"the positions of chunks have {chunks.run.first.shape[1]} axes, the variable has {ndim}",
                structure="chunkPositionInArray",
            )
        return _to_grid(chunks.run.first, chunks.chunk_shape)
    text = ",".join(chunks.position).replace("[", "").replace("]", "")
    try:
        # `[0,50]`, as documents have it, or `0 50`, as the schema does
        numbers = re.split(r"[,\s]+", text) if re.search(r"\s", text) else text.split(",")
        first = np.array(numbers, np.int64).reshape(len(chunks.position), ndim)
    except (ValueError, OverflowError) as problem:
        raise FormatError(
            f"the position of a chunk is not valid: {problem}", structure="chunkPositionInArray"
        ) from problem
    return _to_grid(first, chunks.chunk_shape)


def _to_grid(first: npt.NDArray[np.int64], chunk_shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    index = first // np.array(chunk_shape, np.int64)
    if (index * np.array(chunk_shape) != first).any() or (first < 0).any():
        raise FormatError(
            "the position of a chunk is not a multiple of the chunk shape", structure="chunkPositionInArray"
        )
    return index


def codecs_of(chunks: ChunkList | None, dtype: np.dtype[Any], in_order: bool) -> tuple[Codec, ...]:
    """The filters, in the order in which they were applied.

    Parameters
    ----------
    chunks
        What the document says of the chunks.
    dtype
        Of their elements.
    in_order
        Whether the document names filters in the order in which they were applied: those of old,
        without a version, do not.
    """
    attributes = chunks.attributes if chunks is not None else {}
    levels = iter(attributes.get("deflateLevel", attributes.get("deflate_level", "")).split())
    found = []
    for name in attributes.get("compressionType", "").split():
        if name == "shuffle":
            found.append(Codec("shuffle", {"elementsize": dtype.itemsize}))
        elif name == "deflate":
            level = next(levels, "")
            found.append(Codec("zlib", {"level": int(level)} if level.isdecimal() and len(level) < 3 else {}))
        elif name == "fletcher32":
            found.append(Codec("fletcher32"))
        else:
            raise UnsupportedError(f"filter {name!r} is not supported in DMR++", structure="compressionType")
    return tuple(found if in_order else sorted(found, key=lambda codec: ORDER.index(codec.name)))
