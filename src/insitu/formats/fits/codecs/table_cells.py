"""Codecs of the cells of FITS tables: logical values, bits, texts, and numbers as text.

Logical values are letters, bits are packed, texts are filled up with blanks: FITS standard 4.0,
sections 7.2 and 7.3. Values are those that astropy shows, except for numbers that a text table
leaves out: astropy shows zero, here they are NaN, or the integer of the array's `_FillValue`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.configuration import dtype_field, float_field, integer_field
from insitu.errors import CodecError

__all__ = ["fits_bits", "fits_digits", "fits_logical", "fits_text", "scale_complex"]

TRUE = ord("T")


def fits_logical(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for letters, T for true."""
    if form.dtype != np.dtype(bool):
        raise CodecError(f"logical values cannot become {form.dtype}", codec="fits_logical")

    def run(data: Data, out: Octets | None) -> Data:
        return np.equal(as_octets(data), TRUE)

    return DecodeStep("fits_logical", run, BufferSpec(form.limit, form.exact))


def fits_bits(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for rows of bits, each filled up to whole bytes, the most significant first."""
    if form.dtype != np.dtype(bool) or form.shape is None or not form.shape:
        raise CodecError(f"bits cannot become {form.dtype}", codec="fits_bits")
    width = integer_field(configuration, "bits")
    if width < 1 or form.count % width:
        raise CodecError(f"{form.count} bits do not fill rows of {width}", codec="fits_bits")
    rows, size = form.count // width, -(-width // 8)

    def run(data: Data, out: Octets | None) -> Data:
        packed = as_octets(data).reshape(rows, size)
        return np.unpackbits(packed, axis=1, count=width).reshape(-1)

    return DecodeStep("fits_bits", run, BufferSpec(rows * size, form.exact))


def scale_complex(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for complex numbers of type `base` that are multiplied by `scale`, then added to
    `zero`, in double precision.

    Astropy drops the imaginary part of such columns; the standard does not (4.0, section 7.3.2).
    """
    base = dtype_field(configuration, "base")
    scale, zero = float_field(configuration, "scale"), float_field(configuration, "zero")
    if form.dtype != np.dtype(complex) or base.kind != "c":
        raise CodecError(f"complex numbers cannot become {form.dtype}", codec="fits_scaled")

    def run(data: Data, out: Octets | None) -> Data:
        return as_octets(data).view(base).astype(complex) * scale + zero

    return DecodeStep("fits_scaled", run, BufferSpec(form.count * base.itemsize, form.exact, base, form.shape))


def fits_text(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for texts of one length; blanks at their end are no part of them."""
    dtype = form.dtype
    if dtype is None or dtype.kind != "S":
        raise CodecError(f"texts cannot become {dtype}", codec="fits_text")

    def run(data: Data, out: Octets | None) -> Data:
        # A zero ends a text, whatever comes behind it.
        cells = as_octets(data).reshape(-1, dtype.itemsize)
        ended = np.where(np.logical_or.accumulate(cells == 0, axis=1), 0, cells).astype(np.uint8)
        return np.char.rstrip(ended.reshape(-1).view(dtype), b" ").astype(dtype)

    return DecodeStep("fits_text", run, BufferSpec(form.limit, form.exact))


def fits_digits(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for numbers as text, from `width`, and, of cells that are empty or say `null`, the
    value `missing`.
    """
    dtype, count, width = form.dtype, form.count, integer_field(configuration, "width")
    null = str(configuration.get("null") or "").strip().encode("ascii", "replace")
    missing = integer_field(configuration, "missing", 0)
    if dtype is None or dtype.kind not in "if" or not 0 < width <= 1 << 16:
        raise CodecError(f"numbers of {width} digits cannot become {dtype}", codec="fits_digits")
    native = dtype.newbyteorder("=")
    absent = np.nan if native.kind == "f" else missing

    def run(data: Data, out: Octets | None) -> Data:
        cells = np.char.strip(as_octets(data).view(f"S{width}"), b" \0")
        empty = (cells == b"") | (cells == null)
        return _numbers(np.where(empty, b"0", cells), native, empty, absent).astype(dtype, copy=False)

    return DecodeStep("fits_digits", run, BufferSpec(count * width, form.exact))


def _numbers(cells: NDArray[Any], dtype: np.dtype[Any], empty: NDArray[np.bool_], absent: Any) -> NDArray[Any]:
    if dtype.kind == "f":
        cells = np.char.replace(np.char.upper(cells), b"D", b"E")
    try:
        values: NDArray[Any] = cells.astype(dtype)
    except (ValueError, OverflowError) as error:
        raise CodecError(f"a cell does not hold a number ({error})", codec="fits_digits") from error
    values[empty] = absent
    return values
