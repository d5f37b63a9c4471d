"""Targets whose name is a pattern, `tas_{time:%Y}.nc` or `{variable}.zarr`: which part of the source each one gets."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from insitu.copying.stored_forms import placeholder
from insitu.errors import SelectionError, UnsupportedError
from insitu.expressions.moves import select_box
from insitu.expressions.nodes import Expression, Stored
from insitu.formats.variable_filter import select_variables
from insitu.model import VirtualArray, VirtualGroup
from insitu.model.cf_attributes import RELATIONS
from insitu.scanning.member import Load

__all__ = ["VARIABLE", "TargetPart", "TargetPattern"]

VARIABLE = "variable"
_FIELD = re.compile(r"\{(\w+)(?::([^{}]*))?\}")


@dataclass(frozen=True, slots=True, eq=False)
class TargetPart:
    """What one target of a pattern gets."""

    url: str
    tree: VirtualGroup
    formulas: Mapping[str, Expression]
    labels: npt.NDArray[Any] | None = None
    """Of the dimension that the pattern names."""


@dataclass(frozen=True, slots=True)
class TargetPattern:
    """The name of targets with fields in braces."""

    text: str

    @classmethod
    def find(cls, target: str) -> TargetPattern | None:
        """Return the pattern of a target; None if its name has no fields.

        Examples
        --------
        >>> TargetPattern.find("out/tas_{time:%Y}.nc").dim
        'time'
        >>> TargetPattern.find("out/tas.nc") is None
        True
        """
        return cls(target) if _FIELD.search(target) else None

    @property
    def dim(self) -> str | None:
        """The dimension along which it splits; None: it only has `{variable}`."""
        names = {name for name, _ in _FIELD.findall(self.text)} - {VARIABLE}
        if len(names) > 1:
            raise UnsupportedError(
                f"the pattern names several dimensions: {', '.join(sorted(names))}",
                url=self.text,
                hint="Name one dimension, and variable",
            )
        return next(iter(names), None)

    @property
    def has_variable(self) -> bool:
        """Whether each variable gets targets of its own."""
        return any(name == VARIABLE for name, _ in _FIELD.findall(self.text))

    @property
    def folder(self) -> str:
        """The folder that all targets lie in or below."""
        return os.path.dirname(self.text[: self.text.index("{")])

    def parts(self, tree: VirtualGroup, formulas: Mapping[str, Expression], load: Load) -> list[TargetPart]:
        """Return the parts of a source, in the order of variables and labels.

        Raises
        ------
        UnsupportedError, SelectionError
            If the source cannot be split so.
        """
        if tree.groups:
            raise UnsupportedError(
                "a source with groups cannot be split by a pattern", url=self.text, hint="Copy a group at a time"
            )
        found = []
        for variable, some in self._by_variable(tree):
            computed = {name: node for name, node in formulas.items() if name in some.arrays}
            if self.dim is None:
                found.append(TargetPart(self._fill({VARIABLE: variable}), some, computed))
                continue
            for values, part, labels in self._runs(tree, load):
                cut, made = _cut(some, computed, self.dim, part)
                found.append(TargetPart(self._fill({VARIABLE: variable, **values}), cut, made, labels))
        return found

    def _by_variable(self, tree: VirtualGroup) -> Iterator[tuple[str, VirtualGroup]]:
        if not self.has_variable:
            yield "", tree
            return
        related = {name for array in tree.arrays.values() for name in _related_names(array)}
        dims = {dim for array in tree.arrays.values() for dim in array.dims}
        others = {*tree.coordinates, *related, *dims}
        for name in tree.arrays:
            if name in others:
                continue
            needed = {name, *(other for other in _related_names(tree.arrays[name]) if other in tree.arrays)}
            coordinates = {
                other
                for other in others & set(tree.arrays)
                if set(tree.arrays[other].dims) <= set(tree.arrays[name].dims) and other in (*tree.coordinates, *dims)
            }
            bounds = {one for other in coordinates for one in _related_names(tree.arrays[other]) if one in tree.arrays}
            yield name, select_variables(tree, needed | coordinates | bounds)

    def _runs(self, tree: VirtualGroup, load: Load) -> Iterator[tuple[dict[str, str], slice, npt.NDArray[Any]]]:
        """Yield the text of the dimension's field, the part of the dimension, and its labels."""
        dim = str(self.dim)
        array = tree.arrays.get(dim)
        if array is None or array.dims != (dim,):
            raise SelectionError(
                f"the pattern names {dim!r}, which is no dimension with labels",
                url=self.text,
                hint=f"There are: {', '.join(name for name, one in tree.arrays.items() if one.dims == (name,))}",
            )
        (labels,) = load([array])
        specs = {spec for name, spec in _FIELD.findall(self.text) if name == dim}
        texts = ["/".join(_format(label, spec, self.text) for spec in sorted(specs)) for label in _items(labels)]
        begin, seen = 0, set()
        for text, run in itertools.groupby(texts):
            if text in seen:
                raise SelectionError(
                    f"labels of {dim!r} that give {text!r} are not one behind another, so they cannot be in one target",
                    url=self.text,
                    hint="Name more of the label in the pattern, such as {time:%Y%m}, or sort the source",
                )
            seen.add(text)
            end = begin + sum(1 for _ in run)
            values = {f"{dim}:{spec}": _format(_items(labels)[begin], spec, self.text) for spec in specs}
            yield values, slice(begin, end), labels[begin:end]
            begin = end

    def _fill(self, values: Mapping[str, str]) -> str:
        def text(match: re.Match[str]) -> str:
            return values[VARIABLE] if match[1] == VARIABLE else values[f"{match[1]}:{match[2] or ''}"]

        return _FIELD.sub(text, self.text)


