"""One instance of CF's discrete sampling geometries: a station, a profile, a trajectory of a dataset that keeps the
samples of all in one row.

In a contiguous ragged array a count variable says how many samples each instance has (attribute
`sample_dimension`); in an indexed one an index variable says which instance each sample belongs to
(`instance_dimension`); profiles of stations have both, one within the other (CF 1.12, section 9.3 and appendix H).
Only these variables are read: the samples are selected, and stay virtual. Arrays of one length for each instance
have no such variable: there the dimension of the identifier (`cf_role`) is selected from.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray

from insitu.errors import FormatError, SelectionError

__all__ = ["select_instance"]

Indices = npt.NDArray[np.int64]
SHOWN_LABELS = 4


@dataclass(frozen=True, slots=True)
class _Ragged:
    """A count or index variable, and the dimensions that it relates."""

    name: Hashable
    instances: str
    samples: str
    has_counts: bool


def select_instance(dataset: xarray.Dataset, which: Any, label: Any, dim: str | None) -> xarray.Dataset:
    """Return one instance of a dataset: see `ds.insitu.instance`."""
    if isinstance(which, (str, bytes)):
        which, label = None, which if label is None else label
    if (which is None) == (label is None):
        raise SelectionError("give the number of an instance, or its label")
    ragged = _find_ragged(dataset)
    dim = _choose_dim(dataset, ragged, dim)
    count = dataset.sizes[dim]
    try:
        number = _find_label(dataset, dim, label) if which is None else operator.index(which)
    except TypeError:
        raise SelectionError(
            f"{which!r} is no number of an instance", hint="Numbers count from 0; give the label as label=…"
        ) from None
    if not -count <= number < count:
        raise SelectionError(
            f"there is no instance {number} along {dim!r}: there are {count}",
            hint="A number counts from 0; give the label as label=…",
        )
    keys: dict[Hashable, Any] = {dim: number % count}
    dropped: list[Hashable] = []
    renumbered: dict[Hashable, xarray.Variable] = {}
    chosen: Indices = np.array([number % count])
    above = dim
    while (relation := next((one for one in ragged if one.instances == above), None)) is not None:
        if relation.samples in keys:
            raise FormatError(f"the variable {relation.name!r} relates {above!r} to {relation.samples!r} in a circle")
        numbers = _read_relation(dataset, relation)
        if relation.has_counts:
            ends = np.cumsum(numbers)
            each = [np.arange(ends[one] - numbers[one], ends[one]) for one in chosen]
            samples = np.concatenate(each) if each else np.zeros(0, np.int64)
        else:
            samples = np.flatnonzero(np.isin(numbers, chosen))
        keys[relation.samples] = _to_slice(samples)
        if above == dim:
            dropped.append(relation.name)
        elif not relation.has_counts:  # instances within the one that was chosen are counted anew
            variable = dataset.variables[relation.name]
            new = np.searchsorted(chosen, numbers[samples]).astype(variable.dtype)
            renumbered[relation.name] = xarray.Variable(variable.dims, new, variable.attrs, variable.encoding)
        chosen, above = samples, relation.samples
    found = dataset.isel(keys).drop_vars(dropped)
    coords = {name: variable for name, variable in renumbered.items() if name in dataset.coords}
    data = {name: variable for name, variable in renumbered.items() if name not in coords}
    return found.assign(data).assign_coords(coords) if renumbered else found


def _find_ragged(dataset: xarray.Dataset) -> list[_Ragged]:
    found = []
    for name, variable in dataset.variables.items():
        for key, has_counts in (("sample_dimension", True), ("instance_dimension", False)):
            other = variable.attrs.get(key)
            if not isinstance(other, str):
                continue
            if variable.ndim != 1 or other not in dataset.sizes:
                raise FormatError(
                    f"the variable {name!r} has {key}={other!r}, and "
                    + ("is not of one dimension" if variable.ndim != 1 else "the dataset has no such dimension"),
                    hint="Select with ds.isel(…)",
                )
            own = str(variable.dims[0])
            found.append(_Ragged(name, own, other, True) if has_counts else _Ragged(name, other, own, False))
    return found


def _choose_dim(dataset: xarray.Dataset, ragged: list[_Ragged], dim: str | None) -> str:
    """Return the dimension of the instances: the outermost one, if none is given."""
    if dim is not None:
        if dim not in dataset.sizes:
            names = ", ".join(map(str, dataset.sizes))
            raise SelectionError(f"the dataset has no dimension {dim!r}", hint=f"Its dimensions are: {names}")
        return dim
    inner = {relation.samples for relation in ragged}
    dims = dict.fromkeys(relation.instances for relation in ragged if relation.instances not in inner)
    dims = dims or dict.fromkeys(str(variable.dims[0]) for _, variable in _find_identifiers(dataset))
    if len(dims) != 1:
        found = " and ".join(map(repr, dims))
        raise SelectionError(
            f"instances lie along {found}" if dims else "the dataset does not say what its instances are: no variable "
            "has the attribute sample_dimension, instance_dimension or cf_role",
            hint="Name their dimension: dim=…",
        )  # fmt: skip
    return next(iter(dims))


def _find_identifiers(dataset: xarray.Dataset) -> list[tuple[Hashable, xarray.Variable]]:
    return [(name, one) for name, one in dataset.variables.items() if "cf_role" in one.attrs and one.ndim == 1]


def _find_label(dataset: xarray.Dataset, dim: str, label: Any) -> int:
    """Return the number of the instance that has a label."""
    names = [(name, variable) for name, variable in _find_identifiers(dataset) if variable.dims == (dim,)]
    if not names:
        raise SelectionError(
            f"the instances along {dim!r} have no labels: no variable has the attribute cf_role",
            hint="Give the number of the instance",
        )
    name, variable = names[0]
    labels = [_to_text(each) for each in variable.values.tolist()]
    numbers = [number for number, each in enumerate(labels) if each == _to_text(label)]
    if len(numbers) != 1:
        shown = ", ".join(labels[:SHOWN_LABELS]) + (", …" if len(labels) > SHOWN_LABELS else "")
        raise SelectionError(
            f"{len(numbers) or 'no'} instances have the label {_to_text(label)!r} in {str(name)!r}",
            hint=f"Labels are {shown}"
            if not numbers
            else f"Give the number of one: {', '.join(map(str, numbers[:9]))}",
        )
    return numbers[0]


def _to_text(label: Any) -> str:
    """Return a label without the blanks and zeros that fill up a text of fixed width."""
    text = label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label)
    return text.rstrip(" \0")


def _read_relation(dataset: xarray.Dataset, relation: _Ragged) -> Indices:
    """Return for each instance how many samples it has, or for each sample the number of its instance; -1: of none."""
    values = np.asarray(dataset.variables[relation.name].values)
    instances, samples = dataset.sizes[relation.instances], dataset.sizes[relation.samples]
    problem = ""
    numbers = np.zeros(0, np.int64)
    if values.dtype.kind not in "iuf":
        problem = f"is of type {values.dtype}, not of integers"
    else:
        missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
        numbers = np.where(missing, 0 if relation.has_counts else -1, values).astype(np.int64)
        if (numbers != values)[~missing].any():
            problem = "has values that are no integers"
        elif relation.has_counts and ((numbers < 0).any() or numbers.sum() != samples):
            problem = f"counts {numbers.sum()} samples, and {relation.samples!r} has {samples}"
        elif not relation.has_counts and ((numbers < 0) & ~missing | (numbers >= instances)).any():
            wrong = numbers[(numbers < 0) & ~missing | (numbers >= instances)][0]
            problem = f"names instance {wrong}, and {relation.instances!r} has {instances}"
    if problem:
        raise FormatError(
            f"the variable {str(relation.name)!r} {problem}",
            hint="If the dataset was cut after opening: choose the instance first, then cut",
        )
    return numbers


def _to_slice(indices: Indices) -> slice | Indices:
    """Return indices that follow each other as a slice, whose chunks are read as they lie."""
    if not len(indices):
        return slice(0, 0)
    first, last = int(indices[0]), int(indices[-1])
    return slice(first, last + 1) if last - first + 1 == len(indices) else indices
