"""`EosStructure`: what an HDF-EOS file says of its grids, swaths and zonal averages.

The scans of HDF4 and HDF5 find it; `combining.vendor_conventions` makes coordinates of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["EOS_INFORMATION", "EosStructure"]

EOS_INFORMATION = "HDFEOS INFORMATION"
"""The HDF5 group with the text that names the dimensions."""


@dataclass(frozen=True, slots=True)
class EosStructure:
    """What an HDF-EOS file says of one of its structures, or an HDF4 one of all its grids."""

    grid: dict[str, Any] | None = None
    """Of a grid: its corners, size and projection."""
    grids: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """The same by name, where one group holds several."""
    swath: Any = None
    """Of a swath: how dimensions of its geolocation map to those of the data."""
    is_zonal: bool = False
    """Whether it is a zonal average."""
