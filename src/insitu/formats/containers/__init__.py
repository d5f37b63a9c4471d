"""Zip and tar archives: files within a file, read by range."""

from insitu.formats.containers.listing import is_tar, is_zip
from insitu.formats.containers.member import Inside
from insitu.formats.containers.member_urls import expand_members, names_member, open_place
from insitu.formats.containers.scan import scan_inside, scan_tar, scan_zip

__all__ = [
    "Inside", "expand_members", "is_tar", "is_zip", "names_member", "open_place", "scan_inside", "scan_tar", "scan_zip",
]  # fmt: skip
