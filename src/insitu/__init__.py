"""Open any archive of scientific arrays as one dataset, without copying it."""

from insitu import errors
from insitu.opening import read, scan
from insitu.reading import ChunkCache

__all__ = ["ChunkCache", "errors", "read", "scan"]
__version__ = "0.1.0"
