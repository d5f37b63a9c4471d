"""Zip and tar archives: files within a file, read by range."""

from insitu.formats.archives.scan import is_tar, is_zip, scan_tar, scan_zip

__all__ = ["is_tar", "is_zip", "scan_tar", "scan_zip"]
