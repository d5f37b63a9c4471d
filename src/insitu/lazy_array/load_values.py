"""Loading of `LazyArray` values: at once, or as a Dask array above `options.read_limit`."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
from xarray.core import indexing  # no public name: see duck_array

from insitu.errors import InsituError
from insitu.expressions.evaluate import read_all, read_and_keep
from insitu.expressions.nodes import Expression, Stored, to_rows
from insitu.lazy_array.deferred_values import DeferredValues
from insitu.process_options import options
from insitu.scanning.member import in_memory

__all__ = [
    "ReadOnlyError",
    "TooLargeError",
    "fingerprint",
    "own_values_or_dask",
    "refuse_write",
    "to_dask",
    "values_or_dask",
    "write_values",
]


def values_or_dask(array: DeferredValues) -> Any:
    """Return the values, or a Dask array where they exceed `read_limit`."""
    at_hand = array.find_at_hand()
    if at_hand is not None:
        return at_hand
    if array.nbytes <= array.read_limit:
        return read_and_keep(array.node)
    if find_spec("dask") is None:
        if array.nbytes <= options.read_limit:
            return read_and_keep(array.node)
        raise TooLargeError(
            f"this would read {array.nbytes / 2**30:.1f} GiB at once, more than insitu.options.read_limit",
            hint="Select less, call load() to read it anyway, raise the limit, or pip install 'insitu[dask]' (then it "
            "becomes a Dask array)",
        )
    return to_dask(array)


def own_values_or_dask(array: DeferredValues) -> Any:
    """Return values that the function of a user may write to, or a Dask array where they exceed `read_limit`.

    They lie in memory as those lie that they are copied from: compilers such as Numba make code for each order.
    """
    values = values_or_dask(array)
    return values.copy("K") if isinstance(values, np.ndarray) and not values.flags.writeable else values


def write_values(array: DeferredValues, key: Any, value: Any) -> None:
    """Write to an array: it reads its values, changes them, and carries them from then on.

    Raises
    ------
    ReadOnlyError
        If it is a view: the array that it was selected from would not change.
    TooLargeError
        If there are more values than may be read at once.
    """
    if array.is_view:
        raise refuse_write("this array is a part of another virtual array, which would not change")
    if array.nbytes > array.read_limit:
        raise TooLargeError(
            f"writing to this variable would read {array.nbytes / 2**30:.1f} GiB, more than insitu.options.read_limit",
            hint="Select what you need first, use where(), or call load() to read it anyway",
        )
    values = read_all([array.node])[0]
    if isinstance(key, indexing.ExplicitIndexer):
        inside: Any = indexing
        inside.set_with_indexer(inside.NumpyIndexingAdapter(values), key, value)
    else:
        values[key] = value
    carried = in_memory(values)
    if carried is None:
        raise TypeError(f"values of {values.dtype} cannot be written to in place: load() the variable first")
    array.node = Stored(carried, array.context)  # what was derived from it before keeps the old one


class ReadOnlyError(InsituError, ValueError):
    """A virtual array cannot be written to there: the write would not reach the array that is meant."""


def refuse_write(reason: str) -> ReadOnlyError:
    """Return the error for a write that would vanish."""
    return ReadOnlyError(
        f"the destination is read-only: {reason}",
        hint="Write to a copy (.copy()) or to the values (np.asarray); in xarray to the variable itself: "
        "da[0, 1] = value, not da[0][1] = value",
    )


class TooLargeError(InsituError, MemoryError):
    """An operation would read more than the limit, and Dask is not installed to split it."""


def to_dask(array: DeferredValues, chunks: Any = None, *, inline_array: bool = False) -> Any:
    """Return the values as a Dask array.

    Parameters
    ----------
    array
        The array.
    chunks
        Lengths of the blocks, in one of Dask's forms; None or `"auto"`: whole stored chunks, about 128 MiB
        of them (`insitu.lazy_array.dask_blocks`). Chunks that blocks cut are decoded once, as far as
        memory allows that.
    inline_array
        As for `dask.array.from_array`.
    """
    # Not at the top: only Dask needs them.
    from insitu.engines.dask import import_dask
    from insitu.expressions.chunk_grid import uniform_chunks
    from insitu.lazy_array.dask_blocks import choose_blocks, choose_reads

    dask_array = import_dask("dask.array", "chunks=")
    if chunks is None or (isinstance(chunks, str) and chunks == "auto"):
        chunks = choose_blocks(array.node)
    else:
        chunks = dask_array.core.normalize_chunks(
            chunks, shape=array.shape, dtype=array.dtype, previous_chunks=uniform_chunks(array.node)
        )
    reads = choose_reads(array.node, chunks)
    name = f"insitu-{fingerprint(array.node, reads)}"
    meta = np.empty((0,) * array.ndim, array.dtype)
    read = dask_array.from_array(_BlockReader(array), chunks=reads, name=name, meta=meta, inline_array=inline_array)
    return read if reads == chunks else read.rechunk(chunks)


@dataclass(frozen=True, slots=True)
class _BlockReader:
    """Source of a Dask array's blocks.

    A selection gives values (Dask would pass a virtual array on unread).
    """

    array: DeferredValues

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        block = self.array[key]
        return (
            read_all([block.node], once=True)[0] if isinstance(block, DeferredValues) else block
        )  # Dask keeps what it needs


def fingerprint(expression: Expression, *more: Any) -> str:
    """Return a hash of an expression, and of what else is given: the same for equal ones only."""
    rows = to_rows(expression, with_contexts=False)
    return hashlib.blake2b(pickle.dumps((rows, *more)), digest_size=16).hexdigest()
