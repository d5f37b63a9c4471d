"""What the tests of copies open and compare: `archive_of`, `contents_of`."""

from __future__ import annotations

from pathlib import Path

import insitu

__all__ = ["JOIN", "archive_of", "contents_of"]

JOIN = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}


def archive_of(files: str | list[str]) -> insitu.Archive:
    """The files as one archive, joined by `JOIN`."""
    return insitu.Archive.open(files, **JOIN)


def contents_of(folder: Path) -> dict[str, bytes]:
    """The bytes of every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
