"""Conversion between members of an archive and xarray datasets."""

from __future__ import annotations

import warnings
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import xarray

from insitu.errors import FormatError, UnsupportedError
from insitu.formats import InsituWarning
from insitu.lazy_array.duck_array import LazyArray
from insitu.model import VirtualArray
from insitu.reading import ReadContext
from insitu.scanning.member import Member, Variable
from insitu.sources import redact_url
from insitu.xarray_bridge.backend_array import dataset_name, find_lazy_array, stored_name, to_cached_array
from insitu.xarray_bridge.xarray_hooks import install_hooks

__all__ = ["drop_conflicting_variables", "is_dask", "to_dataset", "to_member"]


def to_dataset(member: Member, context: ReadContext | None = None, *, indexed: bool = True) -> xarray.Dataset:
    """Return a member as a dataset: virtual arrays where values are not known yet.

    Parameters
    ----------
    member
        What was found.
    context
        How its values are reached.
    indexed
        Whether the labels of dimensions become indexes.
    """
    install_hooks()
    context = context or ReadContext()
    coords: dict[Any, xarray.Variable] = {}
    data: dict[Any, xarray.Variable] = {}
    for name, variable in member.variables.items():
        made = _to_xarray_variable(name, variable, context, name in member.coords)
        if member.source is not None:
            made.encoding = {"original_shape": variable.shape, **made.encoding, "source": member.source}
        (coords if name in member.coords else data)[dataset_name(name)] = made
    plain = {name: coords.pop(name) for name in member.unindexed if indexed and name in coords}
    labels: Any = coords if indexed else xarray.Coordinates(coords, indexes={})
    try:
        dataset = xarray.Dataset(data, coords=labels, attrs=dict(member.attributes))
    except ValueError as refused:  # a dimension of two lengths, say: Zarr and damaged files can say such things
        raise FormatError(
            f"the variables do not fit into one dataset: {refused}",
            url=member.source,
            hint="Give errors='warn' to leave out what does not fit, or drop_variables=[…]",
        ) from refused
    if plain:
        dataset = dataset.assign_coords(xarray.Coordinates(plain, indexes={}))
    dataset.encoding = dict(member.encoding)
    _prepare_accessors(dataset)
    if context.values is not None and context.owner is not None:
        dataset.set_close(partial(context.values.release, context.owner))
    return dataset


def _prepare_accessors(dataset: xarray.Dataset) -> None:
    """Give a dataset the empty dictionary of accessors that xarray makes at their first use.

    xarray then first looks for a variable of that name, and for similar names: 1.5 ms for 76 variables.
    """
    with suppress(AttributeError):  # a release that keeps them elsewhere
        dataset._cache = {}


def drop_conflicting_variables(member: Member) -> Member:
    """Return the member without variables that disagree about the length of a dimension.

    A warning names each.

    What labels a dimension decides its length, else the first variable that has it.
    """
    names = sorted(member.variables, key=lambda name: member.variables[name].dims != (name,))
    sizes: dict[str, int] = {}
    shown_names: set[str] = set()
    for name in names:
        own = member.variables[name].sizes
        if wrong := [dim for dim, length in own.items() if sizes.get(dim, length) != length]:
            lengths = ", ".join(
                f"dimension {dim!r} has length {own[dim]}, and {sizes[dim]} in other variables" for dim in wrong
            )
            where = f" [in {redact_url(member.source)}]" if member.source else ""
            warnings.warn(f"left out: variable {name!r}: {lengths}{where}", InsituWarning, stacklevel=3)
            continue
        sizes |= own
        shown_names.add(name)
    if len(shown_names) == len(names):
        return member
    return member.with_variables(
        {name: v for name, v in member.variables.items() if name in shown_names}, member.coords & shown_names
    )


def _to_xarray_variable(name: str, variable: Variable, context: ReadContext, coordinate: bool) -> xarray.Variable:
    data: Any = variable.data
    if isinstance(data, VirtualArray):
        data = LazyArray(data, context.of_variable(name))
        if variable.known is not None and context.values is not None and context.values.can_keep(variable.known.nbytes):
            context.values.keep(data.node.make_key(), variable.known, context.owner)
        data = to_cached_array(data) if coordinate else data
    return xarray.Variable(
        variable.dims, data, dict(variable.attributes), encoding=dict(variable.encoding), fastpath=True
    )


def to_member(dataset: xarray.Dataset, source: str | None = None, limit: int | None = None) -> Member:
    """Return a dataset (after a preprocess) as a member: virtual where it still is, else values.

    Parameters
    ----------
    dataset
        The dataset.
    source
        The file it was.
    limit
        Of a preprocess: expressions stay virtual, and what was computed and has more bytes than
        this stays a Dask array, if there is Dask (see `preprocess_computed`). None: to be saved.

    Raises
    ------
    UnsupportedError
        If a variable is to be saved that is a formula: references hold stored values only.
    """
    variables: dict[str, Variable] = {}
    for name, variable in dataset.variables.items():
        variables[stored_name(name)] = Variable(
            tuple(str(dim) for dim in variable.dims),
            _data_of_variable(stored_name(name), variable, name in dataset.coords, limit),
            dict(variable.attrs),
            dict(variable.encoding),
        )
    indexed = {stored_name(name) for name in dataset.xindexes}
    unindexed = frozenset(n for n in map(stored_name, dataset.coords) if variables[n].dims == (n,) and n not in indexed)
    coords = frozenset(stored_name(name) for name in dataset.coords)
    order = tuple(map(str, dataset.sizes))
    return Member(variables, coords, dict(dataset.attrs), dict(dataset.encoding), source, unindexed, (), order)


def _data_of_variable(name: str, variable: xarray.Variable, is_coordinate: bool, limit: int | None) -> Any:
    lazy = find_lazy_array(variable)
    large = limit is not None and variable.nbytes > limit and find_spec("dask") is not None
    if lazy is None:
        return variable.data if large and is_dask(variable.data) else np.asarray(variable.values)
    if lazy.is_stored:
        return lazy.array
    if limit is None:
        from insitu.expressions.formula_text import formula

        raise UnsupportedError(
            f"variable {name!r} is computed, as {formula(lazy.node)}: references hold stored values only",
            hint=f"Store its values with to_zarr() or to_netcdf(), which stream them, and save the others: "
            f"ds.drop_vars({name!r}).insitu.save(…). If it is small, load() it: values are saved, too",
        )
    return lazy.read() if is_coordinate else lazy


def is_dask(data: Any) -> bool:
    """Return whether data are a Dask array."""
    return hasattr(data, "dask")
