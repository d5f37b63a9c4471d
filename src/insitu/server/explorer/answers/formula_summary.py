"""`api/formula`: what a formula gives, described as a variable is in `api/archive`, and code that computes it."""

from __future__ import annotations

from insitu.reading import ReadContext
from insitu.server.explorer.api_answer import ApiAnswer, json_answer
from insitu.server.explorer.archive_route import ApiTask, ArchiveRequest
from insitu.server.explorer.find_array import find_array
from insitu.server.explorer.find_map import find_map, map_summary
from insitu.server.explorer.formula_array import FormulaArray, estimate_values
from insitu.server.explorer.shown_values import attribute_texts, kind_of, type_name, units_of
from insitu.server.explorer.spatial_dimensions import dimension_coordinates, spatial_dimensions

__all__ = ["prepare_formula"]


def prepare_formula(request: ArchiveRequest) -> ApiTask:
    """Return the task of `api/formula`."""
    array = find_array(request.archive, "=" + request.query.require("formula").removeprefix("="))
    assert isinstance(array, FormulaArray)

    def work(context: ReadContext) -> ApiAnswer:
        return json_answer(
            {
                "path": f"={array.text}",
                "name": "formula",
                "dims": list(array.dims),
                "shape": list(array.shape),
                "is_coordinate": False,
                "attributes": attribute_texts(array.attributes),
                "long_name": array.text,
                "standard_name": None,
                "spatial": spatial_dimensions(request.archive, array.group, array),
                "map": map_summary(find_map(request.archive, array.group, array)),
                "coordinates": dimension_coordinates(request.archive, array.group, array),
                "dtype": type_name(array),
                "kind": kind_of(array),
                "units": units_of(array),
                "flags": None,
                "chunk_shape": None,
                "chunks": 0,
                "tiles": 0,
                "codecs": [],
                "stored_bytes": 0,
                "virtual_bytes": array.size * array.dtype.itemsize,
                "files": 0,
                "unreadable": None,
                "variables": [leaf for leaf, _ in array.leaves.values()],
                "python": array.python,
                "decoded_bytes": estimate_values(array, ...).bytes_decoded,
            }
        )

    return ApiTask(work)
