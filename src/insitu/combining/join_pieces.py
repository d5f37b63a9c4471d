"""Joins files on the workers that scanned them, before all are joined: files that agree become one piece.

A worker has the tables of some files, and what comes of all is decided by all. But neighbours in
the order of the arrangement that agree in everything that joining looks at (names, types, lengths
across the join, labels of other dimensions, values that are not joined) may be joined at once, and
their piece joined with others later: xarray's rules give the same. Where neighbours differ a piece
ends; each comparison is one of equality, so where pieces end does not depend on what is joined
first. What only all files together decide comes with the `Line`: which variables get the dimension
that they lack. The client joins a few pieces as if each were a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.combining.arrange import Arrangement, iter_lines
from insitu.combining.choose_variables import choose_variables, joined_dims
from insitu.combining.combine_rules import CombineRules
from insitu.combining.concat import join_variable
from insitu.combining.equality import has_equal_values, has_same_attributes, is_same_variable, read_together
from insitu.combining.files_table import FilesTable, VariableKind
from insitu.combining.image_grids import PIXELS, grid_of_image
from insitu.combining.pad import Padding, pad_member
from insitu.model import VirtualArray
from insitu.open_options import CombineOptions
from insitu.scanning.member import ConcatDim, Load, Member, Variable
from insitu.scanning.scan_member import Failure

__all__ = ["Line", "Lines", "Piece", "join_pieces", "make_pieces", "plan_lines"]

NO_LINE = -1
_ANY_ATTRIBUTES = ("override", "drop")
"""Rules of merging attributes by which those of later files do not count."""


@dataclass(frozen=True, slots=True)
class Line:
    """What all files together say of some that follow each other along one dimension."""

    dim: str
    dims: Mapping[str, tuple[str, ...]]
    """Variables that are joined, with the dimensions that they have then."""
    is_new: bool
    """Whether the dimension is made of single values that label the files."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of files, and where each file is in them. A part of it travels with each portion."""

    lines: Mapping[int, Line]
    options: CombineOptions
    padding: Padding
    line: npt.NDArray[np.int32]
    """For each file the number of its line; -1: it is joined with no other early."""
    place: npt.NDArray[np.int32]
    """Where it is in its line."""
    first: int = 0
    """The number of the first file."""

    def of_files(self, first: int, count: int) -> Lines:
        """Return what counts for some files that follow each other."""
        own = slice(first, first + count)
        numbers = np.unique(self.line[own]).tolist()
        lines = {number: self.lines[number] for number in numbers if number != NO_LINE}
        return Lines(lines, self.options, self.padding, self.line[own], self.place[own], first)

    def without_places(self) -> Lines:
        """Return what counts for pieces, which know their places."""
        return replace(self, line=self.line[:0], place=self.place[:0])


@dataclass(frozen=True, slots=True)
class Piece:
    """Files that follow each other in a line, joined."""

    line: int
    start: int
    stop: int
    first: int
    """The number of the first file."""
    member: Member


def plan_lines(arrangement: Arrangement, files: FilesTable, rules: CombineRules) -> Lines | None:
    """Return which files may be joined early; None if there are none.

    Raises
    ------
    CombineError
        If the rules refuse to join the files.
    """
    if rules.compat == "minimal" or callable(rules.combine_attrs):  # a function sees the attributes of every file
        return None
    lines: dict[int, Line] = {}
    line_of, place_of = np.full(len(files), NO_LINE, np.int32), np.zeros(len(files), np.int32)
    for dim, numbers in iter_lines(arrangement):
        if dim is None or len(numbers) < 2:
            continue
        line_of[numbers], place_of[numbers] = len(lines), np.arange(len(numbers))
        lines[len(lines)] = _plan_line(dim, numbers, files, rules)
    return Lines(lines, rules.resolved_options(), rules.padding, line_of, place_of) if lines else None


