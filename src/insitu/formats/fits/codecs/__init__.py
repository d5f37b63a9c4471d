"""Codecs of FITS: compressed tiles, cells of tables, heaps."""
