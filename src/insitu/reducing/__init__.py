"""REDUCE: statistics of virtual arrays, chunk by chunk, in bounded memory, several in one pass."""

from insitu.reducing.field import Partial
from insitu.reducing.reduce import reduce_array, statistics
from insitu.reducing.reductions import METHODS, Reduction

__all__ = ["METHODS", "Partial", "Reduction", "reduce_array", "statistics"]
