"""Conversion between members of a combination and the trees that are saved.

A tree holds virtual arrays only. Labels and other values in memory are kept inline; dates of
calendars that NumPy has no type for are kept as numbers with the packing that decodes them again.
So a saved array always has the meant shape, type and values, whatever it was made from.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.cf.decode import decode_variable
from insitu.errors import UnsupportedError
from insitu.model import VirtualArray, VirtualGroup
from insitu.model.cf_attributes import CHARACTERS, PACKING, RELATIONS, TIMES
from insitu.open_options import DecodeOptions
from insitu.scanning.conventions import find_coordinates, referenced_variables
from insitu.scanning.member import Load, Member, Variable, in_memory

__all__ = ["keepable_encoding", "member_from_tree", "tree_from_member"]

_DECODED = (*PACKING, *TIMES, *CHARACTERS)
"""What the encoding of a variable has if its values are not those that are stored."""
_RELATIONS = ("coordinates", *RELATIONS)
_PLAIN_TYPES = frozenset({type(None), bool, int, float, str, bytes})
_MUTABLE_TYPES = frozenset({list, dict, np.ndarray})


def tree_from_member(member: Member, groups: Mapping[str, VirtualGroup] | None = None) -> VirtualGroup:
    """Return a group of virtual arrays that has everything that a member has.

    Raises
    ------
    UnsupportedError
        If values in memory are of a type that cannot be kept: the error names the variable.
    """
    arrays = {name: array_from_variable(name, variable) for name, variable in member.variables.items()}
    unlimited = tuple(sorted(map(str, member.encoding.get("unlimited_dims") or ())))
    return VirtualGroup(
        arrays,
        dict(groups or {}),
        _copy_values(member.attributes),
        member.details,
        member.problems,
        coordinates=tuple(name for name in member.variables if name in member.coords),
        unindexed=tuple(sorted(member.unindexed)),
        unlimited=unlimited,
    )


def array_from_variable(name: str, variable: Variable) -> VirtualArray:
    """Return a variable as a virtual array, with its attributes and its encoding."""
    data = variable.data
    array = data if isinstance(data, VirtualArray) else _array_from_values(name, data)
    attributes, encoding = _copy_values(variable.attributes), _copy_values(keepable_encoding(variable.encoding))
    # Not `replace`, which takes as long as all else here.
    places = (array.tiles, array.origins)
    return VirtualArray(
        array.shape, array.dtype, variable.dims, *places, attributes, array.fill_value, array.details, encoding
    )


def _copy_values(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy that has its own lists, arrays and mappings: members may share theirs."""
    return {key: value.copy() if type(value) in _MUTABLE_TYPES else value for key, value in mapping.items()}


def _array_from_values(name: str, values: npt.NDArray[Any]) -> VirtualArray:
    carried = in_memory(values)
    if carried is not None:
        return carried
    if values.dtype.kind == "O":
        flat = values.reshape(-1)
        if all(isinstance(value, str) for value in flat):
            texts = VirtualArray.from_values(values.astype(str) if values.size else np.empty(values.shape, "U1"))
            return replace(texts, dtype=np.dtype(object))
        if all(_is_text_or_missing(value) for value in flat):
            return _array_of_texts(values)
        if values.size and all(_calendar_of(value) is not None for value in flat):
            return _array_of_dates(name, values)
    raise UnsupportedError(
        f"values of type {values.dtype} in memory cannot be saved with references",
        variable=name,
        hint="Drop the variable, or write it to a file of its own",
    )


def _is_text_or_missing(value: Any) -> bool:
    return isinstance(value, str) or value is None or (isinstance(value, float) and value != value)


def _array_of_texts(values: npt.NDArray[Any]) -> VirtualArray:
    """Return texts some of which are missing, with a mark for those that decodes to NaN."""
    texts = [value for value in values.reshape(-1) if isinstance(value, str)]
    mark = "_" * (max(map(len, texts), default=0) + 1)
    marked = np.array([value if isinstance(value, str) else mark for value in values.reshape(-1)]).reshape(values.shape)
    stored = VirtualArray.from_values(marked)
    array = decode_variable(replace(stored, attributes={"_FillValue": mark}), values=lambda: marked).array
    return replace(array, attributes={})


def _calendar_of(value: Any) -> str | None:
    """Return the calendar of a date; None if it is something else.

    Dates of Python and pandas are of the standard one.
    """
    return "standard" if isinstance(value, datetime.datetime) else getattr(value, "calendar", None)


def _array_of_dates(name: str, values: npt.NDArray[Any]) -> VirtualArray:
    """Return dates of cftime as numbers that decode to them."""
    from cftime import date2num  # needed only for calendars that NumPy does not have

    calendars = {str(_calendar_of(value)) for value in values.reshape(-1)}
    if len(calendars) > 1:
        raise UnsupportedError(
            f"dates of several calendars cannot be saved in one variable: {', '.join(sorted(calendars))}",
            variable=name,
            hint="Drop the variable, or save the files of each calendar separately",
        )
    (calendar,) = calendars
    # Microseconds are the resolution of cftime: every date comes back as it was.
    units = "microseconds since 2000-01-01"
    numbers = np.asarray(date2num(values, units, calendar)).astype(np.int64).reshape(values.shape)
    stored = VirtualArray.from_values(numbers)
    stored = replace(stored, attributes={"units": units, "calendar": calendar})
    array = decode_variable(stored, use_cftime=True, values=lambda: numbers).array
    return replace(array, attributes={})


