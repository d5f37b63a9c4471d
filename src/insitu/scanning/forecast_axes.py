"""Forecasts of one file with the axes of reference time, lead time and member.

Files say which run they belong to in many ways: keys of GRIB, CF's standard names, their name, an
attribute. Here each becomes the same: variables with the axes `time`, `step` and `number` (or other
names), labelled, so that a file is a box of labels. What valid times a file has follows from these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import CombineError
from insitu.model import VirtualArray
from insitu.open_options import CombineOptions
from insitu.scanning.file_labels import asks_file, label_of_name, labels_from_texts
from insitu.scanning.member import Load, Member, Variable

__all__ = ["LEAD", "MEMBER", "ROLES", "RUN", "VALID", "ForecastAxes"]

RUN, LEAD, MEMBER, VALID = "time", "step", "number", "valid_time"
"""Roles, and the usual names."""
ROLES = (MEMBER, RUN, LEAD)
"""In the order of dimensions, as cfgrib has them."""
_STANDARD_NAMES = {
    RUN: "forecast_reference_time", LEAD: "forecast_period", MEMBER: "realization", VALID: "time",
}  # fmt: skip
_ATTRIBUTES: Mapping[str, dict[str, Any]] = {
    RUN: {"standard_name": "forecast_reference_time", "long_name": "initial time of forecast"},
    LEAD: {"standard_name": "forecast_period", "long_name": "time since forecast_reference_time"},
    MEMBER: {"standard_name": "realization", "long_name": "ensemble member numerical id", "units": "1"},
    VALID: {"standard_name": "time", "long_name": "time"},
}
_HOURS = {"hours": 3600, "hour": 3600, "h": 3600, "hr": 3600, "days": 86400, "day": 86400, "d": 86400,
          "minutes": 60, "minute": 60, "min": 60, "seconds": 1, "second": 1, "s": 1}  # fmt: skip
_HINTS = {
    RUN: 'Say where it is: time=r"(\\d{10})" for a part of the names, "attr:NAME", "var:NAME", or a function',
    LEAD: 'Say where it is: step=r"f(\\d{3})" for a part of the names (hours), "attr:NAME", "var:NAME", or a function',
}
Values = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Labels:
    """What a file says of one role."""

    values: Values
    """One dimension, also of a single value."""
    dim: str | None
    """The dimension that they label; None: a single value."""
    variable: str | None
    """The variable that holds them."""


@dataclass(frozen=True, slots=True)
class ForecastAxes:
    """How the axes of forecasts are called, and what says where a file is along them. Travels to workers."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Role: name of the dimension, where it is not the usual one."""
    rules: Mapping[str, Any] = field(default_factory=dict)
    """Role, or a further dimension: what in the name of a file labels it, a pattern or a function."""

    @classmethod
    def of(cls, options: CombineOptions) -> ForecastAxes | None:
        """Return the axes of forecasts; None if files are not opened as such."""
        if not options.forecasts:
            return None
        names = options.forecasts if isinstance(options.forecasts, Mapping) else {}
        rules = options.concat_dim or {}
        return cls(dict(names), {dim: rule for dim, rule in rules.items() if not asks_file(rule)})

    @staticmethod
    def further(options: CombineOptions) -> list[str]:
        """Return the dimensions beside the axes of forecasts that files are joined along."""
        return [dim for dim in options.concat_dim or () if dim not in ROLES]

    def name(self, role: str) -> str:
        """Return the name of an axis."""
        return self.names.get(role, role)

    def of_file(self, member: Member, load: Load) -> Member:
        """Return what a file holds with the axes of forecasts.

        Raises
        ------
        CombineError
            If the file does not say which run or lead time it is about.
        """
        given = {**member.labels, **self._labels_of_name(member.source or "")}
        further = {dim: np.array([given[dim]]) for dim in given if dim not in _STANDARD_NAMES}
        return self._with_labels(member, given, further, load)

    def of_table(self, member: Member, further: Sequence[str], load: Load) -> Member:
        """Return forecasts that files made together, with all axes again: see `finish`.

        Parameters
        ----------
        member, load
            The forecasts, and what reads values.
        further
            The dimensions beside the axes of forecasts that files were joined along.
        """
        labels = {dim: index for dim in further if (index := member.index(dim)) is not None}
        return self._with_labels(member, {}, labels, load)

    def _with_labels(
        self, member: Member, given: Mapping[str, Any], further: Mapping[str, Values], load: Load
    ) -> Member:
        found = {role: self._find(member, role, given, load) for role in (RUN, LEAD, MEMBER)}
        found[VALID] = _find_valid(member, found, load)
        run, lead = _complete(found, member)
        if (valid := found[VALID]) is not None and valid.variable is not None:  # it follows from the others
            member = _without(member, valid.variable)
        labels = {MEMBER: found[MEMBER], RUN: run, LEAD: lead}
        return self._place(member, {role: each for role, each in labels.items() if each is not None}, further)

    def _labels_of_name(self, url: str) -> dict[str, Any]:
        return {dim: rule(url) if callable(rule) else label_of_name(url, dim, rule) for dim, rule in self.rules.items()}

    def _find(self, member: Member, role: str, given: Mapping[str, Any], load: Load) -> _Labels | None:
        """Return what a file says of a role: by a rule, else by a variable of the standard name."""
        if role in given:
            label = labels_from_texts(RUN, [given[role]])[0] if isinstance(given[role], str) else given[role]
            return _Labels(_to_labels(role, np.array([label]), {}, member), None, None)
        wanted = _STANDARD_NAMES[role]
        named = [
            name for name, variable in member.variables.items()
            if variable.attributes.get("standard_name") == wanted and len(variable.dims) < 2
        ]  # fmt: skip
        named = [name for name in named if member.variables[name].dims == (name,)] or named
        if self.name(role) in named:
            named = [self.name(role)]
        if not named:
            # Whoever does not say which member it is, is the only one, or the control forecast.
            return _Labels(np.zeros(1, np.int64), None, None) if role == MEMBER else None
        if len(named) > 1:
            raise CombineError(
                f"several variables are a {wanted}: {', '.join(map(repr, named))}",
                url=member.source,
                hint=f'Choose one: {role}="var:{named[0]}"',
            )
        return _labels_of_variable(member, role, named[0], load)

    def _place(self, member: Member, labels: Mapping[str, _Labels], further: Mapping[str, Values]) -> Member:
        """Return the member with its variables along the axes, in their order, and these labelled."""
        renamed = {each.dim: self.name(role) for role, each in labels.items() if each.dim is not None}
        known = {each.variable for each in labels.values()}
        axes = {**further,
                **{self.name(role): labels[role].values for role in ROLES if role in labels}}  # fmt: skip
        variables: dict[str, Variable] = {}
        for name, variable in member.variables.items():
            if name in known or (name in renamed and variable.dims == (name,)):
                continue  # labels: those of the axes take their place
            if name in further:
                continue
            if name in axes:
                raise CombineError(
                    f"the file has a variable {name!r} that is not the axis of that name",
                    url=member.source,
                    hint='Call the axes otherwise: names={"time": "run", "step": "lead"}, or drop_variables=',
                )
            dims = tuple(renamed.get(dim, dim) for dim in variable.dims)
            variables[name] = variable if dims == variable.dims else variable.with_data(variable.data, dims)
        result = member.with_variables(variables, member.coords & variables.keys())
        of_forecasts = _variables_of_forecasts(result, set(renamed.values()))
        for name in of_forecasts:
            variables[name] = _with_axes(variables[name], axes)
        for role, each in labels.items():
            before = member.variables.get(each.variable or "")
            attributes = {**(_ATTRIBUTES[role] if before is None else before.attributes)}
            attributes.setdefault("standard_name", _STANDARD_NAMES[role])
            if role == LEAD:
                attributes.pop("units", None)  # it is a duration now
            encoding = {} if before is None or each.values.dtype.kind != before.dtype.kind else before.encoding
            variables[self.name(role)] = Variable((self.name(role),), each.values, attributes, encoding)
        variables |= {dim: Variable((dim,), label) for dim, label in further.items()}
        unindexed = frozenset(dim for each in member.unindexed if (dim := renamed.get(each, each)) not in axes)
        whole = result.with_variables(variables, {*result.coords, *axes})
        return replace(whole, unindexed=unindexed, labels={}, order=())

    def finish(self, member: Member) -> Member:
        """Return what all files make together: with its valid times, and without an axis of one member alone."""
        number, run, lead = (self.name(role) for role in ROLES)
        if member.sizes.get(number) == 1 and member.index(number) is not None:
            member = _squeeze(member, number)
        runs, leads = member.index(run), member.index(lead)
        if runs is None or leads is None:
            return member
        valid = Variable((run, lead), valid_times(runs, leads), _ATTRIBUTES[VALID])
        return member.with_variables({**member.variables, VALID: valid}, member.coords | {VALID})


