"""Python values of attributes, as netCDF4 and xarray show them.

A text is a `str`, several texts are a list, one number is a NumPy scalar, several are an array in
native byte order. Attributes of other types (references) have no value here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from insitu.errors import FormatError
from insitu.formats.hdf5.codecs.fixed_text import end_texts
from insitu.formats.hdf5.structures.dataspace import Dataspace
from insitu.formats.hdf5.structures.datatype import Datatype
from insitu.formats.hdf5.structures.type_description import describe_type

__all__ = ["NO_VALUE", "end_record_texts", "heap_value", "plain_value"]

NO_VALUE: Any = object()
"""Stands for: this attribute has no value to show."""


def plain_value(name: str, datatype: Datatype, space: Dataspace, data: bytes) -> Any:
    """Return the value of an attribute that refers to no heap, or `NO_VALUE`.

    Parameters
    ----------
    name
        Of the attribute: `_FillValue` is special.
    datatype, space, data
        What it is made of.
    """
    if datatype.kind == "reference" or datatype.is_variable_length or datatype.has_nested_variable_length:
        return NO_VALUE
    if datatype.kind == "string":
        return _decode_fixed_text(name, datatype, space, data)
    dtype = _netcdf_dtype(datatype)
    if space.null:
        return np.empty(0, dtype.newbyteorder("="))
    shape = space.shape + datatype.shape
    if datatype.members:
        from insitu.formats.hdf5.codecs.records import decode_records

        whole = decode_records(data, {"type": describe_type(datatype)})
    elif datatype.number is not None:
        from insitu.formats.hdf5.codecs.odd_numbers import convert_numbers

        whole = convert_numbers(data, dict(datatype.number), dtype)
    else:
        whole = np.frombuffer(end_record_texts(data, datatype) if datatype.texts else data, dtype)
    array = whole.astype(dtype.newbyteorder("="))
    if array.size == 1 and len(shape) <= 1:
        return array[0]
    return array.reshape(shape)


def end_record_texts(data: bytes, datatype: Datatype) -> bytes:
    """Return records with everything behind the end of their texts set to NUL."""
    rows = np.frombuffer(data, np.uint8).reshape(-1, datatype.dtype.itemsize).copy()
    for start, length, padding in datatype.texts:
        end_texts(rows[:, start : start + length], padding)
    return rows.tobytes()


def _netcdf_dtype(datatype: Datatype) -> np.dtype[Any]:
    """In an attribute, h5py's bool is the integer that it is stored as."""
    return np.dtype(np.int8) if datatype.dtype.kind == "b" else datatype.dtype


def _decode_fixed_text(name: str, datatype: Datatype, space: Dataspace, data: bytes) -> Any:
    size = datatype.size // math.prod(datatype.shape)
    if space.null or not size:
        return ""
    if not space.shape and not datatype.shape:
        if name == "_FillValue":
            return data  # of characters; netCDF4 gives bytes for this one name
        # A text ends where HDF5 says that it ends, as h5py has it; netCDF would show what lies
        # behind. It drops inner NULs.
        if datatype.padding == "null-terminated":
            data = data.split(b"\0", 1)[0]
        elif datatype.padding == "space-padded":
            data = data.rstrip(b" ")
        return data.decode("utf-8", "replace").replace("\0", "")
    texts = [data[at : at + size].split(b"\0", 1)[0].decode("utf-8", "replace") for at in range(0, len(data), size)]
    if datatype.padding == "space-padded":
        texts = [text.rstrip(" ") for text in texts]
    return texts[0] if len(texts) == 1 else texts


def heap_value(datatype: Datatype, heap: list[bytes]) -> Any:
    """Return the value of an attribute whose elements lie in a heap, or `NO_VALUE`.

    Parameters
    ----------
    datatype
        Of the elements.
    heap
        The bytes of each element.
    """
    if datatype.kind == "text":
        texts = [value.split(b"\0", 1)[0].decode("utf-8", "replace") for value in heap]
        return texts[0] if len(texts) == 1 else texts
    assert datatype.base is not None
    if datatype.base.kind == "reference":
        return NO_VALUE
    base = datatype.base.dtype
    if not base.itemsize or any(len(value) % base.itemsize for value in heap):
        raise FormatError(
            f"a sequence of elements of {base.itemsize} bytes has a length that is not a multiple of it",
            structure="attribute",
        )
    parts = [np.frombuffer(value, base).astype(base.newbyteorder("=")) for value in heap]
    if len(parts) == 1:
        return parts[0]
    array = np.empty(len(parts), object)
    array[:] = parts
    return array
