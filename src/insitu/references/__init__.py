"""KEEP what was scanned: kerchunk's JSON and Parquet, flat tables, and the insitu store; read, written, checked."""

from insitu.references.check import Report, check
from insitu.references.icechunk import exists as is_repository
from insitu.references.rename import Renaming, renamed, unverified
from insitu.references.saving import FORMATS, append, format_of, matches, open_references, save

__all__ = [
    "FORMATS",
    "Renaming",
    "Report",
    "append",
    "check",
    "format_of",
    "is_repository",
    "matches",
    "open_references",
    "renamed",
    "save",
    "unverified",
]
