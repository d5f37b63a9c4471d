"""Read and write kerchunk JSON references.

Version 0 maps Zarr keys to text, `[url]` or `[url, offset, length]`. Version 1 wraps this mapping
and adds templates and generated references. Metadata are Zarr documents, V2 or V3, as text or as
objects. Compressed files (zstd, gzip) are supported.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from insitu.errors import FormatError, InsituError, UnsupportedError
from insitu.model import INLINE, WHOLE, ChunkTable, GroupDetails, Source, Tile, VirtualGroup
from insitu.model.axis import Indices
from insitu.model.sparse_chunks import table_of_cells
from insitu.references.kerchunk.templates import Templates, generate_references
from insitu.references.url_pool import UrlPool
from insitu.references.urls import UrlResolver
from insitu.references.zarr_blocks import ReferenceBlock, ZarrExport
from insitu.zarr_metadata.array_document import ArrayMetadata
from insitu.zarr_metadata.hierarchy import DOCUMENTS, ZarrNode, build_tree, consolidated_documents, parse_nodes
from insitu.zarr_metadata.to_zarr import ZarrArraySpec

__all__ = ["looks_like_references", "parse_json", "read_json", "tree_from_references", "write_json"]

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_DOCUMENTS = frozenset(DOCUMENTS)
_LARGEST = 1 << 33
"""Most bytes that a compressed file may unpack to."""


def parse_json(data: bytes) -> dict[str, Any]:
    """Return the JSON object in a file, decompressed if necessary."""
    kind = next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), None)
    try:
        if kind is not None:
            with pa.CompressedInputStream(pa.BufferReader(data), kind) as stream:
                data = stream.read(_LARGEST)
        document = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError, OSError) as problem:
        raise FormatError(f"this is not valid JSON: {problem}", structure="references") from None
    if not isinstance(document, dict):
        raise FormatError("references must be a JSON object", structure="references")
    return document


def looks_like_references(document: Mapping[str, Any]) -> bool:
    """Return whether a JSON object is a set of kerchunk references."""
    refs = document.get("refs") if "refs" in document else document
    if "refs" in document or "gen" in document:
        return isinstance(refs, Mapping)
    return isinstance(refs, Mapping) and any(key.rpartition("/")[2] in DOCUMENTS for key in refs)


def read_json(
    document: Mapping[str, Any], base: UrlResolver, *, target: str | None = None, errors: str = "raise"
) -> VirtualGroup:
    """Return the tree of a document of references.

    Parameters
    ----------
    document
        Version 0 or 1.
    base
        Resolves URLs.
    target
        The URL that a null URL stands for.
    errors
        "raise", or "warn": arrays that cannot be read are left out, with the reasons in `problems`.
    """
    refs, templates = _unwrap(document)
    return tree_from_references(refs, templates, base, target=target, errors=errors)


def _unwrap(document: Mapping[str, Any]) -> tuple[dict[str, Any], Templates]:
    """Return the references and templates of a document of version 0 or 1."""
    version = document.get("version", 0 if "refs" not in document else 1)
    if "refs" not in document and "gen" not in document:
        return {key: value for key, value in document.items() if key != "version"}, Templates()
    if version != 1:
        raise UnsupportedError(f"kerchunk references of version {version!r} are not supported", structure="version")
    refs = document.get("refs", {})
    templates = document.get("templates") or {}
    if not isinstance(refs, Mapping) or not isinstance(templates, Mapping):
        raise FormatError("'refs' and 'templates' must be objects", structure="refs")
    parsed = Templates(templates)
    return {**refs, **dict(generate_references(document.get("gen") or [], parsed))}, parsed


def tree_from_references(
    refs: Mapping[str, Any],
    templates: Templates,
    base: UrlResolver,
    *,
    target: str | None = None,
    errors: str = "raise",
) -> VirtualGroup:
    """Return the tree of a mapping of keys to references."""
    documents: dict[str, Any] = {}
    folders: dict[str, tuple[list[str], list[Any]]] = {}
    for key, value in refs.items():
        folder, _, name = key.rpartition("/")
        if name in _DOCUMENTS:
            documents[key] = _document_text(key, value)
        elif value is not None:
            if folder not in folders:
                folders[folder] = ([], [])
            names, values = folders[folder]
            names.append(name)
            values.append(value)
    if not documents:
        raise FormatError(
            f"there are no references: none of {len(refs)} keys is Zarr metadata, such as .zgroup or zarr.json",
            structure="references",
        )
    if ".zmetadata" in documents and ".zgroup" not in documents and "zarr.json" not in documents:
        documents |= consolidated_documents(_parse_document(documents[".zmetadata"])) or {}
    problems: dict[str, str] = {}

    def leave_out(path: str, problem: InsituError) -> None:
        problem.with_context(variable=path, url=base.url)
        if errors == "raise":
            raise problem
        problems[path] = str(problem)

    # A shard in references is fetched and decoded as one chunk.
    nodes = parse_nodes(documents, leave_out, open_shards=False)
    tables = _TableBuilder(nodes, folders, UrlPool(base), templates, target)
    tree = build_tree(nodes, tables.tile, leave_out, details=GroupDetails("kerchunk"))
    return replace(tree, problems=problems)


def _parse_document(document: Any) -> dict[str, Any]:
    if isinstance(document, Mapping):
        return dict(document)
    return parse_json(document if isinstance(document, bytes) else document.encode())


def _document_text(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, str | bytes):
        return _inline_bytes(key, value)
    raise FormatError("Zarr metadata must be inline text or an object, not a reference to a file", structure=key)


def _inline_bytes(key: str, value: str | bytes) -> bytes:
    """Return the inline data of a reference as bytes."""
    if isinstance(value, bytes):
        return value
    try:
        if not value.startswith("base64:"):
            return value.encode("utf-8", "surrogateescape")
        return base64.b64decode(value[7:], validate=True)
    except ValueError:
        raise FormatError("the inline data is neither text nor base64", structure=key) from None


class _TableBuilder:
    """Sorts references by array and builds their chunk tables."""

    def __init__(
        self,
        nodes: Mapping[str, ZarrNode],
        folders: Mapping[str, tuple[list[str], list[Any]]],
        pool: UrlPool,
        templates: Templates,
        target: str | None,
    ) -> None:
        self.pool, self.templates, self.target = pool, templates, target
        self.keys: dict[str, list[str]] = {path: [] for path, node in nodes.items() if node.array is not None}
        self.values: dict[str, list[Any]] = {path: [] for path in self.keys}
        for folder, (names, values) in folders.items():
            owner = self._owner(folder)
            if owner is not None:
                path, between = owner
                self.keys[path] += [between + name for name in names] if between else names
                self.values[path] += values

    def _owner(self, folder: str) -> tuple[str, str] | None:
        """Return the array that a folder belongs to, and the rest of the path (keys with slashes)."""
        path, between = folder, ""
        while path not in self.keys:
            if not path:
                return None
            path, _, name = path.rpartition("/")
            between = f"{name}/{between}"
        return path, between

    def tile(self, path: str, array: ArrayMetadata) -> Tile:
        """Return the tile of an array."""
        grid = tuple(axis.count for axis in array.axes)
        names, values = self.keys.pop(path), self.values.pop(path)
        return Tile(array.axes, (array.encoding,), self._table(path, array, grid, names, values))

    def _table(
        self, path: str, array: ArrayMetadata, grid: tuple[int, ...], names: list[str], values: list[Any]
    ) -> ChunkTable:
        numbers = _cell_numbers(path, array, grid, names)
        count = len(values)
        if count and set(map(type, values)) == {list} and set(map(len, values)) == {3}:  # the usual array, as columns
            urls, begins, sizes = zip(*values, strict=True)
            first = {url: at for at, url in reversed(list(enumerate(urls)))} if set(map(type, urls)) == {str} else None
            if first is not None:
                known = {url: self._number(url, path, names[at]) for url, at in first.items()}
                all_numbers = range(count)
                return _compact_table(
                    grid, self.pool, numbers, np.fromiter(map(known.__getitem__, urls), np.int64, count),
                    _integer_column(begins, "offset", path, names, all_numbers),
                    _integer_column(sizes, "length", path, names, all_numbers), b"",
                )  # fmt: skip
        return self._mixed_table(path, grid, names, values, numbers)

    def _mixed_table(
        self, path: str, grid: tuple[int, ...], names: list[str], values: list[Any], numbers: Indices
    ) -> ChunkTable:
        """Return the table of an array with references of several kinds."""
        count = len(values)
        source = np.zeros(count, np.int64)
        offset: npt.NDArray[np.int64] = np.zeros(count, np.int64)
        length = np.zeros(count, np.int64)
        inline = bytearray()
        urls: list[int] = []
        with_range: list[int] = []
        begins: list[Any] = []
        sizes: list[Any] = []
        for at, value in enumerate(values):
            if type(value) is list and len(value) == 3:
                with_range.append(at)
                begins.append(value[1])
                sizes.append(value[2])
                urls.append(self._number(value[0], path, names[at]))
                continue
            if isinstance(value, list) and len(value) == 1:
                source[at], length[at] = self._number(value[0], path, names[at]), WHOLE
                continue
            if not isinstance(value, str | bytes | Mapping):
                raise FormatError(
                    f"{str(value)[:60]} is not a reference: expected text, [url] or [url, offset, length]",
                    structure=_full_key(path, names[at]),
                )
            data = (
                json.dumps(value).encode()
                if isinstance(value, Mapping)
                else _inline_bytes(_full_key(path, names[at]), value)
            )
            source[at], offset[at], length[at] = INLINE, len(inline), len(data)
            inline += data
        if with_range:
            source[with_range] = urls
            offset[with_range] = _integer_column(begins, "offset", path, names, with_range)
            length[with_range] = _integer_column(sizes, "length", path, names, with_range)
        return _compact_table(grid, self.pool, numbers, source, offset, length, bytes(inline))

    def _number(self, url: Any, path: str, name: str) -> int:
        try:
            if url is None:
                if self.target is None:
                    raise FormatError(
                        "a reference has no URL", hint="Give the file that is meant: open_references(..., target=URL)"
                    )
                url = self.target
            if not isinstance(url, str):
                raise FormatError(f"a URL must be text, not {url!r}")
            return self.pool.number(self.templates.render(url) if "{{" in url else url)
        except InsituError as problem:
            raise problem.with_context(structure=_full_key(path, name)) from None


def _compact_table(
    grid: tuple[int, ...],
    pool: UrlPool,
    numbers: Indices,
    source: npt.NDArray[np.int64],
    offset: npt.NDArray[np.int64],
    length: npt.NDArray[np.int64],
    inline: bytes,
) -> ChunkTable:
    """Return a table that lists only the sources that it uses."""
    used = np.unique(source[source >= 0])
    sources: tuple[Source, ...] = tuple(pool.sources[int(number)] for number in used)
    if len(used):
        source = np.where(source >= 0, np.searchsorted(used, source), source)
    return table_of_cells(grid, sources, numbers, source, offset, length, inline=inline)


def _full_key(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _integer_column(
    values: Sequence[Any], name: str, path: str, names: list[str], at: Sequence[int]
) -> npt.NDArray[np.int64]:
    if set(map(type, values)) <= {int}:
        try:
            column = np.array(values, np.int64)
        except OverflowError:
            column = None
        if column is not None and not (column < 0).any():
            return column
    for position, value in zip(at, values, strict=True):
        if type(value) is not int or not 0 <= value < 2**63:
            raise FormatError(
                f"{name} must be an integer from 0 to 2**63 - 1, not {value!r}",
                structure=_full_key(path, names[position]),
            )
    raise AssertionError("unreachable")


def _cell_numbers(path: str, array: ArrayMetadata, grid: tuple[int, ...], names: list[str]) -> Indices:
    """Return the cell numbers of chunk keys."""
    found = array.keys.cells(names, len(grid))
    if found is not None and (found < np.array(grid, np.int64)).all():
        return np.ravel_multi_index(tuple(found.T), grid).astype(np.int64) if grid else np.zeros(len(names), np.int64)
    # Some key is wrong: find it for the message.
    numbers = np.zeros(len(names), np.int64)
    for at, name in enumerate(names):
        cell = array.keys.cell(name, len(grid))
        if cell is None:
            raise FormatError("this key is not a chunk key of the array", structure=_full_key(path, name))
        number = 0
        for index, count in zip(cell, grid, strict=True):
            if index >= count:
                raise FormatError(f"this chunk key lies outside the chunk grid {grid}", structure=_full_key(path, name))
            number = number * count + index
        numbers[at] = number
    return numbers


def write_json(writing: ZarrExport, file: IO[bytes]) -> None:
    """Write a tree as references of version 1, block by block."""
    file.write(b'{"version":1,"refs":{')
    separator = ""
    for key, value in writing.documents().items():
        file.write(f"{separator}{json.dumps(key)}:{json.dumps(json.dumps(value))}".encode())
        separator = ","
    for path, array in writing.arrays.items():
        for text in _iter_chunk_json(path, array, writing):
            file.write(f",{text}".encode())
    file.write(b"}}")


def _iter_chunk_json(path: str, array: ZarrArraySpec, writing: ZarrExport) -> Iterator[str]:
    """Yield the references of an array as fragments of JSON."""
    before = json.dumps(f"{path}/" if path else "")[:-1]
    is_v3 = writing.zarr_format == 3
    for block in writing.blocks(path):
        present = np.flatnonzero(block.stored | block.inline)
        if not len(present):
            continue
        if array.grid:
            index = np.unravel_index(block.begin + present, array.grid)
            names = _chunk_keys([axis.tolist() for axis in index], "/" if is_v3 else ".", "c/" if is_v3 else "")
        else:
            names = ["c" if is_v3 else "0"]
        values = _reference_json(block, present)
        yield ",".join([f'{before}{name}":{value}' for name, value in zip(names, values, strict=True)])


def _chunk_keys(columns: list[list[int]], separator: str, mark: str) -> list[str]:
    pattern = mark + separator.join(["%d"] * len(columns))
    return [pattern % cell for cell in zip(*columns, strict=True)]


def _reference_json(block: ReferenceBlock, rows: Indices) -> list[str]:
    """Return references as JSON: text for inline data, a list for a range."""
    quoted = [json.dumps(url) for url in block.urls]
    columns = (rows.tolist(), block.url[rows].tolist(), block.offset[rows].tolist(), block.length[rows].tolist())
    if not block.data and (block.length[rows] >= 0).all():  # the usual block
        return [f"[{quoted[url]},{offset},{length}]" for _, url, offset, length in zip(*columns, strict=True)]
    texts = []
    for row, url, offset, length in zip(*columns, strict=True):
        if row in block.data:
            texts.append(json.dumps("base64:" + base64.b64encode(block.data[row]).decode()))
        else:
            texts.append(f"[{quoted[url]},{offset},{length}]" if length >= 0 else f"[{quoted[url]}]")
    return texts
