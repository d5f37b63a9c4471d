"""Scan GRIB files: find the messages, group their fields into variables and datasets.

A file that is one cube has its arrays in the root; any other has a group for each dataset. Messages
that repeat the headers of others (they differ in something that cfgrib ignores) are in groups
`repeated_2`, …. Names, dimensions, coordinates and attributes are those of cfgrib.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError, InsituError, SourceError, UnsupportedError
from insitu.formats.grib.codecs.packings import needs_eccodes
from insitu.formats.grib.codecs.subprocess_decoder import start_early
from insitu.formats.grib.datasets import arrange_datasets, name_datasets
from insitu.formats.grib.header_keys import UNDEFINED, describe
from insitu.formats.grib.index_file import index_file_names, is_grib_index, read_index
from insitu.formats.grib.message_search import (
    fills_file,
    find_messages,
    first_message,
    message_length,
    read_messages_at,
)
from insitu.formats.grib.sections import GribField, GribMessage
from insitu.formats.grib.variables import FieldTable, GribCoordinate, GribVariable
from insitu.formats.grib.vocabulary import ABOUT_FILE, COORDINATES
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.parsing.scheduler import run
from insitu.formats.parsing.sibling_files import SiblingFiles
from insitu.formats.registry import Format
from insitu.formats.scan_request import ScanRequest, with_keywords
from insitu.formats.unreadable import Problems
from insitu.model import GroupDetails, Source, VirtualArray, VirtualGroup

__all__ = ["GRIB", "BrokenMessages", "FoundFields", "build_tree", "is_grib", "scan_grib"]

WORTH_A_LOOK = 8 << 20
"""Bytes of a remote file from which on an index beside it is looked for,"""
MANY = 64
"""and the estimated messages: to walk over them would take about a fourth as many round trips."""

LAYERS = 16
"""Most groups of messages that repeat the headers of others."""
HEADING = bytes(range(0x7F))
"""Bytes of a bulletin's heading: text and control characters."""
LEADING = 4096
"""Bytes in which the first message must begin; the heading of a bulletin has some dozen."""


def is_grib(window: ReadCache) -> bool:
    """Return whether a file begins with a GRIB message, or with the heading of a bulletin before
    one.
    """
    at = first_message(window.head[:LEADING])
    return at == 0 or (at > 0 and not window.head[:at].strip(HEADING))


def scan_grib(window: ReadCache, request: ScanRequest) -> VirtualGroup:
    """Return the datasets of a GRIB file. With errors="warn", damaged messages are left out."""
    problems = Problems(request.errors)
    broken = BrokenMessages(problems, window.url)
    messages = _messages_by_index(window)
    if messages is None:
        messages = run(find_messages(window.head, window.size, broken, remote=window.remote), window)
    if any(needs_eccodes(message.fields[0].edition, message.packing) for message in messages if message.fields):
        start_early()  # it takes as long as what follows
    table = FieldTable([], [])
    for message in messages:
        for field in message.fields:
            try:
                description = describe(field)
            except InsituError as problem:
                broken(field.offset, problem)
                continue
            table.fields.append(field)
            table.descriptions.append(description)
    tree = build_tree(FoundFields(table, len(messages), broken.unsupported), window.source.describe(), problems)
    return request.select(tree)


def _messages_by_index(window: ReadCache) -> list[GribMessage] | None:
    """Return the messages of a remote file, if an index beside it tells their offsets.

    Their headers come in one batch.
    """
    if not window.remote or window.size < WORTH_A_LOOK or "::" in window.url:
        return None
    first = max(first_message(window.head), 0)
    length = message_length(window.head[first : first + 16])
    if window.size < MANY * max(length, 1):
        return None
    try:
        with SiblingFiles(window) as siblings:
            for name in index_file_names(window.url):
                index = siblings.open_sibling(window, name)
                if index is not None and is_grib_index(index):
                    lines = read_index(index, window.size)
                    places = list(dict.fromkeys((line.offset, line.length) for line in lines))
                    found: list[GribMessage] = run(read_messages_at(places, window.size, _refuse), window)
                    return found if fills_file([(one.offset, one.length) for one in found], window.size) else None
    except (FormatError, SourceError):
        return None  # the index is of no use: read the file itself
    return None


def _refuse(offset: int, problem: InsituError) -> None:
    raise problem


class BrokenMessages:
    """Leaves out messages that cannot be read, or raises."""

    def __init__(self, problems: Problems, url: str) -> None:
        self.problems, self.url = problems, url
        self.unsupported: InsituError | None = None
        """Why a message was left out that is not damaged."""

    def __call__(self, offset: int, problem: InsituError) -> None:
        """Record a broken message, or raise."""
        problem.with_context(url=self.url, offset=offset)
        if self.unsupported is None and isinstance(problem, UnsupportedError):
            self.unsupported = problem
        self.problems.leave_out(f"message_at_{offset}", problem)


