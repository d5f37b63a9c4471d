"""Decoder of the messages between client and server, CBOR and JSON, with bounded work and memory.

Messages consist of maps, lists, text, bytes, numbers of 64 bits, true, false and null. The heads of all items of CBOR
are checked in one linear pass before a library decodes them: tags (values that refer to themselves, numbers of any
length), too many items, too deep nesting, and lengths beyond the end of the message are refused. The pass takes 0.3
to 0.6 microseconds an item. JSON has the same limits.
"""

from __future__ import annotations

import io
import json
from typing import Any

from insitu.cancellation import check_deadline
from insitu.errors import ModelError, UnsupportedError
from insitu.forking import import_before_fork

__all__ = [
    "MAX_ITEMS",
    "MAX_NESTING",
    "MessageTooLargeError",
    "count_items",
    "decode_cbor",
    "decode_json",
    "decode_sequence",
    "import_cbor2",
]

MAX_ITEMS = 1 << 21
"""Items of a request: columns of numbers are bytes, one item each."""
MAX_NESTING = 128
"""Levels of maps and lists within each other: 32 groups of an archive, and what the innermost contains."""
MAX_DIGITS = 20
"""Characters of an integer of 64 bits."""
UNBOUNDED = 1 << 62
"""Stands for the number of items of a sequence, or of a list or map that says where it ends; it is even, as the number
of keys and values of a map is."""
BREAK = 0xFF
_MARKS = (b",", b":", b"[", b"{")
"""What separates the items of JSON, or begins them."""


class MessageTooLargeError(ModelError):
    """The message has more items than are accepted."""

    kind = "too-large"


def decode_cbor(data: bytes, most: int = MAX_ITEMS) -> Any:
    """Return the one item of a message in CBOR.

    Parameters
    ----------
    data
        The message.
    most
        How many items it may have in all.
    """
    items = decode_sequence(data, most)
    if len(items) != 1:
        raise ModelError(f"the message must be one item of CBOR, not {len(items)}")
    return items[0]


def count_items(data: bytes, most: int = MAX_ITEMS, *, is_json: bool = False) -> int:
    """Return how many items a message has, before it is decoded; an error if there are too many, or it is damaged."""
    if not is_json:
        return _check_heads(data, most)
    items = sum(data.count(mark) for mark in _MARKS)
    if items > most:
        raise _too_many_error(most)
    return items


def decode_sequence(data: bytes, most: int | None = None) -> list[Any]:
    """Return the items of a sequence of CBOR (RFC 8742); without `most` there may be as many as there are bytes."""
    _check_heads(data, len(data) if most is None else most)
    stream = io.BytesIO(data)
    cbor2 = import_cbor2()
    decoder, found = cbor2.CBORDecoder(stream), []
    try:
        while stream.tell() < len(data):
            found.append(decoder.decode())
    except (cbor2.CBORDecodeError, ValueError, RecursionError) as problem:  # text that is not UTF-8
        raise ModelError(f"the message is not valid CBOR: {str(problem)[:200]}") from None
    return found


