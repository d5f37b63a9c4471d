"""Open and save references in any format; the format is detected from suffix and content.

`*.json` (also `.json.zst`, `.json.gz`) is kerchunk JSON, `*.parq` a kerchunk Parquet directory,
`*.parquet` one flat table, `*.icechunk` an Icechunk repository, `*.insitu` an insitu store.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as pa

from insitu.errors import FormatError, NotFoundError, UnsupportedError, error_context
from insitu.model import VirtualGroup
from insitu.references.atomic_write import open_atomic
from insitu.references.directory_swap import find_interrupted_swap
from insitu.references.icechunk import is_repository
from insitu.references.icechunk.repository_reader import has_version, open_icechunk
from insitu.references.icechunk.repository_writer import can_write_rectilinear, write_icechunk
from insitu.references.kerchunk.flat_parquet import read_flat, write_flat
from insitu.references.kerchunk.json import looks_like_references, parse_json, read_json, write_json
from insitu.references.kerchunk.parquet import RECORD_SIZE, read_parquet, write_parquet
from insitu.references.list_objects import list_written_cells
from insitu.references.store.root import NAME
from insitu.references.store.store_reader import open_store
from insitu.references.store.store_writer import is_unfinished, write_store
from insitu.references.urls import UrlResolver, absolute_url, relative_to
from insitu.references.zarr_blocks import ZarrExport
from insitu.sources import ByteSource, open_source, read_all
from insitu.sources.access_policy import check_path
from insitu.sources.listing import local_path

__all__ = [
    "FORMATS",
    "can_be_references",
    "detect_format",
    "find_refused",
    "format_from_name",
    "is_store",
    "open_references",
    "save",
    "tree_from_document",
]

FORMATS = ("insitu", "kerchunk-json", "kerchunk-parquet", "flat-parquet", "icechunk")
_SUFFIXES = (
    (re.compile(r"\.json(\.zst|\.zstd|\.gz)?$", re.IGNORECASE), "kerchunk-json"),
    (re.compile(r"\.parq$", re.IGNORECASE), "kerchunk-parquet"),
    (re.compile(r"\.parquet$", re.IGNORECASE), "flat-parquet"),
    (re.compile(r"\.insitu$", re.IGNORECASE), "insitu"),
    (re.compile(r"\.icechunk$", re.IGNORECASE), "icechunk"),
)
_SCHEMES = {"reference+json": "kerchunk-json", "reference+parquet": "flat-parquet", "virtualizarr": "kerchunk-parquet"}
"""URL schemes of zaro that name the format."""
_MAGIC = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


def format_from_name(url: str) -> str | None:
    """Return the format of a path or URL by its suffix; None if the suffix is of no format.

    Examples
    --------
    >>> format_from_name("s3://bucket/era5.parq/"), format_from_name("refs.json.zst"), format_from_name("data.nc")
    ('kerchunk-parquet', 'kerchunk-json', None)
    """
    name = url.partition("?")[0].rstrip("/")
    return next((kind for pattern, kind in _SUFFIXES if pattern.search(name)), None)


def open_references(
    url: str,
    *,
    format: str | None = None,
    errors: str = "raise",
    allow_local: bool = False,
    missing: str = "raise",
    target: str | None = None,
    resolver: UrlResolver | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> VirtualGroup | None:
    """Open saved references; return None if there are none at this URL.

    Parameters
    ----------
    url
        A file or a directory; also `reference+json://…`, `reference+parquet://…`,
        `virtualizarr://…`. Of an Icechunk repository, `?branch=…`, `?tag=…` or `?snapshot=…` names
        a version.
    format
        One of `FORMATS`; if not given, suffix and content decide.
    errors
        "raise", or "warn": arrays that cannot be read are left out.
    allow_local
        Whether remote references may name local files.
    missing
        kerchunk Parquet: "raise" if a file of rows is missing, or treat its chunks as "unwritten".
    target
        kerchunk JSON: the URL that a null URL stands for.
    resolver
        kerchunk formats: resolves URLs, and tells whether some are relative.
    storage_options
        See `insitu.sources.open_source`.
    """
    scheme, mark, rest = url.partition("://")
    if mark and scheme.lower() in _SCHEMES:
        format, url = _SCHEMES[scheme.lower()], rest
    kind = format or _detect_format(url)
    if kind is None:
        return None
    if kind not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, not {kind!r}")
    if kind == "icechunk":
        return open_icechunk(url, errors=errors, allow_local=allow_local, storage_options=storage_options)
    if kind == "kerchunk-parquet":
        url = _find_interrupted_swap(url) or url
    base = resolver or UrlResolver(local_path(url) or url, allow_local)
    with error_context(url=base.url):
        if kind == "insitu":
            return open_store(url, allow_local=allow_local, storage_options=storage_options).group()
        if kind == "kerchunk-parquet":
            return _open_directory(url, base, errors, missing, storage_options, is_certain=format is not None)
        with open_source(url, storage_options) as source:
            data = read_all(source)
        if kind == "flat-parquet":
            return read_flat(data, base, errors=errors)
        document = parse_json(data)
        if not looks_like_references(document):
            if format is None:
                return None
            raise FormatError("this JSON file does not hold kerchunk references", structure="references")
        return read_json(document, base, target=target, errors=errors)


def tree_from_document(document: Mapping[str, Any], *, errors: str = "raise") -> VirtualGroup:
    """Return the tree of kerchunk references in memory: a dictionary as `kerchunk` makes it."""
    if not looks_like_references(document):
        raise FormatError("this dictionary does not hold kerchunk references", structure="references")
    return read_json(dict(document), UrlResolver(None, allow_local=True), errors=errors)


def _open_directory(
    url: str,
    base: UrlResolver,
    errors: str,
    missing: str,
    storage_options: Mapping[str, Any] | None,
    *,
    is_certain: bool,
) -> VirtualGroup | None:
    try:
        with open_source(f"{url.rstrip('/')}/.zmetadata", storage_options) as source:
            document = parse_json(read_all(source))
    except NotFoundError:
        if is_certain:
            raise
        return None
    if "record_size" not in document:
        if is_certain:
            raise FormatError(
                "this is not a kerchunk Parquet directory: 'record_size' is missing", structure=".zmetadata"
            )
        return None
    return read_parquet(document, base, errors=errors, missing=missing, storage_options=storage_options)


def _detect_format(url: str) -> str | None:
    """Return the format of the references at a URL: by suffix, and of local files by content."""
    name_format = format_from_name(url)
    path = local_path(url.partition("?")[0] if name_format == "icechunk" else url)
    if path is None or name_format == "icechunk":
        return name_format
    if name_format == "kerchunk-parquet":
        path = _find_interrupted_swap(url) or path
    if os.path.isdir(path):
        if is_repository(path):
            return "icechunk"
        if os.path.exists(os.path.join(path, NAME)):
            return "insitu"
        return "kerchunk-parquet" if os.path.exists(os.path.join(path, ".zmetadata")) else None
    if name_format in ("kerchunk-parquet", "insitu") or not os.path.isfile(path):
        return "flat-parquet" if os.path.isfile(path) and _read_head(path)[:4] == b"PAR1" else None
    head = _read_head(path)
    if head[:4] == b"PAR1":
        return "flat-parquet"
    if name_format == "kerchunk-json" and head.startswith(_MAGIC):
        return "kerchunk-json"
    return "kerchunk-json" if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" else None


def _find_interrupted_swap(url: str) -> str | None:
    """Return the directory of references that a writer moved aside before it died."""
    path = local_path(url)
    return None if path is None else find_interrupted_swap(path.rstrip(os.sep) or path)


def _read_head(path: str) -> bytes:
    with open(path, "rb") as file:
        check_path(path, file.fileno())
        return file.read(64)


def can_be_references(url: str) -> bool:
    """Return whether there can be references at a URL. Makes no request."""
    return _detect_format(url) is not None


def detect_format(url: str) -> str | None:
    """Return the format of the references at a URL: by content, else by suffix."""
    return _detect_format(url) or format_from_name(url)


def is_store(url: str) -> bool:
    """Return whether an insitu store lies at a URL: by suffix, and locally by content. Makes no
    request.
    """
    return _detect_format(url) == "insitu"


def save(
    group: VirtualGroup,
    target: str | os.PathLike[str],
    *,
    format: str | None = None,
    mode: str = "w",
    inline_threshold: int = 0,
    relative: bool = False,
    zarr_format: int | None = None,
    record_size: int = RECORD_SIZE,
    message: str | None = None,
    copied_from: str | None = None,
    recipe: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Save a tree as references, so that its files need not be scanned again.

    Parameters
    ----------
    group
        The tree.
    target
        Where to save. The suffix chooses the format, see `format_from_name`.
    format
        One of `FORMATS`; if not given, the suffix decides.
    mode
        "w": replace what is there (in an Icechunk repository, by a new version). "x": raise if
        something is there.
    inline_threshold
        kerchunk formats and Icechunk: chunks of at most so many bytes are copied into the
        references.
    relative
        Write URLs relative to the target where possible, so that references and files can be moved
        together.
    zarr_format
        kerchunk JSON: version of the Zarr metadata; None: 2 where that is possible, else 3.
    record_size
        kerchunk Parquet: number of rows of a file.
    message
        Icechunk: the commit message.
    copied_from
        Icechunk: chunks whose URLs begin like this are copied into the repository.
    recipe
        insitu store: how files were combined, for `append` and `refresh`.
    storage_options
        See `insitu.sources.open_source`.

    Raises
    ------
    UnsupportedError
        If the format cannot hold an array. The message names the array, the reason and a way out.
    """
    url = os.fspath(target)
    kind = format or format_from_name(url)
    if kind not in FORMATS:
        raise UnsupportedError(
            f"cannot tell the format from the name {url!r}" if format is None else f"unknown format {format!r}",
            hint="End the name in .insitu, .json, .parq, .parquet or .icechunk, "
            f"or give format= ({', '.join(FORMATS)})",
        )
    if mode not in ("w", "x"):
        raise ValueError(f'mode must be "w" or "x", not {mode!r}')
    if kind == "icechunk":
        write_icechunk(
            list_written_cells(group, storage_options),
            url,
            mode=mode,
            inline_threshold=inline_threshold,
            message=message,
            copied_from=copied_from,
            storage_options=storage_options,
        )
        return
    if mode == "x" and is_occupied(url, storage_options):
        raise UnsupportedError("the target exists already", url=url, hint='Use mode="w" to replace it')
    name_source: Callable[[str], str] = (lambda source: relative_to(source, url)) if relative else absolute_url
    group = list_written_cells(group, storage_options)
    if kind == "insitu":
        write_store(group, url, name_source=name_source, mode=mode, recipe=recipe, storage_options=storage_options)
        return
    formats = {"kerchunk-json": (2, 3)}.get(kind, (2,)) if zarr_format is None else (zarr_format,)
    if kind != "kerchunk-json" and formats != (2,):
        raise UnsupportedError(
            f"{kind} holds Zarr V2 metadata only", hint="Leave out zarr_format=, or use kerchunk-json"
        )
    writing = ZarrExport.of(
        group,
        what=kind,
        formats=formats,
        inline_threshold=inline_threshold,
        name_source=name_source,
        storage_options=storage_options,
    )
    if kind == "kerchunk-parquet":
        write_parquet(writing, url, record_size=record_size, storage_options=storage_options)
        return
    with open_atomic(url, storage_options) as file:
        if kind == "flat-parquet":
            write_flat(writing, file)
        else:
            with _open_compressed(file, url) as stream:
                write_json(writing, stream)


