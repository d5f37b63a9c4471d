"""Tables of the tests of xarray that insitu does not pass, each with its reason.

Of the backends, a key is `test`, `class::test` or `way:class::test`; the way is "virtual" (`insitu.open_dataset`)
or "engine" (`engine="insitu"`), and `test` may name one set of parameters. Every test in the tables
must fail: one that passes is reported, so that the tables stay true. Names that the installed
xarray does not have do no harm.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

__all__ = ["COMPUTING", "EXCEPTIONS", "LEFT_OUT", "NOT_RUN", "VARYING", "reason_for", "reason_for_computing"]

KEPT_ELSEWHERE = (
    "asks whether the variable holds values that were read; they are kept in insitu's cache of bounded size, and the "
    "variable stays virtual"
)
OTHER_ENGINE = "expects what another engine refuses, and insitu reads: "
OTHER_MESSAGE = "expects the words of another engine: "
COMPRESSED_FILE = "a file compressed as a whole has no byte ranges; insitu says so, and says to unpack it"
NOTHING_TO_CLOSE = "files are opened for each read, so that a tree has nothing to close"
LARGE_BLOCKS = (
    "`chunks={}` of insitu's own functions joins small chunks to larger blocks; the engine gives one for each"
)
BEING_WRITTEN = "reads a file whose writer has not finished: h5py's metadata is not on disk yet"

EXCEPTIONS: dict[str, str] = {
    "virtual:test_dataset_caching": KEPT_ELSEWHERE,
    "virtual:test_base_chunking_uses_disk_chunk_sizes": LARGE_BLOCKS,
    "test_roundtrip_example_1_netcdf_gz": COMPRESSED_FILE,
    "test_nc4_scipy": OTHER_ENGINE + "the engine scipy reads no netCDF-4",
    "test_open_badbytes": OTHER_MESSAGE + "xarray's list of installed engines",
    "test_open_fileobj": OTHER_ENGINE + "the engine scipy reads no netCDF-4",
    "test_to_netcdf": NOTHING_TO_CLOSE,
    "TestH5NetCDFDatatreeIO::test_compute_false": BEING_WRITTEN,
    "TestH5NetCDFDatatreeIO::test_phony_dims_warning": OTHER_MESSAGE + "h5netcdf's warning about its own keyword",
    "test_open_datatree_unaligned_hierarchy": OTHER_MESSAGE + "insitu's error says which functions open such a file",
}

NOT_RUN = frozenset({BEING_WRITTEN})
"""Reasons for which a test is not even run: failing half-way it would leave an open writer behind.
"""

SHOWN = "compares the text of a dataset: of a virtual array it shows the chunks, not the values"
TYPE_OF_ARRAY = "looks at the array inside the variable: for one of NumPy, or for the type that the argument has"
NOT_THE_SAME_MEMORY = (
    "writes to the NumPy array that was put in, to `.values` or to a part, and expects the variable to change: a "
    "virtual array shares no memory (see docs/limits.md)"
)
OTHER_LIBRARY = "expects that flox or bottleneck is called: virtual arrays are reduced in bounded memory without them"
DASK_NAMES = "compares names or layers of Dask's graph"
DASK_LABELS = "groups by labels that are a Dask array: flox needs data that are one, too, by `chunk`"
OTHER_WORDS = "expects NumPy's words in an error of the same class"
WARNED_WHEN_READ = "expects a warning about values before they are read"
BOTTLENECK = "expects what bottleneck gives: xarray without it gives other types and positions, as insitu does"
ROUNDED = "compares means to the last bit: a sum that streams is formed in another order (see docs/limits.md)"

COMPUTING: dict[str, str] = {
    "test_computation::test_dot": TYPE_OF_ARRAY,
    "test_conventions::TestEncodeCFVariable::test_missing_fillvalue": WARNED_WHEN_READ,
    "test_dataarray::TestDataArray::test_chunk": DASK_NAMES,
    "test_dataarray::TestDataArray::test_inplace_math_basics": NOT_THE_SAME_MEMORY,
    "test_dataarray::TestDataArray::test_repr": SHOWN,
    "test_dataarray::TestDataArray::test_repr_multiindex": SHOWN,
    "test_dataarray::TestDataArray::test_repr_multiindex_long": SHOWN,
    "test_dataarray::TestDataArray::test_to_masked_array": NOT_THE_SAME_MEMORY,
    "test_dataset::TestDataset::test_chunk": TYPE_OF_ARRAY,
    "test_dataset::TestDataset::test_coords_properties": SHOWN,
    "test_dataset::TestDataset::test_data_vars_properties": SHOWN,
    "test_dataset::TestDataset::test_repr": SHOWN,
    "test_dataset::TestDataset::test_setitem": NOT_THE_SAME_MEMORY,
    "test_dataset::TestDataset::test_to_and_from_dict[array-*": TYPE_OF_ARRAY,
    "test_dataset::test_cumulative_integrate": TYPE_OF_ARRAY,
    "test_dataset::test_integrate": TYPE_OF_ARRAY,
    "test_dataset::test_trapezoid_datetime": TYPE_OF_ARRAY,
    "test_datatree::TestCoords::test_properties": SHOWN,
    "test_datatree::TestDask::test_persist": DASK_NAMES,
    "test_datatree::TestInheritance::test_inconsistent_dims": SHOWN,
    "test_datatree::TestInheritance::test_inconsistent_grandchild_dims": SHOWN,
    "test_datatree::TestRepr::test_doc_example": SHOWN,
    "test_datatree::TestRepr::test_repr_four_nodes": SHOWN,
    "test_datatree::TestRepr::test_repr_inherited_dims": SHOWN,
    "test_datatree::TestRepr::test_repr_truncates_nodes": SHOWN,
    "test_datatree::TestRepr::test_repr_two_children": SHOWN,
    "test_duck_array_ops::test_min_count_specific": NOT_THE_SAME_MEMORY,
    "test_formatting::TestFormatting::test__diff_mapping_repr_array_attrs_on_variables": SHOWN,
    "test_formatting::TestFormatting::test_array_repr": SHOWN,
    "test_formatting::TestFormatting::test_diff_array_repr": SHOWN,
    "test_formatting::TestFormatting::test_diff_dataset_repr": SHOWN,
    "test_formatting::TestFormatting::test_diff_datatree_repr_equals": SHOWN,
    "test_formatting::TestFormatting::test_diff_datatree_repr_node_data": SHOWN,
    "test_formatting::test_array_repr_dtypes": SHOWN,
    "test_formatting_html::test_short_data_repr_html": SHOWN,
    "test_groupby::test_default_flox_method": OTHER_LIBRARY,
    "test_groupby::test_groupby_drops_nans": NOT_THE_SAME_MEMORY,
    "test_groupby::test_multiple_groupers_lazy[True]": DASK_LABELS,
    "test_indexing::TestIndexers::test_read_only_view": NOT_THE_SAME_MEMORY,
    "test_missing::test_indexing_localize": TYPE_OF_ARRAY,
    "test_rolling::TestDataArrayRolling::test_rolling_bottleneck_dask_dtype_matches_numpy": BOTTLENECK,
    "test_variable::TestAsCompatibleData::test_unsupported_type": TYPE_OF_ARRAY,
    "test_variable::TestIndexVariable::test_concat": OTHER_WORDS,
    "test_variable::TestVariable::test_concat": OTHER_WORDS,
    "test_variable::TestVariable::test_equals_and_identical": NOT_THE_SAME_MEMORY,
    "test_variable::TestVariable::test_getitem_basic": NOT_THE_SAME_MEMORY,
    "test_variable::TestVariable::test_inplace_math": NOT_THE_SAME_MEMORY,
    "test_variable::TestVariable::test_items": NOT_THE_SAME_MEMORY,
    "test_variable::TestVariable::test_load": TYPE_OF_ARRAY,
    **{
        f"test_variable::TestVariable::test_pad[*-{mode}]": TYPE_OF_ARRAY
        for mode in ("mean", "median", "linear_ramp", "maximum", "minimum")
    },
    "test_variable::TestVariable::test_reduce": ROUNDED,
    "test_variable::TestVariable::test_reduce_keepdims": ROUNDED,
    "test_variable::TestVariable::test_reduce_use_bottleneck[bottleneck]": OTHER_LIBRARY,
    "test_variable::TestVariable::test_repr": SHOWN,
    "test_variable::TestVariable::test_values": NOT_THE_SAME_MEMORY,
    "test_variable::TestVariableWithDask::test_chunk": DASK_NAMES,
    "test_variable::TestVariableWithDask::test_concat": OTHER_WORDS,
}
"""Tests of computing with virtual arrays in the place of NumPy's: `module::class::test`, with or
without a pattern of parameters.
"""

VARYING = frozenset({BOTTLENECK, ROUNDED})
"""Reasons for which a test may also pass: only some of its parameters differ, or it draws random numbers."""

LEFT_OUT = (
    "test_interp::test_interpolate_chunk_1d",
    "test_interp::test_interpolate_nd",
    "test_rolling::TestDatasetRolling::test_rolling_construct_automatic_rechunk",
    "test_variable::TestVariable::test_quantile_chunked_dim_error",
)
"""Tests of computing that take long, and nearly all of it in Dask and SciPy."""


def reason_for_computing(test: str) -> str | None:
    """Return why a test of computing is expected to fail; None if it should pass."""
    name, _, parameters = test.partition("[")
    for key, reason in COMPUTING.items():
        named, bracket, pattern = key.partition("[")
        if named == name and (not bracket or fnmatchcase(parameters, pattern)):
            return reason
    return None


def reason_for(way: str, parent: str, test: str) -> str | None:
    """Return why a test is expected to fail; None if it should pass."""
    for name in (test, test.partition("[")[0]):
        for key in (f"{way}:{parent}::{name}", f"{parent}::{name}", f"{way}:{name}", name):
            if key in EXCEPTIONS:
                return EXCEPTIONS[key]
    return None
