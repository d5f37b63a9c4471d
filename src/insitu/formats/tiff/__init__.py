"""TIFF: GeoTIFF, Cloud Optimized GeoTIFF and BigTIFF."""

from insitu.formats.tiff.directory import is_tiff
from insitu.formats.tiff.scan import scan_tiff

__all__ = ["is_tiff", "scan_tiff"]
