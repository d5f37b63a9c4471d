"""Conventions of vendors on top of HDF5 and HDF4: HDF-EOS grids and swaths, MATLAB files."""
