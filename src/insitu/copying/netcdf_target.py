"""NetCDF-4 as a target: chunks that are encoded already are put into an HDF5 file as they are.

The objects are written beside the target first, as for any target, by as many threads or workers as there are. Then
h5netcdf makes the file, whose metadata and chunk indexes lie in one block in front: it opens remotely in a few
requests. The chunks follow in the order of the variables.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.copying.decode_object import decode_object
from insitu.copying.journal import Journal
from insitu.copying.netcdf_attributes import to_netcdf_attributes
from insitu.copying.target_arrays import TargetArray
from insitu.copying.targets import Target, describe_place
from insitu.errors import UnsupportedError
from insitu.forking import import_before_fork
from insitu.model import Codec
from insitu.references.file_systems import check_names, retry_while_open, sync_directory

__all__ = ["NetCDFFile"]

ZSTD_FILTER = 32015
"""Number of Zstandard among the registered filters of HDF5."""
HEADER_BYTES = 64 << 10
VARIABLE_BYTES = 4 << 10
CHUNK_BYTES = 32
"""Bytes of an entry of a chunk index, with what its pages leave free."""
SMALL_BYTES = 256 << 10
"""Arrays of one chunk up to this size are stored without chunks: reading labels then needs no index."""


class NetCDFFile(Target):
    """A NetCDF-4 file of this machine."""

    kind = "netcdf"

    def check_forms(self, names: Sequence[str]) -> None:
        """Raise an error if h5netcdf is missing or a name is not possible."""
        _import_h5netcdf()
        assert self.path is not None
        if os.path.isdir(self.path):
            raise UnsupportedError("a folder lies there", url=self.url, hint="Choose another target")
        check_names([name.rpartition("/")[2] for name in names], os.path.dirname(self.path) or ".")
        for name in names:
            parts = name.split("/")
            if any(part in ("", ".", "..") or part[0] in " /" or part[-1] == " " for part in parts):
                raise UnsupportedError(
                    f"NetCDF cannot have a variable of the name {name!r}", url=self.url, variable=name, hint="Rename it"
                )

    def check_arrays(self, arrays: Sequence[TargetArray], groups: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise an error if NetCDF has no type for the values of an array, or for an attribute."""
        for path, attributes in groups.items():
            to_netcdf_attributes(attributes, path)
        for array in arrays:
            dtype = array.form.dtype
            if dtype.kind == "c" or (dtype.kind == "f" and dtype.itemsize not in (4, 8)):
                raise UnsupportedError(
                    f"NetCDF has no type {dtype}", url=self.url, variable=array.path, hint="Leave the variable out"
                )
            to_netcdf_attributes(array.form.attributes, array.path)

    @property
    def _made(self) -> str:
        """Where the file is made."""
        return str(self.folder / "file.nc")

    def complete(
        self, arrays: Sequence[TargetArray], groups: Mapping[str, Mapping[str, Any]], journal: Journal
    ) -> None:
        """Make the file of the objects that are written."""
        if self.is_published:
            return
        module = _import_h5netcdf()
        size = HEADER_BYTES + sum(VARIABLE_BYTES + CHUNK_BYTES * math.prod(array.grid) for array in arrays)
        with module.File(
            self._made, "w", libver=("v110", "v110"), meta_block_size=size, decode_vlen_strings=True
        ) as file:
            made = {path: self._make_group(file, path, attributes) for path, attributes in groups.items()}
            shown = [(array, self._make_variable(made, array)) for array in arrays]
            # Labels and other small arrays first: they lie behind the metadata, which readers fetch with them.
            for array, variable in sorted(shown, key=lambda one: (_is_chunked(one[0]), one[0].nbytes)):
                self._write_values(array, variable, journal)

    def read_object(self, array: TargetArray, cell: tuple[int, ...]) -> bytes | None:
        """Return a chunk as the file has it; of variables without chunks what was put into the file."""
        if not _is_chunked(array):
            return self.content.get(array.key(cell))
        offset = tuple(at * size for at, size in zip(cell, array.chunks, strict=True))
        with _import_h5py().File(self._made) as file:
            return bytes(file[array.path].id.read_direct_chunk(offset)[1])

    def publish(self) -> None:
        """Put the file to its place."""
        assert self.path is not None
        if self.is_published:
            return
        with open(self._made, "r+b") as file:
            os.fsync(file.fileno())
        self.mark_publishing(describe_place(self._made))
        retry_while_open(os.replace, self._made, self.path)
        sync_directory(os.path.dirname(self.path))

    def _make_group(self, file: Any, path: str, attributes: Mapping[str, Any]) -> Any:
        group = file.create_group(path) if path else file
        for name, value in to_netcdf_attributes(attributes, path).items():
            group.attrs[name] = value
        return group

    def _make_variable(self, groups: Mapping[str, Any], array: TargetArray) -> Any:
        """Return the variable of an array in the file, empty."""
        path, _, name = array.path.rpartition("/")
        group, form = groups[path], array.form
        dims, shape, dtype = list(form.dims), list(form.shape), _stored_dtype(array)
        if dtype.kind == "S":  # NetCDF has characters: a text is a row of them
            dims, shape = [*dims, f"string{dtype.itemsize}"], [*shape, dtype.itemsize]
        for dim, length in zip(dims, shape, strict=True):
            if dim not in group.dimensions or group.dimensions[dim].size != length:
                group.dimensions[dim] = length
        attributes = to_netcdf_attributes(form.attributes, array.path)
        fill = attributes.pop("_FillValue", None)
        layout: dict[str, Any] = {}
        if _is_chunked(array):
            layout = {"chunks": array.chunks, **_filters(_codecs(array))}
        shown: Any = "S1" if dtype.kind == "S" else _import_h5py().string_dtype() if dtype.hasobject else dtype
        if fill is not None and dtype.kind in "iuf":
            fill = np.asarray(fill).reshape(-1)[0].astype(dtype)
        variable = group.create_variable(name, tuple(dims), dtype=shown, fillvalue=fill, **layout)
        for key, value in attributes.items():
            variable.attrs[key] = value
        return variable

    def _write_values(self, array: TargetArray, variable: Any, journal: Journal) -> None:
        """Put the objects of an array into the file."""
        written = sorted(journal.of_array(array.order))
        if _is_chunked(array):
            dataset = variable._h5ds.id
            for number in written:
                place = tuple(int(at) for at in np.unravel_index(number, array.grid))
                offset = tuple(at * size for at, size in zip(place, array.chunks, strict=True))
                dataset.write_direct_chunk(offset, self.content.get(array.key(place)))
            return
        for cell, box in self._boxes(array):
            data = self.content.get(array.key(cell))
            if data is None:  # an array without elements
                continue
            shown: tuple[Any, ...] = (*(slice(p.stop - p.start) for p in box), ...)  # an array, also of one text
            values = decode_object(data, array)[shown]
            _assign(variable, box, values)

    @staticmethod
    def _boxes(array: TargetArray) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        yield from array.objects_in(tuple(slice(0, length) for length in array.shape))


