"""Combination of files whose `preprocess` computed something: by xarray itself, by the same rules.

What it computed by arithmetic is an expression of virtual arrays, and stays one: joined, it is the
same formula of the joined arrays. Other values no longer lie in a file, and holding them for every
file would need too much memory; then everything becomes Dask arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas
import xarray

from insitu.cf.casting import cast_values, to_date_objects
from insitu.combining.arrange import arrange_by_labels, arrange_by_lists
from insitu.combining.arrange_by_names import NamedDims, arrange_by_names
from insitu.combining.combine_rules import CombineRules
from insitu.combining.failures import drop_failures
from insitu.combining.files_table import FilesTable
from insitu.combining.pad import joined_dims, pad_member, plan_padding
from insitu.errors import CombineError, InsituError, UnsupportedError
from insitu.expressions.nodes import (
    Broadcast,
    Expression,
    Moved,
    Operation,
    Stored,
    WindowsOf,
    iterate_nodes,
)
from insitu.lazy_array.duck_array import LazyArray
from insitu.open_options import CombineOptions
from insitu.reading import ReadContext
from insitu.scanning.member import ConcatDim, GridPosition, Member
from insitu.scanning.scan_member import Failure
from insitu.xarray_bridge.dataset import is_dask, to_dataset
from insitu.xarray_bridge.opening import to_dask_dataset

__all__ = ["COMPUTED_LIMIT", "combine_with_xarray", "has_computed_variable", "with_context"]

COMPUTED_LIMIT = 256 << 20
"""Bytes of a variable, in all files together, up to which what a preprocess computes is held in
memory.
"""

DATES_LIMIT = 1 << 20
"""Elements of a variable of dates up to which it is held in memory, if it meets dates of another
calendar.
"""


def has_computed_variable(item: Member | Failure) -> bool:
    """Return whether some variable of a file was computed, and is an expression or waits for Dask."""
    return isinstance(item, Member) and any(
        is_dask(variable.data) or isinstance(variable.data, LazyArray) for variable in item.variables.values()
    )


def _needs_dask(item: Member) -> bool:
    return any(is_dask(variable.data) for variable in item.variables.values())


def combine_with_xarray(
    found: Sequence[Member | Failure],
    places: Sequence[GridPosition] | None,
    dims: Sequence[ConcatDim],
    named: NamedDims | None,
    rules: CombineRules,
    errors: str,
    context: ReadContext,
) -> xarray.Dataset:
    """Return all files as one dataset, of Dask arrays if what was computed for some became such.

    Parameters
    ----------
    found
        What came of each file.
    places
        The position of each in a grid of files; None: find it by the labels.
    dims
        With positions: along what each level of nesting is combined.
    named
        What the files' names say, instead of both.
    rules
        How.
    errors
        What happens to a file that could not be opened.
    context
        How what is still virtual is read.
    """
    if rules.places_labels:
        raise UnsupportedError(
            "overlap= and expect= cannot place files whose preprocess computes large variables",
            hint="Compute them of the dataset that open_mfdataset returns",
        )
    drop_failures(found, errors)
    members = {number: item for number, item in enumerate(found) if isinstance(item, Member)}
    if rules.pad:
        members = _pad_members(members, places, dims, named)
    made = {number: to_dataset(item, context) for number, item in members.items()}
    if any(map(_needs_dask, members.values())):
        made = {number: to_dask_dataset(dataset, {}) for number, dataset in made.items()}
    made = dict(zip(made, _with_dates_as_objects(list(made.values())), strict=True))
    how: dict[str, Any] = {
        name: getattr(rules, name) for name in ("data_vars", "coords", "compat", "join", "combine_attrs")
    }
    arrangement = None if places is None else arrange_by_lists(places, dims, made.keys())
    if named is not None:
        arrangement = arrange_by_names(named, made.keys())
    if arrangement is None:
        combined = _ask_xarray(xarray.combine_by_coords, list(made.values()), **how)
    else:
        grid: dict[GridPosition, Any] = {}
        for place, numbers in arrangement.files.items():
            group = [made[number] for number in numbers]
            grid[place] = group[0] if len(group) == 1 else _ask_xarray(xarray.combine_by_coords, group, **how)
        combined = _combine_nested(grid, arrangement.dims, how)
    mixed = any(is_dask(variable._data) for variable in combined.variables.values())
    return to_dask_dataset(combined, {}) if mixed else combined


def _pad_members(
    members: Mapping[int, Member],
    places: Sequence[GridPosition] | None,
    dims: Sequence[ConcatDim],
    named: NamedDims | None,
) -> dict[int, Member]:
    """Return the members as long as the longest: see `pad`."""
    files = FilesTable.of(list(members.values()))
    if named is not None:
        joined = {name for name, _, _ in named}
    elif places is not None:
        joined = {dim[0] if isinstance(dim, tuple) else str(dim) for dim in dims}
    else:
        joined = joined_dims(
            arrange_by_labels(files, files.opened, lambda numbers: [*members.values()], CombineOptions())
        )
    padding = plan_padding(files, joined)
    return {number: pad_member(member, padding) for number, member in members.items()}


def with_context(dataset: xarray.Dataset, context: ReadContext) -> xarray.Dataset:
    """Return a dataset whose virtual arrays, and all in their formulas, are read in another way.

    Their names, storage options and sources in memory stay.
    """
    made: dict[int, Expression] = {}
    for variable in dataset.variables.values():
        if isinstance(variable._data, LazyArray):
            variable.data = LazyArray(_read_otherwise(variable._data.node, context, made))
    return dataset


def _read_otherwise(expression: Expression, context: ReadContext, made: dict[int, Expression]) -> Expression:
    """Return an expression whose arrays are read in another way; what expressions share stays shared.

    Parameters
    ----------
    expression, context
        The expression, and how it is read.
    made
        By identity, what became of nodes of this expression and of others.
    """
    for node in iterate_nodes([expression], made):
        match node:
            case Stored(_, was):
                unchanged: dict[str, Any] = {
                    "name": was.name,
                    "storage_options": was.storage_options,
                    "keep_alive": was.keep_alive,
                }
                made[id(node)] = Stored(node.array, replace(context, **unchanged))
            case Moved(_, _, direct):
                made[id(node)] = made[id(direct)]
            case Operation():
                made[id(node)] = node.with_operands(made)
            case Broadcast() | WindowsOf():
                made[id(node)] = replace(node, of=made[id(node.of)])
            case _:
                made[id(node)] = node
    return made[id(expression)]


def _with_dates_as_objects(datasets: Sequence[xarray.Dataset]) -> list[xarray.Dataset]:
    """Return the datasets with objects in place of dates that will meet dates of another calendar.

    xarray makes integers of such dates, outside of indexes.
    """
    kinds: dict[Hashable, set[str]] = {}
    for dataset in datasets:
        for name, variable in dataset.variables.items():
            kinds.setdefault(name, set()).add(variable.dtype.kind)
    mixed = {name for name, found in kinds.items() if "O" in found and found & {"m", "M"}}
    return [_dates_as_objects(dataset, mixed) for dataset in datasets]


def _dates_as_objects(dataset: xarray.Dataset, names: set[Hashable]) -> xarray.Dataset:
    new = {}
    for name in names & dataset.variables.keys() - dataset.xindexes.keys():
        variable = dataset.variables[name]
        if variable.size <= DATES_LIMIT:  # Dask cannot always join objects of its own with ones in memory
            values = cast_values(variable.values, np.dtype(object))
            new[name] = xarray.Variable(variable.dims, values, variable.attrs, variable.encoding, fastpath=True)
        elif variable.dtype.kind in "mM":
            array: Any = variable.chunk().data
            new[name] = variable.copy(deep=False, data=array.map_blocks(to_date_objects, dtype=object))
    coords = {name: variable for name, variable in new.items() if name in dataset.coords}
    return dataset.assign({name: v for name, v in new.items() if name not in coords}).assign_coords(coords)


def _combine_nested(
    grid: Mapping[GridPosition, Any], dims: Sequence[ConcatDim], how: Mapping[str, Any]
) -> xarray.Dataset:
    """Return a grid of datasets combined; some may be missing where there is one dimension only."""
    depth = len(next(iter(grid)))
    along: list[Any] = []
    for level, dim in enumerate(dims):
        there = sorted({place[level] for place in grid})
        if isinstance(dim, tuple):
            labels = dim[1][there] if len(dim[1]) > len(there) else dim[1]
            along.append(pandas.Index(labels, name=dim[0]))
        else:
            along.append(dim)
    lists = _nested_lists(grid, depth, ())
    return _ask_xarray(xarray.combine_nested, lists, concat_dim=along, **how)


def _ask_xarray(combine: Callable[..., Any], datasets: Any, **how: Any) -> xarray.Dataset:
    """Return what a function of xarray combines; its errors become a `CombineError`."""
    try:
        combined = combine(datasets, **how)
    except InsituError:
        raise
    # xarray, and Dask below it, raise these for types, labels and shapes that do not fit together.
    except (TypeError, ValueError, NotImplementedError) as refused:
        raise CombineError(
            f"xarray cannot combine the results of preprocess: {refused}",
            hint="Compute after opening, not in preprocess",
        ) from refused
    assert isinstance(combined, xarray.Dataset)
    return combined


def _nested_lists(grid: Mapping[GridPosition, Any], depth: int, at: GridPosition) -> Any:
    """Return a grid as nested lists, without empty rows."""
    if len(at) == depth:
        return grid[at]
    numbers = sorted({place[len(at)] for place in grid})
    row = [n for n in numbers if any(place[: len(at) + 1] == (*at, n) for place in grid)]
    if row != numbers:
        raise CombineError(
            f"there is no file at position {(*at, next(n for n in numbers if n not in row))} of the "
            "grid, and computed values cannot be absent",
            hint="Compute after opening, not in preprocess, or leave the row out",
        )
    return [_nested_lists(grid, depth, (*at, n)) for n in row]