def valid_times(runs: Values, leads: Values) -> Values:
    """Return the time that each lead time of each run is about: (run, lead time)."""
    if runs.dtype.kind == "O" and leads.dtype.kind == "m":  # dates of cftime
        leads = leads.astype("timedelta64[us]").astype(object)
    return np.asarray(runs[:, None] + leads[None, :])


def _labels_of_variable(member: Member, role: str, name: str, load: Load) -> _Labels:
    variable = member.variables[name]
    values = np.asarray(variable.values(load) if variable.known is None else variable.known)
    labels = _to_labels(role, values.reshape(-1), {**variable.encoding, **variable.attributes}, member)
    return _Labels(labels, variable.dims[0] if variable.dims else None, name)


def _find_valid(member: Member, found: Mapping[str, _Labels | None], load: Load) -> _Labels | None:
    """Return the valid times of a file: what has the standard name, and is no other role."""
    taken = {each.variable for each in found.values() if each is not None}
    for name, variable in member.variables.items():
        is_time = variable.attributes.get("standard_name") == _STANDARD_NAMES[VALID] or name == VALID
        if is_time and name not in taken and len(variable.dims) < 2 and variable.dtype.kind in "MO":
            return _labels_of_variable(member, VALID, name, load)
    # CF does not ask for the standard name of an axis of dates.
    for name, variable in member.variables.items():
        if variable.dims == (name,) and name not in taken and variable.dtype.kind == "M":
            return _labels_of_variable(member, VALID, name, load)
    if found[RUN] is None and found[LEAD] is None:
        return None
    scalar = member.variables.get("time")
    if scalar is not None and "time" not in taken and not scalar.dims and scalar.dtype.kind in "MO":
        return _labels_of_variable(member, VALID, "time", load)
    return None


