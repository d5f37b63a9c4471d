"""What an append adds to a target: the labels that are new along one dimension, and the parts of its arrays.

The part of an array that is added is copied like an array of its own, in two: what fills the last chunks or shards of
the target, which are written again with the values that they have, and what begins new ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.copying.append_documents import parse_array
from insitu.copying.append_forms import AppendedVariable, decode_labels
from insitu.copying.copy_options import CopyOptions
from insitu.copying.encode import check_encoding
from insitu.copying.stored_forms import StoredForm
from insitu.copying.target_arrays import Extension, TargetArray, passes_within
from insitu.errors import SelectionError, UnsupportedError, error_context
from insitu.expressions.moves import select_box
from insitu.expressions.nodes import Expression, Stored
from insitu.model import VirtualArray, VirtualGroup
from insitu.reading import ReadContext
from insitu.scanning.member import Load
from insitu.zarr_metadata.array_document import ArrayMetadata
from insitu.zarr_metadata.codec_documents import ShardLevel

__all__ = ["AppendPlan", "ExistingTarget", "first_new", "plan_append"]

USUAL_NAMES = ("time", "valid_time", "t")
OTHER_TARGET = "Leave the variable out, or copy everything to a new target"


@dataclass(frozen=True, slots=True, eq=False)
class ExistingTarget:
    """A store that is appended to, as it is now."""

    url: str
    tree: VirtualGroup
    """Its arrays as they are stored."""
    documents: Mapping[str, bytes]
    storage_options: Mapping[str, Any] | None = None
    load: Load | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AppendPlan:
    """What is appended."""

    dim: str
    arrays: tuple[TargetArray, ...]
    """The parts that are added; none, if nothing is new."""
    shapes: Mapping[str, tuple[int, ...]]
    """Of arrays that become longer, by path."""
    labels: int
    """How many labels are new."""
    note: str


def plan_append(
    tree: VirtualGroup,
    target: ExistingTarget,
    options: CopyOptions,
    *,
    formulas: Mapping[str, Expression],
    context: ReadContext,
    load: Load,
) -> AppendPlan:
    """Return what of a tree is added to a target.

    Parameters
    ----------
    tree, formulas
        What is copied: see `insitu.copying.stored_forms.stored_forms`.
    target
        What it is added to.
    options
        Of the copy.
    context, load
        How the source is read.

    Raises
    ------
    SelectionError, UnsupportedError
        If that is not possible: the error names the variable or label, and the reason.
    """
    here, there = dict(tree.all_arrays()), dict(target.tree.all_arrays())
    reader = _LabelReader(here, there, formulas, load, target)
    dim, label = reader.find_dimension(options.append)
    reader.check_coordinates(dim)
    _check_variables(here, there, dim, target.url)
    old, new = reader.both(label)
    first = first_new(old, new, label, target.url)
    count = len(new) - first
    if not count:
        return AppendPlan(dim, (), {}, 0, f"nothing is new: {dim} goes up to {_text(old[-1:])} already")
    arrays: list[TargetArray] = []
    shapes = {}
    for path, stored in there.items():
        if dim not in stored.dims:
            continue
        source = here[path]
        axis = stored.dims.index(dim)
        if stored.shape[axis] != len(old) or source.shape[axis] != len(new):
            raise SelectionError(
                f"it has another length along {dim!r} than the labels {label}", variable=path, url=target.url
            )
        variable = AppendedVariable(path, source, formulas.get(path), stored, context.of_variable(path), load)
        with error_context(variable=path, url=target.url):
            metadata = parse_array(target.documents, path)
            pieces = list(_ArrayExtender(variable, metadata, axis, first, target, options).pieces())
        arrays += [replace(piece, order=len(arrays) + number) for number, piece in enumerate(pieces)]
        shapes[path] = tuple(n + count if at == axis else n for at, n in enumerate(stored.shape))
    note = f"{count:,} new label{'s' * (count > 1)} of {dim}, {_text(new[first:])}, behind {_text(old[-1:])}"
    return AppendPlan(dim, tuple(arrays), shapes, count, note)


@dataclass(frozen=True, slots=True, eq=False)
class _LabelReader:
    """Reads and compares labels of source and target."""

    here: Mapping[str, VirtualArray]
    there: Mapping[str, VirtualArray]
    formulas: Mapping[str, Expression]
    load: Load
    target: ExistingTarget

    def both(self, path: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the labels of the target, and of the source."""
        assert self.target.load is not None
        if path in self.formulas:
            raise UnsupportedError("labels that are computed cannot be compared", variable=path, hint="Load them first")
        with error_context(variable=path, url=self.target.url):
            old = decode_labels(self.there[path], path, self.target.load)
        (new,) = self.load([self.here[path]])
        _check_comparable(old, new, path, self.target.url)
        return old, new

    def find_dimension(self, given: bool | str) -> tuple[str, str]:
        """Return the dimension along which is appended, and the path of its labels."""
        labels = {
            path.rpartition("/")[2]: path
            for path, array in self.here.items()
            if array.dims == (path.rpartition("/")[2],) and path in self.there
        }
        if isinstance(given, str):
            if given not in labels:
                raise SelectionError(
                    f"the dimension {given!r} has no labels in source and target, so what is new along it is unknown",
                    url=self.target.url,
                    hint=f"Dimensions with labels: {', '.join(sorted(labels)) or 'none'}",
                )
            return given, labels[given]
        times = [name for name, path in labels.items() if _is_time(self.here[path])]
        found = times or [name for name in USUAL_NAMES if name in labels]
        if len(found) != 1 and len(labels) == 1:
            found = list(labels)
        if len(found) != 1:
            raise SelectionError(
                "along which dimension to append is not clear",
                url=self.target.url,
                hint=f"Name one of those with labels: {', '.join(sorted(labels)) or 'none'}",
            )
        return found[0], labels[found[0]]

    def check_coordinates(self, dim: str) -> None:
        """Raise an error if other labels of the source are not those of the target."""
        for path, array in self.here.items():
            if path not in self.there or array.dims != (path.rpartition("/")[2],) or array.dims == (dim,):
                continue
            old, new = self.both(path)
            if not _is_equal(old, new):
                raise SelectionError(
                    f"its labels are {_text(new)}, and those of the target {_text(old)}",
                    variable=path,
                    url=self.target.url,
                    hint="Select the labels that the target has, or copy everything to a new target",
                )


