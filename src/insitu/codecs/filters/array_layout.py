"""Decoders of Zarr v3's array codecs `bytes` (byte order) and `transpose` (axis order).

Readers of metadata usually fold them into an encoding's byte order and axis order; where they stand
between other codecs of a chain they are undone here.
"""

from __future__ import annotations

import math

import numpy as np

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.configuration import integers_field
from insitu.errors import CodecError

__all__ = ["bytes_", "transpose"]


def bytes_(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for Zarr v3's `bytes`: an array as bytes of the given `endian`."""
    endian = configuration.get("endian")
    dtype = form.dtype
    if endian not in (None, "little", "big"):
        raise CodecError(f"{endian!r} is not a byte order; use 'little' or 'big'", codec="bytes")
    if endian is None or dtype is None or dtype.hasobject:
        return DecodeStep("bytes", lambda data, out: data, form, idle=dtype is None or not dtype.hasobject)
    stored = dtype.newbyteorder("<" if endian == "little" else ">")
    if stored == dtype:
        return DecodeStep("bytes", lambda data, out: data, form, idle=True)

    def run(data: Data, out: Octets | None) -> Data:
        return as_octets(data).view(stored).astype(dtype)

    return DecodeStep("bytes", run, BufferSpec(form.limit, form.exact, stored, form.shape))


def transpose(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for Zarr v3's `transpose`: `order` is a permutation of the axes, or C or F."""
    order = configuration.get("order", "C")
    if form.shape is None or form.dtype is None:
        raise CodecError(
            "transpose needs an array, but the codec before it in the chain yields bytes", codec="transpose"
        )
    ndim = len(form.shape)
    axes = (
        {"C": tuple(range(ndim)), "F": tuple(reversed(range(ndim)))}.get(order)
        if isinstance(order, str)
        else integers_field(configuration, "order")
    )
    if axes is None or sorted(axes) != list(range(ndim)):
        raise CodecError(f"{order} is not a permutation of {ndim} axes", codec="transpose")
    dtype = form.dtype
    stored = tuple(form.shape[axis] for axis in axes)
    back = np.argsort(axes)

    def run(data: Data, out: Octets | None) -> Data:
        if dtype.hasobject:
            if not isinstance(data, np.ndarray) or not data.dtype.hasobject or data.size != math.prod(stored):
                raise CodecError(f"the data does not hold the {math.prod(stored)} values of the chunk")
            values = data
        else:
            values = as_octets(data).view(dtype)
        return np.ascontiguousarray(values.reshape(stored).transpose(back))

    return DecodeStep("transpose", run, BufferSpec(form.limit, form.exact, dtype, stored))