def keepable_encoding(encoding: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an encoding that can be saved as text.

    Filters and coders of other libraries cannot.
    """
    plain = {str(key): value for key, value in encoding.items() if type(value) in _PLAIN_TYPES or _is_keepable(value)}
    plain.pop("source", None)
    return plain


def _is_keepable(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return _PLAIN_TYPES.issuperset(map(type, value)) or all(_is_keepable(part) for part in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and _is_keepable(list(value.values()))
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    return value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.generic, np.dtype))


def member_from_tree(
    group: VirtualGroup,
    decoding: DecodeOptions,
    load: Load,
    *,
    url: str | None = None,
    only: Sequence[str] | None = None,
) -> Member:
    """Return a saved group as the member that it was made from.

    Parameters
    ----------
    group
        Of a saved tree: its arrays are decoded.
    decoding
        What shall be decoded: nothing else than what was when it was saved.
    load
        Reads values: labels of dimensions and single values are needed at once.
    url
        Of the tree, for messages.
    only
        These variables and their coordinates; all if not given.
    """
    arrays = group.arrays if only is None else _select(group, only)
    arrays = {name: array for name, array in arrays.items() if name not in decoding.drop_variables}
    small = [name for name, array in arrays.items() if array.dims in ((name,), ())]
    known = dict(zip(small, load([arrays[name] for name in small]), strict=True))
    variables: dict[str, Variable] = {}
    for name, saved in arrays.items():
        array = _decode_as_requested(name, saved, decoding, load)
        data = replace(array, attributes={}, encoding={})
        values = None if name not in known else known[name] if array is saved else load([array])[0]
        variables[name] = Variable(array.dims, data if values is None else values, array.attributes, array.encoding)
    named = set(group.coordinates)
    if decoding.decode_coords is not True:
        named = _name_coordinates(variables, named, decoding.decode_coords)
    return Member.of_group(group, variables, named, group.attributes, url)


def _decode_as_requested(name: str, array: VirtualArray, decoding: DecodeOptions, load: Load) -> VirtualArray:
    """Return the array decoded as the keywords say: as it was saved, or from its stored values."""
    options, usual = decoding.of_variable(name), DecodeOptions().of_variable(name)
    if options == usual or not any(key in array.encoding for key in _DECODED):
        return array
    from insitu.scanning.stored_view import stored_view

    stored = stored_view(array, name, load)
    characters = {key: array.encoding[key] for key in ("char_dim_name",) if key in array.encoding}
    if characters and not options["concat_characters"]:
        stored = _split_characters(stored, array.encoding, load)
    related = {key: value for key, value in stored.attributes.items() if key in _RELATIONS and key in array.encoding}
    stored = replace(stored, attributes={key: value for key, value in stored.attributes.items() if key not in related})
    texts = {"dtype": str} if stored.dtype.kind == "O" else characters
    result = decode_variable(
        stored, name=name, encoding=texts, values=lambda: load([stored])[0], stack_char_dim=False, **options
    )
    encoding = {key: value for key, value in array.encoding.items() if key not in result.attributes}
    return replace(result.array, attributes=result.attributes, encoding={**encoding, **result.encoding})


def _split_characters(array: VirtualArray, encoding: Mapping[str, Any], load: Load) -> VirtualArray:
    """Return texts as the single characters that the file holds, which are read for that."""
    texts = np.ascontiguousarray(load([array])[0])
    characters = VirtualArray.from_values(texts.reshape(*texts.shape, 1).view("S1"))
    return replace(characters, dims=(*array.dims, str(encoding["char_dim_name"])), attributes=array.attributes)


def _name_coordinates(variables: dict[str, Variable], saved: Collection[str], how: bool | str) -> set[str]:
    """Return which variables are coordinates, by other rules than when the group was saved.

    What names coordinates moves between attributes and encoding of each variable, as in a file that
    is opened by these rules.
    """
    named: set[str] = set()
    found: set[str] = set()
    for name, variable in variables.items():
        moved = {key: variable.encoding[key] for key in _RELATIONS if key in variable.encoding}
        own = {**variable.attributes, **moved}
        encoding = {key: value for key, value in variable.encoding.items() if key not in moved}
        named |= {word for text in moved.values() for word in str(text).split()}
        found |= find_coordinates(own, encoding, variables, how)
        variables[name] = replace(variable, attributes=own, encoding=encoding)
    return found | (set(saved) - named)


def _select(group: VirtualGroup, only: Sequence[str]) -> dict[str, VirtualArray]:
    """Return the wanted variables, the labels of their dimensions, and their coordinates."""
    arrays = group.arrays
    wanted = {name for name in only if name in arrays}
    for name in list(wanted):
        named = referenced_variables(arrays[name].attributes) | referenced_variables(arrays[name].encoding)
        wanted |= (named | set(arrays[name].dims)) & arrays.keys()
    dims = {dim for name in wanted for dim in arrays[name].dims}
    wanted |= {name for name in group.coordinates if name in arrays and set(arrays[name].dims) <= dims}
    return {name: array for name, array in arrays.items() if name in wanted}
