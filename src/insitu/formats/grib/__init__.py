"""GRIB 1 and 2: messages, one after the other, each a field on a grid."""

from insitu.formats.grib.scan import is_grib, scan_grib

__all__ = ["is_grib", "scan_grib"]
