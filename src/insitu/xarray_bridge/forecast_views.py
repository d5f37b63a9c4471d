"""Views of a forecast collection, virtual: the newest forecast of each time, one lead time, one run.

A collection has the axes of reference time and lead time. Of most valid times several runs say
something; which run counts is a choice for each valid time, so a view is a selection by points of
these two axes. Nothing is read for it: which run has which lead time is known from the tables of
chunks.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas
import xarray

from insitu.errors import SelectionError, UnsupportedError, VariableError
from insitu.expressions.nodes import stored_arrays
from insitu.model import count_written
from insitu.xarray_bridge.backend_array import find_lazy_array

__all__ = ["Forecasts"]

RUN, LEAD = "forecast_reference_time", "forecast_period"
"""CF's standard names of the two axes."""
USUAL_NAMES = {RUN: "time", LEAD: "step"}
"""Names where nothing has the standard name."""
VALID = "valid_time"
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Forecasts:
    """A dataset with the axes of reference time and lead time."""

    dataset: xarray.Dataset
    run: Hashable
    lead: Hashable

    @classmethod
    def of(cls, dataset: xarray.Dataset) -> Forecasts:
        """Return the forecasts of a dataset; a single run or lead time becomes an axis of length 1.

        Raises
        ------
        VariableError
            If the dataset has no such axes.
        """
        names = {role: _find_axis(dataset, role) for role in (RUN, LEAD)}
        single = [name for name in names.values() if name not in dataset.dims]
        present = set(names.values()) - set(single)
        # What does not have the axis that there is (a land mask) is no forecast.
        forecasts = [name for name, each in dataset.data_vars.items() if present <= set(each.dims)]
        for name in single:
            wide = dataset[[*forecasts, name]].expand_dims(name)
            dataset = dataset.drop_vars([name]).assign(wide)
        return cls(dataset, names[RUN], names[LEAD])

    @property
    def valid_times(self) -> npt.NDArray[Any]:
        """The time that each lead time of each run is about: (run, lead time)."""
        runs, leads = self.dataset[self.run].values, self.dataset[self.lead].values
        if leads.dtype.kind == "m" and runs.dtype.kind == "O":  # dates of cftime
            leads = np.array(pandas.to_timedelta(leads).to_pytimedelta(), object)
        elif leads.dtype.kind != "m":
            units = self.dataset[self.lead].attrs.get("units", self.dataset[self.lead].encoding.get("units", ""))
            leads = _durations(leads, str(units))
        return np.asarray(runs[:, None] + leads[None, :])

    def best(self, as_of: Any = None) -> xarray.Dataset:
        """Return for every valid time the newest run that has it: see `ds.insitu.best`."""
        runs = self.dataset.indexes[self.run]
        known = np.ones(len(runs), bool)
        if as_of is not None:
            known = np.zeros(len(runs), bool)
            order = runs.argsort()
            try:
                known[order[runs[order].slice_indexer(None, as_of)]] = True
            except (TypeError, ValueError, KeyError) as problem:
                raise SelectionError(
                    f"as_of={as_of!r} is no moment that runs can be compared with: {problem}"
                ) from None
        count = np.where(known[:, None], self._count_present(), 0)
        run, lead = np.nonzero(count)
        if not len(run):
            raise SelectionError(
                f"no run is known as of {as_of}" if as_of is not None else "the collection has no values"
            )
        valid, number = np.unique(self.valid_times[run, lead], return_inverse=True)
        # By valid time; then what most variables have; then the newest run. The last of each is taken.
        age = np.empty(len(runs), np.int64)
        age[runs.argsort()] = np.arange(len(runs))
        order = np.lexsort((age[run], count[run, lead], number.reshape(-1)))
        last = order[np.flatnonzero(np.diff(number.reshape(-1)[order], append=-1))]
        return self._at_points(run[last], lead[last], VALID).assign_coords({VALID: self._valid_time((VALID,), valid)})

    def constant_lead(self, lead: Any) -> xarray.Dataset:
        """Return one lead time of every run: see `ds.insitu.constant_lead`."""
        number = self._find(self.lead, _as_duration(lead, self.dataset[self.lead].dtype), "lead time")
        return self._along_valid_time(np.flatnonzero(self._count_present()[:, number]), [number], self.run)

    def one_run(self, run: Any = None) -> xarray.Dataset:
        """Return all lead times of one run: see `ds.insitu.run`."""
        runs = self.dataset.indexes[self.run]
        number = int(runs.argmax()) if run is None else self._find(self.run, run, "run")
        return self._along_valid_time([number], np.flatnonzero(self._count_present()[number]), self.lead)

    def at_valid_time(self, when: Any) -> xarray.Dataset:
        """Return what every run says of one time: see `ds.insitu.at_valid_time`."""
        valid, present = self.valid_times, self._count_present() > 0
        moments = pandas.Index(np.unique(valid))
        try:
            moment = moments[moments.get_loc(when)]
        except (KeyError, TypeError, ValueError):
            raise SelectionError(
                f"no run has the valid time {when}", hint=f"They are from {moments[0]} to {moments[-1]}"
            ) from None
        if isinstance(moment, pandas.Index):
            raise SelectionError(f"{len(moment)} valid times are within {when}", hint="Give one of them")
        moment = np.datetime64(moment) if valid.dtype.kind == "M" else moment
        run, lead = np.nonzero(present & (valid == moment))
        if not len(run):
            raise SelectionError(f"no run has the valid time {when}", hint="The runs that would have it are incomplete")
        found = self._at_points(run, lead, self.run)
        return found.assign_coords({VALID: self._valid_time((), np.asarray(moment))})

    def _valid_time(self, dims: tuple[Hashable, ...], values: npt.NDArray[Any]) -> xarray.Variable:
        known = self.dataset.variables.get(VALID)
        attributes = {"standard_name": "time", "long_name": "time"} if known is None else known.attrs
        return xarray.Variable(dims, values, attributes)

    def _find(self, name: Hashable, label: Any, what: str) -> int:
        index = self.dataset.indexes[name]
        try:
            found = index.get_loc(label)
        except (KeyError, TypeError, ValueError):
            raise SelectionError(
                f"the collection has no {what} {label}", hint=f"They are from {index.min()} to {index.max()}"
            ) from None
        chosen = np.arange(len(index))[found]
        if np.size(chosen) != 1:
            raise SelectionError(f"{np.size(chosen)} labels of {name!r} are within {label}", hint="Give one of them")
        return int(np.reshape(chosen, -1)[0])

    def _along_valid_time(self, runs: npt.ArrayLike, leads: npt.ArrayLike, along: Hashable) -> xarray.Dataset:
        """Return some runs at one lead time, or some lead times of one run, by their valid times."""
        other = self.lead if along == self.run else self.run
        chosen = {self.run: np.asarray(runs), self.lead: np.asarray(leads)}
        valid = self.valid_times[np.ix_(chosen[self.run], chosen[self.lead])].reshape(-1)
        found = self.dataset.drop_vars(VALID, errors="ignore").isel(chosen)
        found = found.isel({other: 0}).assign_coords({VALID: self._valid_time((along,), valid)})
        return found.swap_dims({along: VALID})

    def _at_points(self, runs: npt.ArrayLike, leads: npt.ArrayLike, dim: Hashable) -> xarray.Dataset:
        points = {
            self.run: xarray.Variable((dim,), np.asarray(runs)),
            self.lead: xarray.Variable((dim,), np.asarray(leads)),
        }
        return self.dataset.drop_vars(VALID, errors="ignore").isel(points)

    def _count_present(self) -> Counts:
        """Return how many fields there are of each lead time of each run: (run, lead time)."""
        shape = (self.dataset.sizes[self.run], self.dataset.sizes[self.lead])
        count = np.zeros(shape, np.int64)
        seen: dict[Any, Counts] = {}
        for variable in self.dataset.data_vars.values():
            axes = [variable.dims.index(name) for name in (self.run, self.lead) if name in variable.dims]
            if len(axes) == 2:
                count += _count_of_variable(variable.variable, axes, seen)
        return count


