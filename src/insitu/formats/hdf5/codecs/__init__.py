"""Codecs of HDF5's own types: values of varying length, records, numbers of odd widths."""
