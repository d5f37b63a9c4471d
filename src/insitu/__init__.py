"""Open any archive of scientific arrays as one dataset, without copying it."""

from insitu import errors
from insitu.opening import read, scan

__all__ = ["errors", "read", "scan"]
__version__ = "0.1.0"
