"""HDF5 and netCDF-4, read level by level: format specification 3.0, with our own parser."""
