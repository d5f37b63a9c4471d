"""Decoders of values of varying length: texts, byte strings, arrays.

The format of numcodecs, which Zarr v3 adopted: the number of items, then each item behind its
length, all little-endian 4-byte numbers.
"""

from __future__ import annotations

from insitu.codecs.buffer_spec import (
    MAX_UNDECLARED_BYTES,
    BufferSpec,
    Configuration,
    Data,
    DecodeStep,
    Octets,
    as_octets,
)
from insitu.codecs.configuration import dtype_field
from insitu.codecs.libraries import require_function
from insitu.errors import CodecError

__all__ = ["vlen_array", "vlen_bytes", "vlen_utf8"]


def vlen_utf8(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for texts."""
    return _make_step("vlen-utf8", "VLenUTF8", {}, form)


def vlen_bytes(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for byte strings."""
    return _make_step("vlen-bytes", "VLenBytes", {}, form)


def vlen_array(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for arrays of varying length, of `dtype`."""
    return _make_step("vlen-array", "VLenArray", {"dtype": dtype_field(configuration, "dtype")}, form)


def _make_step(name: str, class_name: str, options: Configuration, form: BufferSpec) -> DecodeStep:
    decode = require_function(name, ("numcodecs.vlen", class_name), install="numcodecs")(**options).decode
    count = form.count
    if form.dtype is None or not form.dtype.hasobject:
        raise CodecError(f"values of varying length cannot become {form.dtype}", codec=name)

    def run(data: Data, out: Octets | None) -> Data:
        raw = as_octets(data)
        items = int.from_bytes(raw[:4].tobytes(), "little")
        # Checked here: the library allocates as many items as the data declares.
        if raw.size < 4 or items != count:
            raise CodecError(f"the data declares {items} items, but the chunk has {count}")
        values: Data = decode(raw)
        return values

    return DecodeStep(name, run, BufferSpec(MAX_UNDECLARED_BYTES, False), uses_library=True)
