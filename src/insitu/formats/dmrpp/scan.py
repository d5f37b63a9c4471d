"""Where do the chunks of a file lie, by the DMR++ document beside it?

OPeNDAP's DMR++ is XML: a DAP4 description of a dataset, and for each variable the chunks with their offsets in the data file (NASA keeps one beside each file in
its archive). The data file itself is not touched. Its URL is the document's own without `.dmrpp`, unless the document names another. Chunks that are not listed were
never written; `fm` is a chunk's filter mask; small data may stand in the document itself (`compact`, `missingdata`). Chunks are kept as columns while the document is
parsed, never as elements all at once.
"""

from __future__ import annotations

import io
import math
from collections.abc import Collection
from typing import Any, NoReturn
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError, InsituError, UnsupportedError
from insitu.formats.choosing import below, picked
from insitu.formats.dmrpp.chunks import Chunks, codecs_of, columns_of, index_of
from insitu.formats.dmrpp.values import TYPES, attributes_of, decoded, embedded, fill_of, local_name
from insitu.formats.hdf5.window import Window
from insitu.formats.problems import Problems
from insitu.model import (
    UNWRITTEN,
    Axis,
    ChunkTable,
    Columns,
    Encoding,
    Source,
    Tile,
    VirtualArray,
    VirtualGroup,
    scatter,
)

__all__ = ["is_dmrpp", "scan_dmrpp"]

NAMESPACE = b"xml.opendap.org/dap/dmrpp"
PLACEHOLDER = "OPeNDAP_DMRpp_DATA_ACCESS_URL"
OTHERS = ("String", "URL", "Url", "Enum", "Opaque", "Structure", "Sequence")
MOST_CELLS = 1 << 22
"""Of a grid whose chunks lie in several files."""


def is_dmrpp(window: Window) -> bool:
    """Whether a file is a DMR++ document."""
    head = window.head[:8192].lstrip(b"\xef\xbb\xbf \t\r\n")
    return head.startswith(b"<") and NAMESPACE in head and b"Dataset" in head


def scan_dmrpp(
    window: Window,
    *,
    group: str | None = None,
    variables: Collection[str] | None = None,
    errors: str = "raise",
) -> VirtualGroup:
    """Scan a DMR++ document.

    Parameters
    ----------
    window
        The document's bytes.
    group
        Only this subtree.
    variables
        Only these variables, and those of the names of their dimensions.
    errors
        "raise" or "warn".
    """
    problems = Problems(errors)
    document = _Document(window)
    tree = document.group(document.root, "")
    asked = None if variables is None else {name.strip("/") for name in variables}
    prefix = f"{group.strip('/')}/" if group and group.strip("/") else ""
    for path, problem in document.failed.items():
        if path.startswith(prefix) and (asked is None or path.removeprefix(prefix) in asked):
            problems.leave_out(path, problem.located(url=window.url))
    tree = VirtualGroup(tree.arrays, tree.groups, tree.attributes, tree.details, problems.found)
    return picked(below(tree, group, url=window.url), variables, url=window.url)


