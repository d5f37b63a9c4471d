"""FITS: images and tables."""

from insitu.formats.fits.header import is_fits
from insitu.formats.fits.scan import scan_fits

__all__ = ["is_fits", "scan_fits"]
