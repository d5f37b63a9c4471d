"""What a format says about arrays and groups beside their attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["ArrayDetails", "GroupDetails"]


@dataclass(frozen=True, slots=True)
class ArrayDetails:
    """What a format says about an array."""

    chunks: tuple[int, ...] | None = None
    """Shape of the stored chunks; None: the array is not chunked, or that is not known."""
    is_chunking_known: bool = False
    """Whether the format says whether and how the array is chunked."""
    enumeration: Mapping[str, int] | None = None
    """Names of values."""
    enumeration_name: str | None = None
    """Of the type that has these names."""
    charset: str | None = None
    """Of texts."""
    varying: str | None = None
    """Of elements of varying length: `string` or `sequence`."""
    reference: str | None = None
    """Of references to objects of the file: `object` or `region`."""
    address: int | None = None
    """Where the object lies, for references to it."""
    element_shape: tuple[int, ...] = ()
    """Of elements that are arrays: the last dimensions of the array."""
    stored_shape: tuple[int, ...] | None = None
    """The shape in the file, where a dimension grew and the array did not."""
    is_null: bool = False
    """Whether the file says that there is nothing."""
    is_virtual: bool = False
    """Whether the file puts it together from other arrays."""
    text: str | None = None
    """The one text that it holds, where that is known."""
    unread_attributes: Mapping[str, str] = field(default_factory=dict)
    """Attributes that are left out: why."""
    missing_sources: tuple[str, ...] = ()
    """Files that it should be put together from and that are not there."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """For people. Nothing depends on them."""

    def to_document(self) -> dict[str, Any]:
        """Return what is said, by name."""
        return _said(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ArrayDetails:
        """Return what `to_document` gave; names of newer versions are left out."""
        return cls(**_known(cls, document))


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """What a format says about a group."""

    format: str | None = None
    """The format by name."""
    dims: Mapping[str, int] = field(default_factory=dict)
    """Dimensions that the group declares, used or not: their lengths."""
    address: int | None = None
    """Where the object lies, for references to it."""
    structure: Any = None
    """The format's own description of structures that its vendor conventions know, such as HDF-EOS grids. It is used when a file is opened, and not saved."""
    unread_attributes: Mapping[str, str] = field(default_factory=dict)
    """Attributes that are left out: why."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """For people. Nothing depends on them."""

    def to_document(self) -> dict[str, Any]:
        """Return what is said, by name; without vendor structures."""
        return {name: value for name, value in _said(self).items() if name != "structure"}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> GroupDetails:
        """Return what `to_document` gave; names of newer versions are left out."""
        return cls(**_known(cls, document))


def _said(details: ArrayDetails | GroupDetails) -> dict[str, Any]:
    found = {item.name: getattr(details, item.name) for item in fields(details)}
    return {
        name: value
        for name, value in found.items()
        if value is not None and value != () and value != {} and value is not False
    }


def _known(kind: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    names = {item.name for item in fields(kind)}
    return {
        str(name): tuple(value) if isinstance(value, list) else value
        for name, value in document.items()
        if name in names
    }
