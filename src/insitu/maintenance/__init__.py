"""Changes of saved archives over time: save, append, drop, refresh, check, compact,
convert, roll back.

Every change combines what the archive holds with what its files hold now, by the code that
combines files. So the result is what combining all files anew would give, but only new files are
scanned and only new rows are written.
"""

from typing import TYPE_CHECKING

from insitu.forking import lazy_attributes

if TYPE_CHECKING:
    from insitu.maintenance.append_by_labels import append_placed
    from insitu.maintenance.append_files import (
        append_member,
        append_tree,
        check_can_append,
        empty_append_report,
        known_files,
    )
    from insitu.maintenance.change_files import drop
    from insitu.maintenance.checking import check
    from insitu.maintenance.compacting import compact
    from insitu.maintenance.last_steps import keep_last
    from insitu.maintenance.refreshing import refresh
    from insitu.maintenance.saving import convert, rename_sources, rollback, save_tree, saved_recipe

__all__ = [
    "append_member",
    "append_placed",
    "append_tree",
    "check",
    "check_can_append",
    "compact",
    "convert",
    "drop",
    "empty_append_report",
    "keep_last",
    "known_files",
    "refresh",
    "rename_sources",
    "rollback",
    "save_tree",
    "saved_recipe",
]

# What only opens and reads an archive imports none of it.
__getattr__ = lazy_attributes(
    __name__,
    {
        "append_member": "insitu.maintenance.append_files",
        "append_placed": "insitu.maintenance.append_by_labels",
        "append_tree": "insitu.maintenance.append_files",
        "check": "insitu.maintenance.checking",
        "check_can_append": "insitu.maintenance.append_files",
        "compact": "insitu.maintenance.compacting",
        "convert": "insitu.maintenance.saving",
        "drop": "insitu.maintenance.change_files",
        "empty_append_report": "insitu.maintenance.append_files",
        "keep_last": "insitu.maintenance.last_steps",
        "known_files": "insitu.maintenance.append_files",
        "refresh": "insitu.maintenance.refreshing",
        "rename_sources": "insitu.maintenance.saving",
        "rollback": "insitu.maintenance.saving",
        "save_tree": "insitu.maintenance.saving",
        "saved_recipe": "insitu.maintenance.saving",
    },
)
