"""FIND the chunks of Zarr stores: V2 and V3, directories, buckets, web addresses and zip files.

Keys are computed, never listed.
"""

from insitu.formats.zarr.scan import ZarrContainer, matches, open_zarr, scan_store

__all__ = ["ZarrContainer", "matches", "open_zarr", "scan_store"]
