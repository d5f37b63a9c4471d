"""`copy_tree`: a tree of variables as a native copy; what archives, datasets and the command line call."""

from __future__ import annotations

import hashlib
import json
import pickle
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from insitu.copying.append_plan import plan_append
from insitu.copying.append_targets import open_append
from insitu.copying.copy_boxes import BoxCopier, copy_array, encoding_threads, pass_through
from insitu.copying.copy_options import CopyOptions, target_kind
from insitu.copying.copy_plan import CopyPlan
from insitu.copying.journal import Finished
from insitu.copying.open_target import open_target
from insitu.copying.repacking import Repacking
from insitu.copying.stored_forms import stored_forms
from insitu.copying.target_arrays import TargetArray, make_target_arrays
from insitu.copying.targets import forget_missing
from insitu.copying.two_passes import copy_between
from insitu.copying.verify import verify_target
from insitu.engines.choose import engine_for
from insitu.expressions.formula_text import formula
from insitu.expressions.nodes import Constant, Expression, iterate_nodes, stored_arrays
from insitu.model import VirtualGroup
from insitu.model.description import format_bytes
from insitu.process_options import options as process_options
from insitu.reading import ReadContext
from insitu.scanning.scan_member import make_loader

__all__ = ["CopyReport", "copy_tree", "digest_of", "execute_copy", "plan_copy"]

