"""`LazyArray`, the duck array inside xarray, and the NumPy functions that it supports."""

from insitu.lazy_array.duck_array import LazyArray

__all__ = ["LazyArray"]
