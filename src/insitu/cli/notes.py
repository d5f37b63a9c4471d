"""Notes on parts of an archive that cannot be read completely: codecs, attributes, missing sources."""

from __future__ import annotations

from collections.abc import Iterator

from insitu.codecs import prepare
from insitu.errors import InsituError
from insitu.model import ArrayDetails, GroupDetails, VirtualArray, VirtualGroup

__all__ = ["notes"]


def notes(group: VirtualGroup) -> list[tuple[str, str]]:
    """Return paths and notes: codecs without a decoder,
    attributes that are not read, missing sources.
    """
    found: list[tuple[str, str]] = []
    for path, node in group.walk():
        found += [(path or "/", text) for text in _unread(node.details)]
    for path, array in group.all_arrays():
        found += [(path, text) for text in (*_undecoded(array), *_unread(array.details))]
        if "MATLAB_object_decode" in array.attributes:
            kind = array.attributes.get("MATLAB_class", "unknown")
            found.append(
                (
                    path,
                    f"a MATLAB object of class {kind!r}: the stored values are shown, only MATLAB can interpret them",
                )
            )
        missing = array.details.missing_sources
        if missing:
            found.append(
                (path, f"filled where its sources are missing: {', '.join(missing[:3])}{' …' * (len(missing) > 3)}")
            )
    return found


def _unread(details: ArrayDetails | GroupDetails) -> Iterator[str]:
    for name, why in details.unread_attributes.items():
        yield f"attribute {name!r} is not read: {why}"


def _undecoded(array: VirtualArray) -> Iterator[str]:
    """Yield the reasons why chunks of an array cannot be decoded."""
    for encoding in dict.fromkeys(encoding for tile in array.tiles for encoding in tile.encodings):
        try:
            prepare(encoding, (1,) * max((len(tile.axes) for tile in array.tiles), default=0))
        except InsituError as problem:
            yield f"cannot be decoded: {problem}"
