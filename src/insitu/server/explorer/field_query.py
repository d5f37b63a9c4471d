"""What a request for a field asks: variable, sides, fixed positions, box, statistic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from insitu.server.error_responses import RequestError
from insitu.server.explorer.api_query import ApiQuery, check_dimension
from insitu.server.explorer.field_sampling import FieldBox
from insitu.server.explorer.find_array import find_array
from insitu.server.explorer.find_map import find_map
from insitu.server.explorer.formula_array import FormulaArray, ShownArray, group_of_array
from insitu.server.explorer.opened_archives import OpenedArchive
from insitu.server.explorer.shown_values import kind_of
from insitu.server.explorer.spatial_dimensions import spatial_dimensions

__all__ = ["FIELD_STATISTICS", "FieldQuery", "find_numbers", "find_values", "parse_field_query"]

FIELD_STATISTICS = ("mean", "min", "max", "std")
"""Those of `insitu.reducing.STATISTICS` that the page offers."""


@dataclass(frozen=True, slots=True)
class FieldQuery:
    """A field of a variable: two dimensions, or one that counts cells, the others fixed or reduced."""

    path: str
    array: ShownArray
    y: str | None
    """None: the field is one row of cells."""
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
    def sides(self) -> tuple[int | None, int]:
        """Numbers of the dimensions along y and x."""
        dims = self.array.dims
        return None if self.y is None else dims.index(self.y), dims.index(self.x)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the whole field."""
        y, x = self.sides
        return 1 if y is None else self.array.shape[y], self.array.shape[x]

    def select(self, rows: Any, columns: Any) -> tuple[Any, ...]:
        """Return the selection of the variable with these rows and columns."""
        chosen: dict[Any, Any] = {self.y: rows, self.x: columns, **self.index}
        return tuple(chosen.get(dim, slice(None)) for dim in self.array.dims)


def parse_field_query(archive: OpenedArchive, query: ApiQuery) -> FieldQuery:
    """Return the field that a query asks for; the sides are found if it does not name them."""
    path, array, sizes = find_numbers(archive, query)
    y, x = _find_sides(archive, query, path, array)
    for dim in (y, x):
        if dim is not None:
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
    height = 1 if y is None else sizes[y]
    return FieldQuery(path, array, y, x, index, FieldBox(*query.box(height, sizes[x])), statistic, over)


def _find_sides(archive: OpenedArchive, query: ApiQuery, path: str, array: ShownArray) -> tuple[str | None, str]:
    """Return the dimensions along y and x; without y, None and the dimension that counts cells, if there is one."""
    group, given = group_of_array(path, array), query.get("x") or None
    if not query.get("y"):
        found = find_map(archive, group, array, None, given)
        if found is not None and found.y is None:
            return None, found.x
    spatial = spatial_dimensions(archive, group, array)
    if spatial is None:
        raise RequestError(f"{path[:200]!r} has fewer than two dimensions", why="Ask api/line or api/table for it")
    return query.get("y") or spatial["y"], given or spatial["x"]


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