def decode_json(data: bytes | str, most: int = MAX_ITEMS) -> Any:
    """Return a message in JSON; a name that occurs twice in a map is an error."""
    body = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    count_items(body, most, is_json=True)
    try:
        found = json.loads(body, object_pairs_hook=_unique_names, parse_int=_parse_integer)
    except RecursionError:
        raise _too_deep_error() from None
    except ValueError as problem:
        raise ModelError(f"the message is not valid JSON: {str(problem)[:200]}") from None
    level: list[Any] = [[found]]
    for _ in range(MAX_NESTING + 1):
        level = [
            inner
            for item in level
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return found
    raise _too_deep_error()


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate field")
    return found


def _parse_integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError("an integer must fit 64 bits")
    return int(text)


def _too_many_error(most: int) -> ModelError:
    return MessageTooLargeError(f"the message has more than {most} items")


def _too_deep_error() -> ModelError:
    return ModelError(f"maps and lists of the message lie within each other more than {MAX_NESTING} times")


def _fixed_sizes() -> bytes:
    """Return for each first byte how many bytes the item has; 0 if the head does not say, or is not accepted.

    These are integers, floating-point numbers (RFC 8949, sections 3.1 and 3.3), false, true, null, short strings, and
    lists and maps that are empty.
    """
    sizes = bytearray(256)
    for kind in (0, 1):
        sizes[kind << 5 : (kind << 5) + 28] = bytes([1] * 24 + [2, 3, 5, 9])
    for kind in (2, 3):
        sizes[kind << 5 : (kind << 5) + 24] = bytes(range(1, 25))
    sizes[0x80] = sizes[0xA0] = 1
    sizes[0xF4:0xF7] = bytes([1, 1, 1])
    sizes[0xF9:0xFC] = bytes([3, 5, 9])
    return bytes(sizes)


_FIXED_SIZES = _fixed_sizes()
_KEY_KINDS = (0, 1, 3)
"""Integers and text: keys whose hashes do not collide by the thousand."""


def _check_heads(data: bytes, most: int) -> int:
    """Return the number of items of a sequence of CBOR; an error unless it is complete and within the limits, so that
    decoding it is cheap.
    """
    at, end, items = 0, len(data), 0
    left, in_map = UNBOUNDED, False
    outer: list[tuple[int, bool]] = []  # the same of the lists and maps around
    while at < end:
        first = data[at]
        kind = first >> 5
        items += 1
        if items > most:
            raise _too_many_error(most)
        if not items % 65536:
            check_deadline()
        if in_map and not left % 2 and kind not in _KEY_KINDS and first != BREAK:
            raise ModelError("the keys of a map must be text or integers")
        left -= 1
        size = _FIXED_SIZES[first]
        if size:
            at += size
        elif first == BREAK:
            if not outer or left < UNBOUNDED // 2 or (in_map and not left % 2):
                raise ModelError("the message is not valid CBOR: an item ends that has not begun")
            left, in_map = outer.pop()
            at += 1
        else:
            length = first & 31
            if length < 24 and kind != 7 and kind != 6:
                at += 1
            else:
                length, at = _read_length(data, at)
            if kind in (2, 3) and length < UNBOUNDED:
                at += length
            else:
                is_map = kind == 5
                if length < UNBOUNDED:
                    length *= 1 + is_map
                    if length > end - at:
                        raise ModelError("the message is not valid CBOR: it ends within a list or map")
                    if items + length > most:
                        raise _too_many_error(most)
                if len(outer) == MAX_NESTING:
                    raise _too_deep_error()
                outer.append((left, in_map))
                left, in_map = length, is_map
        while not left:
            left, in_map = outer.pop()
    if at > end or outer:
        raise ModelError("the message is not valid CBOR: it ends within an item")
    return items


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    """Return the length of a string, list or map, and where its content begins."""
    first = data[at]
    kind, short = first >> 5, first & 31
    if kind == 6:
        raise ModelError("the message has a tag of CBOR: send maps, lists, text, bytes and numbers of 64 bits only")
    if kind not in (2, 3, 4, 5) or 28 <= short <= 30:
        raise ModelError(f"the message has an item of CBOR that is not accepted: it begins with {first:#04x}")
    if short == 31:
        return UNBOUNDED, at + 1
    if short < 24:
        return short, at + 1
    size = 1 << (short - 24)
    length = int.from_bytes(data[at + 1 : at + 1 + size], "big")
    if length > len(data):
        raise ModelError("the message is not valid CBOR: it ends within an item")
    return length, at + 1 + size


def import_cbor2() -> Any:
    """Return the package cbor2; an error that names it if it is not installed."""
    try:
        return import_before_fork("cbor2")
    except ImportError:
        raise UnsupportedError(
            "requests to a server need the package cbor2", hint="pip install 'insitu[serve]'"
        ) from None
