"""Variables that cannot be scanned: raise, or leave them out and record why.

`errors="raise"`: the scan ends with the reason. `errors="warn"`: the variable is left out with an
`InsituWarning`, and the reason stays in the group's `problems`. `errors="keep"`: the same without
the warning, for callers that warn themselves. Nothing is dropped in silence.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

from insitu.errors import InsituError, InsituWarning

__all__ = ["InsituWarning", "Problems"]


@dataclass(slots=True)
class Problems:
    """The reasons why variables of one file were left out."""

    errors: str = "raise"
    """`raise`, `warn` or `keep`."""
    url: str | None = None
    """The file."""
    found: dict[str, str] = field(default_factory=dict)
    """By path."""

    def leave_out(self, path: str, reason: InsituError, *, needed: bool = True) -> None:
        """Raise the reason, or record it and warn.

        What the file is complete without (not `needed`: a thumbnail) never raises.
        """
        reason.with_context(variable=path, url=self.url)
        if needed and self.errors == "raise":
            raise reason
        self.note(path, str(reason))
        if self.errors != "keep":
            warnings.warn(f"left out: {reason}", InsituWarning, stacklevel=2)

    def leave_out_attributes(self, path: str, reasons: Mapping[str, str]) -> None:
        """Warn of attributes that cannot be read.

        The variable or group is complete without them, so this never raises.

        Parameters
        ----------
        path
            Path of the variable or group; empty: the root.
        reasons
            By the attribute's name.
        """
        if self.errors == "keep":
            return
        for name, reason in reasons.items():
            # Without the file's name: the files of an archive have the same attributes, and one
            # warning is enough.
            warnings.warn(
                f"left out: attribute {name!r} of {path or 'the root'}: {reason}", InsituWarning, stacklevel=2
            )

    def note(self, path: str, reason: str) -> None:
        """Record the reason without a warning, for things that are no variables (a dangling link)."""
        self.found[path] = reason
