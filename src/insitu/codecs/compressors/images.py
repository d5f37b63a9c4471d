"""Decoders of compressed images: JPEG, WebP, LERC, JPEG XL, JPEG 2000, JPEG XR, PNG, PixarLog, fax.

By imagecodecs, under its names. The image must have the chunk's shape and type: the size that it declares
is compared before memory and time are spent on it. imagecodecs does so if it gets the buffer to decode
into, except for JPEG 2000.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.configuration import integer_field
from insitu.codecs.libraries import Function, require_function
from insitu.errors import CodecError, UnsupportedError

__all__ = [
    "ccittfax3",
    "ccittfax4",
    "ccittrle",
    "decode_png",
    "jpeg",
    "jpeg2k",
    "jpegxl",
    "jpegxr",
    "lerc",
    "pixarlog",
    "png",
    "webp",
]

PNG_LIMIT = 1_000_000
"""Rows and columns that libpng reads (PNG_USER_WIDTH_MAX); the format has room for 2^31."""


def jpeg(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for JPEG, from `tables` and `header` (base64) and the colour spaces
    `colorspace_jpeg` and `colorspace_data`.
    """
    decode = require_function("imagecodecs_jpeg", ("imagecodecs", "jpeg8_decode"))
    tables, header = (_decode_base64(configuration.get(key)) for key in ("tables", "header"))
    options = {
        "tables": tables,
        "colorspace": configuration.get("colorspace_jpeg"),
        "outcolorspace": configuration.get("colorspace_data"),
    }

    def image(data: Data, room: NDArray[Any]) -> Any:
        whole = bytes(as_octets(data))
        if header is not None:
            whole = b"".join((header, whole, b"\xff\xd9"))
        rows, columns = room.shape[:2]
        height, width = _jpeg_size(whole)
        if width == columns and rows < height <= 2 * rows + 64:
            # Some writers make the last strip as high as the others.
            return decode(whole, out=np.empty((height, *room.shape[1:]), room.dtype), **options)[:rows]
        return decode(whole, out=room, **options)

    return _image_step("imagecodecs_jpeg", form, image)


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Return height and width from the frame header of a JPEG; zeros if it has none."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(data[at + 5 : at + 7], "big"), int.from_bytes(data[at + 7 : at + 9], "big")
        at += 1 if marker == 0xFF else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0, 0


