"""What happens to files that could not be opened, as `errors` says."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from insitu.errors import CombineError
from insitu.formats import InsituWarning
from insitu.scanning.member import Member
from insitu.scanning.scan_member import Failure

__all__ = ["NoFilesError", "drop_failures", "report_failures"]


class NoFilesError(CombineError):
    """None of the files could be opened.

    Parameters
    ----------
    message, **place
        See `InsituError`.
    left_out
        Each file, and why it could not be opened.
    """

    def __init__(self, message: str, left_out: Mapping[str, str] | None = None, **place: Any) -> None:
        super().__init__(message, **place)
        self.left_out = dict(left_out or {})


def report_failures(failures: Collection[Failure], files: int, errors: str) -> None:
    """Raise or warn for the files that could not be opened; raise if they are all that were given."""
    if failures and errors == "raise":
        raise next(iter(failures)).error
    if errors == "warn":
        for item in failures:
            warnings.warn(f"left out: {item.url}: {item.reason}", InsituWarning, stacklevel=4)
    if len(failures) == files:
        left_out = {item.url: item.reason for item in failures}
        raise NoFilesError(
            f"none of the {files} files could be opened", left_out, hint=next(iter(left_out.values()), None)
        )


def drop_failures(found: Sequence[Member | Failure], errors: str) -> list[Member]:
    """Return the files that could be opened; raise or warn for the others."""
    report_failures([item for item in found if isinstance(item, Failure)], len(found), errors)
    return [item for item in found if isinstance(item, Member)]
