"""What happens to a variable that cannot be taken?

`errors="raise"`: the scan ends with the reason. `errors="warn"`: the variable is left out, a warning says so, and the reason stays
in the group's `problems`. Nothing is ever dropped in silence. `errors="keep"`: the same without the warning, for callers that give it.
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
    """raise, warn or keep."""
    found: dict[str, str] = field(default_factory=dict)
    """By path."""

    def __post_init__(self) -> None:
        if self.errors not in ("raise", "warn", "keep"):
            raise ValueError(f'errors must be "raise" or "warn", not {self.errors!r}')

    def leave_out(self, path: str, reason: InsituError) -> None:
        """Leave a variable out: raise, or warn and remember."""
        reason.located(variable=path)
        if self.errors == "raise":
            raise reason
        self.note(path, str(reason))
        if self.errors == "warn":
            warnings.warn(f"left out: {reason}", InsituWarning, stacklevel=2)

    def leave_out_attributes(self, path: str, reasons: Mapping[str, str]) -> None:
        """Warn of attributes that have no value here: the variable or group is whole without them, so this never raises.

        Parameters
        ----------
        path
            Of the variable or group; empty: the root.
        reasons
            By the attribute's name.
        """
        if self.errors == "keep":
            return
        for name, reason in reasons.items():
            # Without the file's name: the files of an archive have the same attributes, and one warning is enough.
            warnings.warn(
                f"left out: attribute {name!r} of {path or 'the root'}: {reason}", InsituWarning, stacklevel=2
            )

    def note(self, path: str, reason: str) -> None:
        """Remember a thing that is no variable at all (a link that leads nowhere)."""
        self.found[path] = reason
