"""Decoder that extracts one member of consecutive records (structs).

NetCDF-3 interleaves its record variables: a chunk of many whole records holds a piece of each of
them. Kerchunk has a codec of this name that does the same; ours accepts a last record without the
trailing padding, which some writers leave out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.configuration import reading_configuration
from insitu.errors import CodecError

__all__ = ["record_member"]


def record_member(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step, from `dtype` (a list of fields: name, type, shape) and `member` (the wanted
    field).
    """
    with reading_configuration("record_member"):
        record = np.dtype([_to_numpy_field(field) for field in configuration["dtype"]])
        member_name = str(configuration["member"])
    if record.fields is None or member_name not in record.fields or record.hasobject:
        raise CodecError(f"{record} has no field {member_name!r}", codec="record_member")
    member, skip = record.fields[member_name][:2]
    own, stride = member.itemsize, record.itemsize
    if not own or form.limit % own or not form.exact:
        raise CodecError(f"{form.limit} bytes are not a whole number of {member} elements", codec="record_member")
    count = form.limit // own

    def run(data: Data, out: Octets | None) -> Data:
        raw = as_octets(data)
        if not (count - 1) * stride + skip + own <= raw.size <= count * stride:
            raise CodecError(f"{raw.size} bytes are not {count} records of {stride} bytes")
        parts = np.lib.stride_tricks.as_strided(raw[skip:], (count, own), (stride, 1), writeable=False)
        if out is None:
            return parts.reshape(-1)
        out.reshape(count, own)[...] = parts
        return out

    return DecodeStep("record_member", run, BufferSpec(count * stride, False), fills=True)


def _to_numpy_field(field: Any) -> tuple[Any, ...]:
    """Return one field of a structured type as NumPy needs it: JSON has no tuples."""
    name, kind, *shape = field
    return (name, kind, *(tuple(extent) for extent in shape))
