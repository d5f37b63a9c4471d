"""Codec `grib`: a GRIB message becomes the values of its field.

The common packings are decoded here (`packings`), with the same sums in the same order as ecCodes;
all others by ecCodes in a subprocess (`subprocess_decoder`), because some damaged messages crash
it. Values that the bitmap leaves out are NaN. Kerchunk has a codec of this name, with the same
configuration.
"""

from __future__ import annotations

import numpy as np

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.configuration import integer_field
from insitu.errors import CodecError
from insitu.formats.grib.codecs.packed_sections import check_field, single_field_message, split_sections, trim_message
from insitu.formats.grib.codecs.packings import values_of
from insitu.formats.grib.codecs.subprocess_decoder import decode_in_subprocess

__all__ = ["grib"]


def grib(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare for a message.

    `var`: `latitude` and `longitude` of the grid, anything else: the values. `field`: its number in
    the message. `alternate`: every other row runs backwards. `columns`: points of a column follow
    each other. `grid`, `parameter` and `mark`: what the message must hold, where only an index has
    been read of it.
    """
    var, number = str(configuration.get("var", "values")), integer_field(configuration, "field", 0)
    key = f"{var}s" if var in ("latitude", "longitude") else "values"
    alternate, columns = bool(configuration.get("alternate")), bool(configuration.get("columns"))
    count, dtype, shape = form.count, form.dtype, form.shape
    if dtype is None or shape is None or dtype.kind != "f":
        raise CodecError(f"GRIB values cannot become {dtype}", codec="grib")

    def run(data: Data, out: Octets | None) -> Data:
        message = trim_message(as_octets(data))
        parts = split_sections(message, number)
        check_field(message, parts, configuration)
        values = values_of(parts, count) if key == "values" else None
        if values is None:
            values = decode_in_subprocess(
                single_field_message(message, number) if number else message.tobytes(), key, count
            )
        room = np.empty(form.limit, np.uint8) if out is None else out
        target = room.view(dtype)
        if columns or alternate:
            rows = values.reshape(-1, shape[-2] if columns else shape[-1])
            if alternate:
                rows[1::2] = rows[1::2, ::-1].copy()
            values = (rows.T if columns else rows).reshape(-1)
        with np.errstate(over="ignore"):  # as cfgrib: what float32 cannot hold is infinite
            target[...] = values
        return room

    return DecodeStep("grib", run, form.compressor_output(4, 1 << 20), fills=form.exact)
