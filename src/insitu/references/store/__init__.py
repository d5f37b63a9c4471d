"""The insitu store (`x.insitu/`): read and write trees of virtual arrays of any kind and size."""

from insitu.references.store.root import NAME, VERSION
from insitu.references.store.store_reader import open_store, read_document, saved_recipe
from insitu.references.store.store_writer import StoreUpdate, is_unfinished, restore_previous, write_store

__all__ = [
    "NAME",
    "VERSION",
    "StoreUpdate",
    "is_unfinished",
    "open_store",
    "read_document",
    "restore_previous",
    "saved_recipe",
    "write_store",
]
