"""Saved references: read, write and check kerchunk JSON and Parquet, Icechunk and the insitu store."""

from typing import TYPE_CHECKING

from insitu.forking import lazy_attributes

if TYPE_CHECKING:
    from insitu.references.check_sources import CheckReport, check
    from insitu.references.icechunk import repository_exists
    from insitu.references.open_and_save import (
        FORMATS,
        can_be_references,
        detect_format,
        find_refused,
        format_from_name,
        is_store,
        open_references,
        save,
        tree_from_document,
    )
    from insitu.references.plan_append import AppendReport
    from insitu.references.rename import (
        Renaming,
        renamed_urls,
        renaming_function,
        with_renamed_sources,
        without_identity,
    )
    from insitu.references.update_references import (
        RollbackReport,
        find_damage,
        open_files_tree,
        open_for_update,
        recipe_of,
        rollback_store,
    )

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
    "find_refused",
    "format_from_name",
    "is_store",
    "open_files_tree",
    "open_for_update",
    "open_references",
    "recipe_of",
    "renamed_urls",
    "renaming_function",
    "repository_exists",
    "rollback_store",
    "save",
    "tree_from_document",
    "with_renamed_sources",
    "without_identity",
]

# The scan cache opens insitu stores, and needs no other form.
__getattr__ = lazy_attributes(
    __name__,
    {
        "FORMATS": "insitu.references.open_and_save",
        "AppendReport": "insitu.references.plan_append",
        "CheckReport": "insitu.references.check_sources",
        "Renaming": "insitu.references.rename",
        "RollbackReport": "insitu.references.update_references",
        "can_be_references": "insitu.references.open_and_save",
        "check": "insitu.references.check_sources",
        "detect_format": "insitu.references.open_and_save",
        "find_damage": "insitu.references.update_references",
        "find_refused": "insitu.references.open_and_save",
        "format_from_name": "insitu.references.open_and_save",
        "is_store": "insitu.references.open_and_save",
        "open_files_tree": "insitu.references.update_references",
        "open_for_update": "insitu.references.update_references",
        "open_references": "insitu.references.open_and_save",
        "recipe_of": "insitu.references.update_references",
        "renamed_urls": "insitu.references.rename",
        "renaming_function": "insitu.references.rename",
        "repository_exists": "insitu.references.icechunk",
        "rollback_store": "insitu.references.update_references",
        "save": "insitu.references.open_and_save",
        "tree_from_document": "insitu.references.open_and_save",
        "with_renamed_sources": "insitu.references.rename",
        "without_identity": "insitu.references.rename",
    },
)
