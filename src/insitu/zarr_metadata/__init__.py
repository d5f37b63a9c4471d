"""Convert Zarr V2 and V3 metadata to the model and back. No I/O.

Used for Zarr stores (`formats/zarr`), for kerchunk and Icechunk references (`references`), and for
the view of any archive as a Zarr store (`reading/zarr_store`).
"""

from typing import TYPE_CHECKING

from insitu.forking import lazy_attributes

if TYPE_CHECKING:
    from insitu.zarr_metadata.array_document import ArrayMetadata
    from insitu.zarr_metadata.keys import ChunkKeys

__all__ = ["ArrayMetadata", "ChunkKeys"]

# Every scan takes `typed_attributes`, and few take more.
__getattr__ = lazy_attributes(
    __name__, {"ArrayMetadata": "insitu.zarr_metadata.array_document", "ChunkKeys": "insitu.zarr_metadata.keys"}
)
