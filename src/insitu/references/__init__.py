"""Saved references: read, write and check kerchunk JSON and Parquet, Icechunk and the insitu store."""

from insitu.references.appending import AppendReport
from insitu.references.check import Report, check
from insitu.references.icechunk import exists as is_repository
from insitu.references.rename import Renaming, renamed, unverified
from insitu.references.saving import (
    FORMATS,
    format_of,
    is_store,
    kind_of,
    matches,
    open_references,
    read_document,
    save,
)
from insitu.references.updating import find_damage, open_for_update, recipe_of, rollback_store

__all__ = [
    "FORMATS",
    "AppendReport",
    "Renaming",
    "Report",
    "check",
    "find_damage",
    "format_of",
    "is_repository",
    "is_store",
    "kind_of",
    "matches",
    "open_for_update",
    "open_references",
    "read_document",
    "recipe_of",
    "renamed",
    "rollback_store",
    "save",
    "unverified",
]