def _plan_line(concat_dim: ConcatDim, numbers: Sequence[int], files: FilesTable, rules: CombineRules) -> Line:
    dim = concat_dim[0] if isinstance(concat_dim, tuple) else concat_dim
    assert dim is not None
    numbered = files.kind[numbers].tolist()
    kinds = {number: files.kinds[number] for number in dict.fromkeys(numbered)}
    is_new = any(dim in kind.variables for kind in kinds.values()) and not any(
        dim in kind.sizes for kind in kinds.values()
    )
    if is_new:
        kinds = {number: kind.with_label_as_dimension(dim) for number, kind in kinds.items()}
    outlines = {number: _Outline(kind.variables, kind.coords, kind.sizes) for number, kind in kinds.items()}
    members = [outlines[number] for number in numbered]
    choice = choose_variables(
        members,
        [member.sizes for member in members],
        dim,
        any(dim in outline.sizes for outline in outlines.values()),
        rules,
        lambda name: _is_same_as_far_as_known(name, numbers, files, rules),
        [files.urls[number] for number in numbers],
    )
    by_name = {
        name: [outline.variables[name].dims for outline in outlines.values() if name in outline.variables]
        for name in choice.over
    }
    return Line(dim, {name: joined_dims(parts, dim) for name, parts in by_name.items() if parts}, is_new)


@dataclass(frozen=True, slots=True)
class _Outline:
    """A kind of files as `choose_variables` asks for it, looked up once for all files of the kind."""

    variables: Mapping[str, VariableKind]
    coords: frozenset[str]
    sizes: Mapping[str, int]

    def data_names(self) -> list[str]:
        return [name for name in self.variables if name not in self.coords]


def _is_same_as_far_as_known(name: str, numbers: Sequence[int], files: FilesTable, rules: CombineRules) -> bool:
    """Return whether a variable is the same in some files; True also if its values are not known here.

    Then each file whose values differ is a piece of its own, and those are compared.
    """
    column = files.scalars.get(name)
    values = [None if column is None else column[number] for number in numbers]
    first = values[0]
    if first is None or any(value is None for value in values):
        return True
    one = Variable((), first)
    known = {id(value): value for value in values if value is not None and value is not first}
    return all(is_same_variable(one, Variable((), value), rules.compat, _load_nothing) for value in known.values())


def _load_nothing(arrays: list[VirtualArray]) -> list[Any]:
    assert not arrays
    return []


def make_pieces(found: Sequence[Member | Failure], lines: Lines, load: Load) -> list[Piece]:
    """Return the pieces of the files of a portion.

    Parameters
    ----------
    found, lines
        What was scanned, and where each file is.
    load
        Reads values where they must be compared.
    """
    places = enumerate(zip(lines.line.tolist(), lines.place.tolist(), strict=True), lines.first)
    pieces = [
        Piece(line, place, place + 1, number, pad_member(item, lines.padding))
        for item, (number, (line, place)) in zip(found, places, strict=True)
        if isinstance(item, Member)
    ]
    return join_pieces(pieces, lines, load)


def join_pieces(pieces: Iterable[Piece], lines: Lines, load: Load) -> list[Piece]:
    """Return pieces with those joined that follow each other and agree."""
    rules = CombineRules.of(lines.options, load)
    result: list[Piece] = []
    ordered = sorted(pieces, key=lambda piece: (piece.line, piece.start))
    for number, group in groupby(ordered, key=lambda piece: piece.line):
        if number == NO_LINE:
            result += group
            continue
        line, parts = lines.lines[number], list(group)
        _read_compared([part.member for part in parts], line, rules)
        runs = [[parts[0]]]
        for one, other in pairwise(parts):
            if one.stop == other.start and _is_alike(one.member, other.member, line, rules):
                runs[-1].append(other)
            else:
                runs.append([other])
        result += [_join_run(run, line, rules) for run in runs]
    return result


def _needs_dimension(variable: Variable, name: str, line: Line) -> bool:
    """Return whether a variable lacks the dimension and gets it, all else as in the other files."""
    order = line.dims.get(name)
    return order is not None and line.dim not in variable.dims and {*variable.dims, line.dim} == {*order}


