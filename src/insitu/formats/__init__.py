"""FIND the chunks: bytes of an archive file → `VirtualGroup`.

Formats are imported when a file needs them.
"""

from insitu.formats.detect import scan_folder, scan_format
from insitu.formats.registry import FORMATS, Format
from insitu.formats.unreadable import InsituWarning

__all__ = ["FORMATS", "Format", "InsituWarning", "scan_folder", "scan_format"]
