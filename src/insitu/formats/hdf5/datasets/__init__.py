"""From objects of an HDF5 file to groups and virtual arrays."""