def _cut(
    tree: VirtualGroup, formulas: Mapping[str, Expression], dim: str, part: slice
) -> tuple[VirtualGroup, dict[str, Expression]]:
    """Return the part of a source along a dimension."""
    arrays, made = {}, dict(formulas)
    for name, array in tree.arrays.items():
        arrays[name] = array
        if dim not in array.dims:
            continue
        box = [part if one == dim else slice(0, length) for one, length in zip(array.dims, array.shape, strict=True)]
        if name in formulas:
            made[name] = select_box(formulas[name], box)
            arrays[name] = placeholder(array.dims, made[name], array.attributes)
        else:
            cut = select_box(Stored(array), box)
            assert isinstance(cut, Stored)
            arrays[name] = cut.array
    return replace(tree, arrays=arrays), made


def _related_names(array: VirtualArray) -> list[str]:
    """Return the variables that attributes of one name: bounds, the mapping of a grid."""
    attributes = {**array.encoding, **array.attributes}
    return [
        word for key in ("coordinates", *RELATIONS) for word in re.findall(r"[^\s:]+", str(attributes.get(key, "")))
    ]


def _items(labels: npt.NDArray[Any]) -> list[Any]:
    """Return labels as Python has them: times as `datetime`, those of other calendars as they are."""
    return list((labels.astype("M8[us]") if labels.dtype.kind == "M" else labels).tolist())


def _format(label: Any, spec: str, pattern: str) -> str:
    """Return a label as a part of a file's name."""
    is_time = hasattr(label, "strftime")
    if is_time and "%" not in spec:
        raise UnsupportedError(
            "the pattern does not say how to write times", url=pattern, hint="Write e.g. {time:%Y} or {time:%Y%m}"
        )
    try:
        text = label.strftime(spec) if is_time else format(label, spec)
    except (ValueError, TypeError) as problem:
        raise UnsupportedError(
            f"the label {label} cannot be written as {spec!r}: {problem}", url=pattern, hint="Write another format"
        ) from None
    if label is None or not text or any(sign in text for sign in ("/", os.sep, "\0")) or text in (".", ".."):
        raise UnsupportedError(
            f"the label {label!r} gives {text!r}, which cannot be a part of a name",
            url=pattern,
            hint="Write another format",
        )
    return str(text)
