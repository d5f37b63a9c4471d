"""`FileTable`: what many files make together, before all of them are there.

A worker scans some files and joins their chunk tables; tables are joined to larger tables on other
workers; the caller gets one. So it handles one object for each variable, not one for each file.

The result must be the one that combining all files at once gives. Joining twice is the same as
joining once only for files that agree in everything that combining looks at: names, dimensions,
types, lengths across the join, labels of the other dimensions, values that are not joined. Such
files become one `Run`; others begin another run. Archives that are no sequence of files along one
dimension (a grid of files, labels that interleave) are no table: `NotOneTableError`, and all files are
combined at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from insitu.combining.combine import combine_by_coords, combine_nested
from insitu.combining.combine_files import drop_failures
from insitu.combining.combine_rules import CombineRules
from insitu.combining.concat import concat, with_dims
from insitu.combining.equality import has_equal_values
from insitu.combining.file_order import is_monotonic, order_by_labels
from insitu.combining.recipe import Recipe
from insitu.combining.survey import Survey
from insitu.combining.type_check import TypeCheck
from insitu.errors import CombineError
from insitu.model import VirtualArray
from insitu.open_options import CombineOptions
from insitu.scanning.member import GridPosition, Load, Member, Variable
from insitu.scanning.scan_member import Failure

__all__ = ["FileTable", "JoinPlan", "NotOneTableError"]


class NotOneTableError(Exception):
    """The files cannot be joined part by part: they are to be combined all at once."""


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """How files are joined; travels to workers. The defaults of xarray are those of the caller."""

    dim: str | None
    """The dimension that files follow each other along; None: the one whose labels differ."""
    options: CombineOptions

    @classmethod
    def of(cls, recipe: Recipe, places: Sequence[GridPosition], load: Load) -> JoinPlan | None:
        """Return the plan of a recipe; None if its files must be combined at once."""
        options = recipe.options.combine
        nested = options.combine == "nested"
        if nested and (not isinstance(options.concat_dim, str) or any(len(place) != 1 for place in places)):
            return None
        if not nested and options.concat_dim is not None:
            return None
        rules = recipe.rules(load)
        if rules.compat == "minimal":  # only for merging
            return None
        if rules.combine_attrs not in ("override", "drop"):  # every file's attributes count
            return None
        return cls(options.concat_dim if nested else None, rules.resolved_options())

    def rules(self, load: Load) -> CombineRules:
        """Return the rules by which variables are joined and compared."""
        return CombineRules.of(self.options, load)


@dataclass(frozen=True, slots=True)
class Run:
    """Files that follow each other and agree in everything but the values along one dimension."""

    member: Member
    """The files, joined."""
    files: int
    dim: str | None = None
    """Along which dimension; None for a single file."""
    spread: frozenset[str] = frozenset()
    """Variables that lack the dimension in the files, and got it when they were joined."""
    last: Any = None
    """The first label of the last file, where labels give the order."""


@dataclass(frozen=True, slots=True)
class FileTable:
    """What some files of an archive make together, those that follow in their order."""

    groups: dict[tuple[str, ...], list[Run]]
    """Runs by the names of data variables, if labels give the order: xarray joins each group alone.
    Otherwise one group.
    """
    failures: list[Failure]
    survey: Survey
    """How the files differ."""

    @property
    def files(self) -> int:
        """How many files were scanned."""
        return len(self.survey.urls) + len(self.failures)

    @classmethod
    def of(cls, found: Sequence[Member | Failure], plan: JoinPlan, load: Load) -> FileTable:
        """Return the table of some files, as they were scanned.

        Raises
        ------
        NotOneTableError
            If the files are no sequence along one dimension.
        CombineError
            If their types have nothing in common.
        """
        members = [item for item in found if isinstance(item, Member)]
        groups: dict[tuple[str, ...], list[Run]] = {}
        for member in members:
            if member.groups or member.order or not all(map(_is_plain, member.variables.values())):
                raise NotOneTableError("a file has groups, or variables that were computed")
            key = () if plan.dim is not None else tuple(sorted(member.data_names()))
            groups.setdefault(key, []).append(Run(member, 1))
        survey = Survey.join([Survey.of(found, Member({}, frozenset()))])
        failures = [item for item in found if isinstance(item, Failure)]
        return cls({key: _join_runs(runs, plan, load) for key, runs in groups.items()}, failures, survey)

    @classmethod
    def join(cls, tables: Sequence[FileTable], plan: JoinPlan, load: Load) -> FileTable:
        """Return the table of all files of several tables; raises as `of` does."""
        groups: dict[tuple[str, ...], list[Run]] = {}
        for table in tables:
            for key, runs in table.groups.items():
                groups.setdefault(key, []).extend(runs)
        failures = [failure for table in tables for failure in table.failures]
        survey = Survey.join([table.survey for table in tables])
        return cls({key: _join_runs(runs, plan, load) for key, runs in groups.items()}, failures, survey)

    def combine(self, plan: JoinPlan, load: Load, errors: str) -> tuple[Member, Survey]:
        """Return what all files make together, and how they differ.

        Parameters
        ----------
        plan, load
            How; reads values where they must be compared.
        errors
            What happens to files that could not be opened: "raise", "warn", "skip".
        """
        rules = plan.rules(load)
        members = [run.member for group in self.groups.values() for run in group]
        try:
            if not members:
                combined = Member({}, frozenset())
            elif plan.dim is None:
                combined = combine_by_coords(members, rules)
            else:
                combined = combine_nested({(i,): member for i, member in enumerate(members)}, [plan.dim], rules)
        except CombineError as refused:  # of all files at once, the message names the file
            raise NotOneTableError(str(refused)) from refused
        drop_failures([*self.failures, *members], errors)
        return combined, replace(self.survey, tiles=Survey.count_tiles(combined))


def _is_plain(variable: Variable) -> bool:
    return isinstance(variable.data, (VirtualArray, np.ndarray))


def _join_runs(runs: list[Run], plan: JoinPlan, load: Load) -> list[Run]:
    """Return runs in the order of the result, neighbours that agree joined."""
    _check_types(runs, plan)
    dim = plan.dim
    if dim is None:
        runs, dim = _in_label_order(runs)
    if dim is None:
        return runs
    rules = plan.rules(load)
    _check_presence(runs, plan)
    try:
        joined = [_join_alike(alike, dim, rules) for alike in _split_alike(_spread_alike(runs, dim, load), dim)]
    except CombineError as refused:
        raise NotOneTableError(str(refused)) from refused
    return _spread_alike(joined, dim, load)


def _check_types(runs: Iterable[Run], plan: JoinPlan) -> None:
    check = TypeCheck(plan.dim)
    for run in runs:
        check.add(run.member)


def _in_label_order(runs: list[Run]) -> tuple[list[Run], str | None]:
    """Return runs in the order of their labels, and the dimension; None for a single run.

    Files are ordered by their first labels. Runs stay together only if no file of one lies between
    files of another.
    """
    if len(runs) == 1:
        return runs, None
    try:
        places, dims = order_by_labels([run.member for run in runs])
    except CombineError as refused:
        raise NotOneTableError(str(refused)) from refused
    if len(dims) != 1 or len(set(places)) != len(places):
        raise NotOneTableError("the labels of the files differ along several dimensions, or are the same")
    (dim,) = dims
    if any(run.dim not in (None, dim) for run in runs):
        raise NotOneTableError("the files are a grid: they follow each other along several dimensions")
    ordered = [run for _, run in sorted(zip(places, runs, strict=True), key=lambda item: item[0])]
    labels = [run.member.variables[dim].data for run in ordered]
    whole = np.concatenate([np.asarray(index) for index in labels])
    borders = (_last_beginning(one, dim) == other.member.variables[dim].data[0] for one, other in pairwise(ordered))
    if not (is_monotonic(whole, 1) or is_monotonic(whole, -1)) or any(borders):
        raise NotOneTableError(f"the labels of the files along {dim!r} overlap")
    return ordered, dim


def _last_beginning(run: Run, dim: str) -> Any:
    return run.member.variables[dim].data[0] if run.files == 1 else run.last


def _check_presence(runs: Sequence[Run], plan: JoinPlan) -> None:
    """Raise `NotOneTableError` where xarray counts the files that have a variable."""
    data = {frozenset(run.member.data_names()) for run in runs}
    coords = {run.member.coords for run in runs}
    if (plan.options.data_vars == "different" and len(data) > 1) or (
        plan.options.coords == "different" and len(coords) > 1
    ):
        raise NotOneTableError("some files lack variables that are joined only where they differ")


def _spread_alike(runs: Sequence[Run], dim: str, load: Load) -> list[Run]:
    """Return runs in which all variables have the dimension that have it in some run because they
    were joined there: in front, as in a file that is joined with others.

    Raises
    ------
    NotOneTableError
        If some files have a variable with the dimension, and others that are joined already have it
        without: each file's own values are needed.
    """
    spread = frozenset().union(*(run.spread for run in runs))
    having = {name for run in runs for name, v in run.member.variables.items() if dim in v.dims} - spread
    # What had to be read to be compared stays in memory, as in one join.
    in_memory = {name for run in runs for name in run.spread if isinstance(run.member.variables[name].data, np.ndarray)}
    found = []
    for run in runs:
        variables = dict(run.member.variables)
        lacking = {name for name, variable in variables.items() if dim not in variable.dims}
        if (run.files > 1 and lacking & having) or spread & variables.keys() - lacking - run.spread:
            raise NotOneTableError(f"variables have the dimension {dim!r} in some files only")
        for name in lacking & spread:
            variable = variables[name]
            if name in in_memory:
                variable.values(load)
            variables[name] = with_dims(variable, (dim, *variable.dims), {dim: run.member.sizes.get(dim, 1)})
        if lacking & spread:
            run = replace(run, member=run.member.with_variables(variables), spread=run.spread | (lacking & spread))
        found.append(run)
    return found


def _split_alike(runs: Sequence[Run], dim: str) -> list[list[Run]]:
    """Return runs in lists of neighbours that agree."""
    parts: list[list[Run]] = []
    for run in runs:
        if parts and _is_alike(parts[-1][0].member, run.member, dim):
            parts[-1].append(run)
        else:
            parts.append([run])
    return parts


def _is_alike(one: Member, other: Member, dim: str) -> bool:
    """Return whether two members agree in everything but the values along a dimension.

    Values of variables without the dimension are compared later, if they count.
    """
    if one.variables.keys() != other.variables.keys() or one.coords != other.coords:
        return False
    if one.unindexed != other.unindexed or not any(dim in variable.dims for variable in one.variables.values()):
        return False
    for name, variable in one.variables.items():
        own = other.variables[name]
        if variable.dims != own.dims or variable.dtype != own.dtype:
            return False
        if variable.dims != (dim,):
            for axis, length, own_length in zip(variable.dims, variable.shape, own.shape, strict=True):
                if (own_length != length and axis != dim) or not own_length:
                    return False
        if name != dim and one.index(name) is not None:
            labels, own_labels = one.index(name), other.index(name)
            if labels is None or own_labels is None or not has_equal_values(labels, own_labels):
                return False
    return True


def _join_alike(runs: Sequence[Run], dim: str, rules: CombineRules) -> Run:
    """Return runs that agree as one.

    Raises
    ------
    NotOneTableError
        If a variable that is not joined has different values that count as the same: which one is
        taken depends on all files.
    """
    if len(runs) == 1:
        return runs[0]
    members = [run.member for run in runs]
    whole = replace(concat(members, dim, rules), source=members[0].source)
    for name, variable in whole.variables.items():
        if dim in variable.dims or rules.compat == "override" or whole.index(name) is not None:
            continue
        if not all(_has_same_bytes(members[0].variables[name], member.variables[name]) for member in members[1:]):
            raise NotOneTableError(f"the values of {name!r} differ, but count as the same")
    first = members[0].variables
    spread = {
        name for name, variable in whole.variables.items() if dim in variable.dims and dim not in first[name].dims
    }
    labels = members[-1].index(dim)
    last = runs[-1].last if runs[-1].files > 1 or labels is None else labels[0]
    return Run(whole, sum(run.files for run in runs), dim, runs[0].spread | spread, last)


def _has_same_bytes(one: Variable, other: Variable) -> bool:
    """Return whether two variables have the same values; those that were not read are not compared."""
    a, b = one.data, other.data
    if a is b:
        return True
    if isinstance(a, VirtualArray) or isinstance(b, VirtualArray):
        return False
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return has_equal_values(a, b) if a.dtype.hasobject else bool(a.tobytes() == b.tobytes())
