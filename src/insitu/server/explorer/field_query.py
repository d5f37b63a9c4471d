"""What a request for a field asks: variable, sides, fixed positions, box, statistic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from insitu.server.error_responses import RequestError
from insitu.server.explorer.api_query import ApiQuery, check_dimension
from insitu.server.explorer.field_sampling import FieldBox
from insitu.server.explorer.find_array import find_array
from insitu.server.explorer.formula_array import FormulaArray, ShownArray, group_of_array
from insitu.server.explorer.opened_archives import OpenedArchive
from insitu.server.explorer.shown_values import kind_of
from insitu.server.explorer.spatial_dimensions import spatial_dimensions

__all__ = ["FIELD_STATISTICS", "FieldQuery", "find_numbers", "find_values", "parse_field_query"]

FIELD_STATISTICS = ("mean", "min", "max", "std")
"""Those of `insitu.reducing.STATISTICS` that the page offers."""


@dataclass(frozen=True, slots=True)
class FieldQuery:
    """A field of a variable: two dimensions, the others fixed or reduced."""

    path: str
    array: ShownArray
    y: str
    x: str
    index: Mapping[str, int]
    """Position along each dimension that is neither drawn nor reduced."""
    box: FieldBox
    statistic: str | None = None
    over: tuple[str, ...] = ()
    """Dimensions that the statistic reduces."""

    @property
    def group(self) -> str:
        """Path of the group of the variable."""
        return group_of_array(self.path, self.array)

    @property
    def name(self) -> str:
        """Name of the values in a file."""
        return "formula" if isinstance(self.array, FormulaArray) else self.path.rpartition("/")[2]

    @property
    def sides(self) -> tuple[int, int]:
        """Numbers of the dimensions along y and x."""
        return self.array.dims.index(self.y), self.array.dims.index(self.x)

    def select(self, rows: Any, columns: Any) -> tuple[Any, ...]:
        """Return the selection of the variable with these rows and columns."""
        chosen = {self.y: rows, self.x: columns, **self.index}
        return tuple(chosen.get(dim, slice(None)) for dim in self.array.dims)


def parse_field_query(archive: OpenedArchive, query: ApiQuery) -> FieldQuery:
    """Return the field that a query asks for; the sides are found if it does not name them."""
    path, array, sizes = find_numbers(archive, query)
    found = spatial_dimensions(archive, group_of_array(path, array), array)
    if found is None:
        raise RequestError(f"{path[:200]!r} has fewer than two dimensions", why="Ask api/line or api/table for it")
    y, x = query.get("y") or found["y"], query.get("x") or found["x"]
    for dim in (y, x):
        check_dimension(dim, sizes)
    if y == x:
        raise RequestError(f"y and x must be two dimensions, not {y!r} twice")
    over = query.names("over")
    statistic = query.choice("statistic", FIELD_STATISTICS, "mean") if over or query.get("statistic") else None
    for dim in over:
        if dim not in sizes or dim in (y, x):
            raise RequestError(f"over must name dimensions that are not drawn, not {dim[:40]!r}")
    if statistic is not None and not over:
        raise RequestError("a statistic needs the dimensions to reduce", why="Name them in the field over")
    if statistic is not None and kind_of(array) == "time":
        raise RequestError("times have no statistics here: select one position of the dimension instead")
    given = query.index(sizes)
    index = {dim: given.get(dim, 0) for dim in array.dims if dim not in (y, x, *over)}
    return FieldQuery(path, array, y, x, index, FieldBox(*query.box(sizes[y], sizes[x])), statistic, over)


def find_values(archive: OpenedArchive, query: ApiQuery) -> tuple[str, ShownArray, dict[str, int]]:
    """Return the path of the variable, or the formula, that a query names, its array, and the length of each dimension;
    an error if it has no values, or two dimensions have one name.
    """
    path = query.require("variable").strip("/")
    array = find_array(archive, path)
    sizes = dict(zip(array.dims, array.shape, strict=True))
    if len(sizes) < array.ndim:
        raise RequestError(f"{path[:200]!r} has a dimension twice: {', '.join(array.dims)}", why="Ask api/table for it")
    if 0 in array.shape:
        raise RequestError(f"{path[:200]!r} has no values: a dimension has length 0")
    return path, array, sizes


def find_numbers(archive: OpenedArchive, query: ApiQuery) -> tuple[str, ShownArray, dict[str, int]]:
    """Return the same; an error if the variable cannot be drawn, too."""
    found = find_values(archive, query)
    if kind_of(found[1]) in ("text", "other"):
        raise RequestError(
            f"{found[0][:200]!r} holds no numbers that could be drawn", why="Ask api/table for its values"
        )
    return found
