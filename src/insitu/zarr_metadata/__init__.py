"""WHAT Zarr documents say: V2 and V3 metadata to the model and back. Pure: no I/O.

Used by whoever meets such documents: Zarr stores (`formats/zarr`), kerchunk references (`references`), and the view of any archive as a
Zarr store.
"""

from insitu.zarr_metadata.array import ArrayMetadata
from insitu.zarr_metadata.keys import ChunkKeys

__all__ = ["ArrayMetadata", "ChunkKeys"]
