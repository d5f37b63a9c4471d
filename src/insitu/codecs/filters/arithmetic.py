"""Decoders of numcodecs' arithmetic codecs: delta, scaling, rounding, packed booleans, casts.

They use the same arithmetic as numcodecs, so the results are equal to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.configuration import dtype_field, float_field
from insitu.errors import CodecError

__all__ = ["astype", "bitround", "delta", "fixedscaleoffset", "packbits", "quantize"]


def delta(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for differences of neighbours, from `dtype` and `astype`."""
    dtype, stored = _read_types(configuration, "dtype", "astype")

    def run(data: Data, out: Octets | None) -> Data:
        values = _view_values(data, stored)
        room = np.empty(values.size * dtype.itemsize, np.uint8) if out is None else out
        # Summed in the type of the output, as numcodecs does.
        np.cumsum(values, out=room.view(dtype))
        return room

    return _make_step("delta", form, dtype, stored, run)


def fixedscaleoffset(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for `(x - offset) * scale` rounded, from `offset`, `scale`, `dtype` and
    `astype`.
    """
    dtype, stored = _read_types(configuration, "dtype", "astype")
    scale, offset = _number_field(configuration, "scale"), _number_field(configuration, "offset")

    def run(data: Data, out: Octets | None) -> Data:
        values: NDArray[Any] = (_view_values(data, stored) / scale + offset).astype(dtype, copy=False)
        return values

    return _make_step("fixedscaleoffset", form, dtype, stored, run)


def quantize(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for rounded values, from `dtype` and `astype`: only the type changes."""
    dtype, stored = _read_types(configuration, "dtype", "astype")
    return _make_step("quantize", form, dtype, stored, _cast_decoder(stored, dtype))


def astype(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for a cast, from `encode_dtype` and `decode_dtype`."""
    dtype, stored = _read_types(configuration, "decode_dtype", "encode_dtype")
    return _make_step("astype", form, dtype, stored, _cast_decoder(stored, dtype))


def bitround(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for rounded mantissas: nothing is to be undone (so too HDF5's filters 32022
    and 32023).
    """
    return DecodeStep("bitround", lambda data, out: data, form)


def packbits(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for eight booleans a byte, behind one byte that counts the padding."""
    count = form.limit

    def run(data: Data, out: Octets | None) -> Data:
        packed = as_octets(data)
        if packed.size < 1 or packed.size - 1 != -(-count // 8):
            raise CodecError(f"{count} packed booleans need {1 + -(-count // 8)} bytes, but there are {packed.size}")
        if packed[0] != -count % 8:
            raise CodecError(f"the data declares {packed[0]} padding bits for {count} booleans")
        return np.unpackbits(packed[1:], count=count)

    return DecodeStep("packbits", run, BufferSpec(1 + -(-count // 8), form.exact))


def _cast_decoder(stored: np.dtype[Any], dtype: np.dtype[Any]) -> Any:
    def run(data: Data, out: Octets | None) -> Data:
        return _view_values(data, stored).astype(dtype)

    return run


def _make_step(name: str, form: BufferSpec, dtype: np.dtype[Any], stored: np.dtype[Any], run: Any) -> DecodeStep:
    if form.limit % dtype.itemsize:
        raise CodecError(f"{form.limit} bytes are not a whole number of {dtype} elements", codec=name)
    shape = form.shape if form.dtype is not None and form.dtype.itemsize == dtype.itemsize else None
    limit = form.limit // dtype.itemsize * stored.itemsize
    return DecodeStep(
        name,
        run,
        BufferSpec(limit, form.exact, stored if shape is not None else None, shape),
        fills=name == "delta" and form.exact,
    )


def _read_types(configuration: Configuration, decoded: str, encoded: str) -> tuple[np.dtype[Any], np.dtype[Any]]:
    dtype = dtype_field(configuration, decoded)
    stored = dtype_field(configuration, encoded, dtype)
    if dtype.hasobject or stored.hasobject or not dtype.itemsize or not stored.itemsize:
        raise CodecError(f"the codec works on numbers, not on {dtype} and {stored}")
    return dtype, stored


def _number_field(configuration: Configuration, name: str) -> int | float:
    # Zarr v3 metadata may hold numbers as text (numcodecs.fixedscaleoffset writes "10.0" there in
    # some versions). An integer stays one: numcodecs computes in its type.
    value = configuration.get(name)
    return value if isinstance(value, int) else float_field(configuration, name)


def _view_values(data: Data, dtype: np.dtype[Any]) -> NDArray[Any]:
    raw = as_octets(data)
    if raw.size % dtype.itemsize:
        raise CodecError(f"{raw.size} bytes are not a whole number of {dtype} elements")
    return raw.view(dtype)
