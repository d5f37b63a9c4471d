"""Which variables are joined along a dimension, by xarray's `data_vars` and `coords`.

Asked of members, and of the kinds of files before their tables are joined (`FileKind`): both say
names, dimensions and coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from insitu.combining.combine_rules import CombineRules
from insitu.errors import CombineError

__all__ = ["Choice", "choose_variables", "joined_dims", "missing_in_text"]


class Outline(Protocol):
    """What is asked of a member here."""

    @property
    def variables(self) -> Mapping[str, Any]:
        """Variables by name, which have `dims`."""

    @property
    def coords(self) -> frozenset[str]:
        """Which of them are coordinates."""

    def data_names(self) -> list[str]:
        """Return the others."""


@dataclass(slots=True)
class Choice:
    """Which variables are joined."""

    over: set[str] = field(default_factory=set)
    equal: dict[str, bool] = field(default_factory=dict)
    """Variables that were found to be the same in all members, or not."""


def choose_variables(
    members: Sequence[Outline],
    sizes: Sequence[Mapping[str, int]],
    dim: str,
    exists: bool,
    rules: CombineRules,
    is_same: Callable[[str], bool],
    sources: Sequence[str | None],
) -> Choice:
    """Return which variables are joined.

    Parameters
    ----------
    members, sizes
        The members, and the lengths of the dimensions of each.
    dim, exists
        The dimension, and whether any member has it.
    rules
        The options.
    is_same
        Says whether a variable that all members have is the same in all of them.
    sources
        The files, for messages.
    """
    choice = Choice(over=set(rules.padding.varying))
    if exists:
        choice.over.add(dim)
    data_vars = rules.data_vars
    if data_vars == "minimal" and rules.coords == "minimal" and not exists:
        raise CombineError(
            "Cannot specify both data_vars='minimal' and coords='minimal' when concatenating over a new dimension."
        )
    if data_vars is None:
        data_vars = "minimal" if exists else "all"
    for member in members:
        choice.over.update(name for name, variable in member.variables.items() if dim in variable.dims)
    options: tuple[tuple[Literal["data_vars", "coords"], Any], ...] = (
        ("data_vars", data_vars),
        ("coords", rules.coords),
    )
    for which, option in options:
        if not isinstance(option, str):
            valid = _subset(members[0], which)
            if invalid := [name for name in option if name not in valid]:
                raise CombineError(f"the variables {invalid} in {which} are not found in the first dataset")
            choice.over.update(option)
        elif option == "all":
            for member, dims in zip(members, sizes, strict=True):
                choice.over.update(name for name in _subset(member, which) if name not in dims)
        elif option == "different":
            if rules.compat == "override":
                raise CombineError(f"Cannot specify both {which}='different' and compat='override'.")
            _choose_different(choice, members, which, is_same, sources)
        elif option != "minimal":
            raise CombineError(f"unexpected value for {which}: {option}")
    return choice


def _subset(member: Outline, which: str) -> list[str]:
    if which == "data_vars":
        return member.data_names()
    return [name for name in member.variables if name in member.coords]


def _choose_different(
    choice: Choice,
    members: Sequence[Outline],
    which: str,
    is_same: Callable[[str], bool],
    sources: Sequence[str | None],
) -> None:
    for name in _subset(members[0], which):
        if name in choice.over:
            continue
        count = sum(name in member.variables for member in members)
        if count == 1:
            break  # as xarray does
        if count != len(members):
            raise CombineError(
                f"{name!r} not present in all datasets and coords='different'. Either add {name!r} to datasets "
                f"where it is missing or specify coords='minimal'.{missing_in_text(name, members, sources)}"
            )
        choice.equal[name] = is_same(name)
        if not choice.equal[name]:
            choice.over.add(name)


def joined_dims(parts: Iterable[tuple[str, ...]], dim: str) -> tuple[str, ...]:
    """Return the dimensions of a joined variable, from those of its parts in order."""
    dims = dict.fromkeys(own for part in parts for own in part)
    return tuple(dims) if dim in dims else (dim, *dims)


def missing_in_text(name: str, members: Sequence[Outline], sources: Sequence[str | None]) -> str:
    """Return which files lack a variable, as a line of a message."""
    lacking = [
        source for source, member in zip(sources, members, strict=True) if source and name not in member.variables
    ]
    return f"\n  missing in: {', '.join(lacking[:3])}{' …' if len(lacking) > 3 else ''}" if lacking else ""
