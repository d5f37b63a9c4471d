"""Scan DMR++ documents: where the chunks of a data file lie, without touching the file.

OPeNDAP's DMR++ is XML: a DAP4 description of a dataset, and for each variable the chunks with their
offsets in the data file. NASA keeps one beside each file of its archive. The URL of the data file
is the document's own without `.dmrpp`, unless the document names another. Chunks that are not
listed were never written. Variables that the document does not describe in full are looked up in
the data file.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError, InsituError, UnsupportedError
from insitu.formats.dmrpp.chunk_lists import ChunkList, codecs_of, grid_positions, parse_chunks, parse_single_chunk
from insitu.formats.dmrpp.chunk_runs import cut_out_runs
from insitu.formats.dmrpp.dap_types import KINDS, dtype_of, text_padding
from insitu.formats.dmrpp.data_file import find_in_data_file, is_dmrpp, resolve_beside, with_arrays
from insitu.formats.dmrpp.embedded import embedded_bytes, parse_structures, parse_texts
from insitu.formats.dmrpp.text_values import attributes_of, child_of, decode_element, fill_of, local_name, whole_number
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.registry import Format
from insitu.formats.scan_request import ScanRequest, with_keywords
from insitu.formats.unreadable import Problems
from insitu.model import (
    UNWRITTEN,
    ArrayDetails,
    Axis,
    ChunkTable,
    Codec,
    Columns,
    Encoding,
    GroupDetails,
    Source,
    Tile,
    VirtualArray,
    VirtualGroup,
    scatter,
)
from insitu.sources.address import file_name
from insitu.sources.object_store.xml_check import declares_doctype

__all__ = ["DMRPP", "scan_dmrpp"]

PLACEHOLDER = "OPeNDAP_DMRpp_DATA_ACCESS_URL"
INLINE = ("compact", "missingdata", "vlsa", "specialstructuredata")
MOST_CELLS = 1 << 22
"""Most cells of a grid whose chunks lie in several files."""


def scan_dmrpp(window: ReadCache, request: ScanRequest) -> VirtualGroup:
    """Return the groups and variables that a DMR++ document describes."""
    problems = Problems(request.errors, window.url)
    document = _Document(window)
    tree = document.group(document.root, "")
    failed = {path: problem for path, problem in document.failed.items() if request.name_of(path) is not None}
    found = document.look_up([path for path, why in failed.items() if isinstance(why, UnsupportedError)], window)
    for path, problem in failed.items():
        if path not in found:
            problems.leave_out(path, problem)
    tree = replace(with_arrays(tree, found), problems=problems.found)
    return request.select(tree)


class _Document:
    """Parser of one document."""

    def __init__(self, window: ReadCache) -> None:
        self.url = window.url
        data = window.head
        if len(data) < window.size:
            data += window.source.read(len(data), window.size - len(data))
        if declares_doctype(data):
            self.fail("declares XML entities, which are not allowed in DMR++")
        if b"xmlns:dmrpp" not in data:  # OPeNDAP's own parser knows no namespaces
            data = data.replace(b"<Dataset", b'<Dataset xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#"', 1)
        self.chunks: dict[int, ChunkList] = {}
        self.failed: dict[str, InsituError] = {}
        self.elements: dict[str, Any] = {}
        """Of the variables that failed."""
        self.phony: dict[tuple[int, int], str] = {}
        self.root = self._parse(data)
        attributes = {name.rpartition("}")[2]: value for name, value in self.root.attrib.items()}
        self.in_order = bool(attributes.get("version"))
        self.source = Source(self._data_url(attributes.get("href", "")))
        self.dims: dict[str, int] = {}
        self.enums: dict[str, str] = {}
        self._declare(self.root, "/")

    def fail(self, what: str, structure: str = "DMR++") -> NoReturn:
        raise FormatError(f"the document {what}", structure=structure)

    def _parse(self, data: bytes, quickly: bool = True) -> Any:
        """Return the tree of elements without the chunks, which become columns as soon as a
        variable's list is complete.
        """
        rest, runs = cut_out_runs(data) if quickly else (data, [])
        number = 0
        root = None
        for element in self._elements(rest):
            root = element
            if local_name(element) == "chunks":
                found = parse_chunks(element)
                if number < len(runs) and runs[number] is not None and not found.offset:
                    found.run = runs[number]
                number += 1
                self.chunks[id(element)] = found
                del element[:]
        assert root is not None  # a document without an element is not valid XML
        if runs and number != len(runs):  # something only looked like a list
            self.chunks.clear()
            return self._parse(data, quickly=False)
        if local_name(root) != "Dataset":
            self.fail(f"begins with {local_name(root)!r}, not with Dataset")
        return root

    def _data_url(self, href: str) -> str:
        """Return the URL of the data file: what the document names, if it is remote.

        Else the document's name without its ending.
        """
        if "://" in href and href != PLACEHOLDER and not href.startswith("file:"):
            return href
        if self.url.endswith(".dmrpp"):
            return self.url.removesuffix(".dmrpp")
        if "://" not in self.url and href.startswith("/"):
            return href
        if href and href != PLACEHOLDER and not href.startswith(("/", "file:")):
            return resolve_beside(self.url, href)
        raise FormatError(
            "the document does not name its data file", structure="href",
            hint="Name the document like the data file, with .dmrpp at the end",
        )  # fmt: skip

    def _declare(self, element: Any, path: str) -> None:
        """Collect dimensions and enumerations of all groups, by full name."""
        for child in element:
            kind, name = local_name(child), child.get("name", "")
            if kind == "Dimension":
                self.dims[f"{path}{name}"] = whole_number(child, "size")
            elif kind == "Enumeration":
                self.enums[f"{path}{name}"] = child.get("basetype", "")
            elif kind == "Group":
                self._declare(child, f"{path}{name}/")

    def group(self, element: Any, path: str) -> VirtualGroup:
        """Return one group with all below it."""
        arrays: dict[str, VirtualArray] = {}
        groups: dict[str, VirtualGroup] = {}
        for child in element:
            kind, name = local_name(child), child.get("name", "")
            if kind == "Group":
                groups[name] = self.group(child, f"{path}{name}/")
            elif kind in KINDS:
                try:
                    arrays[name] = self._array(child)
                except InsituError as problem:
                    self.failed[f"{path}{name}"], self.elements[f"{path}{name}"] = problem, child
        own = {
            name.rpartition("/")[2]: size
            for name, size in self.dims.items()
            if name.rpartition("/")[0] == f"/{path}".rstrip("/")
        }
        return VirtualGroup(arrays, groups, attributes_of(element), GroupDetails("dmrpp", own))

    def look_up(self, paths: list[str], window: ReadCache) -> dict[str, VirtualArray]:
        """Return those variables that the data file itself describes, by path."""
        attributes = {path: attributes_of(self.elements[path]) for path in paths}
        # A builder that gives a variable another path keeps that in the file as an attribute.
        places = {path: str(own.get("fullnamepath", path)).strip("/") for path, own in attributes.items()}
        arrays, reasons = find_in_data_file(window, self.source.url, places.values())
        found = {}
        for path, place in places.items():
            dims, shape = self._shape(self.elements[path])
            if place in arrays and arrays[place].shape == shape:
                found[path] = replace(arrays[place], dims=dims, attributes=attributes[path])
            elif place in reasons:
                self.failed[path].hint = f"Its data file does not help: {reasons[place]}"
        return found

    def _array(self, element: Any) -> VirtualArray:
        dims, shape = self._shape(element)
        chunks = self._chunks(element)
        inline = child_of(element, *INLINE)
        if inline is not None:
            encoding, data = self._embedded_data(element, inline, shape)
            axes = tuple(Axis.regular(length, max(length, 1)) for length in shape)
            grid = tuple(axis.count for axis in axes)
            table: ChunkTable = Columns.of_unwritten(grid) if 0 in grid else Columns.of_inline(grid, data)
        elif chunks is None:
            raise UnsupportedError(
                "the document does not say where the data of this variable lies", structure=local_name(element)
            )
        else:
            dtype = dtype_of(element, chunks, self.enums)
            if dtype is None:
                raise UnsupportedError("the document does not give the length of these texts", structure="String")
            padding = text_padding(element)
            fill = fill_of(chunks.attributes.get("fillValue"), dtype, padding)
            ours = _text_codecs(padding, dtype)
            # Masks count filters; codecs of our own come before them, and are never skipped.
            chunks = replace(chunks, mask=[mask << len(ours) for mask in chunks.mask])
            encoding = Encoding(dtype, (*ours, *codecs_of(chunks, dtype, self.in_order)), fill=fill)
            axes, table = self._stored_chunks(chunks, shape, encoding)
        return VirtualArray.of(
            Tile(axes, (encoding,), table), dims=dims, attributes=attributes_of(element),
            fill_value=encoding.fill_value(),
            details=ArrayDetails(None if chunks is None else chunks.chunk_shape, True),
        )  # fmt: skip

    def _elements(self, data: bytes) -> Iterator[Any]:
        """Yield the elements of the document as each ends: the last one is the root."""
        events = iter(ElementTree.iterparse(io.BytesIO(data), events=("end",)))
        while True:
            try:
                _, element = next(events)
            except StopIteration:
                return
            except ElementTree.ParseError as problem:
                self.fail(f"is not valid XML: {problem}")
            except (ValueError, LookupError) as problem:  # what the parser raises for an encoding that it does not know
                self.fail(f"has an encoding that is not supported: {problem}")
            yield element

    def _chunks(self, element: Any) -> ChunkList | None:
        listed = child_of(element, "chunks")
        if listed is not None:
            return self.chunks[id(listed)]
        single = child_of(element, "chunk")
        return None if single is None else parse_single_chunk(single)

    def _embedded_data(self, element: Any, inline: Any, shape: tuple[int, ...]) -> tuple[Encoding, bytes]:
        """Return data that is embedded in the document, and its encoding."""
        kind, count = local_name(inline), math.prod(shape)
        if kind == "vlsa":
            return Encoding(np.dtype(object), (Codec("vlen-utf8"),)), parse_texts(inline, count)
        if kind == "specialstructuredata":
            record, data = parse_structures(element, inline, count)
            return Encoding(record), data
        dtype = dtype_of(element, self._chunks(element), self.enums)
        if dtype is None and not shape:
            dtype = np.dtype(f"S{max(len(decode_element(inline)), 1)}")
        if dtype is None:
            raise UnsupportedError("the document does not give the length of these texts", structure=kind)
        codecs = _text_codecs(text_padding(element), dtype)
        return Encoding(dtype, codecs), embedded_bytes(inline, count * dtype.itemsize)

    def _stored_chunks(
        self, chunks: ChunkList, shape: tuple[int, ...], encoding: Encoding
    ) -> tuple[tuple[Axis, ...], ChunkTable]:
        """Return the axes of a variable, and the table of its chunks."""
        if chunks.blocks and chunks.chunk_shape is None and len(chunks.offset) > 1:
            return self._blocks(chunks, shape, encoding)
        chunk_shape = shape if chunks.chunk_shape is None else chunks.chunk_shape
        if len(chunk_shape) != len(shape) or min(chunk_shape, default=1) < (1 if chunks.chunk_shape else 0):
            self.fail(f"has chunks of shape {chunk_shape} for data of shape {shape}", "chunkDimensionSizes")
        axes = tuple(Axis.regular(length, max(size, 1)) for length, size in zip(shape, chunk_shape, strict=True))
        return axes, self._table(chunks, tuple(axis.count for axis in axes), shape, encoding.dtype)

    def _blocks(
        self, chunks: ChunkList, shape: tuple[int, ...], encoding: Encoding
    ) -> tuple[tuple[Axis, ...], ChunkTable]:
        """Return axes and table of data in consecutive pieces.

        Each is a cell, if it holds whole rows.
        """
        row = math.prod(shape[1:]) * encoding.dtype.itemsize
        length = np.array(chunks.length, np.int64)
        if encoding.codecs or not shape or not row or (length % row).any() or length.sum() != row * shape[0]:
            raise UnsupportedError(
                "DMR++: linked blocks that do not hold whole rows are not supported", structure="block"
            )
        rows = length // row
        axes = (Axis.irregular(rows, stored=rows), *(Axis.regular(extent, extent) for extent in shape[1:]))
        index = np.zeros((len(rows), len(shape)), np.int64)
        index[:, 0] = np.arange(len(rows))
        zero = np.zeros_like(length)
        grid = tuple(axis.count for axis in axes)
        return axes, self._scattered_chunks(chunks, grid, index, np.array(chunks.offset, np.int64), length, zero)

    def _shape(self, element: Any) -> tuple[tuple[str, ...], tuple[int, ...]]:
        names: list[str] = []
        shape: list[int] = []
        for number, child in enumerate(child for child in element if local_name(child) == "Dim"):
            full = child.get("name")
            if full is None:
                length = whole_number(child, "size")
                same = sum(length == other for other in shape)
                name = self.phony.setdefault((length, same), f"phony_dim_{len(self.phony)}")
            elif (known := self.dims.get(full if full.startswith("/") else f"/{full}")) is not None:
                name, length = full.rpartition("/")[2], known
            elif "size" in child.attrib:
                name, length = full.rpartition("/")[2], whole_number(child, "size")
            else:
                self.fail(f"has no dimension {full!r} (number {number})", "Dim")
            names.append(name)
            shape.append(length)
        return tuple(names), tuple(shape)

    def _table(
        self, chunks: ChunkList, grid: tuple[int, ...], shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> ChunkTable:
        if "scattered" in chunks.attributes or (chunks.blocks and chunks.chunk_shape is not None):
            raise UnsupportedError(
                "DMR++: chunks in linked blocks that lie apart are not supported", structure="LinkedBlockIndex"
            )
        if 0 in grid or not chunks.count:
            return Columns.of_unwritten(grid)
        offset, length, mask = chunks.columns()
        if chunks.chunk_shape is None:
            if len(offset) > 1:
                self.fail(f"lists {len(offset)} chunks, but not their shape", "chunk")
            index = np.zeros((1, len(grid)), np.int64)
            if not mask.any() and not chunks.attributes.get("compressionType"):
                if length[0] < math.prod(shape) * dtype.itemsize:
                    self.fail(f"has {length[0]} bytes for data of shape {shape}", "chunk")
                length[0] = math.prod(shape) * dtype.itemsize
        else:
            index = grid_positions(chunks, len(grid))
            if (index >= np.array(grid)).any():
                self.fail("has a chunk outside the shape of its variable", "chunkPositionInArray")
        if set(chunks.href) <= {""} and grid:
            return scatter(grid, (self.source,), index, offset, length, mask)
        return self._scattered_chunks(chunks, grid, index, offset, length, mask)

    def _scattered_chunks(
        self,
        chunks: ChunkList,
        grid: tuple[int, ...],
        index: npt.NDArray[np.int64],
        offset: npt.NDArray[np.int64],
        length: npt.NDArray[np.int64],
        mask: npt.NDArray[np.int64],
    ) -> Columns:
        """Return the table of chunks in several files, or of a variable without dimensions."""
        if math.prod(grid) > MOST_CELLS:
            raise UnsupportedError(f"DMR++: a grid of {grid} chunks in several files is too large", structure="chunk")
        places = {href: self._data_file(href) for href in dict.fromkeys(chunks.href)}
        pool = dict.fromkeys([self.source.url, *places.values()])
        numbers = {url: number for number, url in enumerate(pool)}
        columns = [np.full(grid, fill, np.int64) for fill in (UNWRITTEN, 0, 0, 0)]
        sources = np.array([numbers[places[href]] for href in chunks.href])
        for column, values in zip(columns, (sources, offset, length, mask), strict=True):
            column[tuple(index.T)] = values if grid else values[0]
        state, place, size, masks = columns
        return Columns(grid, tuple(Source(url) for url in pool), state, place, size, masks)

    def _data_file(self, href: str) -> str:
        """Return the URL of the file that a chunk names: remote, or beside the document."""
        if href in ("", PLACEHOLDER):
            return self.source.url
        if "://" in href and not href.startswith("file:"):
            return href
        # The name that the data file had where the document was made.
        if href.rpartition("/")[2] == file_name(self.source.url):
            return self.source.url
        return resolve_beside(self.url, href)


def _text_codecs(padding: str | None, dtype: np.dtype[Any]) -> tuple[Codec, ...]:
    """Return the codec that ends texts where their padding begins, if NumPy does not do it."""
    return () if padding is None else (Codec("hdf5_text", {"texts": [[0, dtype.itemsize, padding]]}),)


DMRPP = Format(is_dmrpp, with_keywords(scan_dmrpp))
