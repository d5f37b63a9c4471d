"""Application of vendor conventions to a scanned tree: HDF-EOS grids and swaths, MATLAB.

They keep in HDF5 more than HDF5 itself describes: where a grid lies, what a cell holds. The
contents of a file show which convention it follows.
"""

from __future__ import annotations

from collections.abc import Callable

from insitu.errors import VariableError
from insitu.formats.eos_structure import EosStructure
from insitu.formats.variable_filter import subtree
from insitu.model import VirtualGroup
from insitu.scanning.member import Load
from insitu.scanning.vendor_conventions.eos5_grids import add_grid_coordinates
from insitu.scanning.vendor_conventions.eos5_swaths import add_geolocation, add_swath_coordinates, geolocation_of
from insitu.scanning.vendor_conventions.matlab import decode_matlab, is_matlab

__all__ = ["Rescan", "apply_vendor_conventions"]

Rescan = Callable[[str | None], VirtualGroup]


def apply_vendor_conventions(
    group: VirtualGroup, path: str | None, load: Load, rescan: Rescan, *, url: str = ""
) -> VirtualGroup:
    """Return a scanned group with the conventions of its writer applied.

    Parameters
    ----------
    group
        As scanned.
    path
        Where it lies in the file.
    load
        Reads values.
    rescan
        Scans another group of the file: what is meant may lie beside what was asked for.
    url
        The file, for messages.
    """
    if is_matlab(group):
        inside = path is not None and path.strip("/")
        # The elements of cells lie in a hidden group at the root.
        return subtree(decode_matlab(rescan(None), load), path, url=url) if inside else decode_matlab(group, load)
    group = add_geolocation(add_grid_coordinates(group))
    beside = geolocation_of(path)
    structure = group.details.structure
    if beside is not None and isinstance(structure, EosStructure) and structure.swath is not None:
        try:
            return add_swath_coordinates(group, rescan(beside))
        except VariableError:  # a swath without geolocation
            return group
    return group
