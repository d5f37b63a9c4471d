"""The insitu store (`x.insitu/`): read and write trees of virtual arrays of any kind and size."""

from typing import TYPE_CHECKING

from insitu.forking import lazy_attributes

if TYPE_CHECKING:
    from insitu.references.store.previous_root import restore_previous
    from insitu.references.store.root import NAME, VERSION
    from insitu.references.store.store_reader import open_store, read_document, saved_recipe
    from insitu.references.store.store_writer import StoreUpdate, is_unfinished, write_store

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

# What reads a store imports nothing that writes one.
__getattr__ = lazy_attributes(
    __name__,
    {
        "NAME": "insitu.references.store.root",
        "VERSION": "insitu.references.store.root",
        "StoreUpdate": "insitu.references.store.store_writer",
        "is_unfinished": "insitu.references.store.store_writer",
        "open_store": "insitu.references.store.store_reader",
        "read_document": "insitu.references.store.store_reader",
        "restore_previous": "insitu.references.store.previous_root",
        "saved_recipe": "insitu.references.store.store_reader",
        "write_store": "insitu.references.store.store_writer",
    },
)
