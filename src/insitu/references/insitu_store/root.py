"""What does `root.json` say?

It names every other file of the store, and holds everything that is small: the tree, how axes are cut, the pool of encodings. It is written last. The schema is
in `docs/insitu-store.md`; whatever does not fit it is an error that names the field.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from insitu.errors import FormatError, InsituError, UnsupportedError
from insitu.model import Codec, Encoding
from insitu.references.insitu_store.part import Part
from insitu.references.insitu_store.values import dtype_from, dtype_to, pack, unpack
from insitu.zarr_metadata.document import field, mapping, text, whole

__all__ = ["NAME", "PREVIOUS", "VERSION", "encoding_from", "encoding_to", "parse", "part_from", "serialised"]

NAME = "root.json"
PREVIOUS = "previous-root.json"
"""The root before the last change, for a rollback."""
FORMAT = "insitu-store"
VERSION = 1


def parse(data: bytes, url: str) -> dict[str, Any]:
    """The root document, checked as far as its version."""
    try:
        document = json.loads(data)
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
            hint="A newer insitu may read it",
        )
    return document


def serialised(document: Mapping[str, Any]) -> bytes:
    """The root document as it is written."""
    return json.dumps(
        {"format": FORMAT, "version": VERSION, **document}, separators=(",", ":"), allow_nan=False
    ).encode()


def part_from(row: Any, url: str, storage_options: Mapping[str, Any] | None) -> Part:
    """A file of rows, as the root describes it."""
    given = mapping(row, "part")
    name = text(field(given, "file"), "file")
    if "/" in name or "\\" in name or name.startswith("."):
        raise FormatError(f"{name!r} is no file of the store")
    numbers = [whole(field(given, key), key) for key in ("rows", "bytes", "footer")]
    if numbers[2] > numbers[1]:
        raise FormatError(f"the footer of {name!r} is longer than the file")
    return Part(f"{url}/{name}", numbers[0], numbers[1], numbers[2], storage_options)


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
    codecs = []
    for item in given.get("codecs") or ():
        codec = mapping(item, "codec")
        codecs.append(
            Codec(
                text(field(codec, "name"), "name"), unpack(mapping(codec.get("configuration") or {}, "configuration"))
            )
        )
    order, fill = given.get("order"), given.get("fill")
    try:
        return Encoding(
            dtype_from(field(given, "dtype")),
            tuple(codecs),
            None if order is None else tuple(whole(axis, "order") for axis in order),
            None if fill is None else base64.b64decode(fill, validate=True),
        )
    except (TypeError, binascii.Error, InsituError) as problem:
        raise FormatError(f"an encoding is damaged: {problem}") from None
