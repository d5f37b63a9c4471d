"""Changes of saved archives over time: save, append, drop, refresh, check, compact,
convert, roll back.

Every change combines what the archive holds with what its files hold now, by the code that
combines files. So the result is what combining all files anew would give, but only new files are
scanned and only new rows are written.
"""

from insitu.maintenance.append_files import append_member, append_tree, empty_append_report, known_files
from insitu.maintenance.checking import check
from insitu.maintenance.compacting import compact
from insitu.maintenance.dropping import drop
from insitu.maintenance.refreshing import refresh
from insitu.maintenance.saving import convert, nest_groups, rename_sources, rollback, save_tree, saved_recipe

__all__ = [
    "append_member",
    "append_tree",
    "check",
    "compact",
    "convert",
    "drop",
    "empty_append_report",
    "known_files",
    "nest_groups",
    "refresh",
    "rename_sources",
    "rollback",
    "save_tree",
    "saved_recipe",
]
