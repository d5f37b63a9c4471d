"""`Archive`: one URL or many files, opened as one thing."""

from insitu.archive.archive import Archive, open_variable
from insitu.archive.readable_archive import register_dataset_maker, zarr_store_of

__all__ = ["Archive", "open_variable", "register_dataset_maker", "zarr_store_of"]
