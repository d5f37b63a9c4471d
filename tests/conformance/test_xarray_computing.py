"""xarray's own tests of computing, with virtual arrays in the place of NumPy's.

`conftest.py` collects the modules that are named here, and runs a test that fails once more with
NumPy's arrays: only what passes with these is asked of insitu.
"""

from __future__ import annotations

MODULES = (
    "test_accessor_dt",
    "test_accessor_str",
    "test_assertions",
    "test_calendar_ops",
    "test_cftimeindex_resample",
    "test_coarsen",
    "test_coding",
    "test_coding_strings",
    "test_coding_times",
    "test_combine",
    "test_computation",
    "test_concat",
    "test_conventions",
    "test_coordinate_transform",
    "test_coordinates",
    "test_dataarray",
    "test_dataset",
    "test_datatree",
    "test_datatree_mapping",
    "test_duck_array_ops",
    "test_error_messages",
    "test_eval",
    "test_extensions",
    "test_formatting",
    "test_formatting_html",
    "test_groupby",
    "test_indexes",
    "test_indexing",
    "test_interp",
    "test_merge",
    "test_missing",
    "test_namedarray",
    "test_nd_point_index",
    "test_pandas_to_xarray",
    "test_range_index",
    "test_rolling",
    "test_ufuncs",
    "test_variable",
    "test_weighted",
)
