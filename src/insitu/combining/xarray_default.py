"""`DEFAULT`: the value of a keyword that is left to the installed xarray."""

from __future__ import annotations

from typing import Any

__all__ = ["DEFAULT"]


class _XarrayDefault:
    """Stands for the default of the installed xarray."""

    def __repr__(self) -> str:
        return "xarray's default"

    def __reduce__(self) -> str:
        return "DEFAULT"


DEFAULT: Any = _XarrayDefault()
"""Value of a keyword that is left to xarray."""
