"""Scan TIFF files: find every strip and tile, with the coordinates that rioxarray shows.

The first image is the root: `band_data` with the dimensions band, y, x. Its overviews are groups
`overview_0`, `overview_1`, … (numbered as in rasterio), each with the coordinates of its larger
pixels. A mask is an array `mask` beside its image. Other images that belong to it (a thumbnail in
colours of its own, SubIFDs that are no smaller) are groups `subimage_0`, `subimage_1`, …. Further
images of the same kind are stacked along a dimension `page`; if they differ, each is a group
`page_1`, `page_2`, ….
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from insitu.errors import FormatError, InsituError
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.registry import Format
from insitu.formats.scan_request import ScanRequest, with_keywords
from insitu.formats.tiff import georeferencing, image, metadata
from insitu.formats.tiff.crs import crs_attributes
from insitu.formats.tiff.directory import Directory, is_tiff, read_directories
from insitu.formats.tiff.georeferencing import Affine, affine_of, control_points, geo_keys
from insitu.formats.tiff.image import TiffImage, image_of
from insitu.formats.tiff.metadata import attributes_of, colours_of_indices, frames_of, nodata_of
from insitu.formats.tiff.strips_and_tiles import tile_of
from insitu.formats.unreadable import Problems
from insitu.lru import LruCache
from insitu.model import (
    ArrayDetails,
    GroupDetails,
    Source,
    VirtualArray,
    VirtualGroup,
    stack,
)

__all__ = ["TIFF", "scan_tiff"]

DATA, MASK = "band_data", "mask"
DIMS = ("band", "y", "x")
LONGEST = 1 << 22
"""Pixels of an axis whose coordinates are kept: more would cost tens of megabytes."""
SHORT = 1 << 16
"""Most pixels of both axes whose coordinates are cached for the next file: 64 such pairs take 32
MiB at most.
"""
MOST_FRAMES = 1 << 16
"""Most images of a stack with one directory."""
TAGS = (*image.TAGS, *georeferencing.TAGS, *metadata.TAGS)


def scan_tiff(window: ReadCache, request: ScanRequest) -> VirtualGroup:
    """Return the images of a TIFF; overviews and pages are groups."""
    problems = Problems(request.errors, window.url)
    directories = read_directories(window, TAGS)
    pages, failed = _pages(directories)
    scanner = _Scanner(window.source.describe(), window.size, failed)
    if not pages:
        raise FormatError("the TIFF file has no image", offset=4, structure="header")
    tree = scanner.tree(pages)
    for path, problem in scanner.failed.items():
        name = request.name_of(path)
        if name is not None:
            # The image is complete without its overviews and thumbnails, as in GDAL and tifffile.
            needed = request.variables is not None or not _BELONGING.match(name)
            problems.leave_out(path, problem, needed=needed)
    tree = replace(tree, problems=problems.found)
    return request.select(tree)


@dataclass(slots=True)
class _TiffPage:
    """A full image with its mask, its overviews, and other images that belong to it."""

    name: str
    image: TiffImage | None = None
    mask: TiffImage | None = None
    overviews: list[_TiffPage] = field(default_factory=list)
    others: list[_TiffPage] = field(default_factory=list)


_BELONGING = re.compile(r"(page_\d+/)?(overview|subimage|directory)_\d+(/|$)")
"""Paths of images that belong to another one."""


def _pages(directories: list[Directory]) -> tuple[list[_TiffPage], dict[str, InsituError]]:
    """Sort images into pages, with the overviews and the mask of each."""
    pages: list[_TiffPage] = []
    failed: dict[str, InsituError] = {}
    for directory in directories:
        owner = pages[-1] if pages else None
        try:
            found = image_of(directory)
        except InsituError as problem:
            if owner is not None and (directory.parent is not None or _flags(directory) & 5):
                kind = MASK if _flags(directory) & 4 else f"directory_{directory.offset}"
                failed[_path(owner.name, kind)] = problem
            else:
                pages.append(_TiffPage(f"page_{len(pages)}"))
                failed[_path(pages[-1].name, DATA)] = problem
            continue
        if owner is None or not (found.mask or found.reduced or directory.parent is not None):
            pages.append(_TiffPage(f"page_{len(pages)}", found))
        elif found.mask:
            size = (found.width, found.height)
            for candidate in (owner, *owner.overviews):
                if candidate.image is not None and (candidate.image.width, candidate.image.height) == size:
                    candidate.mask = candidate.mask or found
        elif _is_overview(found, owner.image):
            owner.overviews.append(_TiffPage(f"overview_{len(owner.overviews)}", found))
        else:
            owner.others.append(_TiffPage(f"subimage_{len(owner.others)}", found))
    return pages, failed


def _is_overview(found: TiffImage, full: TiffImage | None) -> bool:
    """Return whether an image that belongs to another one shows it with fewer pixels.

    As in GDAL it has as many bands, and as in tifffile a SubIFD need not say that it is reduced.
    """
    if full is None:
        return found.reduced
    smaller = found.width < full.width and found.height < full.height
    return found.bands == full.bands and (found.reduced or smaller)


def _flags(directory: Directory) -> int:
    try:
        return directory.number(image.SUBFILE, 0)
    except InsituError:
        return 0


def _path(page: str, name: str) -> str:
    return name if page == "page_0" else f"{page}/{name}"


class _Scanner:
    """Makes virtual groups of pages."""

    def __init__(self, source: Source, size: int, failed: dict[str, InsituError]) -> None:
        self.source, self.size, self.failed = source, size, failed

    def tree(self, pages: list[_TiffPage]) -> VirtualGroup:
        """Return the group of the whole file."""
        stacked = self._stack(pages) if len(pages) > 1 else self._frames(pages[0])
        if stacked is not None:
            return stacked
        root, *others = [self._group(page, page.name) for page in pages]
        groups = {page.name: group for page, group in zip(pages[1:], others, strict=True)}
        return replace(root, groups={**root.groups, **groups})

    def _group(self, page: _TiffPage, path: str, full: _ImageDescription | None = None) -> VirtualGroup:
        """Return one image with its coordinates, mask and overviews.

        An overview has the description of its full image.
        """
        if page.image is None:
            return VirtualGroup({}, {}, {}, GroupDetails("tiff"))
        about = _describe_image(page.image) if full is None else full.for_overview(page.image)
        arrays: dict[str, VirtualArray] = {}
        try:
            arrays[DATA] = self._array(page.image, about.attributes)
        except InsituError as problem:
            self.failed[_path(path, DATA)] = problem
        if page.mask is not None:
            try:
                arrays[MASK] = self._mask(page.mask)
            except InsituError as problem:
                self.failed[_path(path, MASK)] = problem
        arrays.update(_coordinates(page.image, about))
        groups = {
            overview.name: self._group(overview, _path(path, overview.name), about) for overview in page.overviews
        }
        groups |= {other.name: self._group(other, _path(path, other.name)) for other in page.others}
        return VirtualGroup(arrays, groups, {}, _details(page.image.directory))

    def _array(self, found: TiffImage, attributes: dict[str, Any], shift: int = 0) -> VirtualArray:
        nodata = nodata_of(found.directory, found.dtype)
        fill = None if nodata is None else np.array(nodata, found.dtype).tobytes()
        tile = tile_of(found, self.source, self.size, fill, shift)
        rows, columns = found.block
        notes: dict[str, Any] = {"compression": found.compression}
        if found.bands == 1 and (colours := colours_of_indices(found.directory)):
            notes["colormap"] = colours
        details = ArrayDetails((1 if found.planar else found.bands, rows, columns), True, notes=notes)
        shape = found.bands, found.height, found.width
        return VirtualArray(shape, found.dtype, DIMS, (tile,), _ORIGIN, dict(attributes), nodata, details)

    def _mask(self, found: TiffImage) -> VirtualArray:
        """Return a mask as an array; of several bands, the first."""
        return self._array(found, {"long_name": "1 or 255: the pixel is valid"})[0]

    def _frames(self, page: _TiffPage) -> VirtualGroup | None:
        """Return a stack of which only the first image has a directory.

        None if the page is not one.
        """
        found = page.image
        if found is None or page.overviews or page.others or page.mask is not None or found.compression != "none":
            return None
        count = frames_of(found.directory)
        if not 1 < count <= MOST_FRAMES:
            return None
        about = _describe_image(found)
        try:
            first = self._array(found, about.attributes)
            (tile,) = first.tiles
            rows = tile.chunks.locate(list(np.indices(tile.chunks.shape).reshape(3, -1)))
            nbytes, end = int(rows.length.sum()), int((rows.offset + rows.length).max())
            if end - int(rows.offset.min()) != nbytes or end + (count - 1) * nbytes > self.size:
                return None
            parts = [first, *(self._array(found, about.attributes, number * nbytes) for number in range(1, count))]
        except InsituError:
            return None
        arrays = {DATA: stack(parts, "page"), **_coordinates(found, about)}
        return VirtualGroup(arrays, {}, {}, _details(found.directory))

    def _stack(self, pages: list[_TiffPage], full: _ImageDescription | None = None) -> VirtualGroup | None:
        """Stack pages along a dimension, and the images that belong to them likewise.

        Return None if they differ.
        """
        images = [page.image for page in pages]
        first, belonging = images[0], [[*page.overviews, *page.others] for page in pages]
        names = [part.name for part in belonging[0]]
        if first is None or any(page.mask is not None for page in pages):
            return None
        if any([part.name for part in parts] != names for parts in belonging):
            return None
        about, own = _describe_image(first) if full is None else full.for_overview(first), _stacking_key(first)
        for other in images[1:]:
            if other is None or _stacking_key(other) != own:
                return None
            keys = geo_keys(other.directory)
            if full is None and (affine_of(other.directory, keys) != about.place or keys != about.keys):
                return None
        try:
            parts = [self._array(found, about.attributes) for found in images if found is not None]
        except InsituError:
            return None
        groups: dict[str, VirtualGroup] = {}
        for number, name in enumerate(names):
            overview = number < len(pages[0].overviews)
            stacked = self._stack([parts[number] for parts in belonging], about if overview else None)
            if stacked is None:
                return None
            groups[name] = stacked
        arrays = {DATA: stack(parts, "page"), **_coordinates(first, about)}
        return VirtualGroup(arrays, groups, {}, _details(first.directory))


def _stacking_key(found: TiffImage) -> tuple[Any, ...]:
    """Return what images must share to be stacked."""
    tags = found.directory
    metadata_text = tags.text(metadata.GDAL_METADATA), tags.text(metadata.GDAL_NODATA)
    return found.width, found.height, found.bands, found.dtype, found.planar, found.block, found.tiled, metadata_text


def _details(tags: Directory) -> GroupDetails:
    return GroupDetails("tiff", notes={"unread_tags": dict(tags.unread)} if tags.unread else {})


@dataclass(frozen=True, slots=True)
class _ImageDescription:
    """Attributes of an image, and its place on the Earth."""

    image: TiffImage
    keys: dict[int, Any]
    place: Affine | None
    attributes: dict[str, Any]
    reference: dict[str, Any]
    """Attributes of the coordinate reference system."""

    def for_overview(self, image: TiffImage) -> _ImageDescription:
        """Return the description of an overview: its pixels are larger."""
        across, down = self.image.width / image.width, self.image.height / image.height
        place = None if self.place is None else self.place.scale(across, down)
        return _ImageDescription(image, self.keys, place, self.attributes, self.reference)


_DESCRIPTIONS: LruCache[tuple[Any, ...], tuple[dict[str, Any], dict[str, Any]]] = LruCache(256)
_LONGEST_ABOUT = 1 << 16
_DESCRIBING_TAGS = (*metadata.TAGS, *georeferencing.KEY_TAGS)


def _describe_image(found: TiffImage) -> _ImageDescription:
    tags = found.directory
    keys = geo_keys(tags)
    data, entries = tags.data, tags.entries
    described = tuple([(tag, entries[tag].kind, data[tag]) for tag in _DESCRIBING_TAGS if tag in data])
    key = (tags.order, found.bands, found.dtype, described)
    known = _DESCRIPTIONS.get(key)
    if known is None:
        known = _describe_tags(found, keys)
        if sum([len(part[2]) for part in described]) <= _LONGEST_ABOUT:
            _DESCRIPTIONS.put(key, known)
    return _ImageDescription(found, keys, affine_of(tags, keys), *known)


def _describe_tags(found: TiffImage, keys: dict[int, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the attributes of an image, and of its coordinate reference system."""
    attributes = attributes_of(found.directory, found.bands, found.dtype, keys)
    # CF's names for it: a coordinate of the variable, so that it goes where the variable goes, and
    # rioxarray finds it there.
    attributes["grid_mapping"] = attributes["coordinates"] = "spatial_ref"
    reference = crs_attributes(keys)
    # Like GDAL: heights are in the unit of the vertical system, where nothing else is said.
    vertical = re.search(r'VERT_CS\[.*UNIT\["([^"]+)"', reference.get("crs_wkt", ""))
    if vertical and "units" not in attributes:
        attributes["units"] = vertical[1] if found.bands == 1 else [vertical[1]] * found.bands
    return attributes, reference


