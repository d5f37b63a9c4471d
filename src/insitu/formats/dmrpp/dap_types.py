"""NumPy types of DAP4 variables in a DMR++ document.

Numbers by their DAP name and the byte order of their chunks; enumerations by the numbers behind
them; texts of one length; and structures of numbers, whose members lie where `structOffset` says.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from insitu.errors import FormatError, UnsupportedError
from insitu.formats.dmrpp.chunk_lists import ChunkList
from insitu.formats.dmrpp.text_values import NUMBERS, child_of, local_name, whole_number

__all__ = ["KINDS", "TEXTS", "dtype_of", "members_of", "text_padding"]

TEXTS = ("String", "URL", "Url", "URI")
KINDS = frozenset({*NUMBERS, *TEXTS, "Enum", "Opaque", "Structure", "Sequence"})
LARGEST_RECORD = 1 << 24
MOST_MEMBERS = 1 << 12
PADDINGS = {"space_pad": "space-padded", "null_term": "null-terminated"}
"""Of texts of one length, in the words of the codec `hdf5_text`. NumPy's own is `null_pad`."""
MOST_AXES = 32


def dtype_of(element: Any, chunks: ChunkList | None, enums: dict[str, str]) -> np.dtype[Any] | None:
    """What one element is; None: texts whose length the document does not give.

    Parameters
    ----------
    element
        The variable.
    chunks
        Its chunks.
    enums
        The types behind the enumerations of the document, by full name.
    """
    kind = local_name(element)
    order = "<" if chunks is None or chunks.attributes.get("byteOrder", "LE").upper() == "LE" else ">"
    if kind == "Enum":
        full = element.get("enum", "")
        kind = enums.get(full if full.startswith("/") else f"/{full}", "Enum")
    if kind in NUMBERS:
        return np.dtype(f"{order}{NUMBERS[kind]}")
    if kind in TEXTS:
        fixed = child_of(element, "FixedLengthStringArray")
        if fixed is not None:
            length = whole_number(fixed, "string_length")
            if length > LARGEST_RECORD:
                raise FormatError(f"a text of {length} bytes is too long", structure="FixedLengthStringArray")
            return np.dtype(f"S{max(length, 1)}")
        return None
    if kind == "Structure":
        return _record(element, chunks, order)
    raise UnsupportedError(f"DMR++: variables of type {kind} are not supported", structure=kind)


def text_padding(element: Any) -> str | None:
    """Return how texts of one length are padded, if otherwise than NumPy pads them."""
    fixed = child_of(element, "FixedLengthStringArray")
    return None if fixed is None else PADDINGS.get(fixed.get("pad", ""))


def members_of(element: Any) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return name, DAP type and shape of the members of a structure."""
    found = []
    for child in element:
        kind = local_name(child)
        if kind not in KINDS:
            continue
        if kind not in NUMBERS and kind not in TEXTS:
            raise UnsupportedError(f"DMR++: structures with a member of type {kind} are not supported", structure=kind)
        shape = tuple(whole_number(dim, "size") for dim in child if local_name(dim) == "Dim")
        if len(shape) > MOST_AXES or math.prod(shape) > LARGEST_RECORD:
            raise FormatError(f"a member of a structure cannot have the shape {shape}", structure="Structure")
        found.append((child.get("name", ""), kind, shape))
    if sum(math.prod(shape) for _, _, shape in found) > LARGEST_RECORD:
        raise FormatError("a structure is too large", structure="Structure")
    names = {name for name, _, _ in found}
    if not found or len(found) > MOST_MEMBERS or len(names) < len(found) or "" in names:
        raise FormatError(
            f"two of the {len(found)} members of a structure share a name, or there are none", structure="Structure"
        )
    return found


def _record(element: Any, chunks: ChunkList | None, order: str) -> np.dtype[Any]:
    members = members_of(element)
    texts = [name for name, kind, _ in members if kind in TEXTS]
    if texts:
        raise UnsupportedError(
            f"member {texts[0]!r} of a structure is a text, whose length DMR++ does not give", structure="Structure"
        )
    formats = [np.dtype((f"{order}{NUMBERS[kind]}", shape)) for _, kind, shape in members]
    names = [name for name, _, _ in members]
    declared = [] if chunks is None else chunks.attributes.get("structOffset", "").split()
    if not declared:
        return np.dtype(list(zip(names, formats, strict=True)))
    numbers = [int(text) for text in declared if text.isdecimal() and len(text) < 19]
    ends = [offset + form.itemsize for offset, form in zip([0, *numbers[:-1]], formats, strict=False)]
    if (
        len(numbers) != len(members)
        or len(numbers) != len(declared)
        or max(ends) > numbers[-1]
        or numbers[-1] > LARGEST_RECORD
    ):
        raise FormatError(f"members at {' '.join(declared)} in a structure of {len(members)}", structure="structOffset")
    return np.dtype({"names": names, "formats": formats, "offsets": [0, *numbers[:-1]], "itemsize": numbers[-1]})
