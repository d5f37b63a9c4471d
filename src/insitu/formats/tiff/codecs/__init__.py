"""Codecs of TIFF: strips and tiles, YCbCr, old run lengths."""