def _is_compared(name: str, member: Member, line: Line, rules: CombineRules) -> bool:
    """Return whether the values of a variable must be the same in the files of a piece."""
    variable = member.variables[name]
    if line.dim in variable.dims or _needs_dimension(variable, name, line) or member.index(name) is not None:
        return False
    return rules.compat != "override" or name in line.dims


def _read_compared(members: Sequence[Member], line: Line, rules: CombineRules) -> None:
    """Read the values that must be compared, in one batch. They stay in memory, as in one join of all files."""
    if len(members) > 1:
        read_together(
            [member.variables[name] for member in members for name in member.variables
             if _is_compared(name, member, line, rules)],
            rules.load,
        )  # fmt: skip


def _is_alike(one: Member, other: Member, line: Line, rules: CombineRules) -> bool:
    """Return whether two members agree in everything but the values that are joined."""
    dim = line.dim
    if one.variables.keys() != other.variables.keys() or one.coords != other.coords:
        return False
    if one.unindexed != other.unindexed or one.order or other.order or not _is_of_same_grid(one, other, line):
        return False
    by_attributes = rules.compat == "identical" or rules.combine_attrs not in _ANY_ATTRIBUTES
    if by_attributes and not has_same_attributes(one, other):
        return False
    has_joined = False
    for name, variable in one.variables.items():
        own = other.variables[name]
        if variable.dims != own.dims or variable.dtype != own.dtype:
            return False
        if not (isinstance(variable.data, (VirtualArray, np.ndarray)) and isinstance(own.data, type(variable.data))):
            return False
        if variable.dims != (dim,):
            for axis, length, own_length in zip(variable.dims, variable.shape, own.shape, strict=True):
                if (own_length != length and axis != dim) or not own_length:
                    return False
        if by_attributes and not has_same_attributes(variable, own):
            return False
        has_joined = has_joined or dim in variable.dims or _needs_dimension(variable, name, line)
        labels, own_labels = one.index(name), other.index(name)
        if (labels is None) is not (own_labels is None):
            return False
        if labels is not None and own_labels is not None:
            if name != dim and not has_equal_values(labels, own_labels):
                return False
        elif _is_compared(name, one, line, rules) and not _has_same_bytes(variable, own):
            return False
    return has_joined


def _is_of_same_grid(one: Member, other: Member, line: Line) -> bool:
    """Return whether images may follow each other: see `image_grids`."""
    own, others = grid_of_image(one), grid_of_image(other)
    if own is None or others is None:
        return own is others
    return own == others or (line.dim in PIXELS and own[0] == others[0])


def _has_same_bytes(one: Variable, other: Variable) -> bool:
    """Return whether values are the same to the bit: NaN and a number may count as the same, but which
    one is taken depends on all files.
    """
    a, b = one.data, other.data
    if a is b:
        return True
    if isinstance(a, VirtualArray) or isinstance(b, VirtualArray):
        return False
    return has_equal_values(a, b) if a.dtype.hasobject else a.tobytes() == b.tobytes()


def _join_run(run: Sequence[Piece], line: Line, rules: CombineRules) -> Piece:
    """Return pieces that agree as one. A single one, too, gets the dimension where it lacks it."""
    dim, members = line.dim, [piece.member for piece in run]
    lengths = [member.sizes.get(dim, 1) for member in members]
    first = members[0]
    variables = dict(first.variables)
    for name, variable in first.variables.items():
        order = line.dims[name] if _needs_dimension(variable, name, line) else variable.dims
        if dim not in order or (len(run) == 1 and order == variable.dims):
            continue
        parts = [member.variables[name] for member in members]
        if name == dim:
            read_together(parts, rules.load)  # labels lie in memory
        joined = join_variable(name, parts, lengths, dim, {}, rules, order)
        variables[name] = replace(joined, attributes=variable.attributes)  # merged in the end, of all files
    coords = first.coords | ({dim} if line.is_new and dim in variables else set())
    whole = first.with_variables(variables, coords)
    return Piece(run[0].line, run[0].start, run[-1].stop, run[0].first, whole)
