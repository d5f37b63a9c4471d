"""Codecs of TIFF: strips and tiles, colour spaces, old run lengths."""
