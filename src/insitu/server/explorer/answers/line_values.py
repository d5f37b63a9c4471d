"""`api/line`: the values of a variable along one dimension, the others fixed, thinned to the width of a plot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.reading import ReadContext
from insitu.server.error_responses import RequestTooLargeError
from insitu.server.explorer.answers.field_values import MAX_DECODED_BYTES
from insitu.server.explorer.api_answer import ApiAnswer, binary_answer
from insitu.server.explorer.api_query import check_dimension
from insitu.server.explorer.archive_route import ApiTask, ArchiveRequest
from insitu.server.explorer.field_query import find_numbers
from insitu.server.explorer.formula_array import estimate_values, read_values
from insitu.server.explorer.shown_values import kind_of, long_name_of, to_number_array, units_of, value_range
from insitu.server.explorer.side_labels import describe_side, selection_text

__all__ = ["prepare_line"]

BUDGET_BYTES = 1 << 30
"""Bytes that the chunks along one line may decode to; of a longer line, every n-th value is read."""
MAX_POINTS = 20_000
CHUNK_BYTES = 64 << 20
"""Bytes that are counted for the chunks that are decoded at a time."""


def prepare_line(request: ArchiveRequest) -> ApiTask:
    """Return the task of `api/line`."""
    archive, query = request.archive, request.query
    path, array, sizes = find_numbers(archive, query)
    dim = query.get("dim") or (array.dims[0] if array.ndim == 1 else query.require("dim"))
    check_dimension(dim, sizes)
    given = query.index(sizes)
    index = {other: given.get(other, 0) for other in array.dims if other != dim}
    points = query.number("points", 2000, 1, MAX_POINTS)
    most = query.number("most_bytes", BUDGET_BYTES, 1, BUDGET_BYTES)
    size = sizes[dim]

    def selection(step: int) -> tuple[Any, ...]:
        key = tuple(slice(0, size, step) if name == dim else index[name] for name in array.dims)
        return key

    # Steps within a chunk save nothing: only those beyond the length of a chunk leave chunks out.
    step = 1
    while step < size and estimate_values(array, selection(step)).bytes_decoded > most:
        step *= 2
    chosen = selection(step)
    weight = estimate_values(array, chosen)
    if weight.bytes_decoded > MAX_DECODED_BYTES:
        raise RequestTooLargeError(
            f"this line needs {weight.bytes_decoded / 1e9:,.0f} GB of decoded chunks; this server decodes up to "
            f"{MAX_DECODED_BYTES >> 30} GiB for one: choose another dimension"
        )

    def work(context: ReadContext) -> ApiAnswer:
        numbers = to_number_array(read_values(array, chosen, replace(context, name=path)))
        arrays, bin_size = thin_line(numbers, points)
        count = len(arrays["values"])
        begin = np.arange(count) * bin_size
        centres = (begin + np.minimum(begin + bin_size, len(numbers)) - 1) / 2 * step
        side, position = describe_side(archive, path, array, dim, centres, context)
        header = {
            "shape": [count],
            "position": side,
            "size": size,
            "sampling": {
                "method": "mean" if bin_size > 1 else "all" if step == 1 else "nearest",
                "step": step * bin_size,
                "share": len(numbers) / size,
            },
            "range": value_range(arrays["values"]),
            "missing": int(np.count_nonzero(np.isnan(numbers))),
            "kind": kind_of(array),
            "units": units_of(array),
            "long_name": long_name_of(array, path),
            "text": selection_text(archive, path, array, index, context),
        }
        return binary_answer(header, {**arrays, "position": position})

    values = len(range(0, size, step)) * max(array.dtype.itemsize, weight.bytes_per_element, 8)
    return ApiTask(work, cost=CHUNK_BYTES + 6 * values)


def thin_line(numbers: npt.NDArray[Any], points: int) -> tuple[dict[str, npt.NDArray[Any]], int]:
    """Return at most so many means of bins, with the extremes of each, and the elements of a bin.

    A line that has no more points stays as it is, without extremes. Missing values are left out.

    Examples
    --------
    >>> arrays, bin_size = thin_line(np.array([1.0, 3.0, np.nan, 5.0, 7.0]), 3)
    >>> arrays["values"].tolist(), arrays["low"].tolist(), bin_size
    ([2.0, 5.0, 7.0], [1.0, 5.0, 7.0], 2)
    """
    bin_size = max(-(-len(numbers) // points), 1)
    if bin_size == 1:
        return {"values": numbers}, 1
    starts = np.arange(0, len(numbers), bin_size)
    is_finite = np.isfinite(numbers)
    sums = np.add.reduceat(np.where(is_finite, numbers, 0), starts, dtype=np.float64)
    counts = np.add.reduceat(is_finite, starts, dtype=np.int64)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums / counts
    low = np.fmin.reduceat(np.where(is_finite, numbers, np.nan), starts)
    high = np.fmax.reduceat(np.where(is_finite, numbers, np.nan), starts)
    return {"values": means.astype(numbers.dtype), "low": low, "high": high}, bin_size
