"""Parse and serialize `root.json`, the root document of an insitu store.

The root names every other file of the store and holds everything small: the tree, the regular axes,
the encodings. It is written last. The schema is in `docs/insitu-store.md`; a field that violates it
is an error that names the field.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from insitu.errors import FormatError, ModelError, UnsupportedError, error_context
from insitu.model import Codec, Encoding
from insitu.references.store.json_values import dtype_from_json, dtype_to_json, pack, unpack
from insitu.references.store.row_file import RowFile
from insitu.references.store.validation import check_fields
from insitu.zarr_metadata.json_fields import base64_field, integer_field, list_field, object_field, text_field

__all__ = [
    "EARLIER_PREVIOUS",
    "NAME",
    "VERSION",
    "encoding_from_json",
    "encoding_to_json",
    "parse_root",
    "previous_name",
    "row_file_from_json",
    "serialize",
]

NAME = "root.json"
EARLIER_PREVIOUS = "previous-root.json"
"""The root before the last change, as earlier writers named it: see `previous_name`."""
FORMAT = "insitu-store"
VERSION = 2
CHECKSUM = "checksum"
"""SHA-256 of the root's bytes with this field empty. Roots of earlier writers lack the field."""
FIELDS = ("format", "version", "id", "tiles", "encodings", "packings", "axes", "sources", "chunks", "tree")


def parse_root(data: bytes, url: str) -> dict[str, Any]:
    """Return the root document, after checking its version, fields and checksum."""
    try:
        document = json.loads(data, object_pairs_hook=_reject_duplicates)
    except (ValueError, RecursionError) as problem:
        raise FormatError(f"this is not valid JSON: {problem}", url=url, structure=NAME) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FormatError("this is not the root of an insitu store", url=url, structure=NAME)
    version = document.get("version")
    if version != VERSION:
        raise UnsupportedError(
            f"the store has version {version!r}; this insitu reads version {VERSION}",
            url=url,
            structure=NAME,
            hint="Scan the files again and save them anew" if version == 1 else "Install a newer insitu",
        )
    with error_context(url=url, structure=NAME):
        check_fields(document, FIELDS, "the root", optional=(CHECKSUM, "pinned", "recipe", "retired", "saved"))
        text_field(document["id"], "id")
        integer_field(document["tiles"], "tiles")
        object_field(document.get("retired", {}), "retired")
        saved = document.get("saved", 0.0)
        if not isinstance(saved, (int, float)) or not 0 <= saved < 1e11:
            raise FormatError("'saved' must be a number of seconds since 1970")
    if CHECKSUM in document:
        _verify_checksum(data, document, url)
    return document


def previous_name(document: Mapping[str, Any]) -> str:
    """Return the name of the file that holds the root before this one, for a rollback.

    It contains the id of the root, so that the write of the root decides which one is the previous, too.
    """
    mark = text_field(document["id"], "id")
    if not mark.isalnum():
        raise FormatError(f"{mark!r} is not a valid id of a store", structure=NAME)
    return f"previous-{mark}.json"


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has the same field twice")
    return found


def _verify_checksum(data: bytes, document: dict[str, Any], url: str) -> None:
    """Raise `FormatError` if the root does not match its checksum. White space does not count."""
    checksum = document[CHECKSUM]
    if isinstance(checksum, str):
        if _digest(data.replace(_checksum_field(checksum), _checksum_field(""), 1)) == checksum:
            return
        try:
            if _digest(_compact_json({**document, CHECKSUM: ""})) == checksum:
                return
        except ValueError:  # numbers that JSON does not have, such as NaN
            pass
    raise FormatError(
        "the root is damaged: it does not match its checksum",
        url=url,
        structure=NAME,
        hint=f"Save the store again. If you edited the root by hand, delete its field {CHECKSUM!r}",
    )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _checksum_field(checksum: str) -> bytes:
    return f'"{CHECKSUM}":"{checksum}"'.encode()


def _compact_json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def serialize(document: Mapping[str, Any]) -> bytes:
    """Return the bytes of the root document, with its checksum."""
    content = {key: value for key, value in document.items() if key != CHECKSUM}
    data = _compact_json({"format": FORMAT, "version": VERSION, CHECKSUM: "", **content})
    return data.replace(_checksum_field(""), _checksum_field(_digest(data)), 1)


def row_file_from_json(row: Any, url: str, storage_options: Mapping[str, Any] | None) -> RowFile:
    """Return a file of rows from its description in the root."""
    part = object_field(row, "part")
    check_fields(part, ("file", "rows", "bytes", "footer", "checksum", "group_checksums"), "a part")
    name = text_field(part["file"], "file")
    if "/" in name or "\\" in name or name.startswith("."):
        raise FormatError(f"{name!r} is not a valid file name of a store")
    numbers = [integer_field(part[key], key) for key in ("rows", "bytes", "footer")]
    if numbers[2] > numbers[1]:
        raise FormatError(f"the footer of {name!r} is longer than the file")
    groups = [list_field(group, "group_checksums") for group in list_field(part["group_checksums"], "group_checksums")]
    sums = tuple(tuple(text_field(one, "group_checksums") for one in group) for group in groups)
    return RowFile(
        f"{url}/{name}",
        numbers[0],
        numbers[1],
        numbers[2],
        text_field(part["checksum"], "checksum"),
        sums,
        storage_options,
    )


def encoding_to_json(encoding: Encoding) -> dict[str, Any]:
    """Return an encoding as the root holds it."""
    return {
        "dtype": dtype_to_json(encoding.dtype),
        "codecs": [{"name": codec.name, "configuration": pack(dict(codec.configuration))} for codec in encoding.codecs],
        "order": None if encoding.order is None else list(encoding.order),
        "fill": None if encoding.fill is None else base64.b64encode(encoding.fill).decode(),
    }


def encoding_from_json(row: Any) -> Encoding:
    """Return the encoding that `encoding_to_json` converted."""
    fields = object_field(row, "encoding")
    check_fields(fields, ("dtype", "codecs", "order", "fill"), "an encoding")
    codecs = []
    for item in list_field(fields["codecs"], "codecs"):
        codec = object_field(item, "codec")
        check_fields(codec, ("name", "configuration"), "a codec")
        configuration = unpack(object_field(codec["configuration"], "configuration"))
        codecs.append(Codec(text_field(codec["name"], "name"), object_field(configuration, "configuration")))
    order, fill = fields["order"], fields["fill"]
    try:
        return Encoding(
            dtype_from_json(fields["dtype"]),
            tuple(codecs),
            None if order is None else tuple(integer_field(axis, "order") for axis in list_field(order, "order")),
            None if fill is None else base64_field(fill, "fill"),
        )
    except ModelError as problem:
        raise FormatError(f"an encoding is damaged: {problem}") from None
