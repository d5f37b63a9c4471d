"""How are the run lengths of ThunderScan, NeXT and SGI's logarithms decoded, which no library at hand does?

As libtiff does (its files tif_thunder.c, tif_next.c, tif_luv.c; NeXT and Thunder predate any document). They are rare and small, so plain Python walks their runs; whatever a run says, no more
pixels are written than a row has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from insitu.codecs.buffer_spec import Configuration, Data, Form, Octets, Step, octets
from insitu.errors import CodecError

__all__ = ["tiff_next", "tiff_sgilog", "tiff_thunder"]

Pixels = NDArray[np.uint8]
TWO_BITS, THREE_BITS = (0, 1, None, -1), (0, 1, 2, 3, None, -3, -2, -1)
"""Differences of ThunderScan; None: no pixel."""
UV_SCALE = 410.0


def tiff_thunder(configuration: Configuration, form: Form) -> Step:
    """Prepare for ThunderScan: pixels of four bits, as differences and runs."""

    def row(stream: Iterator[int], width: int) -> list[int]:
        pixels: list[int] = []
        last = 0
        while len(pixels) < width:
            code = next(stream)
            kind, rest = code >> 6, code & 63
            if kind == 0:
                pixels += [last] * rest
                continue
            if kind == 3:
                steps: list[int | None] = [(rest & 15) - last]
            elif kind == 1:
                steps = [TWO_BITS[rest >> shift & 3] for shift in (4, 2, 0)]
            else:
                steps = [THREE_BITS[rest >> shift & 7] for shift in (3, 0)]
            for step in steps:
                if step is not None:
                    last = (last + step) & 15
                    if len(pixels) < width:  # what a byte says beyond the row is nobody's; a run must end with it
                        pixels.append(last)
        if len(pixels) > width:
            raise CodecError(f"a row of {len(pixels)} pixels, not {width}", codec="tiff_thunder")
        return pixels

    return _rows("tiff_thunder", form, row)


def tiff_next(configuration: Configuration, form: Form) -> Step:
    """Prepare for NeXT: pixels of two bits, as whole rows, spans, or runs of a grey."""

    def row(stream: Iterator[int], width: int) -> list[int]:
        scan = -(-width // 4)
        code = next(stream)
        if code in (0x00, 0x40):
            first, count = 0, scan
            if code:
                first, count = (next(stream) << 8 | next(stream) for _ in range(2))
            packed = [0xFF] * scan  # white where nothing is said
            for place in range(first, first + count):
                value = next(stream)
                if place < scan:
                    packed[place] = value
            return [byte >> shift & 3 for byte in packed for shift in (6, 4, 2, 0)][:width]
        pixels: list[int] = []
        while True:
            pixels += [code >> 6] * min(code & 63, width - len(pixels))
            if len(pixels) >= width:
                return pixels
            code = next(stream)

    return _rows("tiff_next", form, row)


def _rows(name: str, form: Form, row: Callable[[Iterator[int], int], list[int]]) -> Step:
    if form.shape is None or form.dtype != np.dtype("u1") or len(form.shape) < 2:
        raise CodecError(f"pixels of a few bits do not become {form.dtype}", codec=name)
    shape = form.shape[:-1] if form.shape[-1] == 1 and len(form.shape) > 2 else form.shape
    width, height = shape[-1], math.prod(shape[:-1])

    def run(data: Data, out: Octets | None) -> Data:
        stream = iter(bytes(octets(data)))
        values = np.empty((height, width), np.uint8)
        for number in range(height):
            try:
                values[number] = row(stream, width)
            except StopIteration:
                raise CodecError(f"the data ends in row {number} of {height}", codec=name) from None
        return values.reshape(-1)

    return Step(name, run, form.compressed(2))


def tiff_sgilog(configuration: Configuration, form: Form) -> Step:
    """Prepare for SGI's logarithmic luminance as integers of 16 bits; with three bands, its chroma behind it."""
    if form.shape is None or form.dtype is None or form.dtype.str[1:] != "i2" or form.shape[-1] not in (1, 3):
        raise CodecError(f"logarithms of light do not become {form.dtype}", codec="tiff_sgilog")
    colour = form.shape[-1] == 3
    width, height = form.shape[-2], math.prod(form.shape[:-2])
    planes, dtype = (4 if colour else 2), form.dtype

    def run(data: Data, out: Octets | None) -> Data:
        raw, at = bytes(octets(data)), 0
        stored = np.zeros((height, planes, width), np.uint8)
        for line in stored.reshape(-1, width):
            at = _bytes_of_plane(raw, at, line)
        words = np.ascontiguousarray(stored.transpose(0, 2, 1)).view(">u4" if colour else ">i2")[..., 0]
        if not colour:
            return words.astype(dtype).reshape(-1)
        whole = words.astype(np.uint32)
        u, v = (((whole >> shift & 0xFF).astype(np.float64) + 0.5) / UV_SCALE for shift in (8, 0))
        light = (whole >> 16).astype(np.uint16).view(np.int16)
        return (
            np.stack([light, *((part * (1 << 15)).astype(np.int16) for part in (u, v))], -1).astype(dtype).reshape(-1)
        )

    return Step("tiff_sgilog", run, form.compressed(2))


def _bytes_of_plane(raw: bytes, at: int, line: Pixels) -> int:
    """One row of one byte of the pixels, most significant first: runs, and spans as they are. Return where it ends."""
    done, width = 0, line.size
    while done < width:
        if at >= len(raw):
            raise CodecError("the data ends within a row", codec="tiff_sgilog")
        code = raw[at]
        if code >= 128:
            count, piece, at = code - 126, raw[at + 1 : at + 2], at + 2
        else:
            count, piece, at = code, raw[at + 1 : at + 1 + code], at + 1 + code
        count = min(count, width - done)
        if len(piece) < (1 if code >= 128 else count):
            raise CodecError("the data ends within a run", codec="tiff_sgilog")
        if count:
            line[done : done + count] = np.frombuffer(piece[:count], np.uint8)
        done += count
    return at
