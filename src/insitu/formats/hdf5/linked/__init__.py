"""Sets of files that the HDF5 library writes as one: family, split and multi drivers."""
