"""`api/table`: values as texts in flat order, with the position along each dimension and its label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from insitu.model import VirtualArray
from insitu.reading import ReadContext, read_array, read_points
from insitu.server.error_responses import RequestError
from insitu.server.explorer.api_answer import ApiAnswer, json_answer
from insitu.server.explorer.archive_route import ApiTask, ArchiveRequest
from insitu.server.explorer.find_array import find_array
from insitu.server.explorer.formula_array import FormulaArray, group_of_array, read_values
from insitu.server.explorer.shown_values import to_text, to_texts, type_name
from insitu.server.explorer.spatial_dimensions import find_coordinate

__all__ = ["prepare_table"]

MAX_ROWS = 2000
"""Rows of one answer."""
CHUNK_BYTES = 64 << 20
"""Bytes that are counted for the chunks of a table."""


def prepare_table(request: ArchiveRequest) -> ApiTask:
    """Return the task of `api/table`."""
    archive, query = request.archive, request.query
    path = query.require("variable").strip("/")
    array = find_array(archive, path)
    if isinstance(array, FormulaArray) and array.ndim > 1:
        raise RequestError("a table of a formula has one dimension", why="Ask api/field or api/download for its values")
    total = array.size
    start = query.number("start", 0, 0, total)
    stop = min(start + query.number("count", 200, 1, MAX_ROWS), total)
    is_formula = isinstance(array, FormulaArray)
    group, name = group_of_array(path, array), path if is_formula else path.rpartition("/")[2]
    labels = find_coordinate(archive, group, array.dims[0], array.shape[0]) if array.ndim == 1 else None
    labels = None if labels == path else labels

    def work(context: ReadContext) -> ApiAnswer:
        flat = np.arange(start, stop)
        index = np.unravel_index(flat, array.shape) if array.ndim and array.size else ()
        if not array.ndim:
            texts = [to_text(np.asarray(read_values(array, (), replace(context, name=path)))[()])][start:stop]
        elif not len(flat):
            texts = []
        elif array.ndim == 1:
            texts = to_texts(read_values(array, slice(start, stop), replace(context, name=path)))
        else:
            assert isinstance(array, VirtualArray)
            texts = to_texts(read_points(array, index, replace(context, name=path)))
        columns = [positions.tolist() for positions in index] if len(flat) else [[] for _ in array.dims]
        names = list(array.dims)
        rows = (
            [[str(position) for position in row] for row in zip(*columns, strict=True)]
            if columns
            else [[]] * len(texts)
        )
        if labels is not None:
            names.append(labels.rpartition("/")[2])
            values = to_texts(read_array(archive.array(labels), slice(start, stop), replace(context, name=labels)))
            rows = [[*row, text] for row, text in zip(rows, values, strict=True)]
        return json_answer(
            {
                "dims": list(array.dims),
                "shape": list(array.shape),
                "dtype": type_name(array),
                "columns": [*names, name],
                "rows": [[*row, text] for row, text in zip(rows, texts, strict=True)],
                "start": start,
                "total": total,
            }
        )

    return ApiTask(work, cost=CHUNK_BYTES)
