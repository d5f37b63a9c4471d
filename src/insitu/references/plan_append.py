"""Plan an append: find the steps of a dimension that are new, and refuse those that do not match.

Appending is idempotent. A step whose bytes (source, offset, element of the chunk) the archive holds
already is skipped and reported. An error is raised if a source changed since it was saved, if the
archive holds a label already from another file, or if new labels would break its order. Nothing is
written here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import ModelError, StaleSourceError
from insitu.model import VirtualArray, VirtualGroup
from insitu.references.chunk_places import (
    SourceNumbers,
    iter_sources,
    iter_step_places,
    join_step_places,
    used_urls,
)
from insitu.references.urls import absolute_url

__all__ = [
    "AppendPlan",
    "AppendReport",
    "Reader",
    "changed_source_error",
    "check_new_labels",
    "find_held_steps",
    "format_label",
    "plan_append",
]

Reader = Callable[[VirtualArray], npt.NDArray[Any]]
"""Reads the values of an array."""
_LABEL_ATTRIBUTES = ("units", "calendar", "scale_factor", "add_offset")
_LABELS_SHOWN = 3
_COMBINE_ANEW = "Combine the archive anew from all its files: insitu.open_mfdataset(...), then save"


@dataclass(frozen=True, slots=True)
class AppendReport:
    """What an append did."""

    target: str
    dim: str
    steps: int
    """How many elements of the dimension were added; 0: nothing was written."""
    added: tuple[str, ...]
    """The sources that were added."""
    skipped: tuple[str, ...]
    """The sources that the archive held already, unchanged."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Files that could not be read, and why; only where errors are not raised."""
    shadowed: tuple[str, ...] = ()
    """Of the sources that were added, those of which nothing is shown: others give all their labels."""

    def __str__(self) -> str:
        lines = [f"{self.target}: {self.steps:,} step{'' if self.steps == 1 else 's'} of {self.dim} more"]
        lines += [f"skipped, already there: {url}" for url in self.skipped]
        lines += [f"shadowed by other files: {url}" for url in self.shadowed]
        lines += [f"left out: {url}: {reason}" for url, reason in self.left_out.items()]
        return "\n".join(lines)


@dataclass(slots=True)
class AppendPlan:
    """What remains to be appended."""

    group: VirtualGroup | None
    """The new steps; None: there are none."""
    steps: int = 0
    added: dict[str, None] = field(default_factory=dict)
    skipped: dict[str, None] = field(default_factory=dict)

    def report(self, target: str, dim: str) -> AppendReport:
        """Return the report of an append that carried out this plan."""
        skipped = tuple(url for url in self.skipped if url not in self.added)
        return AppendReport(target, dim, self.steps, tuple(self.added), skipped)


def plan_append(
    old: VirtualGroup, new: VirtualGroup, dim: str, *, target: str, read: Reader | None = None
) -> AppendPlan:
    """Return the steps of `new` along `dim` that `old` does not hold yet.

    Parameters
    ----------
    old, new
        What is saved, and what is to come behind it.
    dim
        The dimension that grows.
    target
        Where `old` is saved, for messages.
    read
        Reads labels, so that they can be compared; None: labels are not compared.

    Raises
    ------
    StaleSourceError
        If a source of `new` is in `old` with another identity.
    ModelError
        If labels overlap, break the order of the dimension, or differ along another dimension.
    """
    plan = AppendPlan(None)
    plan.group = _plan_group(old, new, dim, target, read, plan)
    if not plan.steps and plan.skipped:
        plan.group = None
    return plan


def _plan_group(
    old: VirtualGroup, new: VirtualGroup, dim: str, target: str, read: Reader | None, plan: AppendPlan
) -> VirtualGroup:
    arrays = {name: array for name, array in new.arrays.items() if dim in array.dims}
    length = max((array.shape[array.dims.index(dim)] for array in arrays.values()), default=0)
    keep = np.ones(length, bool)
    known = {name: array for name, array in old.arrays.items() if dim in array.dims}
    if arrays and known:
        there, elsewhere = find_held_steps(known, arrays, dim, length, target)
        keep &= ~there | elsewhere
        if read is not None:
            _compare_labels(old, new, dim, keep, read, target)
            _compare_other_labels(old, new, dim, read, target)
        if (torn := there & elsewhere).any():
            raise ModelError(
                f"step {int(np.flatnonzero(torn)[0])} of {dim!r} comes from several files, and {target} "
                "holds only some of them",
                url=_file_of_step(arrays, dim, int(np.flatnonzero(torn)[0])),
                hint=_COMBINE_ANEW,
            )
    plan.steps = max(plan.steps, int(keep.sum()))
    if not keep.all():
        chosen = np.flatnonzero(keep)
        arrays = {name: _take_steps(array, dim, chosen) for name, array in arrays.items()}
    for array in arrays.values():
        plan.added |= dict.fromkeys(absolute_url(url) for url in used_urls(array))
    if not keep.all():
        dropped = np.flatnonzero(~keep)
        for name in arrays:
            plan.skipped |= dict.fromkeys(
                absolute_url(url) for url in used_urls(_take_steps(new.arrays[name], dim, dropped))
            )
    groups = {
        name: _plan_group(old.groups[name], inner, dim, target, read, plan) if name in old.groups else inner
        for name, inner in new.groups.items()
    }
    return replace(new, arrays={**new.arrays, **arrays}, groups=groups)