ALREADY_COMPLETE = "an earlier run of the same copy has completed it; nothing was written or verified now"


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What a copy has written."""

    target: str
    objects: int
    """Chunks or shards of the target."""
    continued: int
    """How many of them an interrupted run had written."""
    nbytes: int
    """Bytes of the objects."""
    values: int
    """Bytes of the values."""
    seconds: float
    notes: tuple[str, ...] = ()
    """What is stored in another way than in the source, and why."""
    verified: int = 0
    """Objects that were read back and compared."""
    errors: Mapping[str, float] = field(default_factory=dict)
    """Of variables that were packed anew: by how much a value has changed at most."""

    def as_dict(self) -> dict[str, Any]:
        """Return the report as numbers and texts, for JSON."""
        return {**asdict(self), "notes": list(self.notes), "errors": dict(self.errors)}

    def __str__(self) -> str:
        if not self.objects and self.notes:
            return "\n".join(f"{self.target}: {note}" for note in self.notes)
        rate = self.values / max(self.seconds, 1e-9)
        done = f"{self.target}: {format_bytes(self.values)} in {self.objects:,} objects of {format_bytes(self.nbytes)}"
        text = f"{done}, {self.seconds:.1f} s, {format_bytes(int(rate))}/s"
        text += f", {self.continued:,} of them were there from an earlier run" if self.continued else ""
        text += f", {self.verified:,} verified" if self.verified else ""
        lines = [text, *self.notes]
        lines += [f"{name}: packed anew, the largest error is {error:.3g}" for name, error in self.errors.items()]
        return "\n".join(lines)


def plan_copy(
    tree: VirtualGroup,
    target: str,
    options: CopyOptions,
    *,
    formulas: Mapping[str, Expression] | None = None,
    context: ReadContext | None = None,
) -> CopyPlan:
    """Return the plan of a copy: everything is checked, and nothing is written.

    The parameters are those of `copy_tree`.
    """
    kind = target_kind(target)
    how = context or ReadContext()
    load = make_loader(how.storage_options)
    if options.append and (existing := open_append(target, kind, options)) is not None:
        existing.check(tree)
        there = existing.read()
        append = plan_append(tree, there, options, formulas=formulas or {}, context=how, load=load)
        existing.set_plan(there, append)
        return CopyPlan(existing, append.arrays, {}, options, how, append)
    forms, groups = stored_forms(
        tree, formulas or {}, how, load, typed_attributes=kind == "netcdf", repack=options.repack
    )
    place = open_target(target, kind, options)
    place.check(tree)
    arrays = make_target_arrays(forms, options, kind)
    place.check_arrays(arrays, groups)
    return CopyPlan(place, tuple(arrays), groups, options, how)


def copy_tree(
    tree: VirtualGroup,
    target: str,
    options: CopyOptions,
    *,
    formulas: Mapping[str, Expression] | None = None,
    context: ReadContext | None = None,
) -> CopyReport:
    """Copy variables into a native store or file, which appears whole or not at all.

    Parameters
    ----------
    tree
        The variables as they are meant.
    target
        A path or URL that ends in `.zarr`, `.icechunk` or `.nc`.
    options
        How.
    formulas
        By path, what is computed instead of read: the tree has a placeholder there.
    context
        How values are read.
    """
    begun = time.perf_counter()
    if options.append and (existing := open_append(target, target_kind(target), options)) is not None:
        existing.finish_interrupted()
    return execute_copy(plan_copy(tree, target, options, formulas=formulas, context=context), begun)


def execute_copy(plan: CopyPlan, begun: float | None = None) -> CopyReport:
    """Do what a plan says; an interrupted run of the same plan goes on where it was.

    Parameters
    ----------
    plan
        Of `plan_copy`.
    begun
        When planning began, by `time.perf_counter`.
    """
    begun = time.perf_counter() if begun is None else begun
    options = plan.options
    if plan.append is not None and not plan.append.labels:
        plan.target.forget()
        return CopyReport(plan.target.url, 0, 0, 0, 0, time.perf_counter() - begun, plan.notes)
    engine = engine_for(process_options.engine if options.engine is None else options.engine)
    total = sum(array.nbytes for array in plan.arrays)
    done = _Progress(options, total)
    question = digest_of(plan)
    with plan.target.staging(question) as journal:
        if journal.finished and not plan.target.is_published:
            forget_missing(journal, plan.arrays, plan.target.writer)
        continued = len(journal.finished)
        with encoding_threads() as pool:
            for number, array in enumerate(plan.arrays):
                copier = BoxCopier(array, number, plan.target.writer)
                if array.through is not None:
                    pass_through(copier, journal, pool, done.add, plan.context.storage_options)
                    continue
                with copy_between(plan.target, copier, question, pool, engine) as node:
                    copy_array(copier, node, array.passes.last, journal, pool, done.add, engine)
        records = list(journal.finished.values())
        plan.target.complete(plan.arrays, plan.groups, journal)
        is_ready = plan.target.is_published  # its objects are at their places, where this run does not read them
        verified = verify_target(plan.target, plan.arrays, journal) if options.verify and not is_ready else 0
        plan.target.publish()
    notes = (*plan.notes, *([ALREADY_COMPLETE] if is_ready else ()))
    return CopyReport(
        plan.target.url,
        len(records),
        continued,
        sum(record.nbytes for record in records),
        total,
        time.perf_counter() - begun,
        notes,
        verified,
        _errors(plan.arrays, records),
    )


def _errors(arrays: Sequence[TargetArray], records: Sequence[Finished]) -> dict[str, float]:
    return {
        array.path: max((record.error for record in records if record.array == number), default=0.0)
        for number, array in enumerate(arrays)
        if isinstance(array.form.repacking, Repacking)
    }


class _Progress:
    """Adds up what threads have done."""

    def __init__(self, options: CopyOptions, total: int) -> None:
        self._report = options.progress
        self._total = total
        self._done = 0
        self._lock = threading.Lock()

    def add(self, nbytes: int) -> None:
        """Count bytes of values."""
        with self._lock:
            self._done += nbytes
            if self._report is not None:
                self._report(min(self._done, self._total), self._total)


def digest_of(plan: CopyPlan) -> bytes:
    """Return a digest of what is copied and how: an interrupted copy goes on only if it is the same."""
    mark = hashlib.sha256()
    mark.update(json.dumps([plan.target.kind, plan.options.zarr_format]).encode())
    for array in plan.arrays:
        form = array.form
        about: list[Any] = [
            form.path,
            form.dims,
            form.shape,
            form.dtype.str,
            array.chunks,
            array.shards,
            array.extension and (array.extension.axis, array.extension.first, array.extension.length),
        ]
        about += [[codec.name, dict(codec.configuration)] for codec in array.encoding.codecs]
        about += [array.through is not None, repr(sorted(form.attributes.items(), key=lambda item: item[0]))]
        mark.update(json.dumps(about, default=repr).encode())
        for node in (form.node, *_front(array)):
            for part in _parts(node):
                mark.update(part)
    mark.update(repr(sorted((path, repr(found)) for path, found in plan.groups.items())).encode())
    return mark.digest()


def _front(array: TargetArray) -> list[Expression]:
    """Return the values of the target that stay in front of those that are appended."""
    return [] if array.extension is None or array.extension.front is None else [array.extension.front]


def _parts(node: Expression) -> Iterator[bytes]:
    """Yield what tells an expression from others: formula, constants, sources, and where some chunks lie."""
    yield formula(node).encode()
    for constant in iterate_nodes([node]):
        if isinstance(constant, Constant):
            yield pickle.dumps(constant.values) if constant.values.dtype.hasobject else constant.values.tobytes()
    for stored in stored_arrays(node):
        for tile, origin in zip(stored.array.tiles, stored.array.origins.tolist(), strict=True):
            yield repr((origin, tile.shape)).encode()
            shape = tile.chunks.shape
            count = int(np.prod(shape, dtype=object))
            if not count:
                continue
            numbers = np.unique(np.linspace(0, count - 1, min(count, 64)).astype(np.int64))
            rows = tile.chunks.locate(list(np.unravel_index(numbers, shape)) if shape else [])
            for column in (rows.source, rows.offset, rows.length):
                yield np.asarray(column).astype(np.int64).tobytes()
            yield bytes(rows.inline)[: 1 << 20]
        for source in stored.array.sources:
            yield repr((source.url, source.size, source.etag, source.modified)).encode()
