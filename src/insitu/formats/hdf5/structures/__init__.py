"""Parsers of the structures of the HDF5 file format, version 3.0."""
