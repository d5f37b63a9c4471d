"""Zarr view: any virtual archive as a read-only Zarr store, V3 or V2, for every Zarr client.

| module | provides |
|---|---|
| `stored_chunks` | chunks that are passed on as they are stored |
| `encoded_chunks` | chunks that are read and encoded again, where Zarr cannot describe the stored ones |
| `value_forms` | how times and texts are written |
| `zarr_tree` | the keys of the store and their content |
| `many_keys` | keys that tasks of an event loop wait for, read together |
| `store` | the store class of zarr-python |
"""

from insitu.reading.zarr_store.zarr_tree import ByteSpan, ZarrTree

__all__ = ["ByteSpan", "ZarrTree"]
