"""Decoder of Blosc chunks (version 1), with any inner codec.

The header gives the decoded size. Imagecodecs releases the GIL and writes into the given buffer;
numcodecs is the fallback.
"""

from __future__ import annotations

import numpy as np

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.libraries import find_function, require_function
from insitu.errors import CodecError

__all__ = ["blosc", "read_header_sizes"]

HEADER = 16


def blosc(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for blosc of numcodecs, Zarr v3 and HDF5 (32001).

    Its configuration matters to writers only.
    """
    fast = find_function("imagecodecs", "blosc_decode")
    slow = None if fast else require_function("blosc", ("numcodecs.blosc", "decompress"))
    limit = form.limit

    def run(data: Data, out: Octets | None) -> Data:
        size, _ = read_header_sizes(data, limit)
        room = out if out is not None and size == limit else np.empty(size, np.uint8)
        filled: Data = fast(data, numthreads=1, out=room) if fast else slow(data, room)  # type: ignore[misc]
        return room if len(filled) == size else filled

    return DecodeStep("blosc", run, form.compressor_output(), fills=form.exact, uses_library=True)


def read_header_sizes(data: Data, limit: int) -> tuple[int, int]:
    """Return the decoded and the encoded size from a chunk's header, both checked.

    Parameters
    ----------
    data
        A chunk of Blosc 1 or 2: bytes 4-7 hold the decoded size, 12-15 the encoded one,
        little-endian.
    limit
        Largest decoded size that is accepted.
    """
    view = as_octets(data).data
    if view.nbytes < HEADER:
        raise CodecError("the data is shorter than a Blosc header")
    decoded = int.from_bytes(view[4:8], "little")
    encoded = int.from_bytes(view[12:16], "little")
    if decoded > limit:
        raise CodecError(f"the Blosc header declares {decoded} decoded bytes, but the chunk has only {limit}")
    if encoded > view.nbytes:
        raise CodecError(f"the Blosc header declares {encoded} encoded bytes, but there are only {view.nbytes}")
    return decoded, encoded