def find_refused(
    group: VirtualGroup, kind: str, zarr_format: int | None = None, storage_options: Mapping[str, Any] | None = None
) -> tuple[int, dict[str, str]]:
    """Return which arrays a format cannot hold, and why, with the version of Zarr that holds the most of them.

    Parameters
    ----------
    group
        The tree as `save` takes it.
    kind
        One of `FORMATS`, but not the insitu store.
    zarr_format
        The version, if it is given.
    storage_options
        See `insitu.sources.open_source`.
    """
    group = list_written_cells(group, storage_options)
    formats = {"kerchunk-json": (2, 3), "icechunk": (3,)}.get(kind, (2,)) if zarr_format is None else (zarr_format,)
    found: list[tuple[int, dict[str, str]]] = []
    for number in formats:
        refused = {}
        for path, array in group.all_arrays():
            name = path.rpartition("/")[2]
            try:
                ZarrExport.of(
                    VirtualGroup({name: array}),
                    what=kind,
                    formats=(number,),
                    rectilinear=kind == "icechunk" and can_write_rectilinear(),
                    storage_options=storage_options,
                )
            except UnsupportedError as problem:
                refused[path] = problem.message.removeprefix(f"{kind} cannot hold 1 of the arrays: {name}: ")
        found.append((number, refused))
    return min(found, key=lambda one: len(one[1]))


