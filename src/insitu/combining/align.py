"""Alignment of members by their labels: xarray's `join`.

`join` applies along dimensions that files are not joined along: it gives the union, the
intersection, the first, the last, an error, or the first one's labels for all. Reindexing a virtual
array is a `take` with -1 for labels that a file does not have: no values are read, those elements
are absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas
import xarray

from insitu.combining.equality import has_equal_values
from insitu.errors import CombineError
from insitu.model import VirtualArray
from insitu.model.gaps import with_dtype
from insitu.scanning.member import Member, Variable
from insitu.scanning.promotion import type_with_missing

__all__ = ["align_members", "pandas_index", "reindex_member", "take_steps"]

Indexer = npt.NDArray[np.int64]


def pandas_index(values: npt.NDArray[Any], dim: str) -> pandas.Index[Any]:
    """Return the labels as xarray would index them (cftime dates get their own kind of index)."""
    return xarray.Coordinates({dim: values}).to_index()


def align_members(members: Sequence[Member], join: str, exclude: str | None = None) -> list[Member]:
    """Return the members with the same labels along every dimension that they share, but for one."""
    if len(members) == 1:
        return list(members)
    result = list(members)
    sizes = [member.sizes for member in members]
    dims = dict.fromkeys(dim for size in sizes for dim in size if dim != exclude)
    for dim in dims:
        labels = [member.index(dim) for member in members]
        known = [index for index in labels if index is not None]
        lengths = {size[dim] for size, index in zip(sizes, labels, strict=True) if dim in size and index is None}
        if not known:
            if len(lengths) > 1:
                raise CombineError(
                    f"cannot reindex or align along dimension {dim!r} because of conflicting dimension sizes: "
                    f"{sorted(lengths)}{_list_sizes(members, sizes, dim)}",
                    hint=f"Give pad=True to pad files to the longest along {dim!r}",
                )
            continue
        target = known[0]
        equal = all(index is target or has_equal_values(target, index) for index in known[1:])
        if equal and lengths <= {len(target)}:
            if lengths:
                _add_labels(result, labels, sizes, dim, _first_label_variable(members, dim))
            continue
        if join == "override":
            if len({len(index) for index in known} | lengths) > 1:
                raise CombineError(
                    f"cannot align objects with join='override' with matching indexes along dimension {dim!r} "
                    "that don't have the same size"
                )
            _override_labels(result, labels, sizes, dim, _first_label_variable(members, dim))
            continue
        if join == "exact":
            raise CombineError(
                "cannot align objects with join='exact' where index/labels/sizes are not equal along these coordinates "
                f"(dimensions): {dim!r} ({dim!r},){_first_difference(members, labels, target)}"
            )
        joined = _join_labels(known, dim, join)
        if lengths and lengths != {len(joined)}:
            raise CombineError(
                f"cannot reindex or align along dimension {dim!r} because of conflicting dimension sizes: "
                f"{sorted(lengths | {len(joined)})} (note: an index is found along that dimension with "
                f"size={len(joined)})"
            )
        _reindex_all(result, labels, sizes, dim, joined, _first_label_variable(members, dim), join)
    return result


def _unique_labels(labels: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Return different labels once, in order.

    Files that are alike have the same labels, often the very same object.
    """
    found: dict[Any, npt.NDArray[Any]] = {}
    for index in {id(index): index for index in labels}.values():
        found.setdefault(id(index) if index.dtype.hasobject else (index.dtype, index.tobytes()), index)
    return list(found.values())


def _join_labels(labels: list[npt.NDArray[Any]], dim: str, join: str) -> pandas.Index[Any]:
    if join in ("left", "right"):
        return pandas_index(labels[0 if join == "left" else -1], dim)
    indexes = [pandas_index(index, dim) for index in _unique_labels(labels)]
    try:
        if join == "inner":
            return reduce(lambda a, b: a.intersection(b), indexes)
        return reduce(lambda a, b: a.union(b), indexes)
    except TypeError as refused:
        raise _incomparable_error(dim, labels) from refused


def _incomparable_error(dim: str, labels: Sequence[npt.NDArray[Any]]) -> CombineError:
    """Return the error for labels that cannot be ordered, such as dates of two calendars."""
    kinds = {type(label).__name__ for index in labels for label in index[:1]}
    return CombineError(
        f"cannot align along dimension {dim!r} because its labels cannot be compared: {', '.join(sorted(kinds))}",
        hint="Combine files of one calendar, or give join='override' or decode_times=False",
    )


def _first_label_variable(members: Sequence[Member], dim: str) -> Variable:
    """Return the first variable that labels a dimension."""
    return next(member.variables[dim] for member in members if member.index(dim) is not None)


def _add_labels(result: list[Member], labels: Sequence[Any], sizes: Sequence[Any], dim: str, holder: Variable) -> None:
    """Give the labels to those members that have the dimension but none."""
    for number, (index, size) in enumerate(zip(labels, sizes, strict=True)):
        if index is None and dim in size:
            result[number] = _with_label(result[number], dim, holder)


