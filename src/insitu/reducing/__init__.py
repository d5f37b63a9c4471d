"""REDUCE: statistics of virtual arrays, chunk by chunk, in bounded memory, several in one pass."""

from typing import TYPE_CHECKING

from insitu.forking import lazy_attributes

if TYPE_CHECKING:
    from insitu.reducing.partial_fields import Partial
    from insitu.reducing.query import ReductionQuery, axes_of_dims
    from insitu.reducing.reduce_expression import compute_statistics
    from insitu.reducing.reductions import Reduction, ReductionRules
    from insitu.reducing.statistic import Statistic
    from insitu.reducing.statistics import STATISTICS

__all__ = [
    "STATISTICS",
    "Partial",
    "Reduction",
    "ReductionQuery",
    "ReductionRules",
    "Statistic",
    "axes_of_dims",
    "compute_statistics",
]

# What only opens and reads an archive imports none of it.
__getattr__ = lazy_attributes(
    __name__,
    {
        "STATISTICS": "insitu.reducing.statistics",
        "Partial": "insitu.reducing.partial_fields",
        "Reduction": "insitu.reducing.reductions",
        "ReductionQuery": "insitu.reducing.query",
        "ReductionRules": "insitu.reducing.reductions",
        "Statistic": "insitu.reducing.statistic",
        "axes_of_dims": "insitu.reducing.query",
        "compute_statistics": "insitu.reducing.reduce_expression",
    },
)
