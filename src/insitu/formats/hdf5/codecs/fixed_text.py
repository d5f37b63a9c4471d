"""Codec `hdf5_text`: fixed-length HDF5 strings, padded the way NumPy pads them.

HDF5 stores how its strings are padded. A null-terminated one ends at its first NUL, and any bytes
may follow. A space-padded one ends before its trailing blanks. NumPy pads with NULs, so everything
behind the end is set to NUL.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.configuration import reading_configuration
from insitu.errors import CodecError

__all__ = ["end_texts", "hdf5_text"]

NAME = "hdf5_text"


def hdf5_text(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Prepare the codec from `texts`: offset, size and padding of each text in an element."""
    if form.dtype is None or not form.exact:
        raise CodecError("hdf5_text needs elements of a known fixed size", codec=NAME)
    itemsize = form.dtype.itemsize
    with reading_configuration(NAME):
        texts = [(int(offset), int(size), str(padding)) for offset, size, padding in configuration["texts"]]
    if any(offset < 0 or size < 1 or offset + size > itemsize for offset, size, _ in texts):
        raise CodecError(f"a text of the configuration lies outside of its element of {itemsize} bytes", codec=NAME)

    def run(data: Data, out: Octets | None) -> Data:
        elements = np.empty(form.limit, np.uint8) if out is None else out
        elements[:] = as_octets(data)
        rows = elements.reshape(-1, itemsize)
        for offset, size, padding in texts:
            end_texts(rows[:, offset : offset + size], padding)
        return elements

    return DecodeStep(NAME, run, form.as_bytes(), fills=True)


def end_texts(text: NDArray[np.uint8], padding: str) -> None:
    """Set everything behind the end of texts to NUL; each row holds one text."""
    if padding == "space-padded":
        over = np.logical_and.accumulate(text[:, ::-1] == ord(" "), axis=1)[:, ::-1]
    else:
        over = np.logical_or.accumulate(text == 0, axis=1)
    text[over] = 0