def _decode_base64(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(value)
    except (TypeError, ValueError) as error:
        raise CodecError(f"the tables or the header of a JPEG are not in base64: {error}") from None


def webp(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for WebP.

    A fourth channel that is opaque everywhere may be left out in the data.
    """
    decode = require_function("imagecodecs_webp", ("imagecodecs", "webp_decode"))
    alpha = form.shape is not None and form.shape[-1:] == (4,)
    return _image_step(
        "imagecodecs_webp", form, lambda data, room: decode(bytes(as_octets(data)), hasalpha=alpha, out=room)
    )


def lerc(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for LERC.

    Pixels that it marks as invalid are NaN in floats, and what the encoder left there in integers.
    """
    decode = require_function("imagecodecs_lerc", ("imagecodecs", "lerc_decode"))

    def image(data: Data, room: NDArray[Any]) -> Any:
        values, valid = decode(bytes(as_octets(data)), masks=True, out=room)
        if room.dtype.kind == "f" and valid is not None and not np.all(valid):
            valid = np.asarray(valid, bool)
            if valid.ndim == room.ndim and valid.shape != room.shape:  # one plane for each band, in front
                valid = np.moveaxis(valid, 0, -1)
            mask = valid if valid.shape == room.shape else np.broadcast_to(valid[..., None], room.shape)
            values.reshape(room.shape)[~mask] = np.nan
        return values

    if form.dtype is not None and not form.dtype.isnative:
        # Encoded as if they were native numbers: the decoded bytes are right, in the byte order of
        # the chunk.
        native = BufferSpec(form.limit, form.exact, form.dtype.newbyteorder("="), form.shape)
        return _image_step("imagecodecs_lerc", native, image)
    return _image_step("imagecodecs_lerc", form, image)


def jpegxl(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for JPEG XL."""
    return _plain_step("imagecodecs_jpegxl", "jpegxl_decode", form)


def jpeg2k(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for JPEG 2000."""
    decode = require_function("imagecodecs_jpeg2k", ("imagecodecs", "jpeg2k_decode"))

    def image(data: Data, room: NDArray[Any]) -> Any:
        whole = bytes(as_octets(data))
        height, width, channels = _jpeg2k_size(whole)
        if height * width * channels > room.size:
            raise CodecError(
                f"the image has {height} rows, {width} columns and {channels} channels, the chunk {room.size} values"
            )
        return decode(whole, out=room)

    return _image_step("imagecodecs_jpeg2k", form, image)


def _jpeg2k_size(data: bytes) -> tuple[int, int, int]:
    """Return rows, columns and channels of a JPEG 2000 image (ISO/IEC 15444-1, annex A.5.1)."""
    at, channels = (0, 0) if data.startswith(b"\xff\x4f") else _find_codestream(data)
    if data[at : at + 4] != b"\xff\x4f\xff\x51" or len(data) < at + 42:
        raise CodecError("the data is not a JPEG 2000 image: it has no header that says its size")
    right, bottom, left, top = struct.unpack_from(">4I", data, at + 8)
    (components,) = struct.unpack_from(">H", data, at + 40)
    return max(bottom - top, 0), max(right - left, 0), max(components, channels)


def _find_codestream(data: bytes) -> tuple[int, int]:
    """Return where the codestream of a JP2 file begins, and the channels of its palette (annex I); the end of the
    data if it has no codestream.
    """
    at, channels = 0, 0
    while at + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        content = at + 8
        if length == 1:  # the length has 64 bits
            length, content = int.from_bytes(data[content : content + 8], "big"), content + 8
        if kind == b"jp2c":
            return content, channels
        if kind == b"pclr":
            channels = max(channels, *data[content + 2 : content + 3], 0)
        if kind == b"jp2h":
            at = content  # a box of boxes
        elif length < 8:
            break  # it reaches to the end, or is damaged
        else:
            at += length
    return len(data), channels


def jpegxr(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for JPEG XR."""
    return _plain_step("imagecodecs_jpegxr", "jpegxr_decode", form)


def png(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for PNG."""
    decode = require_function("imagecodecs_png", ("imagecodecs", "png_decode"))
    return _image_step(
        "imagecodecs_png", form, lambda data, room: decode_png(decode, bytes(as_octets(data)), room.shape, out=room)
    )


def decode_png(decode: Function, image: bytes, shape: tuple[int, ...], **options: Any) -> Any:
    """Return what `imagecodecs.png_decode` does.

    Raises
    ------
    UnsupportedError
        If libpng refuses an image only because of its size.
    """
    try:
        return decode(image, **options)
    except RuntimeError as problem:
        if max(shape[:2]) <= PNG_LIMIT:
            raise
        raise UnsupportedError(
            f"libpng reads images of up to {PNG_LIMIT:,} rows and columns, this one has {shape[0]:,} and {shape[1]:,}",
            structure="PNG",
        ) from problem


def pixarlog(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for PixarLog: deflated differences of logarithms."""
    decode = require_function("imagecodecs_pixarlog", ("imagecodecs", "pixarlog_decode"))

    def image(data: Data, room: NDArray[Any]) -> Any:
        return decode(bytes(as_octets(data)), shape=room.shape, dtype=room.dtype)

    return _image_step("imagecodecs_pixarlog", form, image)


def _plain_step(name: str, function: str, form: BufferSpec) -> DecodeStep:
    decode = require_function(name, ("imagecodecs", function))
    return _image_step(name, form, lambda data, room: decode(bytes(as_octets(data)), out=room))


def ccittrle(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for CCITT modified Huffman runs (TIFF's compression 2)."""
    return _fax_step("imagecodecs_ccittrle", "ccittrle_decode", form)


def ccittfax3(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for CCITT group 3 fax, from `t4options`."""
    return _fax_step(
        "imagecodecs_ccittfax3", "ccittfax3_decode", form, t4options=integer_field(configuration, "t4options", 0)
    )


def ccittfax4(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for CCITT group 4 fax."""
    return _fax_step("imagecodecs_ccittfax4", "ccittfax4_decode", form)


def _fax_step(name: str, function: str, form: BufferSpec, **options: Any) -> DecodeStep:
    decode: Function = require_function(name, ("imagecodecs", function))

    def image(data: Data, room: NDArray[Any]) -> Any:
        height, width = room.shape[:2]
        return decode(bytes(as_octets(data)), height, width, **options)

    return _image_step(name, form, image)


def _image_step(name: str, form: BufferSpec, image: Callable[[Data, NDArray[Any]], Any]) -> DecodeStep:
    dtype, shape = form.dtype, form.shape
    if dtype is None or shape is None or len(shape) < 2:
        raise CodecError("an image codec must be the first of a chain, on an array of two axes or more", codec=name)
    if dtype.hasobject:
        raise CodecError("an image holds numbers, but the chunk has values of varying length", codec=name)
    # Libraries drop axes of one element.
    flat = tuple(extent for number, extent in enumerate(shape) if extent > 1 or number >= len(shape) - 3)
    if len(flat) > 2 and flat[-1] == 1:
        flat = flat[:-1]

    # An axis of one may be a page in front of an image, or an image of one row: both shapes are
    # tried.
    squeezed = tuple(extent for extent in shape if extent > 1)
    shapes = (flat, squeezed) if len(squeezed) >= 2 and squeezed != flat else (flat,)

    def run(data: Data, out: Octets | None) -> Data:
        room = np.empty(form.limit, np.uint8) if out is None else out
        for candidate in shapes:
            target = room.view(dtype).reshape(candidate)
            try:
                found = np.asarray(image(data, target))
            except (RuntimeError, ValueError):
                if candidate != shapes[-1]:
                    continue
                raise
            if found.shape == candidate and found.dtype == dtype:
                if found.ctypes.data != target.ctypes.data:
                    target[...] = found
                return room
        raise CodecError(f"the image has type {found.dtype} and shape {found.shape}, the chunk {dtype} and {flat}")

    return DecodeStep(name, run, form.compressor_output(4), fills=form.exact, uses_library=True)
