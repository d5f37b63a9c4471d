"""Which formats do other packages bring?

A package declares an entry point in the group `insitu.formats`, whose name is the format's and whose value is a `Format`: how to recognise a file, how to
scan it. It is loaded when a file is of no format that insitu knows itself, or when it is asked for by name.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from insitu.errors import UnsupportedError

__all__ = ["GROUP", "registered", "registered_names"]

GROUP = "insitu.formats"


@cache
def _declared() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def registered_names() -> tuple[str, ...]:
    """The names of formats that other packages bring."""
    return tuple(_declared())


def registered(name: str) -> Any:
    """The format of that name, from the package that brings it.

    Raises
    ------
    UnsupportedError
        If the package cannot be loaded, or gives something else.
    """
    point = _declared()[name]
    try:
        found = point.load()
    except Exception as problem:  # whatever a foreign package raises when it is imported
        raise UnsupportedError(
            f"the format {name!r} of {_package(point)} cannot be loaded: {problem!r}",
            hint="Mend or remove that package",
        ) from problem
    if not (callable(getattr(found, "matches", None)) and callable(getattr(found, "scan", None))):
        raise UnsupportedError(f"the format {name!r} of {_package(point)} is no insitu.formats.Format but {found!r}")
    return found


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
