"""Codec of Rice-coded integers (FITS's RICE_1), by imagecodecs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.configuration import integer_field
from insitu.codecs.libraries import require_function
from insitu.errors import CodecError

__all__ = ["rice"]


def rice(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for RICE_1, from `nblock` (pixels of a block) and `bytepix` (bytes of a coded
    integer).
    """
    decode = require_function("imagecodecs_rcomp", ("imagecodecs", "rcomp_decode"))
    block, size = integer_field(configuration, "nblock", 32), integer_field(configuration, "bytepix", 4)
    dtype, shape = form.dtype, form.shape
    if dtype is None or shape is None or dtype.kind not in "iu" or size not in (1, 2, 4):
        raise CodecError(f"Rice codes of {size} bytes cannot become {dtype}", codec="imagecodecs_rcomp")
    coded = np.dtype(f"u{size}" if size == 1 else f"i{size}")

    def run(data: Data, out: Octets | None) -> Data:
        values: NDArray[Any] = decode(bytes(as_octets(data)), shape=(math.prod(shape),), dtype=coded, nblock=block)
        return values.astype(dtype, copy=False)

    return DecodeStep("imagecodecs_rcomp", run, form.compressor_output(2), uses_library=True)
