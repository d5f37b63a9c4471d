r"""Labels of new dimensions that files give: their names, global attributes and single values.

`concat_dim={"time": r"_(\d{8})", "model": "attr:source_id", "member": "var:realization"}`. What
lies in a file is read where it is scanned, so that no worker sends more than the label. Dates in
texts become dates, digits numbers. Of a file with all its groups they may lie in any:
`attr:what/date`.
"""

from __future__ import annotations

import os
import re
from calendar import isleap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from difflib import get_close_matches
from typing import Any

import numpy as np

from insitu.errors import CombineError
from insitu.open_options import CombineOptions
from insitu.scanning.member import Load, Member

__all__ = [
    "asks_file",
    "dates_from_texts",
    "label_of_name",
    "label_rules",
    "labels_from_texts",
    "text_of_name",
    "with_labels",
]

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


def _attributes_of_data(member: Member) -> dict[str, Any]:
    """Return the attributes of a file and those of its data: images have all theirs there.

    Where data variables say different things, none of them counts for the file.
    """
    found: dict[str, Any] = {}
    different: set[str] = set()
    for variable in (member.variables[name] for name in member.data_names()):
        for name, value in variable.attributes.items():
            different |= {name} if repr(found.setdefault(name, value)) != repr(value) else set()
    return {**{name: value for name, value in found.items() if name not in different}, **member.attributes}


def _read_label(member: Member, dim: str, rule: str, load: Load) -> Any:
    name = rule.partition(":")[2]
    group, _, own = name.strip("/").rpartition("/")
    if name not in member.attributes and group in member.below:
        member, name = member.below[group], own
    if rule.startswith(ATTRIBUTE):
        attributes = member.attributes if name in member.attributes else _attributes_of_data(member)
        known, what = list(attributes), "attribute"
        values = np.asarray(attributes.get(name))
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


def label_of_name(path: str, dim: str, pattern: str) -> Any:
    """Return the label that the name of one file gives."""
    (label,) = labels_from_texts(dim, [text_of_name(path, dim, pattern)])
    return label


def text_of_name(path: str, dim: str, pattern: str) -> str:
    """Return the part of a file's name that labels a dimension.

    Raises
    ------
    CombineError
        If the pattern does not match.
    """
    compiled = re.compile(pattern)
    # The name of the file first: folders above it may match by chance.
    match = compiled.search(os.path.basename(path.rstrip("/"))) or compiled.search(path)
    if match is None:
        raise CombineError(f"the pattern {pattern!r} for dimension {dim!r} does not match {path}")
    return match.group(1) if compiled.groups else match.group()


def labels_from_texts(dim: str, texts: Sequence[str]) -> list[Any]:
    """Return labels as dates if all are, or as integers if all are digits; else as they are."""
    dates = dates_from_texts(dim, texts)
    if dates is not None:
        return list(dates)
    return [int(text) for text in texts] if all(text.isdecimal() for text in texts) else list(texts)


_CLOCK = r"(\d\d)(?:[:_-]?(\d\d)(?:[:_-]?(\d\d))?)?Z?"
_DATES = [
    re.compile(rf"([12]\d{{3}})(\d\d)(\d\d)(?:[T_ -]?{_CLOCK})?"),
    re.compile(rf"([12]\d{{3}})[-_.:](\d\d)(?:[-_.:](\d\d)(?:[T_ -]{_CLOCK})?)?"),  # with colons in TIFF
]
"""Year, month, day, hour, minute, second, as far as they are there; four or six digits alone may be anything."""
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d.*|\d{8}T.*")
_DIM_OF_DATES = re.compile(r"(.*_)?(time|date)s?", re.IGNORECASE)
"""Names of dimensions whose labels are dates if they can be."""


def _spell_day_of_year(label: str) -> str:
    """Return a label of a year and the day in it, as satellite products have it (A2020031), with month and day.

    Examples
    --------
    >>> _spell_day_of_year("2020031"), _spell_day_of_year("2021366"), _spell_day_of_year("202001")
    ('20200131', '2021366', '202001')
    """
    match = re.fullmatch(r"A?([12]\d{3})([0-3]\d\d)", label)
    day = 0 if match is None else int(match[2])
    if match is None or not 1 <= day <= 365 + isleap(int(match[1])):
        return label
    return f"{date(int(match[1]), 1, 1) + timedelta(day - 1):%Y%m%d}"


def dates_from_texts(dim: str, labels: Sequence[str]) -> list[np.datetime64] | None:
    """Return labels as dates if all are: as ISO 8601 writes days, or in other ways if the dimension is one of dates.
    Else None.

    Examples
    --------
    >>> dates_from_texts("time", ["20200131", "20200201"])
    [np.datetime64('2020-01-31T00:00:00.000000000'), np.datetime64('2020-02-01T00:00:00.000000000')]
    >>> [dates_from_texts(*each) for each in (("member", ["20200131"]), ("time", ["20201331"]), ("time", ["1200"]))]
    [None, None, None]
    """
    found = []
    for label in map(_spell_day_of_year, labels):
        match = next((match for rule in _DATES if (match := rule.fullmatch(label))), None)
        if match is None or not (_DIM_OF_DATES.fullmatch(dim) or _ISO_DATE.fullmatch(label)):
            return None
        year, month, *rest = (int(part) for part in match.groups() if part is not None)
        try:
            day, hour, minute, second = [*rest, *(1, 0, 0, 0)[len(rest) :]]
            moment = datetime(year, month, day, hour, minute, second)
        except ValueError:  # a month 13
            return None
        found.append(np.datetime64(moment, "ns" if 1678 <= year < 2262 else "s"))
    return found
