"""Scan HDF4 files: the datasets of the SD interface (SDS), with their attributes and dimensions.

All are in the root. Vgroups and Vdatas give their attributes and dimensions. Raster images and
tables are not read.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from insitu.errors import FormatError, InsituError, UnsupportedError
from insitu.formats.eos_structure import EosStructure
from insitu.formats.hdf4.data_storage import (
    DATA,
    VDATA,
    VDATA_HEADER,
    ChunkedData,
    DataRanges,
    join_pieces,
    read_bytes,
    read_storage,
)
from insitu.formats.hdf4.dataset_arrays import ScientificDataset, array_of, has_partial_rows
from insitu.formats.hdf4.descriptors import MAGIC, ObjectLocation, ObjectTable, read_object_table
from insitu.formats.hdf4.vsets import TYPES, Vdata, Vgroup, parse_vdata, parse_vgroup, value_of
from insitu.formats.hdf5.conventions.eos5 import parse_grids
from insitu.formats.parsing.fields import take_fields
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.parsing.scheduler import ExactRanges, Parallel, Walk, run, to_format_error
from insitu.formats.registry import Format
from insitu.formats.scan_request import ScanRequest, with_keywords
from insitu.formats.unreadable import Problems
from insitu.formats.variable_filter import refuse_group
from insitu.model import GroupDetails, VirtualArray, VirtualGroup

__all__ = ["HDF4", "is_hdf4", "scan_hdf4"]

VGROUP, NUMERIC_GROUP, DIMENSIONS, NUMBER_TYPE = 1965, 720, 701, 106
LITTLE_ENDIAN = 4
LARGEST = 2**62
CHARACTER_TYPES = (3, 4)
"""Filled by NUL, FILL_CHAR."""
FILL_INTEGER = {1: -127, 2: -32767, 4: -2147483647}
"""FILL_BYTE, FILL_SHORT, FILL_LONG, by their bytes."""
FILL_FLOAT = 9.9692099683868690e36
"""FILL_FLOAT and FILL_DOUBLE."""

PARTS_LIMIT = 64
"""Attributes that the text of HDF-EOS2 is spread over."""
CALIBRATION = ("scale_factor", "scale_factor_err", "add_offset", "add_offset_err", "calibrated_nt")
"""The attributes that SDsetcal writes."""
_GEOLOCATION = re.compile(r'GeoFieldName\s*=\s*"([^"]*)"')


def is_hdf4(window: ReadCache) -> bool:
    """Return whether a file begins as HDF4 does."""
    return window.head[:4] == MAGIC


def scan_hdf4(window: ReadCache, request: ScanRequest) -> VirtualGroup:
    """Return the datasets of an HDF4 file, which have no groups."""
    refuse_group(request.group)
    problems = Problems(request.errors, window.url)
    attributes, datasets = run(_read_file(window.size), window)
    source = window.source.describe()
    arrays: dict[str, VirtualArray] = {}
    for name, dataset in datasets.items():
        try:
            if isinstance(dataset, InsituError):
                raise dataset
            if not dataset.is_bare_scale(name):
                arrays[name] = array_of(dataset, source, window.url)
        except InsituError as problem:
            if request.name_of(name) is not None:
                problems.leave_out(name, to_format_error(problem, structure="HDF4 dataset"))
            else:
                problems.note(name, str(problem))
    unlimited = {
        dataset.dims[0] for dataset in datasets.values() if isinstance(dataset, ScientificDataset) and dataset.unlimited
    }
    grids, coordinates = eos2_structures(attributes, arrays)
    details = GroupDetails("hdf4", structure=EosStructure(grids=grids) if grids else None)
    tree = VirtualGroup(
        arrays, {}, attributes, details, problems.found, coordinates, unlimited=tuple(sorted(unlimited))
    )
    return request.select(tree)


def _read_file(size: int) -> Walk[tuple[dict[str, Any], dict[str, ScientificDataset | InsituError]]]:
    """Read the attributes of the file, and its datasets."""
    found: ObjectTable = yield from read_object_table(size)
    groups = yield from _read_all(found, VGROUP, parse_vgroup)
    tables = yield from _read_all(found, VDATA_HEADER, parse_vdata)
    roots = [group for group in groups.values() if group.kind == "CDF0.0"]
    root_members = {member for root in roots for member in root.members}
    own = [
        group
        for ref, group in groups.items()
        if group.kind == "Var0.0" and (not roots or (VGROUP, ref) in root_members)
    ]
    attributes: dict[str, Any] = {}
    for root in roots:
        attributes |= yield from _attributes(found, root, tables)
    results = yield Parallel([_dataset(found, group, groups, tables) for group in own], keep=True)
    datasets: dict[str, ScientificDataset | InsituError] = {}
    for group, result in zip(own, results, strict=True):
        _add_unique(datasets, group.name, result)
    named = {ref for group in own for tag, ref in group.members if tag == NUMERIC_GROUP}
    # Written by the interface before SD: without names.
    old = [ref for ref in found.refs(NUMERIC_GROUP) if ref not in named]
    results = yield Parallel([_numeric(found, ref, [], {}) for ref in old], keep=True)
    for ref, result in zip(old, results, strict=True):
        _add_unique(datasets, f"Data-Set-{ref}", result)
    return attributes, datasets


def _add_unique(
    datasets: dict[str, ScientificDataset | InsituError], name: str, result: ScientificDataset | InsituError
) -> None:
    base = name.replace("/", "_") or "unnamed"
    free, number = base, 2
    while free in datasets:
        free, number = f"{base}_{number}", number + 1
    datasets[free] = result


def _read_all(found: ObjectTable, tag: int, parse: Any) -> Walk[dict[int, Any]]:
    """Read all objects of a kind, in one batch."""
    refs = found.refs(tag)
    blocks = yield Parallel([read_bytes(found, place) for ref in refs if (place := found.find(tag, ref)) is not None])
    return {ref: parse(block) for ref, block in zip(refs, blocks, strict=True)}


def _attributes(found: ObjectTable, group: Vgroup, tables: dict[int, Vdata]) -> Walk[dict[str, Any]]:
    """Return the attributes of the file, of a dataset or of a dimension."""
    refs = [
        ref for tag, ref in group.members if tag == VDATA_HEADER and ref in tables and tables[ref].kind == "Attr0.0"
    ]
    places = [(ref, place) for ref in refs if (place := found.find(VDATA, ref)) is not None]
    blocks = yield Parallel([read_bytes(found, place) for _, place in places])
    return {tables[ref].name: value_of(tables[ref], block) for (ref, _), block in zip(places, blocks, strict=True)}


def _dataset(
    found: ObjectTable, group: Vgroup, groups: dict[int, Vgroup], tables: dict[int, Vdata]
) -> Walk[ScientificDataset]:
    refs = [ref for tag, ref in group.members if tag == NUMERIC_GROUP]
    if not refs:
        raise UnsupportedError("the dataset holds no numbers", structure="Var0.0")
    attributes = _with_cf_offset((yield from _attributes(found, group, tables)))
    dims = [
        groups[ref]
        for tag, ref in group.members
        if tag == VGROUP and ref in groups and groups[ref].kind in ("Dim0.0", "UDim0.0")
    ]
    unlimited = bool(dims and dims[0].kind == "UDim0.0")
    data = [ref for tag, ref in group.members if tag == DATA]
    names = [dim.name for dim in dims]
    dataset: ScientificDataset = yield from _numeric(found, refs[0], names, attributes, unlimited, data)
    return dataset


def _with_cf_offset(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a dataset with the offset that CF has for its calibration.

    HDF4's calibration is `scale_factor * (stored - add_offset)` (User's Guide, SDsetcal), CF's packing
    `stored * scale_factor + add_offset`. All five attributes of the calibration tell the one from the other.
    """
    if not all(name in attributes for name in CALIBRATION):
        return attributes
    scale, offset = (np.asarray(attributes[name]) for name in ("scale_factor", "add_offset"))
    if any(number.ndim or number.dtype.kind not in "iuf" for number in (scale, offset)):
        return attributes
    # Zero stays zero, not its negative.
    return {**attributes, "add_offset": np.float64(0.0 - float(scale) * float(offset))}


