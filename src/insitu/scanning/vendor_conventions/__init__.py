"""Application of vendor conventions to a scanned tree: the grids and swaths of HDF-EOS.

Its files say in a text where a grid lies and what belongs to a swath, which HDF5 and HDF4 do not
describe.
"""

from __future__ import annotations

from collections.abc import Callable

from insitu.errors import VariableError
from insitu.formats.eos_structure import EosStructure
from insitu.model import VirtualGroup
from insitu.scanning.vendor_conventions.eos5_grids import add_grid_coordinates
from insitu.scanning.vendor_conventions.eos5_swaths import add_geolocation, add_swath_coordinates, geolocation_of

__all__ = ["Rescan", "apply_vendor_conventions"]

Rescan = Callable[[str], VirtualGroup]


def apply_vendor_conventions(group: VirtualGroup, path: str | None, rescan: Rescan) -> VirtualGroup:
    """Return a scanned group with the conventions of its writer applied.

    Parameters
    ----------
    group
        As scanned.
    path
        Where it lies in the file.
    rescan
        Scans another group of the file: what is meant may lie beside what was asked for.
    """
    group = add_geolocation(add_grid_coordinates(group))
    beside = geolocation_of(path)
    structure = group.details.structure
    if beside is not None and isinstance(structure, EosStructure) and structure.swath is not None:
        try:
            return add_swath_coordinates(group, rescan(beside))
        except VariableError:  # a swath without geolocation
            return group
    return group