def _check_variables(here: Mapping[str, VirtualArray], there: Mapping[str, VirtualArray], dim: str, url: str) -> None:
    """Raise an error if a variable is missing here or there, or has other dimensions."""
    for path, array in there.items():
        if path in here and here[path].dims != array.dims:
            raise UnsupportedError(
                f"it has the dimensions {here[path].dims}, and in the target {array.dims}",
                variable=path, url=url, hint=OTHER_TARGET,
            )  # fmt: skip
        if path not in here and dim in array.dims:
            raise UnsupportedError(
                f"the target has a variable along {dim!r} that the source lacks",
                variable=path, url=url, hint="Copy all variables of the target",
            )  # fmt: skip
        if path in here and any(
            one != other
            for name, one, other in zip(array.dims, here[path].shape, array.shape, strict=True)
            if name != dim
        ):
            raise SelectionError(
                f"its shape is {here[path].shape}, and in the target {array.shape}",
                variable=path, url=url, hint="Select what the target has, or copy everything to a new target",
            )  # fmt: skip
    for path in here:
        if path not in there:
            raise UnsupportedError(
                "the target has no such variable", variable=path, url=url,
                hint="Leave the variable out (variables=, --variable), or copy everything to a new target",
            )  # fmt: skip


def first_new(old: npt.NDArray[Any], new: npt.NDArray[Any], label: str, url: str) -> int:
    """Return the place of the first label that the target does not have: all behind it are new, too."""
    known = {_key(value) for value in old.tolist()}
    is_new = np.array([_key(value) not in known for value in new.tolist()], bool)
    if not is_new.any():
        return len(new)
    first = int(np.argmax(is_new))
    if not is_new[first:].all():
        at = first + int(np.argmin(is_new[first:]))
        raise _out_of_order_error(
            new[first], f"lies before {_text(new[at : at + 1])}, which the target has", label, url
        )
    if len(old) and (old.dtype.kind in "iufmM" or hasattr(old[0], "calendar")):
        falls = old[-1] < old[0]
        order = [old[-1], *new[first:]]
        for before, after in itertools.pairwise(order):
            if not (after < before if falls else after > before):
                where = f"does not lie behind {_text(np.array([before], new.dtype))}"
                raise _out_of_order_error(after, where, label, url)
    return first


def _out_of_order_error(value: Any, where: str, label: str, url: str) -> SelectionError:
    return SelectionError(
        f"the label {_text(np.asarray([value]))} {where}: only what is behind the target's last label can be appended",
        variable=label,
        url=url,
        hint="Select what is new, or copy everything to a new target",
    )


def _key(value: Any) -> Any:
    return (value.calendar, str(value), value.microsecond) if hasattr(value, "calendar") else value


def _check_comparable(old: npt.NDArray[Any], new: npt.NDArray[Any], path: str, url: str) -> None:
    kinds = [_kind(values) for values in (new, old)]
    if kinds[0] != kinds[1] and old.size and new.size:
        raise UnsupportedError(
            f"its labels are {kinds[0]}, and those of the target {kinds[1]}",
            variable=path,
            url=url,
            hint="Open the source with the same calendar and types, or copy everything to a new target",
        )


