"""What does `root.json` say?

It names every other file of the store, and holds everything that is small: the tree, how axes are cut, the pool of encodings. It is written last. The schema is
in `docs/insitu-store.md`; whatever does not fit it is an error that names the field.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from insitu.errors import FormatError, InsituError, UnsupportedError
from insitu.model import Codec, Encoding
from insitu.references.store.json_values import dtype_from, dtype_to, pack, unpack
from insitu.references.store.row_file import Part
from insitu.references.store.validation import check_fields
from insitu.zarr_metadata.json_fields import mapping, text, whole

__all__ = ["NAME", "PREVIOUS", "VERSION", "encoding_from", "encoding_to", "parse", "part_from", "serialised"]

NAME = "root.json"
PREVIOUS = "previous-root.json"
"""The root before the last change, for a rollback."""
FORMAT = "insitu-store"
VERSION = 2
CHECKSUM = "checksum"
"""SHA-256 of the root's bytes, taken while this field was empty. Roots of earlier writers have none."""
FIELDS = ("format", "version", "id", "tiles", "encodings", "packings", "axes", "sources", "chunks", "tree")


def parse(data: bytes, url: str) -> dict[str, Any]:
    """The root document, of a version that is understood, with all its fields, and as it was written."""
    try:
        document = json.loads(data, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as problem:
        raise FormatError(f"this is not JSON: {problem}", url=url, structure=NAME) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FormatError("this is no insitu store", url=url, structure=NAME)
    version = document.get("version")
    if version != VERSION:
        raise UnsupportedError(
            f"the store is of version {version!r}, and version {VERSION} is understood",
            url=url,
            structure=NAME,
            hint="Scan the files again and save them anew" if version == 1 else "A newer insitu may read it",
        )
    try:
        check_fields(document, FIELDS, "the root", optional=(CHECKSUM, "recipe"))
        text(document["id"], "id")
        whole(document["tiles"], "tiles")
    except FormatError as problem:
        raise problem.located(url=url, structure=NAME) from None
    if CHECKSUM in document:
        _verify(data, document, url)
    return document


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a field twice")
    return found


def _verify(data: bytes, document: dict[str, Any], url: str) -> None:
    """Refuse a root that does not say what was written. White space does not count."""
    checksum = document[CHECKSUM]
    if isinstance(checksum, str):
        if _digest(data.replace(_field(checksum), _field(""), 1)) == checksum:
            return
        try:
            if _digest(_compact({**document, CHECKSUM: ""})) == checksum:
                return
        except ValueError:  # numbers that JSON does not have, such as NaN
            pass
    raise FormatError(
        "the root is damaged: it does not have the checksum that it names",
        url=url,
        structure=NAME,
        hint=f"Save the store again. A root that was edited by hand opens without the field {CHECKSUM!r}",
    )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _field(checksum: str) -> bytes:
    return f'"{CHECKSUM}":"{checksum}"'.encode()


def _compact(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def serialised(document: Mapping[str, Any]) -> bytes:
    """The root document as it is written, with its checksum."""
    given = {key: value for key, value in document.items() if key != CHECKSUM}
    data = _compact({"format": FORMAT, "version": VERSION, CHECKSUM: "", **given})
    return data.replace(_field(""), _field(_digest(data)), 1)


def part_from(row: Any, url: str, storage_options: Mapping[str, Any] | None) -> Part:
    """A file of rows, as the root describes it."""
    given = mapping(row, "part")
    check_fields(given, ("file", "rows", "bytes", "footer", "checksum", "group_checksums"), "a part")
    name = text(given["file"], "file")
    if "/" in name or "\\" in name or name.startswith("."):
        raise FormatError(f"{name!r} is no file of the store")
    numbers = [whole(given[key], key) for key in ("rows", "bytes", "footer")]
    if numbers[2] > numbers[1]:
        raise FormatError(f"the footer of {name!r} is longer than the file")
    sums = tuple(tuple(text(one, "group_checksums") for one in group) for group in given["group_checksums"])
    return Part(
        f"{url}/{name}", numbers[0], numbers[1], numbers[2], text(given["checksum"], "checksum"), sums, storage_options
    )


def encoding_to(encoding: Encoding) -> dict[str, Any]:
    """An encoding as the root holds it."""
    return {
        "dtype": dtype_to(encoding.dtype),
        "codecs": [{"name": codec.name, "configuration": pack(dict(codec.configuration))} for codec in encoding.codecs],
        "order": None if encoding.order is None else list(encoding.order),
        "fill": None if encoding.fill is None else base64.b64encode(encoding.fill).decode(),
    }


def encoding_from(row: Any) -> Encoding:
    """The encoding again."""
    given = mapping(row, "encoding")
    check_fields(given, ("dtype", "codecs", "order", "fill"), "an encoding")
    codecs = []
    for item in given["codecs"]:
        codec = mapping(item, "codec")
        check_fields(codec, ("name", "configuration"), "a codec")
        codecs.append(Codec(text(codec["name"], "name"), unpack(mapping(codec["configuration"], "configuration"))))
    order, fill = given["order"], given["fill"]
    try:
        return Encoding(
            dtype_from(given["dtype"]),
            tuple(codecs),
            None if order is None else tuple(whole(axis, "order") for axis in order),
            None if fill is None else base64.b64decode(fill, validate=True),
        )
    except (TypeError, binascii.Error, InsituError) as problem:
        raise FormatError(f"an encoding is damaged: {problem}") from None
