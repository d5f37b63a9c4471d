"""KEEP what was scanned: kerchunk's JSON and Parquet, flat tables, and the insitu store; read, written, converted, checked."""

from insitu.references.check import Report, check
from insitu.references.rename import renamed, unverified
from insitu.references.saving import FORMATS, append, convert, format_of, matches, open_references, save

__all__ = [
    "FORMATS",
    "Report",
    "append",
    "check",
    "convert",
    "format_of",
    "matches",
    "open_references",
    "renamed",
    "save",
    "unverified",
]
