"""Scan FITS files: images are arrays, tables are groups.

Every image is an array of the root, named like its unit (`PRIMARY`, `SCI`, `SCI_2`). Its dimensions
are x, y, z, axis_4, … (x is NAXIS1), with coordinates where the world coordinates of an axis depend
on no other. A dimension that another image has with other pixels or coordinates carries the unit's
name too: `x_ERR`. Every table is a group, its columns are arrays.
"""

from __future__ import annotations

from insitu.errors import FormatError, InsituError, UnsupportedError
from insitu.formats.fits.compressed import CompressedImage
from insitu.formats.fits.header_units import HeaderDataUnit, is_fits, read_units
from insitu.formats.fits.image_arrays import header_attributes, image_of
from insitu.formats.fits.tables import table_of
from insitu.formats.fits.wcs import AxisScale, axis_scale
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.registry import Format
from insitu.formats.scan_request import ScanRequest, with_keywords
from insitu.formats.unreadable import Problems
from insitu.model import GroupDetails, Source, VirtualArray, VirtualGroup

__all__ = ["FITS", "scan_fits"]

LONGEST = 1 << 22
"""Most pixels of an axis whose coordinates are kept."""


def scan_fits(window: ReadCache, request: ScanRequest) -> VirtualGroup:
    """Return the images and tables of a FITS file; a table is a group."""
    problems = Problems(request.errors, window.url)
    units, ended = read_units(window)
    scanner = _Scanner(window.source.describe(), window)
    for unit in units:
        scanner.add(unit)
    if ended:
        scanner.failed.setdefault(f"HDU{len(units)}", FormatError(f"header-data units are missing: {ended}"))
    for path, problem in scanner.failed.items():
        if request.name_of(path) is not None:
            problems.leave_out(path, problem)
    details = GroupDetails("fits", notes={"units": [unit.name for unit in units]})
    attributes = header_attributes(units[0]) if not units[0].axes else {}
    tree = VirtualGroup(scanner.arrays, scanner.groups, attributes, details, problems.found)
    return request.select(tree)


class _Scanner:
    """Collects the arrays and groups of a file."""

    def __init__(self, source: Source, window: ReadCache) -> None:
        self.source, self.window = source, window
        self.arrays: dict[str, VirtualArray] = {}
        self.groups: dict[str, VirtualGroup] = {}
        self.failed: dict[str, InsituError] = {}
        self.dims: dict[str, tuple[int, AxisScale | None]] = {}

    def add(self, unit: HeaderDataUnit) -> None:
        """Add one header-data unit."""
        name = self._free(unit)
        try:
            if unit.kind == "IMAGE":
                if unit.axes:
                    self._image(unit, name, unit)
            elif unit.cards.get("ZIMAGE") is True:
                packed = CompressedImage(unit, self.window)
                self._image(packed.image, name, packed)
            elif unit.kind in ("BINTABLE", "A3DTABLE", "TABLE"):
                table = self.groups[name] = table_of(unit, self.source, self.window.size)
                for column, reason in table.problems.items():
                    self.failed[f"{name}/{column}"] = UnsupportedError(reason, offset=unit.offset)
            else:
                raise UnsupportedError(
                    f"FITS extension {unit.kind!r} is not supported", offset=unit.offset, structure="XTENSION"
                )
        except InsituError as problem:
            self.failed[name] = problem

    def _free(self, unit: HeaderDataUnit) -> str:
        """Return a name that is not used yet; a slash would be a path."""
        base = unit.name.replace("/", "_")
        taken = self.arrays.keys() | self.groups.keys() | self.failed.keys() | self.dims.keys()
        name, number = base, 2
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        return name

    def _image(self, unit: HeaderDataUnit, name: str, stored: HeaderDataUnit | CompressedImage) -> None:
        dims: list[str] = []
        scales: dict[str, tuple[int, AxisScale | None]] = {}
        for number, length in enumerate(unit.axes, 1):
            scale = axis_scale(unit, number) if length <= LONGEST else None
            dim = "xyz"[number - 1] if number <= 3 else f"axis_{number}"
            if self.dims.get(dim, (length, scale)) != (length, scale):
                dim = f"{dim}_{name}"
            dims.append(dim)
            scales[dim] = (length, scale)
        names = tuple(reversed(dims))
        if isinstance(stored, CompressedImage):
            self.arrays[name] = stored.array(self.source, names)
        else:
            self.arrays[name] = image_of(stored, self.source, self.window.size, names)
        for dim, (length, scale) in scales.items():
            if dim not in self.dims and scale is not None:
                self.arrays[dim] = VirtualArray.from_values(
                    scale.values(length), dims=(dim,), attributes=scale.attributes
                )
        self.dims.update(scales)


FITS = Format(is_fits, with_keywords(scan_fits))
