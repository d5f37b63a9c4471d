"""Conventions on top of HDF5: netCDF-4 dimensions, HDF-EOS5."""
