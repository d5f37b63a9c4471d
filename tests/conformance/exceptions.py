"""Table of the tests of xarray that insitu does not pass, each with its reason.

A key is `test`, `class::test` or `door:class::test`; the door is "virtual" (`insitu.open_dataset`)
or "engine" (`engine="insitu"`), and `test` may name one set of parameters. Every test in the table
must fail: one that passes is reported, so that the table stays true. Names that the installed
xarray does not have do no harm.
"""

from __future__ import annotations

__all__ = ["EXCEPTIONS", "NOT_RUN", "reason_for"]

INTERNALS = "looks for xarray's own wrapper of lazy arrays inside the variable; a virtual array has none"
OTHER_ENGINE = "expects what another engine refuses, and insitu reads: "
OTHER_MESSAGE = "expects the words of another engine: "
COMPRESSED_FILE = "a file compressed as a whole has no byte ranges; insitu says so, and says to unpack it"
NOTHING_TO_CLOSE = "files are opened for each read, so that a tree has nothing to close"
LARGE_BLOCKS = (
    "`chunks={}` of insitu's own functions joins small chunks to larger blocks; the engine gives one for each"
)
BEING_WRITTEN = "reads a file whose writer has not finished: h5py's metadata is not on disk yet"

EXCEPTIONS: dict[str, str] = {
    "virtual:test_dataset_caching": INTERNALS,
    "virtual:test_array_type_after_indexing": INTERNALS,
    "virtual:test_dropna": INTERNALS,
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


def reason_for(door: str, parent: str, test: str) -> str | None:
    """Return why a test is expected to fail; None if it should pass."""
    for name in (test, test.partition("[")[0]):
        for key in (f"{door}:{parent}::{name}", f"{parent}::{name}", f"{door}:{name}", name):
            if key in EXCEPTIONS:
                return EXCEPTIONS[key]
    return None
