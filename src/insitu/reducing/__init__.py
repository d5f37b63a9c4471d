"""REDUCE: statistics of virtual arrays, chunk by chunk, in bounded memory, several in one pass."""

from insitu.reducing.partial_fields import Partial
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reduce_expression import compute_statistics
from insitu.reducing.reductions import Reduction, ReductionRules
from insitu.reducing.statistics import STATISTICS, Statistic

__all__ = [
    "STATISTICS",
    "Partial",
    "Reduction",
    "ReductionQuery",
    "ReductionRules",
    "Statistic",
    "compute_statistics",
]