def _override_labels(
    result: list[Member], labels: Sequence[Any], sizes: Sequence[Any], dim: str, holder: Variable
) -> None:
    """Give the first member's labels to all that have labels."""
    for number, index in enumerate(labels):
        if index is not None:
            result[number] = _with_label(result[number], dim, holder, keep=False)


def _with_label(member: Member, dim: str, holder: Variable, *, keep: bool = True) -> Member:
    """Return the member with other labels; attributes stay its own if it had labels."""
    variables = dict(member.variables)
    own = variables.get(dim)
    variables[dim] = holder if own is None or not keep else own.with_data(holder.data, (dim,))
    new = member.with_variables(variables, member.coords | {dim})
    return replace(new, unindexed=member.unindexed - {dim})


def _reindex_all(
    result: list[Member],
    labels: Sequence[npt.NDArray[Any] | None],
    sizes: Sequence[dict[str, int]],
    dim: str,
    joined: pandas.Index[Any],
    holder: Variable,
    join: str,
) -> None:
    if not joined.is_unique:
        raise CombineError(f"cannot reindex or align along dimension {dim!r} because the index has duplicate values")
    values = _label_values(joined, [index for index in labels if index is not None])
    if join in ("left", "right"):
        chosen = [number for number, index in enumerate(labels) if index is not None][0 if join == "left" else -1]
        label = result[chosen].variables[dim]
    else:
        label = Variable((dim,), values)  # xarray makes a new one: without attributes
    indexers: dict[int, Indexer] = {}
    for number, index in enumerate(labels):
        if index is None:
            if dim in sizes[number]:
                result[number] = _with_label(result[number], dim, label)
            continue
        if id(index) not in indexers:
            own = pandas_index(index, dim)
            if not own.is_unique:
                raise CombineError(
                    f"cannot reindex or align along dimension {dim!r} because the index has duplicate values"
                )
            try:
                indexers[id(index)] = np.asarray(own.get_indexer(joined), np.int64)
            except TypeError as refused:
                raise _incomparable_error(dim, [index for index in labels if index is not None]) from refused
        result[number] = _with_label(reindex_member(result[number], dim, indexers[id(index)]), dim, label)


def _label_values(joined: pandas.Index[Any], known: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return the labels as xarray shows them: in the type that the files' labels share."""
    values = joined.to_numpy()
    dtypes = {index.dtype for index in known}
    shared = (
        dtypes.pop()
        if len(dtypes) == 1
        else np.result_type(*dtypes)
        if all(d.kind in "biufc" for d in dtypes)
        else values.dtype
    )
    return np.asarray(values) if shared.kind == "O" else np.asarray(values).astype(shared, copy=False)


def reindex_member(member: Member, dim: str, indexer: Indexer) -> Member:
    """Return these elements of a dimension, -1 for none."""
    variables = {}
    if (indexer == np.arange(len(indexer))).all() and member.sizes.get(dim) == len(indexer):
        return member
    for name, variable in member.variables.items():
        if dim in variable.dims and name != dim:
            variable = take_elements(variable, variable.dims.index(dim), indexer)
        variables[name] = variable
    return member.with_variables(variables)


def take_steps(member: Member, dim: str, steps: Indexer) -> Member:
    """Return some elements of a dimension, with their labels."""
    label = member.variables.get(dim)
    taken = reindex_member(member, dim, steps)
    if label is None or label.dims != (dim,) or taken is member:
        return taken
    return taken.with_variables({**taken.variables, dim: take_elements(label, 0, steps)})


def take_elements(variable: Variable, axis: int, indexer: Indexer) -> Variable:
    """Return these elements of one axis, -1 for none: then the type may change, as in xarray."""
    holes = bool((indexer < 0).any())
    dtype = type_with_missing(variable.dtype) if holes else variable.dtype
    data = variable.data
    if isinstance(data, VirtualArray):
        if holes and dtype.kind == "O" and data.dtype.kind != "O":
            data = with_dtype(data, dtype)
        return variable.with_data(with_dtype(data.take(axis, indexer), dtype))
    if not holes:
        return variable.with_data(np.take(data, indexer, axis))
    wrapped = xarray.Variable([f"d{i}" for i in range(data.ndim)], data)
    probe = xarray.Dataset({"v": wrapped}, coords={f"d{axis}": np.arange(data.shape[axis])})
    return variable.with_data(probe.reindex({f"d{axis}": indexer})["v"].data)


def _list_sizes(members: Sequence[Member], sizes: Sequence[dict[str, int]], dim: str) -> str:
    seen: dict[int, str] = {}
    for member, size in zip(members, sizes, strict=True):
        if dim in size and member.source:
            seen.setdefault(size[dim], member.source)
    return "".join(f"\n  {length}: {source}" for length, source in list(seen.items())[:5])


def _first_difference(members: Sequence[Member], labels: Sequence[Any], target: npt.NDArray[Any]) -> str:
    for member, index in zip(members, labels, strict=True):
        if index is not None and index is not target and not has_equal_values(target, index) and member.source:
            return f"\n  first to differ: {member.source}"
    return ""
