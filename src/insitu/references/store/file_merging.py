"""Which files of a store are merged into one by the next change, and how long merged ones stay.

Every append adds a file of rows and one of sources. A change that finds many small files writes
their rows again, into its own file: so the number of files grows with the logarithm of the number
of appends, and a row is written a few times in all. Who opened the store before goes on reading the
merged files: they are removed a day later, by the change that comes then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["MERGED_AT_ONCE", "files_to_merge", "split_retired", "trailing_files_to_merge"]

MERGED_AT_ONCE = 8
"""How many files of a size class are merged."""
_SIZE_CLASSES = (1 << 16, 1 << 20)
"""Rows below which a file belongs to a class. Larger files are never merged by an append: a billion
rows are a thousand files at most.
"""
_KEPT_SECONDS = 86_400
_KEPT_FILES = 1000
"""Most merged files that are kept: the root lists them."""
_NAME = re.compile(r"(chunks|sources)-[0-9a-f]+(-[0-9]+)?\.parquet")


def files_to_merge(rows: Sequence[int]) -> set[int]:
    """Return the numbers of the files that are merged, given the rows of each.

    Examples
    --------
    >>> files_to_merge([5_000_000, *[3] * 7]), len(files_to_merge([5_000_000, *[3] * 8]))
    (set(), 8)
    """
    merged: set[int] = set()
    # The larger class holds the smaller one: if both are full, all is merged in one step, and no row twice.
    for most in _SIZE_CLASSES:
        small = {number for number, count in enumerate(rows) if count < most}
        if len(small) >= MERGED_AT_ONCE:
            merged = small
    return merged


def trailing_files_to_merge(rows: Sequence[int]) -> int:
    """Return the number of the first file that is merged with all files behind it.

    Sources are numbered through all files, so only neighbours can be merged.

    Examples
    --------
    >>> trailing_files_to_merge([3, 5_000_000, *[3] * 8]), trailing_files_to_merge([3] * 7)
    (2, 7)
    """
    first_merged = len(rows)
    for most in _SIZE_CLASSES:
        first = len(rows)
        while first and rows[first - 1] < most:
            first -= 1
        if len(rows) - first >= MERGED_AT_ONCE:
            first_merged = first
    return first_merged


def split_retired(retired: Mapping[str, Any], now: float) -> tuple[dict[str, float], set[str]]:
    """Return the merged files that are kept, with the time of their merging, and those that go.

    Names that no save makes are left out: nothing else is ever removed.
    """
    known = {
        name: float(moment)
        for name, moment in retired.items()
        if _NAME.fullmatch(name) and isinstance(moment, int | float)
    }
    latest = sorted(known, key=known.__getitem__, reverse=True)[:_KEPT_FILES]
    recent = {name: known[name] for name in latest if known[name] > now - _KEPT_SECONDS}
    return recent, known.keys() - recent.keys()
