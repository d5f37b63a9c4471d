"""Names of the CF attributes that say how stored values are meant, by what they are for.

Code that treats some of them alike uses a union of these groups. The unions differ on purpose:
`dtype` is no attribute of a file but one that xarray writes, `char_dim_name` exists only in an
encoding, and `_Encoding` changes texts, never numbers.
"""

from __future__ import annotations

__all__ = [
    "CHARACTERS",
    "MISSING",
    "MOVED_BY_DECODING",
    "PACKING",
    "RELATIONS",
    "SCALING",
    "TIMES",
]

SCALING = ("scale_factor", "add_offset")
MISSING = ("_FillValue", "missing_value")
PACKING = (*SCALING, *MISSING, "_Unsigned")
"""Attributes of packed numbers."""
TIMES = ("units", "calendar")
CHARACTERS = ("_Encoding", "char_dim_name")
RELATIONS = (
    *("bounds", "grid_mapping", "climatology", "geometry", "node_coordinates", "node_count"),
    *("part_node_count", "interior_ring", "cell_measures", "formula_terms"),
)
"""Attributes that name other variables, in xarray's order; `coordinates` does, too, but is always
decoded, these with `decode_coords="all"` only.
"""
MOVED_BY_DECODING = (*PACKING, *TIMES, "_Encoding", "least_significant_digit", "coordinates", *RELATIONS)
"""Attributes of a file that decoding may move to the encoding."""
