"""Filters that rearrange, check or compute values: shuffle, checksums, scaling, bit fields."""
