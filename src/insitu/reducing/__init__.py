"""REDUCE: statistics of virtual arrays, chunk by chunk, in bounded memory, several in one pass."""

from insitu.reducing.partial_fields import Partial
from insitu.reducing.query import ReductionQuery
from insitu.reducing.reduce import compute_statistics
from insitu.reducing.reductions import METHODS, Reduction, ReductionRules

__all__ = ["METHODS", "Partial", "Reduction", "ReductionQuery", "ReductionRules", "compute_statistics"]
