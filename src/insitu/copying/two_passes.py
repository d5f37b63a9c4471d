"""The first of two passes: an array between source and target, on the disk beside the target."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from insitu.copying.choose_codecs import choose_codecs
from insitu.copying.copy_boxes import BoxCopier, copy_array
from insitu.copying.journal import Journal
from insitu.copying.object_writers import FolderWriter
from insitu.copying.sweeps import Passes
from insitu.copying.target_arrays import TargetArray
from insitu.copying.targets import Target, forget_missing
from insitu.engines.engine_protocol import Engine
from insitu.expressions.nodes import Expression, Stored
from insitu.model import Axis, Columns, Encoding, Source, Tile, VirtualArray
from insitu.reading import ReadContext
from insitu.zarr_metadata.keys import ChunkKeys

__all__ = ["copy_between"]


@contextmanager
def copy_between(
    target: Target, copier: BoxCopier, question: bytes, pool: Executor, engine: Engine | None
) -> Iterator[Expression]:
    """Give what the last pass reads: the source, or the array that a first pass has written.

    Parameters
    ----------
    target
        Says where the array between lies.
    copier
        Of the array in the target.
    question
        The digest of the copy: the array of an interrupted run is taken if it is the same.
    pool, engine
        As for `copy_array`.
    """
    array = copier.array
    passes = array.passes
    if passes.first is None or _is_finished(array, copier.number, target):
        yield array.form.node
        return
    node = array.form.node
    folder = target.scratch(f"between-{copier.number}")
    writer = FolderWriter(folder)
    dtype = node.dtype if node.dtype.hasobject else node.dtype.newbyteorder("<")
    form = replace(array.form, repacking=None, dtype=dtype)
    encoding = Encoding(dtype, choose_codecs("zstd:1", dtype, "zarr3"))
    between = replace(
        array,
        form=form,
        chunks=passes.between,
        shards=None,
        encoding=encoding,
        passes=Passes(passes.first),
        keys=ChunkKeys("/", "c"),
        through=None,
        extension=None,
    )
    os.makedirs(folder, exist_ok=True)
    journal = Journal(Path(folder) / "journal", question)
    try:
        forget_missing(journal, [between], writer)
        copy_array(BoxCopier(between, 0, writer), node, passes.first, journal, pool, lambda _: None, engine)
        lengths = {number: record.nbytes for number, record in journal.of_array(0).items()}
        yield Stored(_as_array(between, writer, lengths), ReadContext(array.path))
    finally:
        journal.close()
    writer.clear()


def _is_finished(array: TargetArray, number: int, target: Target) -> bool:
    journal = target.journal
    return journal is not None and len(journal.of_array(number)) == math.prod(array.grid)


def _as_array(array: TargetArray, writer: FolderWriter, lengths: dict[int, int]) -> VirtualArray:
    """Return the array between the passes as one that is read like any other."""
    cells = list(itertools.product(*map(range, array.grid)))
    sources = tuple(Source(writer.path(array.key(cell)), size=lengths[array.number(cell)]) for cell in cells)
    count = len(cells)
    nbytes = np.array([lengths[array.number(cell)] for cell in cells], np.int64).reshape(array.grid)
    table = Columns(array.grid, sources, np.arange(count).reshape(array.grid), np.zeros(array.grid, np.int64), nbytes)
    axes = tuple(Axis.regular(length, size) for length, size in zip(array.shape, array.chunks, strict=True))
    return VirtualArray.of(Tile(axes, (array.encoding,), table), dims=array.form.dims)
