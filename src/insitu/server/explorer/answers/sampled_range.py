"""`api/range`: the range of the values of a field along one of the other dimensions, from a sample.

One range of colours for all pictures along a dimension needs no more than an estimate: some positions,
evenly spread, each sampled coarsely, within the budget of one picture.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cancellation import check_deadline
from insitu.reading import ReadContext
from insitu.server.error_responses import RequestError, RequestTooLargeError
from insitu.server.explorer.answers.field_values import (
    MAX_DECODED_BYTES,
    check_memory,
    decoding_budget,
    find_written,
    read_field,
    slab_bytes,
)
from insitu.server.explorer.api_answer import ApiAnswer, json_answer
from insitu.server.explorer.archive_route import ApiTask, ArchiveRequest
from insitu.server.explorer.field_query import FieldQuery, parse_field_query
from insitu.server.explorer.field_sampling import Sampling, sample_field
from insitu.server.explorer.formula_array import estimate_values
from insitu.server.explorer.shown_values import value_range
from insitu.server.settings import Limits

__all__ = ["plan_samples", "prepare_range", "spread_positions"]

POSITIONS = 16
"""Positions that are looked at, of a longer dimension."""
FEWEST_POSITIONS = 2
PIXELS = (128, 256)
"""Rows and columns that are looked at of each."""


def prepare_range(request: ArchiveRequest) -> ApiTask:
    """Return the task of `api/range`."""
    field = parse_field_query(request.archive, request.query)
    along = request.query.require("along")
    if along not in field.index:
        raise RequestError(
            f"along must name a dimension that is neither drawn nor reduced, not {along[:40]!r}",
            why=f"There are: {', '.join(field.index) or 'none'}",
        )
    size = field.array.shape[field.array.dims.index(along)]
    if find_written(request.archive, field, request.limits) is not None:
        # Positions of a sparse array, evenly spread, may all lie where nothing was written.
        return ApiTask(lambda context: _range_answer(along, size, [], np.empty(0)))
    positions, samples = plan_samples(field, along, request.limits)
    decoded = sum(_decoded_bytes(*sample) for sample in samples)
    if decoded > MAX_DECODED_BYTES:
        raise RequestTooLargeError(
            f"a sample along {along} needs {decoded / 1e9:,.0f} GB of decoded chunks, and this server decodes up to "
            f"{MAX_DECODED_BYTES >> 30} GiB for one: use the range of each picture, or reduce less at once"
        )
    cost = max(check_memory(*sample, request.limits) for sample in samples)
    pixels = sum(sampling.y.count * sampling.x.count for _, sampling in samples)

    def work(context: ReadContext) -> ApiAnswer:
        read = []
        for one, sampling in samples:
            check_deadline()
            values = read_field(one, sampling, replace(context, name=field.path), slab_bytes(request.limits))
            read.append(values.reshape(-1))
        return _range_answer(along, size, positions, np.concatenate(read))

    # Numbers, those of them that are finite, and what percentiles are sorted of.
    return ApiTask(work, cost + 3 * 8 * pixels, caches_chunks=decoded <= request.limits.cache // 2)


def plan_samples(field: FieldQuery, along: str, limits: Limits) -> tuple[list[int], list[tuple[FieldQuery, Sampling]]]:
    """Return positions along a dimension, and what is read at each: together within the budget of one picture, unless
    the least that can be read at the fewest of them is more.
    """
    size = field.array.shape[field.array.dims.index(along)]
    budget, count = decoding_budget(field, limits), min(size, POSITIONS)
    while True:
        positions = spread_positions(size, count)
        samples = [_sample(field, along, position, budget // count) for position in positions]
        if count <= FEWEST_POSITIONS or sum(_decoded_bytes(*sample) for sample in samples) <= budget:
            return positions, samples
        count = max(count // 2, FEWEST_POSITIONS)


def spread_positions(size: int, count: int) -> list[int]:
    """Return so many positions of a dimension, spread evenly.

    Examples
    --------
    >>> spread_positions(12, 4), spread_positions(3, 3)
    ([1, 4, 7, 10], [0, 1, 2])
    """
    return [(2 * number + 1) * size // (2 * count) for number in range(count)]


def _sample(field: FieldQuery, along: str, position: int, budget: int) -> tuple[FieldQuery, Sampling]:
    """Return the field at a position, and single values of it within a budget: means would have a smaller range."""
    one = replace(field, index={**field.index, along: position})
    pixels = PIXELS if field.y is not None else (1, _count_of_cells(field.shape[1]))
    sampling = sample_field(one.array, one.sides, one.select, one.box, pixels, "nearest", budget)
    assert sampling is not None
    return one, sampling


def _count_of_cells(size: int) -> int:
    """Return how many cells are looked at that do not lie in rows: as many as of rows and columns together.

    Those of nested grids lie in blocks of 4 and 20: with a step of a divisor, all would lie alike in theirs.
    """
    step = -(-size // (PIXELS[0] * PIXELS[1]))
    while math.gcd(step, 30) > 1:
        step += 1
    return -(-size // step)


def _decoded_bytes(field: FieldQuery, sampling: Sampling) -> int:
    return estimate_values(field.array, field.select(sampling.y.selector, sampling.x.selector)).bytes_decoded


def _range_answer(along: str, size: int, positions: list[int], values: npt.NDArray[Any]) -> ApiAnswer:
    return json_answer({"along": along, "size": size, "positions": positions, **value_range(values)})
