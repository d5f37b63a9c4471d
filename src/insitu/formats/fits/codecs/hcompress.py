"""Codec of H-compressed images (FITS's HCOMPRESS_1), by astropy, which has the code of CFITSIO.

That code trusts the sizes in the data and reads behind their end. So the sizes are checked first,
and zeros are appended.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.configuration import integer_field
from insitu.codecs.libraries import require_function
from insitu.errors import CodecError

__all__ = ["hcompress"]

MAGIC = b"\xdd\x99"
PLACES = (
    # Not public: astropy's public `CompImageHDU` decodes whole files only, and no other library
    # has this code. Since 7.0, and before.
    ("astropy.io.fits.hdu.compressed._codecs", "HCompress1"),
    ("astropy.io.fits._tiled_compression.codecs", "HCompress1"),
)


def hcompress(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for HCOMPRESS_1, from `scale` and `smooth`."""
    make = require_function("fits_hcompress", *PLACES, install="insitu[fits]")
    dtype, shape = form.dtype, form.shape
    if dtype is None or not shape or dtype.kind not in "iu":
        raise CodecError(f"H-compressed integers cannot become {dtype}", codec="fits_hcompress")
    sides = [extent for extent in shape if extent > 1]
    rows, columns = (sides if len(sides) == 2 else shape[-2:]) if len(shape) > 1 else (1, shape[0])
    if rows * columns != form.count:
        raise CodecError(f"an H-compressed tile cannot have the shape {shape}", codec="fits_hcompress")
    scale, smooth = integer_field(configuration, "scale", 0), bool(configuration.get("smooth", 0))
    decoder = make(scale=scale, smooth=smooth, bytepix=8, nx=rows, ny=columns)
    room = 16 * form.count + 4096

    def run(data: Data, out: Octets | None) -> Data:
        raw = bytes(as_octets(data))
        if raw[:2] != MAGIC or len(raw) < 25:
            raise CodecError("the data is not H-compressed")
        declared = struct.unpack_from(">ii", raw, 2)
        planes = raw[22:25]
        if declared != (rows, columns) or max(planes) > 64:
            raise CodecError(f"the data declares {declared[0]} × {declared[1]} pixels, not {rows} × {columns}")
        values: Any = decoder.decode(np.frombuffer(raw + bytes(room), np.uint8))
        return np.asarray(values).reshape(-1)[: rows * columns].astype(dtype)

    return DecodeStep("fits_hcompress", run, form.compressor_output(4), uses_library=True)
