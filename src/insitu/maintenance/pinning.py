"""Pin parts of a saved archive: store them as native chunks inside the store, from which they are read.

A pinned part is a tile of the mosaic whose chunks lie inside the store: readers need to know nothing of it. The store
keeps what its files hold beside it, so every change of the archive works on the files, and a part can be unpinned.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from insitu.copying import CopyOptions, CopyPlan, CopyReport
from insitu.copying.native_chunks import KINDS, NativePlan, plan_native_chunks
from insitu.errors import SelectionError, UnsupportedError, VariableError
from insitu.maintenance.carry_pinned import nest_pinned, open_for_update
from insitu.maintenance.conflicts import ATTEMPTS, lost_race_error
from insitu.model import VirtualArray, VirtualGroup, count_cells
from insitu.model.description import count_text, format_bytes
from insitu.model.group import hint_for_names
from insitu.model.overlay import Bounds, overlay
from insitu.reading import ReadContext
from insitu.references.store.native_names import native_url

__all__ = ["PinReport", "PinnedPart", "find_pinned", "pin", "unpin"]


@dataclass(frozen=True, slots=True)
class PinnedPart:
    """A box of a variable whose chunks lie inside the store."""

    variable: str
    dims: tuple[str, ...]
    box: Bounds
    """Begin and end along each dimension."""
    chunks: int
    nbytes: int
    """Bytes of the chunks."""

    def as_dict(self) -> dict[str, Any]:
        """Return the part as numbers and texts, for JSON."""
        box = {dim: list(span) for dim, span in zip(self.dims, self.box, strict=True)}
        return {"variable": self.variable, "box": box, "chunks": self.chunks, "bytes": self.nbytes}

    def __str__(self) -> str:
        box = ", ".join(f"{dim} {begin}:{end}" for dim, (begin, end) in zip(self.dims, self.box, strict=True))
        return f"{self.variable} [{box}]: {count_text(self.chunks, 'chunk')} of {format_bytes(self.nbytes)}"


@dataclass(frozen=True, slots=True)
class PinReport:
    """What pinning or unpinning did."""

    target: str
    parts: tuple[PinnedPart, ...]
    """All that is pinned now."""
    copy: CopyReport | None = None
    """What was written; None: nothing had to be."""
    notes: tuple[str, ...] = ()
    """What was not pinned, and why."""

    def as_dict(self) -> dict[str, Any]:
        """Return the report as numbers and texts, for JSON."""
        return {
            "target": self.target,
            "pinned": [part.as_dict() for part in self.parts],
            "written": 0 if self.copy is None else self.copy.nbytes,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        total = format_bytes(sum(part.nbytes for part in self.parts))
        written = "" if self.copy is None else f", {format_bytes(self.copy.nbytes)} of them written now"
        head = f"{self.target}: {total} pinned{written}" if self.parts else f"{self.target}: nothing is pinned"
        return "\n".join([head, *map(str, self.parts), *self.notes])


def find_pinned(target: str, *, storage_options: Mapping[str, Any] | None = None) -> tuple[PinnedPart, ...]:
    """Return what is pinned in a saved archive; nothing in references of other formats."""
    from insitu import references

    if references.detect_format(target) != "insitu":
        return ()
    return list_parts(references.open_for_update(target, storage_options=storage_options).pinned)


def list_parts(pinned: VirtualGroup) -> tuple[PinnedPart, ...]:
    """Return the parts that pinned arrays consist of."""
    found = []
    for path, array in pinned.all_arrays():
        for tile, origin in zip(array.tiles, array.origins.tolist(), strict=True):
            box = tuple((at, at + length) for at, length in zip(origin, tile.shape, strict=True))
            counts = count_cells(replace(array, tiles=(tile,), origins=np.array([origin], np.int64)))
            found.append(PinnedPart(path, array.dims, box, counts.stored, counts.nbytes))
    return tuple(found)


def pin(
    target: str,
    boxes: Mapping[str, Bounds],
    options: CopyOptions,
    *,
    is_chosen: bool = True,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> PinReport | CopyPlan:
    """Store parts of variables as native chunks inside the store.

    The parts are copied from the files, also where they are pinned in other chunks already. Killed at any time, the
    store is the old one or the new one; the same call goes on where it was.

    Parameters
    ----------
    target
        An insitu store.
    boxes
        By path of the variable: begin and end along each dimension.
    options
        Chunks, codec, memory and progress.
    is_chosen
        Whether the variables were named: else those that cannot be pinned are left out with a note.
    dry_run
        Whether only the plan is returned.
    storage_options
        See `insitu.scan`.
    """
    target = os.path.abspath(target) if "://" not in target else target
    opened = open_for_update(target, storage_options)
    arrays = dict(opened.tree.all_arrays())
    chosen, notes = _choose(arrays, boxes, target, is_chosen)
    parts = {path: arrays[path][tuple(slice(*span) for span in box)] for path, box in chosen.items()}
    context = ReadContext(None, storage_options)
    plan = plan_native_chunks(
        parts,
        native_url(target),
        replace(options, storage_options=storage_options),
        context,
        mark=str(opened.store.opened.document["id"]),  # a folder that an earlier state names is never written again
    )
    if dry_run:
        return plan.copy
    if not plan.copy.arrays or _is_pinned(plan, chosen, opened.pinned):
        return PinReport(target, list_parts(opened.pinned), None, notes)
    done: list[VirtualGroup] = []

    def publish(native: Sequence[VirtualArray]) -> None:
        done.append(_publish(target, arrays, dict(zip(chosen, native, strict=True)), chosen, storage_options))

    report = plan.execute(publish)
    return PinReport(target, list_parts(done[-1]), report, notes)


def unpin(
    target: str, variables: Sequence[str] | None = None, *, storage_options: Mapping[str, Any] | None = None
) -> PinReport:
    """Read variables from the files again, all if none are named. The chunks stay until `compact`.

    Raises
    ------
    VariableError
        If a variable has no pinned part.
    """
    for _ in range(ATTEMPTS):
        opened = open_for_update(target, storage_options)
        pinned = dict(opened.pinned.all_arrays())
        names = list(pinned) if variables is None else [name.strip("/") for name in variables]
        for name in names:
            if name not in pinned:
                hint = f"Pinned are: {', '.join(pinned)}" if pinned else "Nothing is pinned"
                raise VariableError(f"no part of {name!r} is pinned", url=target, hint=hint)
        rest = nest_pinned({path: array for path, array in pinned.items() if path not in names})
        if not names or opened.replace(opened.tree, pinned=rest):
            return PinReport(target, list_parts(rest))
    raise lost_race_error(target)


def _choose(
    arrays: Mapping[str, VirtualArray], boxes: Mapping[str, Bounds], target: str, is_chosen: bool
) -> tuple[dict[str, Bounds], tuple[str, ...]]:
    """Return which boxes are pinned, and notes of what is not."""
    found: dict[str, Bounds] = {}
    notes = []
    for path, box in boxes.items():
        if path not in arrays:
            raise VariableError(f"no variable {path!r}", url=target, hint=hint_for_names(list(arrays), [path]))
        array = arrays[path]
        if any(begin >= end for begin, end in box):
            if is_chosen:
                raise SelectionError("the selection is empty", variable=path, url=target)
        elif not count_cells(array[tuple(slice(*span) for span in box)]).stored:
            notes.append(f"{path}: nothing to pin: its values are in the store already")
        elif array.dtype.kind not in KINDS and not is_chosen:
            notes.append(f"{path}: values of type {array.dtype} cannot be pinned")
        else:
            found[path] = box
    return found, tuple(notes)


def _is_pinned(plan: NativePlan, boxes: Mapping[str, Bounds], pinned: VirtualGroup) -> bool:
    """Return whether all of it is pinned already, in the same chunks."""
    arrays = dict(pinned.all_arrays())
    for number, (path, box) in enumerate(boxes.items()):
        if path not in arrays:
            return False
        corner = [begin for begin, _ in box]
        array = arrays[path]
        if not any(
            origin == corner and plan.has_chunks_of(number, tile)
            for tile, origin in zip(array.tiles, array.origins.tolist(), strict=True)
        ):
            return False
    return True


def _publish(
    target: str,
    before: Mapping[str, VirtualArray],
    native: Mapping[str, VirtualArray],
    boxes: Mapping[str, Bounds],
    storage_options: Mapping[str, Any] | None,
) -> VirtualGroup:
    """Show native chunks in the store, in one step; return all that is pinned then.

    Where another writer has changed the files below them since they were copied, they are not shown.
    """
    made = {}
    for path, array in native.items():
        shown = before[path]
        origin = np.array([[begin for begin, _ in boxes[path]]], np.int64)
        made[path] = VirtualArray(
            shown.shape, shown.dtype, shown.dims, array.tiles, origin, fill_value=shown.fill_value
        )
    copied_from = nest_pinned(before)
    for _ in range(ATTEMPTS):
        opened = open_for_update(target, storage_options)
        valid = dict(opened.carry_pinned(copied_from, opened.tree, nest_pinned(made)).all_arrays())
        held = dict(opened.pinned.all_arrays())
        whole = nest_pinned(
            {
                path: overlay(held[path], array) if path in held and path in valid else array
                for path, array in {**held, **valid}.items()
            }
        )
        if opened.replace(opened.tree, pinned=whole):
            return whole
    raise lost_race_error(target)


def check_format(target: str) -> None:
    """Raise an error if something else than an insitu store lies at a URL."""
    from insitu import references

    if references.detect_format(target) != "insitu":
        raise UnsupportedError(
            "only an insitu store can hold pinned parts",
            url=target,
            hint="Save the archive as one first: insitu scan FILES -o x.insitu",
        )
