"""HDF5 data in several files: external data, families, split and multi files."""
