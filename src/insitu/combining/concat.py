"""Concatenation of members along a dimension: xarray's `concat`, on tables of chunks.

It follows xarray rule for rule: which variables are joined (`choose_variables`), which are merged,
which dimensions the joined ones get. One pass over the members for each variable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cf.casting import cast_values
from insitu.combining.align import align_members, take_elements
from insitu.combining.choose_variables import choose_variables, joined_dims, missing_in_text
from insitu.combining.combine_rules import CombineRules
from insitu.combining.equality import has_equal_values, is_same_in_all, merge_variable, read_together
from insitu.combining.image_grids import IMAGES, check_image_grids
from insitu.combining.merge_attributes import common_items, merge_attributes
from insitu.errors import CombineError
from insitu.model import GroupDetails, VirtualArray
from insitu.model.gaps import with_dtype
from insitu.model.join_similar import join_arrays, repeat_arrays
from insitu.scanning.member import Member, Variable
from insitu.scanning.promotion import shared_type

__all__ = ["concat", "join_variable", "with_dims"]

NO_DETAILS = GroupDetails()


def concat(members: Sequence[Member], dim: str, rules: CombineRules, labels: npt.NDArray[Any] | None = None) -> Member:
    """Return the members concatenated along a dimension.

    Parameters
    ----------
    members
        In order.
    dim
        Along which dimension; a new one if no member has it.
    rules
        How to treat what is not along the dimension.
    labels
        Labels for a new dimension.
    """
    if rules.compat == "minimal":
        raise CombineError(
            "compat='minimal' is for files that are merged, not for files that are joined along a dimension",
            hint="Give one of broadcast_equals, equals, identical, no_conflicts, override",
        )
    check_image_grids(members, dim, aligns=rules.aligns_images)
    members = align_members(members, rules.join, exclude=dim)
    names = dict.fromkeys(name for member in members for name in member.variables)
    coords = frozenset().union(*(member.coords for member in members))
    data = {name for member in members for name in member.data_names()}
    if both := coords & data:
        raise CombineError(f"{set(both)!r} is a coordinate in some datasets but not others.")
    each = [member.sizes for member in members]
    sizes: dict[str, int] = {}
    for own in each:
        sizes.update(own)
    exists = dim in sizes
    if dim in names and not exists:
        read_together([member.variables[dim] for member in members if dim in member.variables], rules.load)
        members = [_expand_scalar_label(member, dim) for member in members]
        each = [member.sizes for member in members]
        coords, exists = coords | {dim}, True
    lengths = [own.get(dim, 1) for own in each]
    sizes.pop(dim, None)

    def is_same(name: str) -> bool:
        variables = [member.variables[name] for member in members]
        if all(member.index(name) is not None for member in members):
            return all(_is_same_label(variables[0], other, rules.compat) for other in variables[1:])
        return is_same_in_all(variables, rules.compat, rules.load)

    sources = [member.source for member in members]
    choice = choose_variables(members, each, dim, exists, rules, is_same, sources)
    result: dict[str, Variable] = {}
    for name in names:
        by_member = [member.variables.get(name) for member in members]
        found = [variable for variable in by_member if variable is not None]
        if name in choice.over:
            if len(found) < len(members) and name in coords:
                raise CombineError(
                    f"coordinate {name!r} not present in all datasets.{missing_in_text(name, members, sources)}"
                )
            present = [length for length, variable in zip(lengths, by_member, strict=True) if variable is not None]
            whole = join_variable(name, found, present, dim, sizes, rules)
            if len(found) < len(members):
                whole = _with_gaps(whole, dim, lengths, [variable is not None for variable in by_member])
            result[name] = whole
        elif name in coords and all(member.index(name) is not None for member in members if name in member.variables):
            _check_identical(name, found, rules)  # labels of another dimension: aligned already
            result[name] = replace(found[0], encoding=common_items([variable.encoding for variable in found]))
        else:
            merged = merge_variable(name, found, rules.compat, rules.load, choice.equal.get(name))
            result[name] = replace(merged, encoding=common_items([variable.encoding for variable in found]))
    attributes = merge_attributes([member.attributes for member in members], rules.combine_attrs)
    if rules.compat == "identical" and any(
        merge_attributes([member.attributes], "override") != attributes for member in members[1:]
    ):
        raise CombineError("Dataset global attributes not equal.")
    if labels is not None:
        if len(labels) != sum(lengths):
            raise CombineError(
                f"{len(labels)} labels given for {sum(lengths)} elements along the new dimension {dim!r}"
            )
        known = result.get(dim)  # where files name their label by the dimension, what they say of it stays
        is_label = known is not None and known.dims == (dim,)
        result[dim] = replace(known, data=labels) if known is not None and is_label else Variable((dim,), labels)
        coords = coords | {dim}
    unindexed = frozenset().union(*(member.unindexed for member in members))
    unindexed = frozenset(name for name in unindexed if name in result and result[name].dims == (name,))
    # Of images it is checked again when the rows of a grid are joined.
    details = GroupDetails(IMAGES) if all(member.details.format == IMAGES for member in members) else NO_DETAILS
    return Member(result, coords, attributes, members[0].encoding, None, unindexed, details=details)


def _expand_scalar_label(member: Member, dim: str) -> Member:
    """Return the member with its scalar variable of that name as label of the dimension.

    Data variables get the dimension.
    """
    variables = {}
    for name, variable in member.variables.items():
        if name == dim or name not in member.coords:
            variable = with_dims(variable, (dim, *variable.dims), {dim: 1})
        variables[name] = variable
    return member.with_variables(variables, member.coords | {dim})


def _is_same_label(one: Variable, other: Variable, compat: str) -> bool:
    assert isinstance(one.data, np.ndarray)
    assert isinstance(other.data, np.ndarray)
    same = one.data is other.data or has_equal_values(one.data, other.data)
    return same and (compat != "identical" or dict(one.attributes) == dict(other.attributes))


def _check_identical(name: str, found: Sequence[Variable], rules: CombineRules) -> None:
    if rules.compat == "identical":
        for other in found[1:]:
            if merge_attributes([found[0].attributes], "override") != dict(other.attributes):
                raise CombineError(f"conflicting attribute values on combined variable {name!r}")


def join_variable(
    name: str,
    variables: Sequence[Variable],
    lengths: Sequence[int],
    dim: str,
    sizes: Mapping[str, int],
    rules: CombineRules,
    order: tuple[str, ...] | None = None,
) -> Variable:
    """Return the parts of one variable joined along a dimension.

    Parameters
    ----------
    name, variables, lengths
        The parts, and how long each is along the dimension.
    dim, sizes
        The dimension, and how long the others are that some part lacks.
    rules
        The options.
    order
        The dimensions of the result, where parts are not all that there is.
    """
    order = joined_dims([variable.dims for variable in variables], dim) if order is None else order
    attributes = merge_attributes([variable.attributes for variable in variables], rules.combine_attrs)
    encoding = common_items([variable.encoding for variable in variables])
    if len(variables) > 1 and all(variable.dims == order[1:] for variable in variables):
        arrays = [variable.data for variable in variables if isinstance(variable.data, VirtualArray)]
        if len(arrays) == len(variables) and (spread := repeat_arrays(arrays, lengths, dim)) is not None:
            return Variable(order, spread, attributes, encoding)
    conformed = [
        variable if variable.dims == order else with_dims(variable, order, {**sizes, dim: length})
        for variable, length in zip(variables, lengths, strict=True)
    ]
    return Variable(order, _join_data(name, conformed, order.index(dim), rules), attributes, encoding)


def _join_data(
    name: str, variables: Sequence[Variable], axis: int, rules: CombineRules
) -> VirtualArray | npt.NDArray[Any]:
    try:
        dtype = shared_type([variable.dtype for variable in variables])
    except CombineError as refused:
        raise refused.with_context(variable=name) from refused.__cause__
    if len(variables) == 1:
        return variables[0].data
    across = {tuple(n for i, n in enumerate(variable.shape) if i != axis) for variable in variables}
    if len(across) > 1:
        raise CombineError(
            f"variable {name!r} has different shapes in the files, also across the joined dimension: {sorted(across)}"
        )
    if 0 in across.pop():
        shape = list(variables[0].shape)
        shape[axis] = sum(variable.shape[axis] for variable in variables)
        return np.empty(shape, dtype)
    if any(isinstance(variable.data, VirtualArray) for variable in variables):
        virtual = [variable.virtual() for variable in variables]
        if all(array is not None for array in virtual):
            return with_dtype(join_arrays([array for array in virtual if array is not None], axis), dtype)
    values = [cast_values(variable.values(rules.load), dtype) for variable in variables]
    return np.concatenate(values, axis)


def with_dims(variable: Variable, order: tuple[str, ...], sizes: Mapping[str, int]) -> Variable:
    """Return the variable with its dimensions in this order; values repeat along new ones."""
    data = variable.data
    new = [dim for dim in order if dim not in variable.dims]
    present = (*new, *variable.dims)
    turn = tuple(present.index(dim) for dim in order)
    if isinstance(data, VirtualArray):
        for dim in reversed(new):
            data = data.expand_dims(0, dim, sizes[dim])
        return variable.with_data(data.transpose(*turn) if turn != tuple(range(len(turn))) else data, order)
    shape = (*(sizes[dim] for dim in new), *data.shape)
    return variable.with_data(np.broadcast_to(data, shape).transpose(turn), order)


def _with_gaps(variable: Variable, dim: str, lengths: Sequence[int], present: Sequence[bool]) -> Variable:
    """Return the variable with missing values for members that do not have it."""
    has = np.repeat(np.array(present), lengths)
    indexer = np.where(has, np.cumsum(has) - 1, -1).astype(np.int64)
    return take_elements(variable, variable.dims.index(dim), indexer)
