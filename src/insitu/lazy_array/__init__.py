"""`LazyArray`, the duck array inside xarray, and the NumPy functions that it supports."""

from insitu.lazy_array import einsum, numpy_functions, numpy_reductions  # noqa: F401 - imported to register their functions
from insitu.lazy_array.duck_array import LazyArray

__all__ = ["LazyArray"]