def _coordinates(found: TiffImage, about: _ImageDescription) -> dict[str, VirtualArray]:
    """Return band, x, y and spatial_ref.

    An image that is rotated, or has only control points, has no x and y.
    """
    place = about.place
    arrays = {"band": _bands(found.bands)}
    if place is not None and not place.rotated and max(found.width, found.height) <= LONGEST:
        make = _axes if found.width + found.height <= SHORT else _axes.__wrapped__
        arrays["x"], arrays["y"] = make(place, found.width, found.height)
    attributes = {**about.reference, "GeoTransform": (place or Affine()).gdal}
    if place is None:
        attributes["gcps"] = control_points(about.image.directory, about.keys)
    arrays["spatial_ref"] = VirtualArray((), _ZERO.dtype, (), _ZERO.tiles, _ZERO.origins, attributes)
    return arrays


@lru_cache(maxsize=64)
def _axes(place: Affine, width: int, height: int) -> tuple[VirtualArray, VirtualArray]:
    """Return the coordinates x and y. Cached: files of one archive often cover the same place."""
    x, y = place.centres(width, height)
    return VirtualArray.from_values(x, dims=("x",)), VirtualArray.from_values(y, dims=("y",))


@lru_cache(maxsize=64)
def _bands(count: int) -> VirtualArray:
    return VirtualArray.from_values(np.arange(1, count + 1), dims=("band",))


_ORIGIN = np.zeros((1, 3), np.int64)
"""Where the one tile of an image begins."""
_ORIGIN.flags.writeable = False
_ZERO = VirtualArray.from_values(np.zeros((), np.int64), dims=())
"""The array `spatial_ref`, whose attributes hold the coordinate reference system."""


TIFF = Format(is_tiff, with_keywords(scan_tiff))
