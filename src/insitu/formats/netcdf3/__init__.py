"""NetCDF-3: the classic formats CDF-1, CDF-2 (64-bit offset) and CDF-5 (64-bit data)."""

from insitu.formats.netcdf3.scan import is_netcdf3, scan_netcdf3

__all__ = ["is_netcdf3", "scan_netcdf3"]