class _Document:
    """One document, while it is made sense of."""

    def __init__(self, window: Window) -> None:
        self.url = window.url
        data = window.head
        if len(data) < window.size:
            data += window.source.read(len(data), window.size - len(data))
        if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
            self.fail("declares entities, which no DMR++ does")
        self.chunks: dict[int, Chunks] = {}
        self.failed: dict[str, InsituError] = {}
        self.phony: dict[tuple[int, int], str] = {}
        self.root = self._parse(data)
        self.source = Source(self._data_url(self.root.attrib))
        self.sources: dict[str, int] = {self.source.url: 0}
        self.dims: dict[str, int] = {}
        self.enums: dict[str, str] = {}
        self._declare(self.root, "/")

    def fail(self, what: str, structure: str = "DMR++") -> NoReturn:
        raise FormatError(f"the document {what}", url=self.url, structure=structure)

    def _parse(self, data: bytes) -> Any:
        """The tree of elements, without the chunks: those become columns as soon as their variable's are complete."""
        keep: list[Any] = []
        try:
            for _, element in ElementTree.iterparse(io.BytesIO(data), events=("end",)):
                if local_name(element) == "chunks":
                    self.chunks[id(element)] = columns_of(element)
                    del element[:]
                    keep.append(element)
            root = element
        except ElementTree.ParseError as problem:
            self.fail(f"is no XML: {problem}")
        except (ValueError, LookupError) as problem:
            self.fail(f"has a chunk, or an encoding, that makes no sense: {problem!r}", "chunk")
        if local_name(root) != "Dataset":
            self.fail(f"begins with {local_name(root)!r}, not with Dataset")
        return root

    def _data_url(self, said: Any) -> str:
        """The data file: what the document names, if it is a place on the network; else the document's own name without its ending."""
        href = next((value for name, value in said.items() if name.rpartition("}")[2] == "href"), "")
        if "://" in href and href != PLACEHOLDER and not href.startswith("file:"):
            return str(href)
        if self.url.endswith(".dmrpp"):
            return self.url.removesuffix(".dmrpp")
        if "://" not in self.url and href.startswith("/"):
            return str(href)
        raise FormatError(
            "the document does not say which file it describes", url=self.url, structure="href",
            hint="Name it like the data file, with .dmrpp behind",
        )  # fmt: skip

    def _declare(self, element: Any, path: str) -> None:
        """Dimensions and enumerations of all groups, by full name."""
        for child in element:
            kind, name = local_name(child), child.get("name", "")
            if kind == "Dimension":
                self.dims[f"{path}{name}"] = self._whole(child, "size")
            elif kind == "Enumeration":
                self.enums[f"{path}{name}"] = child.get("basetype", "")
            elif kind == "Group":
                self._declare(child, f"{path}{name}/")

    def _whole(self, element: Any, name: str) -> int:
        text = element.get(name, "")
        if not text.isdecimal() or len(text) > 18:
            self.fail(f"says {name}={text!r}", local_name(element))
        return int(text)

    def group(self, element: Any, path: str) -> VirtualGroup:
        """One group with all below it."""
        arrays: dict[str, VirtualArray] = {}
        groups: dict[str, VirtualGroup] = {}
        for child in element:
            kind, name = local_name(child), child.get("name", "")
            if kind == "Group":
                groups[name] = self.group(child, f"{path}{name}/")
            elif kind in TYPES or kind in OTHERS:
                try:
                    arrays[name] = self._array(child, kind)
                except InsituError as problem:
                    self.failed[f"{path}{name}"] = problem
        details: dict[str, Any] = {"format": "dmrpp"}
        own = {
            name.rpartition("/")[2]: size
            for name, size in self.dims.items()
            if name.rpartition("/")[0] == f"/{path}".rstrip("/")
        }
        if own:
            details["dims"] = own
        return VirtualGroup(arrays, groups, attributes_of(element), details)

    def _array(self, element: Any, kind: str) -> VirtualArray:
        dims, shape = self._shape(element)
        chunks = next((self.chunks[id(child)] for child in element if local_name(child) == "chunks"), None)
        dtype = self._dtype(element, kind, chunks)
        encoding = Encoding(
            dtype,
            codecs_of(chunks, dtype),
            fill=fill_of(None if chunks is None else chunks.said.get("fillValue"), dtype),
        )
        sizes = shape if chunks is None or chunks.sizes is None else chunks.sizes
        if len(sizes) != len(shape) or min(sizes, default=1) < (1 if chunks is not None and chunks.sizes else 0):
            self.fail(f"has chunks of {sizes} for a shape of {shape}", "chunkDimensionSizes")
        axes = tuple(Axis.regular(length, max(size, 1)) for length, size in zip(shape, sizes, strict=True))
        grid = tuple(axis.count for axis in axes)
        inline = next((child for child in element if local_name(child) in ("compact", "missingdata")), None)
        if inline is not None:
            table: ChunkTable = Columns.inlined(grid, embedded(inline, math.prod(shape) * dtype.itemsize))
        elif chunks is None:
            raise UnsupportedError("the document does not say where its data lies", structure=kind)
        else:
            table = self._table(chunks, grid, shape, dtype)
        details = {"chunks": None if chunks is None else chunks.sizes}
        return VirtualArray.of(
            Tile(axes, (encoding,), table), dims=dims, attributes=attributes_of(element), fill_value=encoding.fill_value(),
            details=details,
        )  # fmt: skip

    def _shape(self, element: Any) -> tuple[tuple[str, ...], tuple[int, ...]]:
        names: list[str] = []
        shape: list[int] = []
        for number, child in enumerate(child for child in element if local_name(child) == "Dim"):
            full = child.get("name")
            if full is None:
                length = self._whole(child, "size")
                same = sum(length == other for other in shape)
                name = self.phony.setdefault((length, same), f"phony_dim_{len(self.phony)}")
            elif (known := self.dims.get(full if full.startswith("/") else f"/{full}")) is not None:
                name, length = full.rpartition("/")[2], known
            else:
                self.fail(f"has no dimension {full!r} (number {number})", "Dim")
            names.append(name)
            shape.append(length)
        return tuple(names), tuple(shape)

    def _dtype(self, element: Any, kind: str, chunks: Chunks | None) -> np.dtype[Any]:
        order = "<" if chunks is None or chunks.said.get("byteOrder", "LE") == "LE" else ">"
        if kind == "Enum":
            full = element.get("enum", "")
            kind = self.enums.get(full if full.startswith("/") else f"/{full}", "")
        if kind in TYPES:
            return np.dtype(f"{order}{TYPES[kind]}")
        if kind == "String":
            fixed = next((child for child in element if local_name(child) == "FixedLengthStringArray"), None)
            if fixed is not None:
                return np.dtype(f"S{max(self._whole(fixed, 'string_length'), 1)}")
            compact = next((child for child in element if local_name(child) == "compact"), None)
            if compact is not None and not any(local_name(child) == "Dim" for child in element):
                return np.dtype(f"S{max(len(decoded(compact)), 1)}")
        raise UnsupportedError(f"a variable of type {kind or 'Enum'} is not read from a DMR++", structure=kind)

    def _table(self, chunks: Chunks, grid: tuple[int, ...], shape: tuple[int, ...], dtype: np.dtype[Any]) -> ChunkTable:
        if chunks.blocks:
            raise UnsupportedError("data in linked blocks is not read", structure="block")
        if 0 in grid or not chunks.offset:
            return Columns.unwritten(grid)
        offset, length, mask = (np.array(column, np.int64) for column in (chunks.offset, chunks.length, chunks.mask))
        if chunks.sizes is None:
            if len(offset) > 1:
                self.fail(f"has {len(offset)} chunks without their shape", "chunk")
            index = np.zeros((1, len(grid)), np.int64)
            if not mask.any() and not chunks.said.get("compressionType"):
                if length[0] < math.prod(shape) * dtype.itemsize:
                    self.fail(f"has {length[0]} bytes for a shape of {shape}", "chunk")
                length[0] = math.prod(shape) * dtype.itemsize
        else:
            index = index_of(chunks, len(grid))
            if (index >= np.array(grid)).any():
                self.fail("has a chunk outside of its variable", "chunkPositionInArray")
        hrefs = set(chunks.href)
        if hrefs <= {""} and grid:
            return scatter(grid, (self.source,), index, offset, length, mask)
        return self._scattered(chunks, grid, index, offset, length, mask)

    def _scattered(
        self,
        chunks: Chunks,
        grid: tuple[int, ...],
        index: npt.NDArray[np.int64],
        offset: npt.NDArray[np.int64],
        length: npt.NDArray[np.int64],
        mask: npt.NDArray[np.int64],
    ) -> Columns:
        """Chunks in several files; or of a variable without dimensions."""
        if math.prod(grid) > MOST_CELLS:
            raise UnsupportedError(f"a grid of {grid} chunks in several files is not read", structure="chunk")
        pool = dict.fromkeys([self.source.url, *(href for href in chunks.href if "://" in href)])
        numbers = {url: number for number, url in enumerate(pool)}
        columns = [np.full(grid, fill, np.int64) for fill in (UNWRITTEN, 0, 0, 0)]
        sources = np.array([numbers.get(href, 0) for href in chunks.href])
        for column, values in zip(columns, (sources, offset, length, mask), strict=True):
            column[tuple(index.T)] = values if grid else values[0]
        state, place, size, masks = columns
        return Columns(grid, tuple(Source(url) for url in pool), state, place, size, masks)
