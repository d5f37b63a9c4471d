"""HDF4: the scientific datasets (SDS) that MODIS and others are made of."""

from insitu.formats.hdf4.scan import is_hdf4, scan_hdf4

__all__ = ["is_hdf4", "scan_hdf4"]
