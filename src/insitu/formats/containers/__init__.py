"""Zip and tar archives: files within a file, read by range, and URLs that name them."""

from insitu.formats.containers.member_urls import expand_members, names_member, open_place
from insitu.formats.containers.scan import Inside

__all__ = ["Inside", "expand_members", "names_member", "open_place"]