def _find_axis(dataset: xarray.Dataset, role: str) -> Hashable:
    """Return the name of the reference time, or of the lead time."""
    named = [name for name, each in dataset.coords.items() if each.attrs.get("standard_name") == role and each.ndim < 2]
    axes = [name for name in named if name in dataset.dims] or [name for name in named if not dataset[name].ndim]
    usual = USUAL_NAMES[role]
    if not axes and usual in dataset.coords and (usual in dataset.dims or not dataset[usual].ndim):
        axes = [usual]
    if len(axes) != 1:
        what = f"several ({', '.join(map(str, axes))})" if axes else "none"
        raise VariableError(
            f"a forecast collection has one axis with the standard name {role!r}; the dataset has {what}",
            hint="Open the files with insitu.open_forecasts",
        )
    return axes[0]


def _count_of_variable(variable: xarray.Variable, axes: Sequence[int], seen: dict[Any, Counts]) -> Counts:
    """Return how many fields a variable has in each cell of two of its axes."""
    lazy = find_lazy_array(variable)
    if lazy is None:
        if not isinstance(variable._data, np.ndarray) and not isinstance(variable.data, np.ndarray):
            raise UnsupportedError(
                "which run has which lead time is not known of Dask arrays",
                hint="Open the collection without chunks=, and take ds.chunk() of the view",
            )
        others = tuple(axis for axis in range(variable.ndim) if axis not in axes)
        present = ~pandas.isnull(variable.values) if variable.size else np.zeros(variable.shape, bool)
        counted = present.any(axis=others) if others else present
        return np.asarray(counted if axes[0] < axes[1] else counted.T, np.int64)
    found: Counts | None = None
    for stored in stored_arrays(lazy.node):
        if stored.shape != lazy.shape:
            continue  # what is broadcast to the forecasts says nothing of them
        key = (id(stored.array), *axes)
        counted = seen.get(key)
        if counted is None:
            counted = seen[key] = count_written(stored.array, axes)
        found = counted if found is None else np.minimum(found, counted)
    return np.ones([variable.shape[axis] for axis in axes], np.int64) if found is None else found


def _as_duration(lead: Any, dtype: np.dtype[Any]) -> Any:
    """Return a lead time as labels have it: a number counts hours."""
    if dtype.kind == "m":
        is_number = isinstance(lead, (int, float, np.number)) and not isinstance(
            lead, np.timedelta64
        )  # a number to NumPy
        try:
            return pandas.Timedelta(lead, "h") if is_number else pandas.Timedelta(lead)
        except (TypeError, ValueError) as problem:
            raise SelectionError(f"{lead!r} is no lead time: {problem}", hint='Give hours, or "6h"') from None
    return lead


_UNITS = {"hours": "h", "hour": "h", "h": "h", "days": "D", "day": "D", "minutes": "m", "seconds": "s"}


def _durations(leads: npt.NDArray[Any], units: str) -> npt.NDArray[Any]:
    """Return lead times that are numbers as durations."""
    if units not in _UNITS or leads.dtype.kind not in "iuf":
        raise UnsupportedError(
            f"lead times of type {leads.dtype} in the units {units!r} cannot be added to reference times",
            hint="Open the collection with decode_timedelta=True",
        )
    return np.asarray(pandas.to_timedelta(leads, unit=_UNITS[units]).to_numpy())
