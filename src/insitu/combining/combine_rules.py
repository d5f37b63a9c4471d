"""xarray's keywords of combining (`join`, `compat`, …), with the installed xarray's defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from insitu.combining.xarray_default import DEFAULT
from insitu.errors import CombineError
from insitu.scanning.member import Load

__all__ = ["CombineRules"]

COMPAT = ("identical", "equals", "broadcast_equals", "no_conflicts", "override", "minimal")
JOIN = ("outer", "inner", "left", "right", "exact", "override")
ATTRS = ("drop", "identical", "no_conflicts", "drop_conflicts", "override")


@cache
def _xarray_default(name: str) -> Any:
    import xarray  # slow to import, and one file needs no rules

    default = inspect.signature(xarray.open_mfdataset).parameters[name].default
    return default


def _resolve_default(name: str, given: Any) -> Any:
    """Return the given value, or the default of the installed xarray.

    Defaults may depend on `xr.set_options`.
    """
    value = _xarray_default(name) if given is DEFAULT else given
    # xarray wraps a default that is about to change; the wrapper equals the value in force. Only
    # its private field gives that value.
    return value._value if type(value).__name__ == "CombineKwargDefault" else value


@dataclass(frozen=True, slots=True)
class CombineRules:
    """The rules of one combination."""

    load: Load
    """Reads values where they must be compared."""
    data_vars: str | Sequence[str] | None = DEFAULT
    coords: str | Sequence[str] = DEFAULT
    compat: str = DEFAULT
    join: str = DEFAULT
    combine_attrs: str | Callable[..., dict[str, Any]] = "override"

    def __post_init__(self) -> None:
        for name in ("data_vars", "coords", "compat", "join"):
            object.__setattr__(self, name, _resolve_default(name, getattr(self, name)))
        if self.compat not in COMPAT:
            raise CombineError(f"compat={self.compat!r} invalid: must be one of {', '.join(COMPAT)}")
        if self.join not in JOIN:
            raise CombineError(f"invalid value for join: {self.join!r}; must be one of {', '.join(JOIN)}")
        if not callable(self.combine_attrs) and self.combine_attrs not in ATTRS:
            raise CombineError(f"Unrecognised value for combine_attrs={self.combine_attrs!r}")
