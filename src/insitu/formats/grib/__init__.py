"""GRIB 1 and 2: messages, one after the other, each a field on a grid."""

from insitu.formats.grib.by_index import scan_by_index
from insitu.formats.grib.scan import is_grib, scan_grib
from insitu.formats.grib.side_file import is_side_file

__all__ = ["is_grib", "is_side_file", "scan_by_index", "scan_grib"]
