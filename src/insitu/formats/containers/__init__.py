"""Zip and tar archives: files within a file, read by range, and URLs that name them."""

from typing import TYPE_CHECKING

from insitu.forking import lazy_attributes
from insitu.formats.containers.entry_urls import open_location, parse_entry_url

if TYPE_CHECKING:
    from insitu.formats.containers.open_entries import expand_entries, open_entry
    from insitu.formats.containers.scan import ScopedArchive

__all__ = ["ScopedArchive", "expand_entries", "open_entry", "open_location", "parse_entry_url"]

# A file that is no archive is opened without what reads archives.
__getattr__ = lazy_attributes(
    __name__,
    {
        "ScopedArchive": "insitu.formats.containers.scan",
        "expand_entries": "insitu.formats.containers.open_entries",
        "open_entry": "insitu.formats.containers.open_entries",
    },
)
