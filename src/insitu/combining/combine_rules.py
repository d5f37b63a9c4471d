"""xarray's keywords of combining (`join`, `compat`, …), with the installed xarray's defaults."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

from insitu.combining.arrange import Arrangement
from insitu.combining.files_table import FilesTable
from insitu.combining.pad import Padding, joined_dims, plan_padding
from insitu.errors import CombineError
from insitu.open_options import DEFAULT, CombineOptions
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineRules(CombineOptions):
    """The options of one combination, those that are left to xarray resolved, and how it reads."""

    load: Load
    """Reads values where they must be compared."""
    padding: Padding = field(default=Padding())
    """What files are padded to, once that is known of all."""
    aligns_images: bool = True
    """Whether images of different grids are aligned by their labels: `join` was given for that."""

    @classmethod
    def of(cls, options: CombineOptions, load: Load) -> CombineRules:
        """Return the rules that options make with the installed xarray."""
        own: dict[str, Any] = {"load": load, "aligns_images": options.join is not DEFAULT}
        return cls(**own, **{item.name: getattr(options, item.name) for item in fields(CombineOptions)})

    def resolved_options(self) -> CombineOptions:
        """Return the options alone, which can travel to workers that have another xarray."""
        return CombineOptions(**{item.name: getattr(self, item.name) for item in fields(CombineOptions)})

    def for_files(self, arrangement: Arrangement, files: FilesTable) -> CombineRules:
        """Return the rules for these files: with `pad`, they say what each is padded to."""
        return replace(self, padding=plan_padding(files, joined_dims(arrangement))) if self.pad else self

    def __post_init__(self) -> None:
        for name in ("data_vars", "coords", "compat", "join"):
            object.__setattr__(self, name, _resolve_default(name, getattr(self, name)))
        if self.compat not in COMPAT:
            raise CombineError(f"compat={self.compat!r} invalid: must be one of {', '.join(COMPAT)}")
        if self.join not in JOIN:
            raise CombineError(f"invalid value for join: {self.join!r}; must be one of {', '.join(JOIN)}")
        if not callable(self.combine_attrs) and self.combine_attrs not in ATTRS:
            raise CombineError(f"Unrecognised value for combine_attrs={self.combine_attrs!r}")
