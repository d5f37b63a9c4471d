"""Application of vendor conventions to a scanned tree: HDF-EOS grids and swaths, MATLAB.

They keep in HDF5 more than HDF5 itself describes: where a grid lies, what a cell holds. The
contents of a file show which convention it follows.
"""

from __future__ import annotations

from collections.abc import Callable

from insitu.combining.member import Load
from insitu.combining.vendor_conventions.eos5_grids import located
from insitu.combining.vendor_conventions.eos5_swaths import geolocated, geolocation_of, placed
from insitu.combining.vendor_conventions.matlab import is_matlab, meant
from insitu.errors import VariableError
from insitu.formats.hdf5.conventions.eos5 import EosStructure
from insitu.formats.variable_filter import below
from insitu.model import VirtualGroup

__all__ = ["Rescan", "understood"]

Rescan = Callable[[str | None], VirtualGroup]


def understood(group: VirtualGroup, path: str | None, load: Load, rescan: Rescan, *, url: str = "") -> VirtualGroup:
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
        return below(meant(rescan(None), load), path, url=url) if inside else meant(group, load)
    group = geolocated(located(group))
    beside = geolocation_of(path)
    structure = group.details.structure
    if beside is not None and isinstance(structure, EosStructure) and structure.swath is not None:
        try:
            return placed(group, rescan(beside))
        except VariableError:  # a swath without geolocation
            return group
    return group
