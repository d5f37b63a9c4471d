"""The query of a request to the explorer's API: its fields, checked, with errors that say what to send."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from insitu.active.message_decoder import decode_json
from insitu.errors import ModelError
from insitu.server.error_responses import RequestError

__all__ = ["ApiQuery", "check_dimension"]

MAX_FIELD_CHARS = 20_000
"""Longest field of a query."""


class ApiQuery(Mapping[str, str]):
    """The fields of a query.

    Parameters
    ----------
    fields
        Name and value of each, as they came; of a name that is given twice, the last counts.
    """

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        self._fields = dict(fields)
        for name, value in self._fields.items():
            if len(value) > MAX_FIELD_CHARS:
                raise RequestError(f"the field {name[:40]!r} of the query is longer than {MAX_FIELD_CHARS} characters")

    def __getitem__(self, name: str) -> str:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def require(self, name: str) -> str:
        """Return a field that must be there."""
        found = self.get(name)
        if not found:
            raise RequestError(f"the query has no field {name!r}")
        return found

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """Return a field that is one of some words."""
        found = self.get(name) or default
        if found not in choices:
            raise RequestError(f"{name} must be one of {', '.join(choices)}, not {found[:40]!r}")
        return found

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return a whole number; one that is too large counts as the largest."""
        found = self.get(name)
        if not found:
            return default
        try:
            number = int(found)
        except ValueError:
            raise RequestError(f"{name} must be a whole number, not {found[:40]!r}") from None
        if number < least:
            raise RequestError(f"{name} must be at least {least}, not {number}")
        return min(number, most)

    def names(self, name: str) -> tuple[str, ...]:
        """Return names that commas separate."""
        return tuple(part for part in (self.get(name) or "").split(",") if part)

    def index(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the positions along dimensions that the field `index` gives, a JSON object.

        Parameters
        ----------
        sizes
            Length of each dimension of the variable.
        """
        given = self._json("index", {})
        if not isinstance(given, dict):
            raise RequestError('index must be a JSON object, e.g. {"time": 0}')
        for dim, position in given.items():
            check_dimension(dim, sizes)
            if isinstance(position, bool) or not isinstance(position, int):
                raise RequestError(f"the index of {dim!r} must be a whole number, not {str(position)[:40]!r}")
            if not 0 <= position < sizes[dim]:
                raise RequestError(f"the index {position} lies outside the dimension {dim!r} of length {sizes[dim]}")
        return given

    def box(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Return the rows and columns that the field `box` gives, `[y0, y1, x0, x1]`, ends exclusive;
        all without it.
        """
        given = self._json("box", None)
        if given is None:
            return 0, height, 0, width
        if not isinstance(given, list) or len(given) != 4 or not all(type(number) is int for number in given):
            raise RequestError("box must be four whole numbers: [y0,y1,x0,x1]")
        top, bottom, left, right = given
        if not (0 <= top < bottom <= height and 0 <= left < right <= width):
            raise RequestError(
                f"the box {given} must lie within {height} rows and {width} columns, with y0 < y1 and x0 < x1"
            )
        return top, bottom, left, right

    def polygon(self, most: int) -> list[list[float]] | None:
        """Return the vertices that the field `polygon` gives, `[[x, y], …]`; None without it."""
        given = self._json("polygon", None)
        if given is None:
            return None
        if not isinstance(given, list) or not all(_is_pair(vertex) for vertex in given) or len(given) < 3:
            raise RequestError("polygon must be three or more pairs of numbers: [[x,y],[x,y],[x,y]]")
        if len(given) > most:
            raise RequestError(f"the polygon has {len(given):,} vertices; {most:,} are allowed: simplify it")
        return given

    def _json(self, name: str, default: Any) -> Any:
        text = self.get(name)
        if not text:
            return default
        try:
            return decode_json(text)
        except ModelError:
            raise RequestError(f"{name} is not JSON: {text[:40]!r}") from None


def _is_pair(vertex: Any) -> bool:
    return (
        isinstance(vertex, list)
        and len(vertex) == 2
        and all(type(number) in (int, float) and math.isfinite(number) for number in vertex)
    )


def check_dimension(dim: str, dims: Collection[str], what: str = "variable") -> None:
    """Raise an error if a variable, or a group, has no such dimension."""
    if dim not in dims:
        raise RequestError(f"the {what} has no dimension {dim[:40]!r}: it has {', '.join(dims) or 'none'}")