@contextmanager
def _open_compressed(file: IO[bytes], url: str) -> Any:
    kind = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}.get(os.path.splitext(url)[1].lower())
    if kind is None:
        yield file
        return
    with pa.CompressedOutputStream(pa.PythonFile(_UnclosableFile(file), "w"), kind) as stream:
        yield stream


class _UnclosableFile:
    """A file whose `close` does nothing: the stream over it must not close it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.write, self.flush, self.tell = file.write, file.flush, file.tell
        self.closed = False

    def close(self) -> None:
        """Do nothing."""


def is_occupied(url: str, storage_options: Mapping[str, Any] | None) -> bool:
    """Return whether something lies at a target. What a writer left that was killed does not count."""
    path = local_path(url)
    kind = format_from_name(url)
    if kind == "icechunk":
        return has_version(url, storage_options)
    if path is not None:
        if kind == "insitu" and os.path.isdir(path):
            return not is_unfinished(path)
        return os.path.exists(path) or _find_interrupted_swap(url) is not None
    name = {"insitu": f"/{NAME}", "kerchunk-parquet": "/.zmetadata"}.get(kind or "", "")
    try:
        source: ByteSource
        with open_source(url.rstrip("/") + name, storage_options) as source:
            source.size()
    except NotFoundError:
        return False
    return True
