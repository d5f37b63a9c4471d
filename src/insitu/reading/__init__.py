"""READ: what are the values? Locate, plan (pure), fetch, decode, place."""

from insitu.reading.execute import execute, execute_all, stream
from insitu.reading.opened import Opened
from insitu.reading.plan import ReadPlan, plan
from insitu.reading.read import read_array, read_arrays
from insitu.reading.report import Tally

__all__ = ["Opened", "ReadPlan", "Tally", "execute", "execute_all", "plan", "read_array", "read_arrays", "stream"]
