"""One URL to one group of stored arrays: a file of any format, a Zarr store, saved references."""
