"""Saved references: read, write and check kerchunk JSON and Parquet, Icechunk and the insitu store."""

from insitu.references.check_sources import CheckReport, check
from insitu.references.icechunk import repository_exists as is_repository
from insitu.references.open_and_save import (
    FORMATS,
    can_be_references,
    detect_format,
    format_from_name,
    is_store,
    open_references,
    save,
    tree_from_document,
)
from insitu.references.plan_append import AppendReport
from insitu.references.rename import Renaming, renamed_urls, renaming_function, with_renamed_sources, without_identity
from insitu.references.update_references import RollbackReport, find_damage, open_for_update, recipe_of, rollback_store

__all__ = [
    "FORMATS",
    "AppendReport",
    "CheckReport",
    "Renaming",
    "RollbackReport",
    "can_be_references",
    "check",
    "detect_format",
    "find_damage",
    "format_from_name",
    "is_repository",
    "is_store",
    "open_for_update",
    "open_references",
    "recipe_of",
    "renamed_urls",
    "renaming_function",
    "rollback_store",
    "save",
    "tree_from_document",
    "with_renamed_sources",
    "without_identity",
]
