"""FIND the chunks: bytes of an archive file → `VirtualGroup`."""

from insitu.formats.detect import FORMATS, Format, scan_format
from insitu.formats.unreadable import InsituWarning

__all__ = ["FORMATS", "Format", "InsituWarning", "scan_format"]
