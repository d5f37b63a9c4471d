"""Labels that files themselves give for new dimensions: global attributes and single values.

`concat_dim={"model": "attr:source_id", "member": "var:realization"}`. They are read where a file is
scanned, so that no worker sends more than the label. Of a file with all its groups they may lie in
any: `attr:what/date`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from insitu.errors import CombineError
from insitu.open_options import CombineOptions
from insitu.scanning.member import Load, Member

__all__ = ["ATTRIBUTE", "VARIABLE", "asks_file", "label_rules", "with_labels"]

ATTRIBUTE, VARIABLE = "attr:", "var:"
"""What a rule begins with that names an attribute of the file, or a variable of a single value."""


def asks_file(rule: Any) -> bool:
    """Return whether a rule for labels names something in the file, and is not for its name."""
    return isinstance(rule, str) and rule.startswith((ATTRIBUTE, VARIABLE))


def label_rules(options: CombineOptions) -> dict[str, str]:
    """Return the rules of `concat_dim`, of all groups of a tree, that ask the file.

    Raises
    ------
    CombineError
        If groups ask for different labels of one dimension.
    """
    found: dict[str, str] = {}
    for how in (options.concat_dim, *(own.get("concat_dim") for own in (options.by_group or {}).values())):
        for dim, rule in how.items() if isinstance(how, Mapping) else ():
            if asks_file(rule) and found.setdefault(dim, rule) != rule:
                raise CombineError(
                    f"the dimension {dim!r} has the labels {found[dim]!r} and, in other groups, {rule!r}",
                    hint="Give one dimension another name",
                )
    return found


def with_labels(member: Member, rules: Mapping[str, str], load: Load) -> Member:
    """Return a member with the labels of new dimensions that its file gives.

    Raises
    ------
    CombineError
        If the file does not have the attribute or the variable, or if that is no single value.
    """
    return replace(member, labels={dim: _read_label(member, dim, rule, load) for dim, rule in rules.items()})


def _read_label(member: Member, dim: str, rule: str, load: Load) -> Any:
    name = rule.partition(":")[2]
    group, _, own = name.strip("/").rpartition("/")
    if name not in member.attributes and group in member.below:
        member, name = member.below[group], own
    if rule.startswith(ATTRIBUTE):
        known, what = list(member.attributes), "attribute"
        values = np.asarray(member.attributes.get(name))
    else:
        known, what = list(member.variables), "variable"
        variable = member.variables.get(name)
        if variable is not None and variable.data.size != 1:
            raise CombineError(
                f"the variable {name!r}, which labels the dimension {dim!r}, has the shape {variable.shape}",
                url=member.source,
                hint="A label is a single value",
            )
        values = np.asarray(None if variable is None else variable.values(load))
    if name not in known:
        near = get_close_matches(name, known, 1)
        hint = f"Do you mean {near[0]!r}?" if near else f"There are: {', '.join(map(repr, known[:12]))}"
        raise CombineError(
            f"the file has no {what} {name!r}, which labels the dimension {dim!r}", url=member.source, hint=hint
        )
    if values.size != 1:
        raise CombineError(
            f"the attribute {name!r}, which labels the dimension {dim!r}, has {values.size} values",
            url=member.source,
            hint="A label is a single value",
        )
    label = values.reshape(-1)[0]
    return label if values.dtype.kind in "mM" else label.item() if isinstance(label, np.generic) else label
