"""Reading of virtual arrays: plan the byte ranges (pure), fetch, decode, and place the values.

Also here: the cache of decoded chunks, the pool of open sources, prefetching, and the Zarr view.
"""

from insitu.reading.cache import ChunkCache, PartialChunkCache, cache_from_option
from insitu.reading.execute import execute, execute_all
from insitu.reading.plan import ReadPlan, plan_read
from insitu.reading.pointwise import read_points
from insitu.reading.read import read_array, read_arrays
from insitu.reading.read_context import ReadContext
from insitu.reading.read_selection import read_selection
from insitu.reading.read_statistics import ReadStatistics, format_summary
from insitu.reading.source_pool import SourcePool

__all__ = [
    "ChunkCache",
    "PartialChunkCache",
    "ReadContext",
    "ReadPlan",
    "ReadStatistics",
    "SourcePool",
    "cache_from_option",
    "execute",
    "execute_all",
    "format_summary",
    "plan_read",
    "read_array",
    "read_arrays",
    "read_points",
    "read_selection",
]
