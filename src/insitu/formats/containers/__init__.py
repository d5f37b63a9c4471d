"""Zip and tar archives: files within a file, read by range, and URLs that name them."""

from insitu.formats.containers.entry_urls import expand_entries, open_location, parse_entry_url
from insitu.formats.containers.scan import ScopedArchive

__all__ = ["ScopedArchive", "expand_entries", "open_location", "parse_entry_url"]
