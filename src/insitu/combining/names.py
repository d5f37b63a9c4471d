r"""Which files are meant, and what do their names say?

A glob, a list, nested lists. And a new dimension from the names themselves: `{"member": r"_(r\d+)i1p1"}`.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.combining.member import CombineError

__all__ = ["FromNames", "found_paths", "labels_from_names"]

FromNames = Mapping[str, str | Callable[[str], Any] | Sequence[Any]]
"""New dimension: how a file's name gives its label (a pattern whose first group it is, or a function), or the labels in order."""


def found_paths(paths: Any) -> Any:
    """The files: a pattern becomes the sorted list of what it matches, paths become text, nesting stays."""
    if isinstance(paths, str):
        if "://" in paths and any(mark in paths for mark in "*?["):
            raise CombineError(f"a pattern works on local files only, not on {paths!r}", hint="Give a list of URLs")
        if "://" in paths:
            return [paths]
        return [os.path.abspath(path) for path in sorted(glob.glob(os.path.expanduser(paths)))]
    if isinstance(paths, PurePath):
        return [os.path.abspath(path) for path in sorted(glob.glob(str(paths)))]
    if isinstance(paths, (list, tuple)) or (hasattr(paths, "__iter__") and not hasattr(paths, "read")):
        return [found_paths(part) if isinstance(part, (list, tuple)) else _path(part) for part in paths]
    return [paths]


def _path(path: Any) -> Any:
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if isinstance(path, str) and "://" not in path:
        return os.path.abspath(os.path.expanduser(path))
    return path


def labels_from_names(paths: Sequence[Any], how: FromNames) -> list[tuple[str, npt.NDArray[Any], list[int]]]:
    """For each new dimension its name, its labels, and for each file which of them it has."""
    result = []
    for dim, rule in how.items():
        labels = _labels(paths, dim, rule)
        distinct = list(dict.fromkeys(labels))
        numbers = {label: number for number, label in enumerate(distinct)}
        result.append((dim, np.array(distinct), [numbers[label] for label in labels]))
    return result


def _labels(paths: Sequence[Any], dim: str, rule: Any) -> list[Any]:
    if isinstance(rule, str):
        pattern = re.compile(rule)
        found = []
        for path in paths:
            match = pattern.search(str(path))
            if match is None:
                raise CombineError(f"the pattern {rule!r} for dimension {dim!r} does not match {path}")
            found.append(match.group(1) if pattern.groups else match.group())
        return [int(label) for label in found] if all(label.isdecimal() for label in found) else found
    if callable(rule):
        return [rule(str(path)) for path in paths]
    labels = list(rule)
    if len(labels) != len(paths):
        raise CombineError(f"{len(labels)} labels of dimension {dim!r} for {len(paths)} files")
    return labels
