"""Zip and tar archives: files within a file, read by range, and URLs that name them."""

from insitu.formats.containers.member_urls import expand_members, open_location, parse_member_url
from insitu.formats.containers.scan import ScopedArchive

__all__ = ["ScopedArchive", "expand_members", "open_location", "parse_member_url"]
