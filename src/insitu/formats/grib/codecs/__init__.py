"""Codecs of GRIB: packed values of a message, by ourselves or by ecCodes."""
