"""Codecs of TIFF strips and tiles: LZW, PackBits, predictors, integers of any number of bits,
pixels without data.

imagecodecs decodes them. The codecs have its names, which tifffile and kerchunk write into
references with the same configuration. Shape and type of a chunk, which that configuration may
lack, come from the chain.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.configuration import dtype_field, floats_field, integer_field, integers_field
from insitu.codecs.libraries import Function, require_function
from insitu.errors import CodecError

__all__ = [
    "bitorder",
    "clip",
    "complex_integers",
    "delta",
    "float24",
    "float_predictor",
    "lzw",
    "packbits",
    "packints",
    "pixel_nodata",
]


def lzw(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for TIFF's LZW, its old bit order too."""
    return _expand("imagecodecs_lzw", form, require_function("imagecodecs_lzw", ("imagecodecs", "lzw_decode")))


def packbits(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for PackBits: runs of equal bytes.

    With `least`, data may end after so many bytes, and zeros follow: tiles of some writers end
    where the image does.
    """
    decode = require_function("imagecodecs_packbits", ("imagecodecs", "packbits_decode"))
    least = None if configuration.get("least") is None else integer_field(configuration, "least")
    return _expand("imagecodecs_packbits", form, decode, least)


def _expand(name: str, form: BufferSpec, decode: Function, least: int | None = None) -> DecodeStep:
    limit = form.limit

    def run(data: Data, out: Octets | None) -> Data:
        # Both stop where the buffer ends, as libtiff does: bytes behind the last row of a strip are
        # ignored.
        room = np.empty(limit, np.uint8) if out is None else out
        filled: Data = decode(data, out=room)
        if least is not None and least <= len(filled) < limit:
            room[len(filled) :] = 0
            return room
        return room if len(filled) == limit else filled

    return DecodeStep(name, run, form.compressor_output(), fills=form.exact, uses_library=True)


def bitorder(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for bytes whose bits run backwards (TIFF's FillOrder 2)."""
    reverse = require_function("imagecodecs_bitorder", ("imagecodecs", "bitorder_decode"))

    def run(data: Data, out: Octets | None) -> Data:
        done: Data = reverse(bytes(as_octets(data)))
        return done

    return DecodeStep("imagecodecs_bitorder", run, form.as_bytes(), uses_library=True)


def packints(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for integers of `bitspersample` bits, every `runlen` of them filled up to a whole
    byte.
    """
    unpack = require_function("imagecodecs_packints", ("imagecodecs", "packints_decode"))
    bits, run_length = integer_field(configuration, "bitspersample"), integer_field(configuration, "runlen", 0)
    dtype, count = dtype_field(configuration, "dtype"), form.count
    run_length = run_length or count
    if not 1 <= bits <= 8 * dtype.itemsize or dtype.kind not in "iu" or count % max(run_length, 1):
        raise CodecError(f"{count} integers of {bits} bits in runs of {run_length} cannot be unpacked to {dtype}")
    native = dtype.newbyteorder("=")
    packed = count // max(run_length, 1) * -(-run_length * bits // 8)

    def run(data: Data, out: Octets | None) -> Data:
        raw = as_octets(data)
        if raw.size != packed:
            raise CodecError(f"{count} integers of {bits} bits take {packed} bytes, but the chunk has {raw.size}")
        values: NDArray[Any] = unpack(bytes(raw), native, bits, runlen=run_length)
        return values.astype(dtype, copy=False)

    return DecodeStep("imagecodecs_packints", run, BufferSpec(packed, form.exact), uses_library=True)


def delta(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for TIFF's predictor 2.

    Differences along `axis`, of integers that wrap around, whatever type the values have.
    """
    undo = require_function("imagecodecs_delta", ("imagecodecs", "delta_decode"))
    axis, distance = integer_field(configuration, "axis", -1), integer_field(configuration, "dist", 1)
    dtype, shape = _predictor_array(configuration, form, "imagecodecs_delta")
    whole = np.dtype(f"u{dtype.itemsize}")

    def run(data: Data, out: Octets | None) -> Data:
        values = as_octets(data).view(whole).reshape(shape)
        if not dtype.isnative:
            return undo(values.byteswap(), axis=axis, dist=distance).byteswap().reshape(-1)  # type: ignore[no-any-return]
        if out is None:
            return undo(values, axis=axis, dist=distance).reshape(-1)  # type: ignore[no-any-return]
        undo(values, axis=axis, dist=distance, out=out.view(whole).reshape(shape))
        return out

    return DecodeStep(
        "imagecodecs_delta",
        run,
        BufferSpec(form.limit, form.exact, dtype, shape),
        fills=form.exact and dtype.isnative,
        uses_library=True,
    )


def float_predictor(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for TIFF's predictor 3.

    Along `axis` the bytes of floats by significance, as differences.
    """
    undo = require_function("imagecodecs_floatpred", ("imagecodecs", "floatpred_decode"))
    axis, distance = integer_field(configuration, "axis", -1), integer_field(configuration, "dist", 1)
    dtype, shape = _predictor_array(configuration, form, "imagecodecs_floatpred")
    if dtype.kind != "f":
        raise CodecError(f"predictor 3 is for floats, not for {dtype}")
    native = dtype.newbyteorder("=")

    def run(data: Data, out: Octets | None) -> Data:
        values = undo(as_octets(data).view(native).reshape(shape), axis=axis, dist=distance)
        return values.astype(dtype, copy=False).reshape(-1)  # type: ignore[no-any-return]

    return DecodeStep("imagecodecs_floatpred", run, BufferSpec(form.limit, form.exact, dtype, shape), uses_library=True)


def _predictor_array(
    configuration: Configuration, form: BufferSpec, name: str
) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return type and shape of what a predictor worked on.

    Those of the configuration if they fit, else the chunk's own.
    """
    dtype, shape = form.dtype, form.shape
    if "dtype" in configuration and configuration.get("shape"):
        # The axes of a chunk may have been renamed since (a band in front); those that the
        # predictor went along have not.
        given, extents = dtype_field(configuration, "dtype"), integers_field(configuration, "shape")
        if dtype is None or shape is None or (given == dtype and math.prod(extents) == math.prod(shape)):
            dtype, shape = given, extents
    if dtype is None or shape is None:
        raise CodecError("a predictor must be first in the chain, or configured with dtype and shape", codec=name)
    if math.prod(shape) * dtype.itemsize != form.limit or dtype.itemsize not in (1, 2, 4, 8) or not shape:
        raise CodecError(f"a predictor on {dtype} of shape {shape} does not yield {form.limit} bytes", codec=name)
    return dtype, shape


def clip(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for data that may be longer than the chunk, up to `nbytes`.

    Some writers fill the last strip.
    """
    limit = form.limit
    most = max(integer_field(configuration, "nbytes"), limit)

    def run(data: Data, out: Octets | None) -> Data:
        return as_octets(data)[:limit]

    return DecodeStep("clipped", run, BufferSpec(most, False))


def float24(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for floats of 24 bits, widened to 32, from `byteorder`."""
    widen = require_function("imagecodecs_float24", ("imagecodecs", "float24_decode"))
    order = configuration.get("byteorder") or "="
    count = form.count

    def run(data: Data, out: Octets | None) -> Data:
        values: NDArray[Any] = widen(bytes(as_octets(data)), byteorder=order)
        return values.astype(np.float32, copy=False).reshape(-1)

    return DecodeStep("imagecodecs_float24", run, BufferSpec(3 * count, form.exact), uses_library=True)


def complex_integers(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for pairs of integers of type `dtype`, real and imaginary, which become complex
    floats as in GDAL.
    """
    part = dtype_field(configuration, "dtype")
    if part.kind not in "iu" or form.dtype is None or form.dtype.kind != "c":
        raise CodecError(f"pairs of {part} cannot become {form.dtype}")
    dtype, count = form.dtype, form.count
    component_dtype = np.dtype(f"f{dtype.itemsize // 2}")

    def run(data: Data, out: Octets | None) -> Data:
        return as_octets(data).view(part).astype(component_dtype).view(dtype)

    return DecodeStep(
        "complex_integers", run, BufferSpec(2 * count * part.itemsize, form.exact, np.dtype((part, (2,))), None)
    )


def pixel_nodata(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for pixels that have no data where every band has its own of the `values`.

    They become NaN; the other numbers of type `dtype` become the floats that they are.
    """
    stored, values = dtype_field(configuration, "dtype"), floats_field(configuration, "values", ())
    dtype, shape = form.dtype, form.shape
    if dtype is None or dtype.kind != "f" or stored.kind not in "iuf" or not shape or shape[-1] != len(values):
        raise CodecError(f"{len(values)} nodata values do not fit {dtype} of shape {shape}", codec="pixel_nodata")
    result, bands = dtype, np.array(values)

    def run(data: Data, out: Octets | None) -> Data:
        pixels = as_octets(data).view(stored).reshape(shape)
        room = np.empty(form.limit, np.uint8) if out is None else out
        target = room.view(result).reshape(shape)
        target[...] = pixels
        # Single floats are compared as such: the text of a value has more digits.
        target[(pixels == (bands.astype(stored) if stored.kind == "f" else bands)).all(axis=-1)] = np.nan
        return room

    return DecodeStep(
        "pixel_nodata", run, BufferSpec(form.count * stored.itemsize, form.exact, stored, shape), fills=form.exact
    )
