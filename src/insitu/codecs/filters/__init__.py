"""Filters that rearrange, check or calculate values: shuffle, checksums, scale and offset, fields of bits."""