class FoundFields(NamedTuple):
    """The fields of a file, and the number of its messages."""

    table: FieldTable
    messages: int
    """How many there are."""
    unsupported: InsituError | None = None
    """Why a message was left out that is not damaged."""


def build_tree(found: FoundFields, source: Source, problems: Problems) -> VirtualGroup:
    """Return the group that fields make."""
    table = found.table
    if not table.fields:
        raise found.unsupported or FormatError(
            "the file has no readable GRIB message", url=source.url, offset=0, structure="GRIB message"
        )
    details = GroupDetails("grib", notes={"messages": found.messages, "fields": len(table.fields)})
    arrays: Mapping[str, VirtualArray] = {}
    groups: dict[str, VirtualGroup] = {}
    attributes: Mapping[str, Any] = {}
    numbers, layer = list(range(len(table.fields))), 1
    while numbers and layer <= LAYERS:
        prefix = f"repeated_{layer}/" if layer > 1 else ""
        datasets = arrange_datasets(table, numbers)
        if len(datasets) == 1:
            whole = _dataset(datasets[0], table.fields, source, problems, prefix)
        else:
            parts = name_datasets(datasets)
            whole = VirtualGroup(
                {},
                {
                    name: _dataset(variables, table.fields, source, problems, f"{prefix}{name}/")
                    for name, variables in parts.items()
                },
            )
        if layer == 1:
            arrays, attributes = whole.arrays, whole.attributes
            groups |= whole.groups
        else:
            groups[f"repeated_{layer}"] = whole
        numbers = sorted(number for dataset in datasets for variable in dataset for number in variable.repeated)
        layer += 1
    if numbers:
        problems.note("repeated", f"left out: {len(numbers)} more messages have headers that {LAYERS} others have too")
    return VirtualGroup(arrays, groups, attributes, details, problems.found)


def _dataset(
    variables: list[GribVariable], fields: list[GribField], source: Source, problems: Problems, prefix: str
) -> VirtualGroup:
    first = variables[0]
    arrays: dict[str, VirtualArray] = {}
    for variable in variables:
        try:
            array = variable.array(fields, source)
        except InsituError as problem:
            problem.with_context(url=source.url)
            problems.leave_out(f"{prefix}{variable.name}", problem)
            continue
        for name, coordinate in variable.coordinates.items():
            if name not in arrays:
                arrays[name] = _coordinate_array(coordinate)
        for name, found in variable.geography.arrays(variable.first, source, variable.check).items():
            arrays.setdefault(name, found)
        if variable.has_valid_time and "valid_time" not in arrays:
            arrays["valid_time"] = _valid_time(variable)
        arrays[variable.name] = array
    if (reason := first.geography.problem) is not None:
        # The values are not affected: cfgrib shows them without coordinates, too.
        for name in ("latitude", "longitude"):
            problems.note(f"{prefix}{name}", str(reason))
    file_attributes = {
        f"GRIB_{name}": first.keys[name] for name in ABOUT_FILE if first.keys[name] not in (UNDEFINED, "unknown")
    }
    attributes = {**file_attributes, "Conventions": "CF-1.7"}
    if "GRIB_centreDescription" in file_attributes:
        attributes["institution"] = file_attributes["GRIB_centreDescription"]
    return VirtualGroup(arrays, {}, attributes, GroupDetails("grib"))


@lru_cache(maxsize=1024)
def _coordinate_array(coordinate: GribCoordinate) -> VirtualArray:
    """Return a coordinate as an array. Cached: files of an archive share it."""
    return _inline(coordinate.values, coordinate.name, coordinate.attributes)


def _inline(
    values: npt.NDArray[Any], name: str, attributes: dict[str, Any], dims: tuple[str, ...] = ()
) -> VirtualArray:
    """Return a coordinate as an array; one of a single value has no dimension."""
    if not dims and values.size > 1:
        dims = (name,)
    return VirtualArray.from_values(values if dims else values.reshape(()), dims=dims, attributes=attributes)


def _valid_time(variable: GribVariable) -> VirtualArray:
    time, step = (variable.coordinates[name].values for name in ("time", "step"))
    dims = tuple(name for name, values in (("time", time), ("step", step)) if values.size > 1)
    values = np.asarray(time[:, None] + step[None, :] * 3600)
    values = values.reshape([size for size in values.shape if size > 1])
    return _inline(values, "valid_time", COORDINATES["valid_time"], dims)


GRIB = Format(is_grib, with_keywords(scan_grib))
