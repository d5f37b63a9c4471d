"""`api/download`: a field at full resolution as NetCDF or CSV, with its coordinates and attributes."""

from __future__ import annotations

import csv
import io
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from insitu.cancellation import check_deadline
from insitu.errors import InsituError, UnsupportedError
from insitu.reading import ReadContext, read_array
from insitu.server.error_responses import RequestTooLargeError
from insitu.server.explorer.answers.field_values import check_memory, read_plane
from insitu.server.explorer.api_answer import ApiAnswer
from insitu.server.explorer.archive_route import ApiTask, ArchiveRequest
from insitu.server.explorer.field_query import FieldQuery, parse_field_query
from insitu.server.explorer.field_sampling import SampledSide, Sampling
from insitu.server.explorer.opened_archives import OpenedArchive
from insitu.server.explorer.shown_values import to_text, to_texts

if TYPE_CHECKING:
    import xarray

__all__ = ["prepare_download"]

COPIES = 6
"""How many times the values are held while a file is written."""
MAX_CSV_VALUES = 2_000_000
"""Values of a CSV file."""
CSV_BYTES = 120
"""Bytes that are counted for a line of a CSV file."""
WRITERS = {"h5netcdf": "h5netcdf", "netCDF4": "netcdf4", "scipy": "scipy"}
"""Packages that write NetCDF, and xarray's names of their engines."""
SMALLER_HINT = "Draw a smaller box, or take the Python snippet: it reads as much as your own memory holds"


def prepare_download(request: ArchiveRequest) -> ApiTask:
    """Return the task of `api/download`."""
    kind = request.query.choice("format", ("netcdf", "csv"), "netcdf")
    field = parse_field_query(request.archive, request.query)
    height, width = field.box.shape
    values, most = height * width, request.limits.memory // 2 // COPIES
    nbytes = values * (CSV_BYTES if kind == "csv" else max(field.array.dtype.itemsize, 8))
    if nbytes > most or (kind == "csv" and values > MAX_CSV_VALUES):
        raise RequestTooLargeError(
            f"a file of {values:,} values is larger than this server writes as {'CSV' if kind == 'csv' else 'NetCDF'}",
            hint=SMALLER_HINT,
        )
    whole = Sampling("all", SampledSide(field.box.top, height, 1), SampledSide(field.box.left, width, 1))
    cost = check_memory(field, whole, request.limits)
    name = re.sub(r"[^\w.-]+", "_", field.name) or "field"

    def work(context: ReadContext) -> ApiAnswer:
        dataset = field_dataset(request.archive, field, context)
        if kind == "csv":
            return ApiAnswer(to_csv(dataset, field), "text/csv; charset=utf-8", f"{name}.csv")
        return ApiAnswer(to_netcdf(dataset), "application/x-netcdf", f"{name}.nc")

    return ApiTask(work, cost + COPIES * nbytes, caches_chunks=False)


def field_dataset(archive: OpenedArchive, field: FieldQuery, context: ReadContext) -> xarray.Dataset:
    """Return a field as a dataset, with all coordinates that xarray would keep."""
    import xarray  # not at the top: with pandas it is half of the start of a server

    rows = slice(field.box.top, field.box.bottom)
    columns = slice(field.box.left, field.box.right)
    name = field.name
    values = read_plane(field, rows, columns, replace(context, name=field.path))
    chosen: dict[Any, Any] = {field.y: rows, field.x: columns, **field.index}
    coords: dict[str, Any] = {}
    member = archive.member(field.group)
    for other, variable in member.variables.items():
        if other not in member.coords or other == name or not set(variable.dims) <= set(chosen):
            continue
        check_deadline()
        path = f"{field.group}/{other}" if field.group else other
        try:
            array = archive.array(path)
            read = read_array(array, tuple(chosen[dim] for dim in array.dims), replace(context, name=path))
        except InsituError:
            continue  # the field is there without it
        dims = tuple(dim for dim in array.dims if isinstance(chosen[dim], slice))
        coords[other] = xarray.Variable(dims, read, _plain_attributes(variable.attributes))
    attributes = _plain_attributes(field.array.attributes)
    if field.statistic is not None:
        attributes["cell_methods"] = " ".join(f"{dim}:" for dim in field.over) + f" {field.statistic}"
    if field.y is None:
        data = xarray.Variable((field.x,), values[0], attributes)
    else:
        data = xarray.Variable((field.y, field.x), values, attributes)
    return xarray.Dataset({name: data}, coords, {"source": archive.url, **_plain_attributes(member.attributes)})


def to_netcdf(dataset: xarray.Dataset) -> bytes:
    """Return a dataset as the bytes of a NetCDF file."""
    engine: Any = next((name for package, name in WRITERS.items() if find_spec(package) is not None), None)
    if engine is None:
        raise UnsupportedError(
            "the server has no package that writes NetCDF", hint="pip install h5netcdf, or download CSV"
        )
    with tempfile.TemporaryDirectory(prefix="insitu-download-") as folder:
        path = os.path.join(folder, "field.nc")
        dataset.to_netcdf(path, engine=engine)
        with open(path, "rb") as file:
            return file.read()


def to_csv(dataset: xarray.Dataset, field: FieldQuery) -> bytes:
    """Return a field as lines of y, x and value; missing values are empty."""
    name = field.name
    array = dataset[name]
    (height, width), box = field.box.shape, field.box
    ys, xs = (
        to_texts(dataset[dim].values) if dim in dataset.coords else [str(start + i) for i in range(count)]
        for dim, start, count in ((field.y, box.top, height), (field.x, box.left, width))
    )
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if field.y is None:  # cells of one dimension
        writer.writerow([field.x, name])
        writer.writerows(
            [x, "" if value != value else to_text(value)] for x, value in zip(xs, array.values, strict=True)
        )
        return out.getvalue().encode()
    writer.writerow([field.y, field.x, name])
    for y, row in zip(ys, array.values, strict=True):
        check_deadline()
        texts = ("" if value != value else to_text(value) for value in row)
        writer.writerows([y, x, text] for x, text in zip(xs, texts, strict=True))
    return out.getvalue().encode()


def _plain_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes that any NetCDF file can hold; others as text."""
    plain = (str, int, float, np.number, np.ndarray, bytes)
    return {
        str(name): value if isinstance(value, plain) and not isinstance(value, bool) else to_text(value)
        for name, value in attributes.items()
    }