def _complete(found: Mapping[str, _Labels | None], member: Member) -> tuple[_Labels, _Labels]:
    """Return the reference times and the lead times of a file, one from the other and the valid times if needed."""
    run, lead, valid = found[RUN], found[LEAD], found[VALID]
    if valid is not None and (run is None) is not (lead is None):
        known = lead if run is None else run
        assert known is not None
        if len(known.values) in (1, len(valid.values)) and (known.dim in (None, valid.dim) or len(valid.values) == 1):
            dim = valid.dim if len(valid.values) > 1 or known.dim is None else known.dim
            other = _Labels(np.asarray(valid.values - known.values), dim, None)
            run, lead = (other, known) if run is None else (known, other)
    for role, each, what in ((RUN, run, "run"), (LEAD, lead, "lead time")):
        if each is None:
            raise CombineError(f"the file does not say which {what} it holds", url=member.source, hint=_HINTS[role])
    assert run is not None
    assert lead is not None
    if run.dim is not None and run.dim == lead.dim:
        # Along one dimension: one lead time of many runs, or one run.
        if len(np.unique(lead.values)) == 1:
            lead = _Labels(lead.values[:1], None, lead.variable)
        elif len(np.unique(run.values)) == 1:
            run = _Labels(run.values[:1], None, run.variable)
        else:
            raise CombineError(
                f"the dimension {run.dim!r} runs over both reference and lead times",
                url=member.source,
                hint="Open such a file by itself: it is a view of forecasts, not a table of them",
            )
    return run, lead


