"""How does every Zarr client read a virtual archive? Any tree as a read-only Zarr store, V3 or V2.

| module | question |
|---|---|
| `passed` | which bytes are a chunk, where Zarr can say the array as it lies? |
| `recut` | which bytes are a chunk, where it has to be read and encoded anew? |
| `kinds` | how are times and texts written so that everybody understands them? |
| `tree` | which keys are there, and what do they hold? |
| `store` | the same as zarr-python wants it |
"""

from insitu.reading.zarr_store.tree import Span, ZarrTree

__all__ = ["Span", "ZarrTree"]