def _take_steps(array: VirtualArray, dim: str, chosen: npt.NDArray[np.intp]) -> VirtualArray:
    axis = array.dims.index(dim)
    if len(chosen) and chosen[-1] - chosen[0] == len(chosen) - 1:
        key: Any = slice(int(chosen[0]), int(chosen[-1]) + 1)
        return array[(slice(None),) * axis + (key,)]
    return array.take(axis, chosen)


def find_held_steps(
    old: Mapping[str, VirtualArray], new: Mapping[str, VirtualArray], dim: str, length: int, target: str
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return two masks of the steps of `new`: `old` holds bytes of it; it has bytes that `old` does
    not hold.
    """
    there, elsewhere = np.zeros(length, bool), np.zeros(length, bool)
    wanted = {absolute_url(source.url): source for array in new.values() for source in array.sources}
    if not wanted:
        return there, elsewhere
    numbers: dict[str, int] = {}
    for source in iter_sources(old.values()):
        url = absolute_url(source.url)
        if (now := wanted.get(url)) is None:
            continue
        if (found := source.compare(now)).same is False:
            raise changed_source_error(target, url, found.reason)
        numbers.setdefault(url, len(numbers))
    if not numbers:
        return there, elsewhere
    called: SourceNumbers = {}
    for name, array in new.items():
        if name not in old:
            continue
        position, key = join_step_places(iter_step_places(array, dim, numbers, called))
        _, existing = join_step_places(iter_step_places(old[name], dim, numbers, called))
        known = _isin_rows(key, existing)
        there[position[known]] = True
        elsewhere[position[~known]] = True
        outside, _ = join_step_places(iter_step_places(array, dim, numbers, called, outside=True))
        elsewhere[outside] = True
    return there, elsewhere


def changed_source_error(target: str, url: str, reason: str) -> StaleSourceError:
    """Return the error for a file that an archive holds in an earlier version."""
    return StaleSourceError(
        f"{target} holds an earlier version of this file: {reason}",
        url=url,
        hint=f"Bring the archive up to date first: insitu refresh {target}",
    )


def _isin_rows(rows: npt.NDArray[np.int64], among: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    if not len(rows) or not len(among):
        return np.zeros(len(rows), bool)
    _, at = np.unique(np.concatenate([rows, among]), axis=0, return_inverse=True)
    at = at.reshape(-1)
    return np.isin(at[: len(rows)], at[len(rows) :])


def _is_equal(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    first, second = np.asarray(one), np.asarray(other)
    if first.shape != second.shape:
        return False
    return bool(np.all((first == second) | ((first != first) & (second != second))))


def _index_array(group: VirtualGroup, dim: str) -> VirtualArray | None:
    array = group.arrays.get(dim)
    return array if array is not None and array.dims == (dim,) else None


def _compare_labels(
    old: VirtualGroup, new: VirtualGroup, dim: str, keep: npt.NDArray[np.bool_], read: Reader, target: str
) -> None:
    """Raise if new labels repeat labels of the archive, or would come behind later ones."""
    one, two = _index_array(old, dim), _index_array(new, dim)
    if one is None or two is None or not keep.any():
        return
    if not all(_is_equal(one.attributes.get(key), two.attributes.get(key)) for key in _LABEL_ATTRIBUTES):
        return  # counted from another day: stored values do not compare, which another check refuses
    at = np.flatnonzero(keep)
    arrays = {name: _take_steps(array, dim, at) for name, array in new.arrays.items() if dim in array.dims}
    check_new_labels(
        np.asarray(read(one)), np.asarray(read(two))[keep], arrays, dim, target, one.attributes.get("units")
    )


def check_new_labels(
    existing: npt.NDArray[Any],
    added: npt.NDArray[Any],
    arrays: Mapping[str, VirtualArray],
    dim: str,
    target: str,
    units: Any = None,
    *,
    in_any_order: bool = False,
) -> None:
    """Raise `ModelError` if an archive holds a label already, or if new labels repeat or break its
    order.

    Parameters
    ----------
    held, added
        The labels of the archive, and the new ones.
    arrays
        The new arrays, to name their files in errors.
    dim, target
        The dimension, and where the archive is saved.
    units
        Units of numeric labels, for messages.
    in_any_order
        Whether new labels may come before or between those of the archive.
    """
    unit = f" {units}" if isinstance(units, str) and existing.dtype.kind in "iuf" else ""
    if existing.dtype.kind == "O":
        known = set(existing.tolist())
        double = np.array([label in known for label in added.tolist()], bool)
    else:
        double = np.isin(added, existing)
    if double.any():
        raise ModelError(
            f"{target} holds {_format_labels(added[double])}{unit} of {dim!r} already, from another file",
            url=_file_of_step(arrays, dim, int(np.argmax(double))),
            hint=f"Leave the file out, or take the other file out first: insitu drop {target} FILE",
        )
    labels, counts = np.unique(added, return_counts=True)
    if (counts > 1).any() and len(np.unique(existing)) == len(existing):
        raise ModelError(
            f"the new files hold {_format_labels(labels[counts > 1])}{unit} of {dim!r} more than once",
            url=_file_of_step(arrays, dim, int(np.argmax(added == labels[np.argmax(counts > 1)]))),
            hint=f"Give files that follow each other along {dim!r}",
        )
    if in_any_order:
        return
    dated = existing.dtype.kind == "M" or _is_cftime(existing) or " since " in str(units)
    wrong = _out_of_order_mask(existing, added, dated)
    if wrong.any():
        raise ModelError(
            f"{_format_labels(added[wrong])}{unit} of {dim!r} is out of order: {format_label(existing[-1])} is the "
            f"last label of {target}",
            url=_file_of_step(arrays, dim, int(np.argmax(wrong))),
            hint=_COMBINE_ANEW,
        )


def _out_of_order_mask(existing: npt.NDArray[Any], added: npt.NDArray[Any], dated: bool) -> npt.NDArray[np.bool_]:
    """Return a mask of the new labels that break the order of the ones that are there.

    Of a single label only the order of dates is known: they run on.
    """
    none = np.zeros(len(added), bool)
    if not len(existing) or not (dated or (existing.dtype.kind in "iufm" and added.dtype.kind in "iufm")):
        return none
    if len(existing) == 1:
        rises = 1 if dated else 0
    else:
        rises = int(bool((existing[1:] > existing[:-1]).all())) - int(bool((existing[1:] < existing[:-1]).all()))
    if not rises:
        return none
    before = np.concatenate([existing[-1:], added[:-1]])
    if rises > 0:
        return np.asarray(added < np.maximum.accumulate(before), bool)
    return np.asarray(added > np.minimum.accumulate(before), bool)


def _is_cftime(labels: npt.NDArray[Any]) -> bool:
    return labels.dtype.kind == "O" and len(labels) > 0 and hasattr(labels[0], "calendar")


def _compare_other_labels(old: VirtualGroup, new: VirtualGroup, dim: str, read: Reader, target: str) -> None:
    """Raise if labels differ along a dimension that does not grow: values would have wrong labels."""
    for name in old.arrays:
        one, two = _index_array(old, name), _index_array(new, name)
        if name == dim or one is None or two is None:
            continue
        if one.shape != two.shape or not _is_equal(read(one), read(two)):
            raise ModelError(
                f"the labels of {name!r} differ from those of {target}",
                url=_file_of_step(new.arrays, dim, 0),
                variable=name,
                hint=_COMBINE_ANEW,
            )


def _format_labels(labels: Sequence[Any] | npt.NDArray[Any]) -> str:
    shown = ", ".join(map(format_label, labels[:_LABELS_SHOWN]))
    return f"{shown} and {len(labels) - _LABELS_SHOWN} more labels" if len(labels) > _LABELS_SHOWN else shown


def format_label(label: Any) -> str:
    """Return a label as text, for messages."""
    return str(label.astype("m8[us]").item() if isinstance(label, np.timedelta64) else label)


def _file_of_step(arrays: Mapping[str, VirtualArray], dim: str, position: int) -> str | None:
    """Return a file that holds a step; None: the step is in memory."""
    for array in arrays.values():
        if dim in array.dims and position < array.shape[array.dims.index(dim)]:
            found = next(used_urls(_take_steps(array, dim, np.array([position]))), None)
            if found is not None:
                return found
    return None