def _kind(values: npt.NDArray[Any]) -> str:
    if values.dtype.kind == "O" and values.size:
        calendar = getattr(values.reshape(-1)[0], "calendar", None)
        return "texts" if calendar is None else f"times of the calendar {calendar!r}"
    return {"M": "times", "m": "durations", "U": "texts", "S": "texts", "T": "texts"}.get(values.dtype.kind, "numbers")


def _is_equal(old: npt.NDArray[Any], new: npt.NDArray[Any]) -> bool:
    if old.shape != new.shape:
        return False
    if old.dtype.kind in "fc" or new.dtype.kind in "fc":
        return bool(np.array_equal(old, new, equal_nan=True))
    return bool(np.array_equal(old.astype(object), new.astype(object)))


def _is_time(array: VirtualArray) -> bool:
    return array.dtype.kind in "mM" or (array.dtype.kind == "O" and "calendar" in array.encoding)


def _text(values: npt.NDArray[Any]) -> str:
    """Return labels as a short text."""
    if not len(values):
        return "none"
    ends = [str(values[0])] if len(values) == 1 else [str(values[0]), str(values[-1])]
    return " to ".join(end.removesuffix(".000000000").removesuffix("T00:00:00") for end in ends)


def _is_usual_index(level: ShardLevel) -> bool:
    """Return whether the index of shards is the one that `ObjectEncoder` writes."""
    codecs = [codec.name for codec in level.index.codecs]
    return level.at_end and level.index.dtype == np.dtype("<u8") and codecs == ["crc32c"]


@dataclass(frozen=True, slots=True, eq=False)
class _ArrayExtender:
    """Makes the parts of one array that are added."""

    variable: AppendedVariable
    metadata: ArrayMetadata
    axis: int
    first: int
    """Of the source, along the axis."""
    target: ExistingTarget
    options: CopyOptions

    def pieces(self) -> Iterator[TargetArray]:
        """Yield what fills the last objects of the target, and what begins new ones."""
        axis, source = self.axis, self.variable.source
        objects = self._object_lengths()
        old, size = self.metadata.shape[axis], objects[axis]
        count = source.shape[axis] - self.first
        front = old % size
        begins = [0, min(size - front, count), count] if front else [0, count]
        form = self.variable.form_of(
            [slice(self.first, n) if at == axis else slice(0, n) for at, n in enumerate(source.shape)]
        )
        at = old // size
        for number, (begin, end) in enumerate(itertools.pairwise(begins)):
            if begin == end:
                continue
            box = [slice(begin, end) if one == axis else slice(0, n) for one, n in enumerate(form.shape)]
            stays = self._front(old - front, old) if front and not number else None
            yield self._piece(form, box, Extension(axis, at + number, old + count, stays), objects)

    def _object_lengths(self) -> tuple[int, ...]:
        metadata, path = self.metadata, self.variable.path
        levels = metadata.levels
        problem = None
        if not all(axis.is_regular for axis in (*metadata.objects, *metadata.axes)):
            problem = "its chunks are of several lengths"
        elif metadata.encoding.order is not None:
            problem = "its chunks are not in C order"
        elif len(levels) > 1 or not all(map(_is_usual_index, levels)):
            problem = "its shards are of a kind that is not written here"
        elif metadata.shape != self.variable.target.shape:
            problem = "its own metadata and those of the store's root differ"
        if problem is not None:
            raise UnsupportedError(f"nothing can be appended: {problem}", variable=path, hint=OTHER_TARGET)
        check_encoding(metadata.encoding)
        return tuple(axis.size for axis in metadata.objects)

    def _front(self, begin: int, end: int) -> Expression:
        """Return the stored values of the target from one place along the axis to another."""
        stored = self.variable.target
        whole = Stored(stored, ReadContext(self.variable.path, self.target.storage_options))
        return select_box(
            whole, [slice(begin, end) if at == self.axis else slice(0, n) for at, n in enumerate(stored.shape)]
        )

    def _piece(
        self, form: StoredForm, box: Sequence[slice], extension: Extension, objects: tuple[int, ...]
    ) -> TargetArray:
        metadata = self.metadata
        chunks = tuple(axis.size for axis in metadata.axes)
        part = StoredForm(
            form.path, form.dims, select_box(form.node, box), metadata.encoding.dtype, {}, form.source,
            repacking=form.repacking,
        )  # fmt: skip
        passes = passes_within(part, objects, self.options, "shard" if metadata.levels else "chunk")
        shards = objects if metadata.levels else None
        return TargetArray(part, chunks, shards, metadata.encoding, passes, metadata.keys, extension=extension)
