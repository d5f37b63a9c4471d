"""READ: what are the values? Locate, plan (pure), fetch, decode, place."""

from insitu.reading.cache import ChunkCache
from insitu.reading.execute import execute, execute_all, stream
from insitu.reading.plan import ReadPlan, plan
from insitu.reading.points import read_points
from insitu.reading.read import read_array, read_arrays
from insitu.reading.source_pool import Opened
from insitu.reading.tally import Tally, summary

__all__ = [
    "ChunkCache",
    "Opened",
    "ReadPlan",
    "Tally",
    "execute",
    "execute_all",
    "plan",
    "read_array",
    "read_arrays",
    "read_points",
    "stream",
    "summary",
]
