"""Codecs of HDF5 datatypes: variable-length values, compound records, numbers of unusual widths."""
