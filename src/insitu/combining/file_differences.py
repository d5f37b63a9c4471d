"""What tells files apart that have no labels to order them by, and the call that joins them.

Single values (the time of a GRIB message), lengths of dimensions (swaths), parts of names (images of
one day each), dimensions without labels (profiles) and attributes are looked at, in this order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from insitu.scanning.member import Member

__all__ = ["suggest_join"]

SHOWN_VALUES = 2
_TOKEN = re.compile(r"\d+|[A-Za-z]+|[^0-9A-Za-z]+")


def suggest_join(members: Sequence[Member]) -> tuple[str, str | None]:
    """Return what differs between files, and a call of `open_mfdataset` that joins them by it.

    The call is None if nothing is found that tells them apart.
    """
    for suggest in (_by_single_values, _by_lengths, _by_names, _by_unlabelled_dimension, _by_attributes):
        if (found := suggest(members)) is not None:
            difference, options = found
            return difference, f"Join them by that: insitu.open_mfdataset(paths, {options})"
    return "nothing but their values tells them apart", None


def _by_single_values(members: Sequence[Member]) -> tuple[str, str] | None:
    """Single coordinates, such as the time of a field; two of them make a grid."""
    columns: dict[str, list[Any]] = {}
    for name in members[0].coords:
        data = [member.variables[name].data for member in members if name in member.variables]
        values = [each.item() for each in data if isinstance(each, np.ndarray) and each.ndim == 0]
        if len(values) == len(members):
            columns[name] = values
    names = [name for name in members[0].variables if name in columns and len(set(map(str, columns[name]))) > 1]
    sure = [name for name in names if not name.startswith("valid_")]  # a valid time follows from the others
    for chosen in (*((name,) for name in sure), *combinations(sure, 2), *((name,) for name in names)):
        if not _is_distinct(list(zip(*(columns[name] for name in chosen), strict=True))):
            continue
        if len(chosen) == 2:
            one, other = chosen
            difference = f"they differ in the single values {one!r} and {other!r}"
            return difference, f'preprocess=lambda ds: ds.expand_dims(["{one}", "{other}"])'
        (name,) = chosen
        shown = _format_values([member.variables[name].data[()] for member in members[: SHOWN_VALUES + 1]])
        difference = f"they differ in the single value {name!r} ({shown})"
        in_order = _is_ascending(columns[name])
        return difference, _nested_options(name) if in_order else f'preprocess=lambda ds: ds.expand_dims("{name}")'
    return None


def _is_ascending(values: Sequence[Any]) -> bool:
    """Return whether values are in order; those that do not compare count as ordered."""
    try:
        return all(one <= other for one, other in pairwise(values))
    except TypeError:
        return True


def _by_lengths(members: Sequence[Member]) -> tuple[str, str] | None:
    """Dimensions that are not equally long in all files: they follow each other along one that is the first of
    their variables (swaths), or lie side by side along a new one (profiles), padded where that does not do.
    """
    first, sizes = members[0], [member.sizes for member in members]
    if any(own.keys() != sizes[0].keys() for own in sizes):
        return None
    lengths = {dim: {own[dim] for own in sizes} for dim in sizes[0]}
    different = [dim for dim, found in lengths.items() if len(found) > 1]
    if not different:
        return None
    shown = " and of ".join(f"{dim!r} ({_format_values([own[dim] for own in sizes])})" for dim in different)
    dims = [variable.dims for variable in first.variables.values() if not set(different).isdisjoint(variable.dims)]
    leading = {own[0] for own in dims}
    options = _nested_options(leading.pop() if len(leading) == 1 else "granule")
    is_padded = any(f'"{dim}"' not in options for dim in different)
    return f"they differ in the length of {shown}", f"{options}, pad=True" if is_padded else options


def _by_names(members: Sequence[Member]) -> tuple[str, str] | None:
    """One part of the names of the files, all else being equal; not if a dimension has no labels."""
    if any(members[0].index(dim) is None for dim in members[0].sizes):
        return None
    names = [os.path.basename(str(member.source or "").rstrip("/")) for member in members]
    tokens = [_TOKEN.findall(name) for name in names]
    if len({len(own) for own in tokens}) != 1:
        return None
    columns = list(zip(*tokens, strict=True))
    different = [at for at, column in enumerate(columns) if len(set(column)) > 1]
    if len(different) != 1 or not _is_distinct(list(columns[different[0]])):
        return None
    (at,) = different
    column = columns[at]
    kind = r"\d+" if all(part.isdecimal() for part in column) else "[A-Za-z]+"
    if kind != r"\d+" and not all(part.isalpha() for part in column):
        return None
    before, after = (
        "".join(re.escape(part) for part in tokens[0][piece]) for piece in (slice(at), slice(at + 1, None))
    )
    dates = kind == r"\d+" and {len(part) for part in column} <= {6, 8, 10, 12}
    pattern = f"{before}({kind}){after}"
    return (
        f"they differ in a part of their names ({_format_values(column)})",
        f'concat_dim={{"{"time" if dates else "file"}": r"{pattern}"}}',
    )


def _by_unlabelled_dimension(members: Sequence[Member]) -> tuple[str, str] | None:
    """The first dimension that has no labels in any file and that all data have first."""
    first = members[0]
    leading = [
        variable.dims[0] for name, variable in first.variables.items() if name in first.data_names() and variable.dims
    ]
    dim = max(dict.fromkeys(leading), key=leading.count, default=None)
    if dim is None or any(member.index(dim) is not None or dim not in member.sizes for member in members):
        return None
    return f"the dimension {dim!r} has no labels", _nested_options(dim)


def _by_attributes(members: Sequence[Member]) -> tuple[str, str] | None:
    """One attribute of the whole file."""
    for name in members[0].attributes:
        values = [member.attributes.get(name) for member in members]
        if all(isinstance(value, (str, int, float, np.number)) for value in values) and _is_distinct(values):
            new = re.sub(r"\W", "_", name)
            return (
                f"they differ in the attribute {name!r} ({_format_values(values)})",
                f'concat_dim={{"{new}": "attr:{name}"}}',
            )
    return None


def _nested_options(dim: str) -> str:
    return f'combine="nested", concat_dim="{dim}"'


def _is_distinct(values: Sequence[object]) -> bool:
    return len(set(map(str, values))) == len(values)


def _format_values(values: Sequence[object]) -> str:
    from insitu.references.plan_append import format_label  # Arrow takes long to import

    shown = ", ".join(dict.fromkeys(map(format_label, values[:SHOWN_VALUES])))
    return f"{shown}, …" if len(values) > SHOWN_VALUES else shown
