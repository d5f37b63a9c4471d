"""What formats say about arrays and groups beyond attributes: chunk shape, charset, notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["ArrayDetails", "GroupDetails"]


@dataclass(frozen=True, slots=True)
class ArrayDetails:
    """What a format says about an array beyond its attributes."""

    chunks: tuple[int, ...] | None = None
    """Shape of the stored chunks; None: the array is not chunked, or that is not known."""
    is_chunking_known: bool = False
    """Whether the format says whether and how the array is chunked."""
    enumeration: Mapping[str, int] | None = None
    """Names of integer values."""
    enumeration_name: str | None = None
    """Name of the enumeration type."""
    charset: str | None = None
    """Character set of texts."""
    varying: str | None = None
    """Kind of elements of varying length: `string` or `sequence`."""
    reference: str | None = None
    """Kind of references to objects of the file: `object` or `region`."""
    element_shape: tuple[int, ...] = ()
    """Shape of elements that are arrays themselves: the last dimensions of the array."""
    stored_shape: tuple[int, ...] | None = None
    """Shape of the array in the file, if a shared dimension has grown beyond it."""
    is_null: bool = False
    """Whether the file declares that the array has no elements (a null dataspace)."""
    is_virtual: bool = False
    """Whether the file composes the array from other arrays (a virtual dataset)."""
    text: str | None = None
    """The text of an array that holds one text, if known."""
    unread_attributes: Mapping[str, str] = field(default_factory=dict)
    """Attributes that could not be read, with the reasons."""
    missing_sources: tuple[str, ...] = ()
    """Files that the array is composed from and that are missing."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Notes for users; no code depends on them."""

    def to_document(self) -> dict[str, Any]:
        """Return the fields that are set, by name."""
        return _nonempty_fields(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ArrayDetails:
        """Return the details that `to_document` wrote; fields of newer versions are ignored."""
        return cls(**_known_fields(cls, document))


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """What a format says about a group beyond its attributes."""

    format: str | None = None
    """Name of the format."""
    dims: Mapping[str, int] = field(default_factory=dict)
    """Dimensions that the group declares, used or not: their lengths."""
    structure: Any = None
    """The format's own description of vendor structures, such as HDF-EOS grids.

    Used when a file is opened; not saved.
    """
    unread_attributes: Mapping[str, str] = field(default_factory=dict)
    """Attributes that could not be read, with the reasons."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Notes for users; no code depends on them."""

    def to_document(self) -> dict[str, Any]:
        """Return the fields that are set, by name, without vendor structures."""
        return {name: value for name, value in _nonempty_fields(self).items() if name != "structure"}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> GroupDetails:
        """Return the details that `to_document` wrote; fields of newer versions are ignored."""
        return cls(**_known_fields(cls, document))


def _nonempty_fields(details: ArrayDetails | GroupDetails) -> dict[str, Any]:
    found = {item.name: getattr(details, item.name) for item in fields(details)}
    return {
        name: value
        for name, value in found.items()
        if value is not None and value != () and value != {} and value is not False
    }


def _known_fields(kind: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    names = {item.name for item in fields(kind)}
    return {
        str(name): tuple(value) if isinstance(value, list) else value
        for name, value in document.items()
        if name in names
    }
