"""Filters that rearrange, check or compute values: shuffle, checksums, scale and offset, bit
fields.
"""