def _assign(variable: Any, box: tuple[slice, ...], values: npt.NDArray[Any]) -> None:
    if values.dtype.kind == "S":
        characters = np.ascontiguousarray(values).reshape(-1).view("S1").reshape(*values.shape, values.dtype.itemsize)
        variable[(*box, slice(None))] = characters
    elif box:
        variable[box] = values
    else:
        variable[...] = values[()]


def _is_chunked(array: TargetArray) -> bool:
    """Return whether the chunks are put into the file as they are."""
    dtype = array.form.dtype
    if dtype.hasobject or dtype.kind == "S" or not array.shape or 0 in array.shape:
        return False
    return array.through is not None or math.prod(array.grid) > 1 or array.nbytes > SMALL_BYTES


def _stored_dtype(array: TargetArray) -> np.dtype[Any]:
    return array.through.array.encoding.dtype if array.through is not None else array.form.dtype


def _codecs(array: TargetArray) -> tuple[Codec, ...]:
    return array.through.array.encoding.codecs if array.through is not None else array.encoding.codecs


def _filters(codecs: Sequence[Codec]) -> dict[str, Any]:
    """Return the filters of a dataset, as h5py takes them."""
    found: dict[str, Any] = {}
    for codec in codecs:
        if codec.name == "shuffle":
            found["shuffle"] = True
        elif codec.name == "zlib":
            found |= {"compression": "gzip", "compression_opts": int(codec.configuration.get("level", 4))}
        elif codec.name == "zstd":
            level = int(codec.configuration.get("level", 3))
            found |= {"compression": ZSTD_FILTER, "compression_opts": (level,), "allow_unknown_filter": True}
    return found


def _import_h5netcdf() -> Any:
    try:
        return import_before_fork("h5netcdf")
    except ImportError as problem:
        raise UnsupportedError("writing NetCDF needs h5netcdf", hint="pip install 'insitu[copy]'") from problem


def _import_h5py() -> Any:
    return import_before_fork("h5py")
