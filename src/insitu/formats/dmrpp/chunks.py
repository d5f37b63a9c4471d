"""Which chunks of a variable does a DMR++ document list, and which filters made them?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.dmrpp.values import local_name
from insitu.model import Codec

__all__ = ["Chunks", "codecs_of", "columns_of", "index_of"]


@dataclass(slots=True)
class Chunks:
    """The chunks of one variable, as columns."""

    said: dict[str, str]
    """Attributes of the element: compressionType, fillValue, byteOrder."""
    sizes: tuple[int, ...] | None = None
    """Of a chunk; None: contiguous."""
    offset: list[int] = field(default_factory=list)
    length: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    position: list[str] = field(default_factory=list)
    href: list[str] = field(default_factory=list)
    blocks: bool = False


def columns_of(element: Any) -> Chunks:
    """The chunks that an element `chunks` lists."""
    found = Chunks(dict(element.attrib))
    for child in element:
        kind, said = local_name(child), child.attrib
        if kind == "chunkDimensionSizes":
            found.sizes = tuple(int(size) for size in (child.text or "").split())
        elif kind == "block":
            found.blocks = True
        elif kind == "chunk" and "offset" in said:  # one without it holds the fill value
            found.offset.append(int(said["offset"]))
            found.length.append(int(said["nBytes"]))
            found.mask.append(int(said.get("fm", 0)))
            found.position.append(said.get("chunkPositionInArray", ""))
            found.href.append(said.get("href", ""))
            if "LBIndex" in said:
                found.blocks = True
    if any(number < 0 for column in (found.offset, found.length, found.mask) for number in column):
        raise ValueError("a negative number")
    return found


def index_of(chunks: Chunks, ndim: int) -> npt.NDArray[np.int64]:
    """The place of each chunk in the grid; a document gives the position of its first element."""
    assert chunks.sizes is not None
    text = ",".join(position[1:-1] for position in chunks.position)
    try:
        first = np.array(text.split(","), np.int64).reshape(len(chunks.position), ndim)
    except (ValueError, OverflowError) as problem:
        raise FormatError(
            f"a chunk's position makes no sense: {problem}", structure="chunkPositionInArray"
        ) from problem
    index = first // np.array(chunks.sizes, np.int64)
    if (index * np.array(chunks.sizes) != first).any() or (first < 0).any():
        raise FormatError("a chunk that does not begin where chunks do", structure="chunkPositionInArray")
    return index


def codecs_of(chunks: Chunks | None, dtype: np.dtype[Any]) -> tuple[Codec, ...]:
    """The filters, in the order in which they were applied."""
    said = chunks.said if chunks is not None else {}
    levels = iter(said.get("deflateLevel", "").split())
    found = []
    for name in said.get("compressionType", "").split():
        if name == "shuffle":
            found.append(Codec("shuffle", {"elementsize": dtype.itemsize}))
        elif name == "deflate":
            level = next(levels, "")
            found.append(Codec("zlib", {"level": int(level)} if level.isdecimal() else {}))
        elif name == "fletcher32":
            found.append(Codec("fletcher32"))
        else:
            raise UnsupportedError(f"filter {name!r} is not read from a DMR++", structure="compressionType")
    names = [codec.name for codec in found]
    if names == ["zlib", "shuffle"]:  # documents of old named them the other way round
        found.reverse()
    return tuple(found)
