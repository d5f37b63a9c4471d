"""How is HDF5's szip (extended Rice coding) decoded?

By libaec's szip interface in imagecodecs. HDF5 puts the decoded size before the data, 4 bytes little-endian.
"""

from __future__ import annotations

import numpy as np

from insitu.codecs.form import Configuration, Data, Form, Octets, Step, octets
from insitu.codecs.library import need
from insitu.errors import CodecError

__all__ = ["szip"]

PARAMETERS = ("options_mask", "pixels_per_block", "bits_per_pixel", "pixels_per_scanline")


def szip(configuration: Configuration, form: Form) -> Step:
    """Prepare for HDF5's filter 4: `options_mask`, `pixels_per_block`, `bits_per_pixel`, `pixels_per_scanline`."""
    try:
        parameters = {name: int(configuration[name]) for name in PARAMETERS}
    except KeyError as error:
        raise CodecError(f"szip needs {error.args[0]}", codec="szip") from error
    decode = need("szip", ("imagecodecs", "szip_decode"))
    limit = form.limit

    def run(data: Data, out: Octets | None) -> Data:
        view = octets(data).data
        if view.nbytes < 4:
            raise CodecError("the data ends before its length is given")
        size = int.from_bytes(view[:4], "little")
        if size > limit:
            raise CodecError(f"the data declares {size} bytes, more than {limit}")
        room = out if out is not None and size == limit else np.empty(size, np.uint8)
        filled: Data = decode(view[4:], out=room, **parameters)
        return room if len(filled) == size else filled

    return Step("szip", run, form.compressed(), fills=form.exact)
