"""Decoders of values of varying length: texts, byte strings, arrays.

The format of numcodecs, which Zarr v3 adopted: the number of items, then each item behind its
length, all little-endian 4-byte numbers.
"""

from __future__ import annotations

from insitu.codecs.buffer_spec import LARGEST, Configuration, Data, Form, Octets, Step, octets
from insitu.codecs.libraries import need
from insitu.errors import CodecError

__all__ = ["vlen_array", "vlen_bytes", "vlen_utf8"]


def vlen_utf8(configuration: Configuration, form: Form) -> Step:
    """Return the step for texts."""
    return _step("vlen-utf8", "VLenUTF8", {}, form)


def vlen_bytes(configuration: Configuration, form: Form) -> Step:
    """Return the step for byte strings."""
    return _step("vlen-bytes", "VLenBytes", {}, form)


def vlen_array(configuration: Configuration, form: Form) -> Step:
    """Return the step for arrays of varying length, of `dtype`."""
    return _step("vlen-array", "VLenArray", {"dtype": configuration.get("dtype")}, form)


def _step(name: str, class_name: str, options: Configuration, form: Form) -> Step:
    decode = need(name, ("numcodecs.vlen", class_name), install="numcodecs")(**options).decode
    count = form.count

    def run(data: Data, out: Octets | None) -> Data:
        raw = octets(data)
        items = int.from_bytes(raw[:4].tobytes(), "little")
        # Checked here: the library allocates as many items as the data declares.
        if raw.size < 4 or items != count:
            raise CodecError(f"the data declares {items} items, but the chunk has {count}")
        values: Data = decode(raw)
        return values

    return Step(name, run, Form(LARGEST, False))
