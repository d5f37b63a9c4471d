"""What does a scanned tree mean, in the dialect of whoever wrote it?

HDF-EOS5 and MATLAB keep in HDF5 more than HDF5 says: where a grid lies, what a cell holds. Their files are told by what is in them.
"""

from __future__ import annotations

from collections.abc import Callable

from insitu.combining.eos5_grids import located
from insitu.combining.eos5_swaths import geolocated, geolocation_of, placed
from insitu.combining.matlab import Load, is_matlab, meant
from insitu.errors import VariableError
from insitu.formats.hdf5.conventions.eos5 import EosStructure
from insitu.formats.variable_filter import below
from insitu.model import VirtualGroup

__all__ = ["Rescan", "understood"]

Rescan = Callable[[str | None], VirtualGroup]


def understood(group: VirtualGroup, path: str | None, load: Load, rescan: Rescan, *, url: str = "") -> VirtualGroup:
    """A group as its writer means it.

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
