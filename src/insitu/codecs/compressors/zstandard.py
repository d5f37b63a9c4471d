"""Decoder of Zstandard frames.

By imagecodecs, or the library that is linked into the kernels, into the given buffer; else by
numcodecs, which does not return how much it wrote: then the frame itself must declare its size.
"""

from __future__ import annotations

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeFunction, DecodeStep, Octets, as_octets
from insitu.codecs.growing_buffer import decode_into_buffer
from insitu.codecs.libraries import Function, find_function, require_function
from insitu.codecs.linked_libraries import find_decompress
from insitu.errors import CodecError

__all__ = ["zstd"]

MAGIC = b"\x28\xb5\x2f\xfd"


def zstd(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for frames with or without a size (HDF5's filter 32015, numcodecs, Zarr v3)."""
    fast = find_function("imagecodecs", "zstd_decode")
    run = (
        decode_into_buffer(fast, form.limit)
        if fast
        else _numcodecs_decoder(require_function("zstd", ("numcodecs.zstd", "decompress")), form.limit)
    )
    return DecodeStep("zstd", run, form.compressor_output(), fills=form.exact, uses_library=True)


def _numcodecs_decoder(decode: Function, limit: int) -> DecodeFunction:
    linked = find_decompress("zstd")

    def run(data: Data, out: Octets | None) -> Data:
        if linked is not None and out is not None and out.size == limit and limit and linked(data, out):
            return out
        size = _read_content_size(as_octets(data)[:18].tobytes())
        if size is None:
            raise CodecError(
                "the Zstandard frame does not declare its size, and numcodecs needs it",
                hint="Try `pip install 'insitu[codecs]'`",
            )
        if size > limit:
            raise CodecError(f"the Zstandard frame declares {size} bytes, but the chunk has only {limit}")
        decoded: Data = decode(data, out if out is not None and size == limit else None)
        return decoded

    return run


def _read_content_size(head: bytes) -> int | None:
    """Read the content size of a frame (RFC 8878, 3.1.1.1)."""
    if head[:4] != MAGIC or len(head) < 6:
        raise CodecError("the data is not a Zstandard frame: it starts with other bytes")
    descriptor = head[4]
    single = bool(descriptor & 0x20)
    width = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    start = 5 + (0 if single else 1) + (0, 1, 2, 4)[descriptor & 3]
    if not width:
        return None
    size = int.from_bytes(head[start : start + width], "little")
    return size + 256 if width == 2 else size
