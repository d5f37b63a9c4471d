"""Checksum codecs: Fletcher-32, CRC-32, CRC-32C, Adler-32, Jenkins lookup3.

Each adds four bytes to the data; decoding compares them and takes them off. A difference raises
`ChecksumError`. Nothing is copied.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from insitu.codecs.buffer_spec import BufferSpec, Configuration, Data, DecodeStep, Octets, as_octets
from insitu.codecs.configuration import integer_field, integers_field
from insitu.codecs.libraries import find_function, require_function
from insitu.errors import ChecksumError, CodecError

__all__ = ["adler32", "crc32", "crc32c", "fletcher32", "fletcher32_numpy", "jenkins_lookup3"]


def fletcher32(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for HDF5's filter 3."""
    compute = (
        find_function("insitu.codecs._kernels", "fletcher32")
        or find_function("imagecodecs", "h5checksum_fletcher32")
        or fletcher32_numpy
    )

    def accepted_sums(data: Octets) -> tuple[int, int]:
        value = compute(data)
        # Before 1.6.3 HDF5 swapped the bytes of each half on little-endian machines; it still
        # accepts such sums.
        swapped = (value & 0x00FF00FF) << 8 | (value & 0xFF00FF00) >> 8
        return value, swapped

    return _checksum_step("fletcher32", form, accepted_sums, at_start=False)


def crc32c(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for Zarr v3's crc32c (behind the data) and numcodecs' (`location`)."""
    compute = require_function("crc32c", ("google_crc32c", "value"), install="google-crc32c")
    return _checksum_step(
        "crc32c", form, lambda data: (compute(data),), configuration.get("location", "end") == "start"
    )


def crc32(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for numcodecs' crc32 (before the data, unless `location` says otherwise)."""
    compute = find_function("imagecodecs", "deflate_crc32") or zlib.crc32
    return _checksum_step(
        "crc32", form, lambda data: (compute(data.data),), configuration.get("location", "start") == "start"
    )


def adler32(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for numcodecs' adler32 (before the data, unless `location` says otherwise)."""
    compute = find_function("imagecodecs", "deflate_adler32") or zlib.adler32
    return _checksum_step(
        "adler32", form, lambda data: (compute(data.data),), configuration.get("location", "start") == "start"
    )


def jenkins_lookup3(configuration: Configuration, form: BufferSpec) -> DecodeStep:
    """Return the step for numcodecs' lookup3, with `initval` and `prefix`."""
    compute = require_function("jenkins_lookup3", ("numcodecs.jenkins", "jenkins_lookup3"), install="numcodecs")
    start = integer_field(configuration, "initval", 0)
    values = integers_field(configuration, "prefix", ())
    if not 0 <= start < 1 << 32 or any(not 0 <= value < 256 for value in values):
        raise CodecError("the initial value or the prefix of jenkins_lookup3 is not valid", codec="jenkins_lookup3")
    prefix = np.array(values, np.uint8)

    def accepted_sums(data: Octets) -> tuple[int]:
        return (int(compute(np.concatenate([prefix, data]) if prefix.size else data, start)),)

    return _checksum_step("jenkins_lookup3", form, accepted_sums, at_start=False)


def _checksum_step(
    name: str, form: BufferSpec, accepted_sums: Callable[[Octets], tuple[int, ...]], at_start: bool
) -> DecodeStep:
    def run(data: Data, out: Octets | None) -> Data:
        whole = as_octets(data)
        if whole.size < 4:
            raise CodecError("the data is too short for its checksum of 4 bytes")
        stored, rest = (whole[:4], whole[4:]) if at_start else (whole[-4:], whole[:-4])
        value = int.from_bytes(stored.tobytes(), "little")
        computed = accepted_sums(rest)
        if value not in computed:
            raise ChecksumError(
                f"the {name} checksum is {computed[0]:#010x}, but {value:#010x} was stored: the chunk is damaged",
                codec=name,
            )
        return rest

    return DecodeStep(name, run, form.with_checksum(4))


def fletcher32_numpy(data: Octets) -> int:
    """Return HDF5's Fletcher checksum: 16-bit big-endian words.

    An odd last byte is the high half of a word.
    """
    words = data[: data.size // 2 * 2].view(">u2")
    low = high = 0
    for start in range(0, words.size, 1 << 20):
        block = words[start : start + (1 << 20)].astype(np.uint64)
        # The second sum counts a word once for itself and once for each that follows.
        weights = np.arange(block.size, 0, -1, dtype=np.uint64)
        high += low * block.size + int((block * weights).sum())
        low += int(block.sum())
    if data.size % 2:
        low += int(data[-1]) << 8
        high += low
    return _fold_carries(high) << 16 | _fold_carries(low)


def _fold_carries(total: int) -> int:
    # Carries are added back, so a multiple of 65535 ends as 65535 and only nothing at all as 0.
    return (total - 1) % 65535 + 1 if total else 0
