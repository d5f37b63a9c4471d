"""What do members make that lie side by side: different variables, or different parts of the same labels? xarray's `merge`, on tables."""

from __future__ import annotations

from collections.abc import Sequence

from insitu.combining.align import aligned
from insitu.combining.attributes import common, merged_attributes
from insitu.combining.equality import merged_variable, same_values
from insitu.combining.member import CombineError, Member, Variable
from insitu.combining.no_conflicts import Labels, interlocked
from insitu.combining.rules import Rules

__all__ = ["merge"]


def merge(members: Sequence[Member], rules: Rules) -> Member:
    """The members as one, variable by variable.

    Parameters
    ----------
    members
        In the order in which the first counts.
    rules
        How variables of one name must agree, and which labels the result has.
    """
    coords = frozenset().union(*(member.coords for member in members))
    data = {name for member in members for name in member.data_names()}
    parts = aligned(members, rules.join)
    if both := coords & data:
        raise CombineError(
            f"unable to determine if these variables should be coordinates or not in the merged result: {set(both)!r}"
        )
    names = dict.fromkeys(name for member in parts for name in member.variables)
    before = Labels(members, parts)
    result: dict[str, Variable] = {}
    for name in names:
        found = [member.variables[name] for member in parts if name in member.variables]
        labels = [member.variables[name] for member in parts if member.index(name) is not None]
        if labels:
            variable = _label(name, labels, rules)
        else:
            fills_in = len(found) > 1 and rules.compat == "no_conflicts" and rules.join != "override"
            variable = (interlocked(name, before) if fills_in else None) or merged_variable(
                name, found, rules.compat, rules.load
            )
        attributes = merged_attributes([v.attributes for v in labels or found], rules.combine_attrs)
        encoding = variable.encoding if len(found) == 1 else common([v.encoding for v in found])
        result[name] = Variable(variable.dims, variable.data, attributes, encoding)
    sizes: dict[str, int] = {}
    for name, variable in result.items():
        for dim, length in variable.sizes.items():
            if sizes.setdefault(dim, length) != length:
                raise CombineError(
                    f"conflicting sizes for dimension {dim!r}: length {length} on {name!r} and {sizes[dim]} before"
                )
    attributes = merged_attributes([member.attributes for member in members], rules.combine_attrs)
    unindexed = frozenset().union(*(member.unindexed for member in parts))
    coords |= {dim for dim in sizes if dim in result}
    return Member(result, coords, attributes, {}, None, unindexed)


def _label(name: str, labels: Sequence[Variable], rules: Rules) -> Variable:
    first = labels[0]
    for other in labels[1:]:
        if other.data is not first.data and not same_values(first.values(rules.load), other.values(rules.load)):
            raise CombineError(f"conflicting values/indexes on objects to be combined for coordinate {name!r}")
        if rules.compat == "identical" and dict(other.attributes) != dict(first.attributes):
            raise CombineError(f"conflicting attribute values on combined variable {name!r}")
    return first
