"""Scan one URL into one group of stored arrays (a file of any format, a Zarr store, saved references), and decode it
into a member of a dataset.
"""