def _without(member: Member, name: str) -> Member:
    variables = {own: variable for own, variable in member.variables.items() if own != name}
    return member.with_variables(variables, member.coords & variables.keys())


def _to_labels(role: str, values: Values, attributes: Mapping[str, Any], member: Member) -> Values:
    """Return labels as a role has them: dates, durations, numbers."""
    if role in (RUN, VALID) and values.dtype.kind not in "MO":
        raise CombineError(
            f"the reference time {values[:1].tolist()[0]!r} is no date"
            if role == RUN
            else "the valid times are no dates",
            url=member.source,
            hint="A pattern must give year, month, day and hour (2024030106); a function may give numpy.datetime64",
        )
    if role in (RUN, VALID) and values.dtype.kind == "M":
        nanoseconds = values.astype("datetime64[ns]")
        return nanoseconds if (nanoseconds.astype(values.dtype) == values).all() else values
    if role == LEAD:
        return _to_durations(values, attributes, member)
    return values


def _to_durations(values: Values, attributes: Mapping[str, Any], member: Member) -> Values:
    if values.dtype.kind == "m":
        return values.astype("timedelta64[ns]")
    if values.dtype.kind in "OU":
        import pandas

        try:
            return np.asarray(pandas.to_timedelta(values.tolist()).to_numpy(), "timedelta64[ns]")
        except ValueError:
            pass
    seconds = _HOURS.get(str(attributes.get("units", "hours")).lower())
    if values.dtype.kind not in "iuf" or seconds is None:
        raise CombineError(
            f"the lead time {values[:1].tolist()[0]!r} in units of {attributes.get('units', 'hours')!r} is no duration",
            url=member.source,
            hint='A number counts hours; a text is like "6h"',
        )
    return np.round(values * np.float64(seconds * 1e9)).astype("timedelta64[ns]")


def _variables_of_forecasts(member: Member, dims: set[str]) -> list[str]:
    """Return the variables that the axes belong to: all data, but where a file has one axis of them, what has it."""
    names = member.data_names()
    if dims:
        return [name for name in names if dims & set(member.variables[name].dims)]
    return [name for name in names if member.variables[name].dims] or names


def _with_axes(variable: Variable, axes: Mapping[str, Values]) -> Variable:
    """Return a variable with all axes in front."""
    data, dims = variable.data, variable.dims
    order = (*axes, *(dim for dim in dims if dim not in axes))
    new = [dim for dim in axes if dim not in dims]
    present = (*new, *dims)
    turn = tuple(present.index(dim) for dim in order)
    if isinstance(data, VirtualArray):
        for dim in reversed(new):
            data = data.expand_dims(0, dim, len(axes[dim]))
        data = data.transpose(*turn) if turn != tuple(range(len(turn))) else data
    else:
        data = np.broadcast_to(data, (*(len(axes[dim]) for dim in new), *data.shape)).transpose(turn)
    return variable.with_data(data, order)


def _squeeze(member: Member, dim: str) -> Member:
    """Return a member without a dimension of length 1; its label stays as a single value."""
    variables = {}
    for name, variable in member.variables.items():
        if dim in variable.dims:
            key = tuple(0 if own == dim else slice(None) for own in variable.dims)
            data = variable.data[key]
            data = data if isinstance(data, VirtualArray) else np.asarray(data)
            variable = variable.with_data(data, tuple(own for own in variable.dims if own != dim))
        variables[name] = variable
    return member.with_variables(variables)
