"""Check that georeferenced images are of one grid before they follow each other: a series of GeoTIFFs.

xarray would take the union of the labels of images that lie half a pixel apart: four times the pixels, three of
four missing. And where a file has another coordinate reference system, the first one's would count for all. So
both are errors that say what differs. Images side by side (a mosaic) need one reference system only, and with
`join=` given, labels are aligned as xarray does it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from insitu.errors import CombineError
from insitu.scanning.member import Member

__all__ = ["IMAGES", "PIXELS", "check_image_grids", "grid_of_image"]

IMAGES = "tiff"
"""The format of files that are checked."""
PIXELS = ("x", "y")
"""The dimensions along which images lie side by side."""
REFERENCE = "spatial_ref"
"""The variable whose attributes say where an image lies: see `insitu.formats.tiff`."""

Grid = tuple[Any, Any, int | None, int | None]
"""Reference system, transformation from pixels to places, and the numbers of columns and rows."""


def grid_of_image(member: Member) -> Grid | None:
    """Return the grid of a TIFF image; None of any other file, or if that is unknown."""
    if member.details.format != IMAGES or REFERENCE not in member.variables:
        return None
    attributes = member.variables[REFERENCE].attributes
    sizes = member.sizes
    return attributes.get("crs_wkt"), attributes.get("GeoTransform"), sizes.get("x"), sizes.get("y")


def check_image_grids(members: Sequence[Member], dim: str, *, aligns: bool) -> None:
    """Raise `CombineError` if images are not of one grid.

    Parameters
    ----------
    members
        Files, in the order in which they follow each other.
    dim
        The dimension that they are joined along.
    aligns
        Whether images of other places and sizes are aligned by their labels.
    """
    images = [(member, grid) for member in members if (grid := grid_of_image(member)) is not None]
    for member, grid in images[1:]:
        reference, first = images[0]
        if grid == first:
            continue
        if grid[0] != first[0]:
            raise CombineError(
                f"images of different coordinate reference systems cannot be joined along {dim!r}: "
                f"{_name_system(grid[0], member)} here, {_name_system(first[0], reference)} in {reference.source}",
                url=member.source,
                hint="Reproject them to one, or join those of each apart",
            )
        if not aligns and dim not in PIXELS:
            raise CombineError(
                f"images of different grids cannot follow each other along {dim!r}: {_format(grid, first)} here, "
                f"{_format(first, grid)} in {reference.source}",
                url=member.source,
                hint="Bring them to one grid (rioxarray's reproject_match), join those of each apart, or give "
                "join='outer', 'inner' or 'override' to align their labels",
            )


def _format(grid: Grid, other: Grid) -> str:
    """Return what a grid has that another one has not: size, pixel size, corner."""
    found = []
    if grid[2:] != other[2:]:
        found.append(f"{grid[2]} × {grid[3]} pixels")
    numbers, other_numbers = (str(one[1] or "").split() for one in (grid, other))
    if len(numbers) == len(other_numbers) == 6:
        if [numbers[i] for i in (1, 2, 4, 5)] != [other_numbers[i] for i in (1, 2, 4, 5)]:
            turned = "" if float(numbers[2]) == float(numbers[4]) == 0 else ", turned"
            found.append(f"pixels of {numbers[1]} × {numbers[5]}{turned}")
        if (numbers[0], numbers[3]) != (other_numbers[0], other_numbers[3]):
            found.append(f"the corner at ({numbers[0]}, {numbers[3]})")
    elif grid[1] != other[1]:
        found.append(f"the transformation {grid[1]}")
    return ", ".join(found)


def _name_system(text: Any, member: Member) -> str:
    """Return the name of a coordinate reference system, and its code."""
    if text is None:
        return "none"
    attributes: Mapping[str, Any] = member.variables[REFERENCE].attributes
    name = attributes.get("projected_crs_name") or attributes.get("geographic_crs_name") or str(text)[:60]
    codes = re.findall(r'AUTHORITY\["([^"]+)","([^"]+)"\]', str(text))
    return f"{name} ({':'.join(codes[-1])})" if codes else str(name)
