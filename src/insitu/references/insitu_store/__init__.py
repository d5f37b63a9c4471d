"""KEEP everything the model can say, at any size: the insitu store (`x.insitu/`)."""

from insitu.references.insitu_store.append import append_store
from insitu.references.insitu_store.read import open_store
from insitu.references.insitu_store.root import NAME, VERSION
from insitu.references.insitu_store.write import write_store

__all__ = ["NAME", "VERSION", "append_store", "open_store", "write_store"]
