"""`api/region`: area-weighted statistics of a box or polygon, along a dimension or at one position; also as a file."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from insitu.expressions.boxes import BoxMemory
from insitu.expressions.element_operations import cast, mask
from insitu.expressions.nodes import Expression
from insitu.reading import ReadContext, read_array
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reduce_expression import fold_expression, reduce_expression
from insitu.reducing.weighted_statistics import WeightedFolding
from insitu.server.error_responses import RequestError, RequestTooLargeError
from insitu.server.explorer.answers.field_download import to_netcdf
from insitu.server.explorer.answers.field_geometry import find_field_map
from insitu.server.explorer.answers.field_values import MAX_DECODED_BYTES
from insitu.server.explorer.api_answer import ApiAnswer, binary_answer
from insitu.server.explorer.api_query import check_dimension
from insitu.server.explorer.archive_route import ApiTask, ArchiveRequest
from insitu.server.explorer.field_query import FieldQuery, parse_field_query
from insitu.server.explorer.formula_array import estimate_values, group_of_array, select_values
from insitu.server.explorer.region import (
    MAX_CELLS,
    Region,
    area_weights,
    parse_region,
    parse_region_of_map,
    side_centres,
)
from insitu.server.explorer.shown_values import kind_of, long_name_of, to_text, units_of, value_range
from insitu.server.explorer.side_labels import describe_side, selection_text
from insitu.server.explorer.spatial_dimensions import find_coordinate

if TYPE_CHECKING:
    import xarray

__all__ = ["prepare_region"]

MAX_POSITIONS = 200_000
"""Positions along the dimension of a line."""
BOX_BYTES = 32 << 20
"""What is reduced at a time."""
SLAB_BYTES = 128 << 20
"""What corners of cells take at a time, where areas lie between them."""
Values = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class RegionQuery:
    """What a request for a region asks."""

    field: FieldQuery
    along: str | None
    """The dimension that the statistics follow; None: one position."""
    axes: str
    """What the vertices of a polygon are: `coordinates` of the sides, `index`, or places on the `map`."""

    @property
    def sides(self) -> dict[str, str | None]:
        """The dimensions of the region."""
        return {"y": self.field.y, "x": self.field.x}

    def key(self, region: Region) -> tuple[Any, ...]:
        """Return what is selected of the array."""
        chosen: dict[Any, Any] = {**self.field.index, self.field.y: region.rows, self.field.x: region.columns}
        if self.along is not None:
            chosen[self.along] = slice(None)
        return tuple(chosen[dim] for dim in self.field.array.dims)

    @property
    def dims(self) -> list[str]:
        """Dimensions that are left by the selection."""
        return [dim for dim in self.field.array.dims if dim in (self.field.y, self.field.x, self.along)]


def prepare_region(request: ArchiveRequest) -> ApiTask:
    """Return the task of `api/region`."""
    query, limits = request.query, request.limits
    field = parse_field_query(request.archive, query)
    array = field.array
    sizes = dict(zip(array.dims, array.shape, strict=True))
    along = query.get("along") or None
    if along is not None:
        check_dimension(along, sizes)
        if along in (field.y, field.x):
            raise RequestError(f"along must be another dimension than those of the region, not {along!r}")
        if sizes[along] > MAX_POSITIONS:
            raise RequestTooLargeError(
                f"{along!r} has {sizes[along]:,} positions, and this server follows up to {MAX_POSITIONS:,}"
            )
    if field.statistic is not None:
        raise RequestError("a region takes no other statistic: leave statistic and over out")
    if kind_of(array) not in ("number", "bool") or array.dtype.kind == "m":
        raise RequestError("statistics of regions are those of numbers")
    kind = query.choice("format", ("binary", "netcdf", "csv"), "binary")
    region_query = RegionQuery(field, along, query.choice("axes", ("coordinates", "index", "map"), "coordinates"))
    found_map = find_field_map(request.archive, field) if region_query.axes == "map" else None
    height, width = field.shape
    whole = Region(slice(0, height), slice(0, width))
    weight = estimate_values(array, region_query.key(whole))
    if weight.chunk > limits.chunk:
        raise RequestTooLargeError(
            f"a chunk of {weight.chunk:,} bytes is larger than the limit of this server, {limits.chunk:,} bytes"
        )

    def work(context: ReadContext) -> ApiAnswer:
        if found_map is not None:
            region = parse_region_of_map(request.archive, field, found_map, query, context)
        else:
            by_index = region_query.axes == "index"
            centres = side_centres(request.archive, field.path, array, region_query.sides, by_index, context)
            region = parse_region(query, centres)
        decoded = estimate_values(array, region_query.key(region)).bytes_decoded
        if decoded > MAX_DECODED_BYTES:
            raise RequestTooLargeError(
                f"the chunks of this region decode to {decoded / 1e9:,.0f} GB, and this server decodes up to "
                f"{MAX_DECODED_BYTES >> 30} GiB for one: draw a smaller region, or take the Python code"
            )
        weights, source = area_weights(request.archive, field, region, context)
        found = compute_statistics(region_query, region, weights, context)
        if kind == "binary":
            return _binary(request, region_query, region, source, found, context)
        dataset = _dataset(request, region_query, region, source, found, context)
        if kind == "csv":
            return ApiAnswer(_to_csv(dataset), "text/csv; charset=utf-8", "region.csv")
        return ApiAnswer(to_netcdf(dataset), "application/x-netcdf", "region.nc")

    positions = 1 if along is None else sizes[along]
    cells = min(height * width, MAX_CELLS)
    cost = SLAB_BYTES + 4 * BOX_BYTES + 3 * weight.chunk + 24 * cells + 200 * positions
    return ApiTask(work, min(cost, limits.memory), caches_chunks=False)


def compute_statistics(query: RegionQuery, region: Region, weights: Values, context: ReadContext) -> dict[str, Values]:
    """Return weighted mean and standard deviation, extremes and number of values, along the dimension of a query."""
    field, dims = query.field, query.dims
    inside = weights if region.mask is None else np.where(region.mask, weights, 0)
    values = select_values(field.array, query.key(region), context.of_variable(field.path))
    axes = tuple(dims.index(dim) for dim in (field.y, field.x) if dim is not None)
    inside = inside.reshape(-1) if field.y is None else inside
    folded = fold_expression(
        values if values.dtype.kind != "b" else cast(values, np.dtype("u1")),
        lambda open_values: WeightedFolding(
            open_values, ReductionQuery.of(["mean", "std"], tuple(sorted(axes))), {axes: inside}
        ),
        memory=BoxMemory(BOX_BYTES),
    )
    query_of_rest = ReductionQuery.of(["min", "max", "count"], tuple(sorted(axes)))
    rest = reduce_expression(_within(values, region, axes), query_of_rest, memory=BoxMemory(BOX_BYTES))
    return {name: np.atleast_1d(np.asarray(one)) for name, one in {**folded, **rest}.items()}


def _within(values: Expression, region: Region, axes: tuple[int, ...]) -> Expression:
    """Return values that are missing outside of a region."""
    if region.mask is None:
        return values
    shape = [1] * values.ndim
    for axis, size in zip(axes[::-1], region.shape[::-1], strict=False):  # cells have one row, and no axis of it
        shape[axis] = size
    inside = (region.mask if axes[0] <= axes[-1] else region.mask.T).reshape(shape)
    dtype = values.dtype if values.dtype.kind == "f" else np.dtype("f8")
    return mask(values, np.broadcast_to(inside, values.shape), np.nan, dtype)


def _binary(
    request: ArchiveRequest,
    query: RegionQuery,
    region: Region,
    source: str,
    found: dict[str, Values],
    context: ReadContext,
) -> ApiAnswer:
    archive, field = request.archive, query.field
    arrays: dict[str, Values] = {
        "values": found["mean"].astype("f8"),
        "low": found["min"].astype("f8"),
        "high": found["max"].astype("f8"),
        "std": found["std"].astype("f8"),
        "count": found["count"].astype("f8"),
    }
    header: dict[str, Any] = {"position": None, "size": 1}
    if query.along is not None:
        size = len(arrays["values"])
        header["position"], arrays["position"] = describe_side(
            archive, field.path, field.array, query.along, np.arange(size, dtype=np.float64), context
        )
        header["size"] = size
    left = {dim: at for dim, at in field.index.items() if dim != query.along}
    header |= {
        "shape": [len(arrays["values"])],
        "cells": region.cells,
        "box": [region.rows.start, region.rows.stop, region.columns.start, region.columns.stop],
        "weights": source,
        "range": value_range(arrays["values"]),
        "kind": "number",
        "units": units_of(field.array),
        "long_name": long_name_of(field.array, field.path),
        "text": selection_text(archive, field.path, field.array, left, context),
    }
    return binary_answer(header, arrays)


def _dataset(
    request: ArchiveRequest,
    query: RegionQuery,
    region: Region,
    source: str,
    found: dict[str, Values],
    context: ReadContext,
) -> xarray.Dataset:
    """Return the statistics of a region as a dataset."""
    import xarray  # not at the top: with pandas it is half of the start of a server

    field, along = query.field, query.along
    dims = () if along is None else (along,)
    units = units_of(field.array)
    attributes = {"units": units} if units else {}
    name = long_name_of(field.array, field.path)
    sides = ": ".join(dim for dim in (field.y, field.x) if dim is not None)
    mean = {"long_name": f"area-weighted mean of {name}", "cell_methods": f"area: {sides}: mean"}
    data = {
        "mean": (dims, found["mean"], {**attributes, **mean}),
        "std": (dims, found["std"], {**attributes, "long_name": f"area-weighted standard deviation of {name}"}),
        "min": (dims, found["min"], {**attributes, "long_name": f"minimum of {name}"}),
        "max": (dims, found["max"], {**attributes, "long_name": f"maximum of {name}"}),
        "count": (dims, found["count"], {"long_name": "values that are not missing"}),
    }  # fmt: skip
    variables = {
        key: xarray.Variable(where, values if where else values[0], about)
        for key, (where, values, about) in data.items()
    }
    coords: dict[str, Any] = {}
    if along is not None:
        size = field.array.shape[field.array.dims.index(along)]
        path = find_coordinate(request.archive, group_of_array(field.path, field.array), along, size)
        if path is not None:
            labels = request.archive.array(path)
            coords[along] = xarray.Variable(
                dims, read_array(labels, ..., replace(context, name=path)), dict(labels.attributes)
            )
    shape = request.query.get("polygon") or json.dumps(
        [region.rows.start, region.rows.stop, region.columns.start, region.columns.stop]
    )
    about = {"source": request.archive.url, "variable": field.path, "region": shape, "weights": source}
    return xarray.Dataset(variables, coords, {**about, "cells": region.cells})


def _to_csv(dataset: xarray.Dataset) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    (along,) = dataset["mean"].dims or (None,)
    columns = ["mean", "std", "min", "max", "count"]
    writer.writerow([along or "position", *columns])
    values = [np.atleast_1d(dataset[name].values) for name in columns]
    labels = dataset[along].values if along in dataset.coords else range(len(values[0]))
    for label, *row in zip(labels, *values, strict=True):
        writer.writerow([to_text(label), *("" if value != value else to_text(value) for value in row)])
    return out.getvalue().encode()
