"""Data that is embedded in a DMR++ document.

Small data as base64 (`compact`), deflated (`missingdata`), texts of varying length one by one
(`vlsa`), and structures with texts in them (`specialstructuredata`), whose texts are in base64 once
more, each followed by a semicolon.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from insitu.errors import FormatError
from insitu.formats.dmrpp.dap_types import TEXTS, members_of
from insitu.formats.dmrpp.text_values import NUMBERS, decode_base64, decode_element, inflate, local_name

__all__ = ["embedded_bytes", "parse_structures", "parse_texts"]

MOST_TEXTS = 1 << 24
MOST_BYTES = 1 << 26


def embedded_bytes(element: Any, nbytes: int) -> bytes:
    """Return embedded data; `missingdata` is inflated."""
    data = decode_element(element)
    if len(data) != nbytes and local_name(element) == "missingdata":
        data = inflate(data, nbytes, "missingdata")
    if len(data) != nbytes:
        raise FormatError(f"{len(data)} bytes of embedded data, {nbytes} are needed", structure=local_name(element))
    return data


def parse_texts(element: Any, count: int) -> bytes:
    """Return the texts of a `vlsa` in the form of codec `vlen-utf8`.

    Their number, and each behind its length.
    """
    parts: list[bytes] = [struct.pack("<I", count & 0xFFFFFFFF)]
    total = nbytes = 0
    for child in element:
        if local_name(child) != "v":
            continue
        item_count, size = child.get("c", "1"), child.get("s")
        if any(not text.isdecimal() or len(text) > 18 for text in (item_count, size or "0")):
            raise FormatError(f"a text of {size} bytes, {item_count} times, is too large", structure="vlsa")
        data = (child.text or "").encode()
        if size is not None:
            if int(size) > MOST_BYTES:
                raise FormatError(f"a text of {size} bytes is too large", structure="vlsa")
            data = inflate(decode_base64(data, "vlsa"), int(size), "vlsa")
            if len(data) != int(size):
                raise FormatError(f"a text has {len(data)} bytes, not {size} as declared", structure="vlsa")
        total += int(item_count)
        nbytes += int(item_count) * (4 + len(data))
        if total > min(count, MOST_TEXTS) or nbytes > MOST_BYTES:
            break
        parts.append((struct.pack("<I", len(data)) + data) * int(item_count))
    if total != count or nbytes > MOST_BYTES:
        raise FormatError(f"the document holds {total} texts of {nbytes} bytes for {count} elements", structure="vlsa")
    return b"".join(parts)


def parse_structures(variable: Any, element: Any, count: int) -> tuple[np.dtype[Any], bytes]:
    """Return the records of `specialstructuredata`.

    Numbers as stored, texts as long as the longest.
    """
    data = decode_element(element)
    members = members_of(variable)
    smallest = sum(_least_bytes(kind, shape) for _, kind, shape in members)
    if count * smallest > len(data):
        raise FormatError(f"{len(data)} bytes cannot hold {count} structures", structure="specialstructuredata")
    at = 0
    columns: list[list[Any]] = [[] for _ in members]
    for _ in range(count):
        for column, (_, kind, shape) in zip(columns, members, strict=True):
            if kind in TEXTS:
                found = []
                for _ in range(math.prod(shape)):
                    end = data.find(b";", at)
                    if end < 0:
                        raise FormatError("a text has no end", structure="specialstructuredata")
                    found.append(decode_base64(data[at:end], "specialstructuredata"))
                    at = end + 1
                column.append(found)
            else:
                nbytes = math.prod(shape) * int(NUMBERS[kind][1:])
                column.append(data[at : at + nbytes])
                at += nbytes
    if at != len(data):
        raise FormatError(
            f"the structures take {at} bytes, the document holds {len(data)}", structure="specialstructuredata"
        )
    kinds = [_member_type(kind, column) for (_, kind, _), column in zip(members, columns, strict=True)]
    dtype = np.dtype([(name, form, shape) for (name, _, shape), form in zip(members, kinds, strict=True)])
    if dtype.itemsize * count > MOST_BYTES:
        raise FormatError(
            f"{count} structures of {dtype.itemsize} bytes are too large", structure="specialstructuredata"
        )
    records = np.zeros(count, dtype)
    for (name, kind, shape), form, column in zip(members, kinds, columns, strict=True):
        if kind in TEXTS:
            values = np.array([text for found in column for text in found], form)
        else:
            values = np.frombuffer(b"".join(column), form)
        records[name] = values.reshape(count, *shape)
    return dtype, records.tobytes()


def _least_bytes(kind: str, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * (1 if kind in TEXTS else int(NUMBERS[kind][1:]))


def _member_type(kind: str, column: list[Any]) -> str:
    if kind in TEXTS:
        return f"S{max((len(text) for found in column for text in found), default=1) or 1}"
    return f"<{NUMBERS[kind]}"
