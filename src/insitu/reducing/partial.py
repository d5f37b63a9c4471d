"""What must be known about part of the data, so that two parts can be put together?

A *partial* is a mapping of named arrays (its fields), each of the shape that the part has once its reduced axes are of length 1. It
travels as it is: between threads, over a wire, through a file.
"""

from __future__ import annotations

from collections.abc import Mapping

from insitu.reducing.extremes import EXTREMES
from insitu.reducing.field import Field, Partial
from insitu.reducing.sketches import tdigest_field
from insitu.reducing.sums import SUMS

__all__ = ["FIELDS", "Field", "Partial"]

FIELDS: Mapping[str, Field] = {**SUMS, **EXTREMES, "tdigest": tdigest_field}
"""Every field by its name, but the histogram: that depends on its edges."""
