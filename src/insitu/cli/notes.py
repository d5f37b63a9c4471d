"""What of an archive is there, but cannot be had in full here, and why?"""

from __future__ import annotations

from collections.abc import Iterator

from insitu.codecs import prepare
from insitu.errors import InsituError
from insitu.model import ArrayDetails, GroupDetails, VirtualArray, VirtualGroup

__all__ = ["notes"]


def notes(group: VirtualGroup) -> list[tuple[str, str]]:
    """Paths, and what is to be said of them: codecs that nothing here decodes, attributes that are not read, sources that are missing."""
    said: list[tuple[str, str]] = []
    for path, node in group.walk():
        said += [(path or "/", text) for text in _unread(node.details)]
    for path, array in group.all_arrays():
        said += [(path, text) for text in (*_undecoded(array), *_unread(array.details))]
        if "MATLAB_object_decode" in array.attributes:
            kind = array.attributes.get("MATLAB_class", "unknown")
            said.append(
                (path, f"a MATLAB object of class {kind!r}: what is stored can be read, what it means only by MATLAB")
            )
        missing = array.details.missing_sources
        if missing:
            said.append(
                (path, f"filled where its sources are missing: {', '.join(missing[:3])}{' …' * (len(missing) > 3)}")
            )
    return said


def _unread(details: ArrayDetails | GroupDetails) -> Iterator[str]:
    for name, why in details.unread_attributes.items():
        yield f"attribute {name!r} is not read: {why}"


def _undecoded(array: VirtualArray) -> Iterator[str]:
    """Why the chunks of an array cannot be decoded here."""
    for encoding in dict.fromkeys(encoding for tile in array.tiles for encoding in tile.encodings):
        try:
            prepare(encoding, (1,) * max((len(tile.axes) for tile in array.tiles), default=0))
        except InsituError as problem:
            yield f"cannot be decoded: {problem}"
