"""KEEP what was scanned: kerchunk's JSON and Parquet, flat tables, and the insitu store; read, written, checked."""

from insitu.references.appending import AppendReport
from insitu.references.check import Report, check
from insitu.references.icechunk import exists as is_repository
from insitu.references.rename import Renaming, renamed, unverified
from insitu.references.saving import FORMATS, append, find_held, format_of, is_store, matches, open_references, save

__all__ = [
    "FORMATS",
    "AppendReport",
    "Renaming",
    "Report",
    "append",
    "check",
    "find_held",
    "format_of",
    "is_repository",
    "is_store",
    "matches",
    "open_references",
    "renamed",
    "save",
    "unverified",
]