def _find_data(found: ObjectTable, refs: set[int]) -> ObjectLocation | None:
    """Return where the data of a dataset begins, which its Vgroup and its numeric data group name both; None if
    neither does, because nothing was written.
    """
    places = [place for ref in sorted(refs) if (place := found.find(DATA, ref)) is not None]
    if refs and len(places) != 1:
        what = "is missing" if not places else "is named twice, differently"
        named = ", ".join(f"{DATA}/{ref}" for ref in sorted(refs))
        raise FormatError(f"the data of the dataset {what}: {named}", structure="numeric data group")
    return places[0] if places else None


def _numeric(
    found: ObjectTable,
    ref: int,
    dims: list[str],
    attributes: dict[str, Any],
    unlimited: bool = False,
    data_refs: Collection[int] | None = None,
) -> Walk[ScientificDataset]:
    """Read a numeric data group: dimensions, type, data.

    Without a Vgroup (`data_refs` is None) it was written with its data, by the interface before SD.
    """
    place = found.find(NUMERIC_GROUP, ref)
    if place is None:
        raise FormatError("the numeric data group of the dataset is missing", structure="numeric data group")
    data = yield from read_bytes(found, place)
    members = dict(struct.iter_unpack(">HH", data[: len(data) // 4 * 4]))
    record = found.find(DIMENSIONS, members.get(DIMENSIONS, 0))
    if record is None:
        raise FormatError("the dataset has no dimensions", offset=place.offset, structure="numeric data group")
    (dimensions,) = yield ExactRanges([(record.offset, record.length)])
    (rank,) = take_fields(">H", dimensions, 0, "dimensions")
    if rank > 32:
        raise FormatError(
            f"the dataset has an invalid number of dimensions, {rank}", offset=record.offset, structure="dimensions"
        )
    shape = take_fields(f">{rank}i", dimensions, 2, "dimensions")
    _, number = take_fields(">HH", dimensions, 2 + 4 * rank, "dimensions")
    kind = found.find(NUMBER_TYPE, number)
    if kind is None or kind.length < 4:
        raise FormatError("the dataset has no number type", offset=record.offset, structure="number type")
    (number_type,) = yield ExactRanges([(kind.offset, 4)])
    dtype = _dtype(number_type, found, kind.offset)
    if data_refs is None and DATA not in members:
        raise FormatError("the dataset names no data", offset=place.offset, structure="numeric data group")
    values = _find_data(found, {*(data_refs or ()), *({members[DATA]} if DATA in members else ())})
    stored = None if values is None else (yield from read_storage(found, values))
    unlimited = bool(rank) and (unlimited or not shape[0])
    if unlimited and not isinstance(stored, ChunkedData):
        # As many as were written. The record of dimensions is not renewed by rows that are appended
        # later; the library counts by the length of the data, too (mfhdf, hdf_read_vars).
        row = math.prod(shape[1:]) * dtype.itemsize
        rows = stored.size // row if row and stored is not None and stored.codec is None else shape[0] if stored else 0
        shape = (rows, *shape[1:])
    if isinstance(stored, DataRanges) and has_partial_rows(stored, tuple(shape), dtype):
        stored = stored._replace(joined=(yield from join_pieces(found, stored.ranges)))
    if isinstance(stored, ChunkedData):
        if len(stored.shape) != rank:
            raise FormatError(
                f"the dataset has {rank} dimensions, but its chunks have {len(stored.shape)}",
                offset=record.offset,
                structure="dimensions",
            )
        shape = stored.shape
    if any(length < 0 for length in shape) or math.prod(shape) * dtype.itemsize > LARGEST:
        raise FormatError(f"the dataset has an invalid shape, {shape}", offset=record.offset, structure="dimensions")
    names = [*dims, *(f"fakeDim{number}" for number in range(len(dims), rank))][:rank]
    return ScientificDataset(
        _unique_names(names),
        tuple(shape),
        dtype,
        attributes,
        stored,
        unlimited,
        _default_fill(number_type[1], dtype),
    )


def _unique_names(names: list[str]) -> tuple[str, ...]:
    """Return names that differ.

    A dataset may have one dimension twice, which xarray does not allow.
    """
    found: list[str] = []
    for name in names:
        free, number = name, 2
        while free in found:
            free, number = f"{name}_{number}", number + 1
        found.append(free)
    return tuple(found)


def _default_fill(number_type: int, dtype: np.dtype[Any]) -> bytes:
    """Return what the library shows where nothing was written and no `_FillValue` is given
    (netcdf.h of mfhdf).
    """
    if number_type in CHARACTER_TYPES:
        return bytes(dtype.itemsize)
    if dtype.kind == "f":
        return np.array(FILL_FLOAT, dtype).tobytes()
    # The one of the signed type, in the unsigned type too; there are none for 64 bits.
    signed = np.array(FILL_INTEGER.get(dtype.itemsize, 0), f"i{dtype.itemsize}")
    return signed.astype(signed.dtype.newbyteorder(dtype.byteorder)).tobytes()


def _dtype(number_type: bytes, found: ObjectTable, offset: int) -> np.dtype[Any]:
    """Return the type by an entry of version, type, bits, and a class (for numbers the byte order)."""
    name = TYPES.get(number_type[1])
    if name is None:
        raise UnsupportedError(
            f"HDF4 number type {number_type[1]} is not supported", offset=offset, structure="number type"
        )
    return np.dtype(name).newbyteorder("<" if number_type[3] == LITTLE_ENDIAN else ">")


def eos2_structures(attributes: Mapping[str, Any], names: Collection[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the grids that HDF-EOS2 describes, by name, and which of these fields are coordinates.

    MODIS and others describe grids and swaths in a text, the attributes `StructMetadata.0` and
    following. Coordinates along the dimensions of a grid (`YDim:MOD_Grid`, …) are made from it when
    a file is opened. The geolocation fields of a swath are coordinates.
    """
    texts = [attributes.get(f"StructMetadata.{number}") for number in range(PARTS_LIMIT)]
    text = "".join(part for part in texts if isinstance(part, str))
    return parse_grids(text), tuple(sorted(set(_GEOLOCATION.findall(text)) & set(names)))


HDF4 = Format(is_hdf4, with_keywords(scan_hdf4))
