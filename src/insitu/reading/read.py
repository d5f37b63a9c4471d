"""Reads selections of virtual arrays into NumPy arrays: `read_array`, `read_arrays`."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from insitu.codecs.aligned_memory import allocate_aligned
from insitu.errors import InsituError, SelectionError, SelectionSizeError
from insitu.model import Selection, VirtualArray
from insitu.reading.cache import ChunkCache, PartialChunkCache
from insitu.reading.execute import execute, execute_all, execute_few
from insitu.reading.plan import plan_few, plan_read
from insitu.reading.read_context import ReadContext
from insitu.reading.read_statistics import ReadStatistics, format_summary, log
from insitu.reading.small_arrays import read_small_arrays
from insitu.reading.source_pool import SourcePool

if TYPE_CHECKING:
    from insitu.reading.prefetch import Prefetcher

__all__ = ["allocate_output", "read_array", "read_arrays"]


Request = tuple[VirtualArray, Any]
"""An array, and the selection to read of it."""


def read_array(
    array: VirtualArray,
    selection: Any = ...,
    context: ReadContext | None = None,
    *,
    out: npt.NDArray[Any] | None = None,
) -> npt.NDArray[Any]:
    """Read a selection of a virtual array.

    Parameters
    ----------
    array
        The array to read from.
    selection
        Integers, slices of any step, Ellipsis, 1-D index or boolean arrays (each axis on its own),
        or a `Selection`.
    context
        How to read: storage options, cache, counters.
    out
        Output array: of the selection's shape, and a type that the values can be cast to.
    """
    context = context or ReadContext()
    cache, tally, name = context.cache, context.tally, context.name
    started = planned = perf_counter()
    done = ReadStatistics()
    chosen = Selection.of(selection, array.shape)
    values = _make_output(array, chosen, out, name)
    prefetcher = _find_prefetcher(cache)
    if prefetcher is not None:
        prefetcher.wait_for_pending([(array, chosen)])
    if values.size:
        with context.open_sources() as opened:
            if not _read_few_chunks(array, chosen, values, opened.pool, done, cache):
                work = plan_read(array, chosen)
                planned = perf_counter()
                execute(work, values, opened.pool, name, done, cache)
    if prefetcher is not None and cache is not None:
        prefetcher.prefetch_next([(array, chosen)], cache, context.storage_options)
    done.add_seconds(planned - started, perf_counter() - started)
    if log.isEnabledFor(logging.DEBUG):
        log.debug(format_summary(array, values.shape, done, name))
    if tally is not None:
        counts = (done.requests, done.bytes_fetched, done.bytes_decoded, done.chunks)
        tally.add(*counts, done.fetch_seconds, done.decode_seconds)
        tally.add_seconds(done.plan_seconds, done.total_seconds)
    return values


def _find_prefetcher(cache: ChunkCache | PartialChunkCache | None) -> Prefetcher | None:
    """Return what reads ahead into a cache; None if nothing does."""
    if cache is None or not cache.ahead:
        return None
    from insitu.reading.prefetch import get_prefetcher

    return get_prefetcher(cache)


def read_arrays(
    requests: Sequence[Request],
    *,
    names: Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    tally: ReadStatistics | None = None,
    cache: ChunkCache | None = None,
    sources: SourcePool | None = None,
) -> list[npt.NDArray[Any]]:
    """Read selections of several arrays at once: all their chunks are fetched and decoded
    concurrently.

    Parameters
    ----------
    requests
        Pairs of an array and a selection, as for `read_array`.
    names
        Names of the variables, for error messages.
    storage_options, tally, cache
        As for `ReadContext`.
    sources
        Open sources; None: they are opened here with `storage_options`, and closed at the end.
    """
    prefetcher = _find_prefetcher(cache)
    steps: list[tuple[VirtualArray, Selection]] = []
    if prefetcher is not None:
        steps = [(array, Selection.of(part, array.shape)) for array, part in requests]
        prefetcher.wait_for_pending(steps)
    known: Sequence[str | None] = names if names is not None else [None] * len(requests)
    chosen = [Selection.of(selection, array.shape) for array, selection in requests]
    values = [
        _make_output(array, part, None, name) for (array, _), part, name in zip(requests, chosen, known, strict=True)
    ]
    with SourcePool(storage_options) if sources is None else nullcontext(sources) as opened:
        rest = [number for number, found in enumerate(values) if found.size]
        if opened.cache is None and (cache is None or isinstance(cache, PartialChunkCache)):
            whole = [number for number in rest if requests[number][1] is ...]
            small = read_small_arrays([(requests[number][0], values[number]) for number in whole], opened, tally)
            done = {whole[number] for number in small}
            rest = [number for number in rest if number not in done]
        if len(rest) == 1:
            (number,) = rest
            counts = ReadStatistics() if tally is None else tally
            if _read_few_chunks(requests[number][0], chosen[number], values[number], opened, counts, cache):
                rest = []
        jobs = [(plan_read(requests[number][0], chosen[number]), values[number], known[number]) for number in rest]
        execute_all(jobs, opened, tally, cache)
    if prefetcher is not None and cache is not None:
        prefetcher.prefetch_next(steps, cache, storage_options)
    return values


def _read_few_chunks(
    array: VirtualArray,
    selection: Selection,
    out: npt.NDArray[Any],
    opened: SourcePool,
    tally: ReadStatistics,
    cache: ChunkCache | None,
) -> bool:
    """Read a box of a few chunks of a local file; return False if that takes a plan in columns.

    After False the content of `out` is undefined.
    """
    if opened.cache is not None or not (cache is None or isinstance(cache, PartialChunkCache)):
        return False
    try:
        few = plan_few(array, selection, out)
        if few is not None:
            execute_few(few, opened, tally, cache)
    except InsituError:
        return False  # the plan meets the same error, and says which chunk it concerns
    return few is not None


def _example_selection(array: VirtualArray, most: int = 256 << 20) -> str:
    """Return a selection of at most `most` bytes, as text for an error message."""
    parts: list[str] = []
    for axis, length in enumerate(array.shape):
        rest = math.prod(array.shape[axis + 1 :]) * max(array.dtype.itemsize, 1)
        if rest * length <= most:
            break
        fits = most // rest
        parts.append(f"0:{fits}" if fits else "0")
        if fits:
            break
    return ", ".join([*parts, *([":"] * (array.ndim - len(parts)))])


def _make_output(
    array: VirtualArray, chosen: Selection, out: npt.NDArray[Any] | None, name: str | None
) -> npt.NDArray[Any]:
    """Return the array to fill: a new one, or `out` after checking it."""
    shape = chosen.result_shape
    if out is None:
        return allocate_output(shape, array, name)
    if out.shape != shape:
        raise SelectionError(f"out has shape {out.shape}, but the selection has shape {shape}")
    if not np.can_cast(array.dtype, out.dtype, "same_kind"):
        raise SelectionError(f"values of {array.dtype} cannot be put into an array of {out.dtype}")
    return out


def allocate_output(shape: tuple[int, ...], array: VirtualArray, name: str | None) -> npt.NDArray[Any]:
    """Return a new array for values of `array`, a variable called `name`.

    Raises
    ------
    SelectionSizeError
        If there is not so much memory.
    """
    try:
        return allocate_aligned(shape, array.dtype)
    except (MemoryError, ValueError):  # ValueError: more bytes than the address space has
        nbytes = math.prod(shape) * array.dtype.itemsize
        raise SelectionSizeError(
            f"the selection of shape {shape} needs {nbytes / 2**30:,.1f} GiB, more than the available memory",
            hint=f"Select less, e.g. [{_example_selection(array)}], or reduce it without loading it",
            variable=name,
        ) from None
