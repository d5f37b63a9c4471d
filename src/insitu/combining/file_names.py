r"""Expansion of paths, and labels of new dimensions from file names.

Paths are local and remote globs, prefixes, files that list names, and nested lists of all of these.
A new dimension comes from the names themselves: `{"member": r"_(r\d+)i1p1"}`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.combining.member import CombineError
from insitu.formats.containers import expand_members, parse_member_url
from insitu.sources import detach_secrets

__all__ = ["LabelsFromNames", "absolute_path", "expand_paths", "labels_from_names", "without_secrets"]

LabelsFromNames = Mapping[str, str | Callable[[str], Any] | Sequence[Any]]
"""New dimension: how a file's name gives its label (a pattern whose first group it is, looked for
in the file's name and then in its whole path; or a function of the path), or the labels in order.
"""


def expand_paths(paths: Any, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Return the paths that patterns, prefixes and lists of names stand for, local ones absolute.

    Nesting stays.
    """
    if isinstance(paths, (list, tuple)):
        found: list[Any] = []
        for part in paths:
            if isinstance(part, (list, tuple)):
                found.append(expand_paths(part, storage_options))
            else:
                found += expand_paths(part, storage_options)
        return found
    return [absolute_path(path) for path in expand_members(paths, storage_options)]


def absolute_path(path: Any) -> Any:
    """Return a local path as an absolute one; URLs and open files stay as they are."""
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    place = parse_member_url(path)
    if place is not None and "://" not in path:
        return f"{absolute_path(place.archive)}::{path.partition('::')[2]}"
    if isinstance(path, str) and "://" not in path and "::" not in path:
        slash = "/" if path.endswith("/") else ""  # which may mean a store, where the bare name is nothing
        return os.path.abspath(os.path.expanduser(path)) + slash
    return path


def without_secrets(
    urls: Sequence[Any], storage_options: Mapping[str, Any] | None
) -> tuple[list[Any], Mapping[str, Any] | None]:
    """Return URLs without passwords and signatures, and options that hold those.

    A dataset shows and saves its URLs.
    """
    public, secrets = [], {}
    for url in urls:
        if isinstance(url, str):
            bare, options = detach_secrets(url, storage_options)
            if bare != url:
                secrets[bare] = options[bare]
            url = bare
        public.append(url)
    return public, {**(storage_options or {}), **secrets} if secrets else storage_options


def labels_from_names(paths: Sequence[Any], how: LabelsFromNames) -> list[tuple[str, npt.NDArray[Any], list[int]]]:
    """Return for each new dimension its name, its labels, and the index of each file among them."""
    result = []
    for dim, rule in how.items():
        labels = _labels_of_dim(paths, dim, rule)
        distinct = list(dict.fromkeys(labels))
        numbers = {label: number for number, label in enumerate(distinct)}
        result.append((dim, np.array(distinct), [numbers[label] for label in labels]))
    return result


def _labels_of_dim(paths: Sequence[Any], dim: str, rule: Any) -> list[Any]:
    if isinstance(rule, str):
        pattern = re.compile(rule)
        found = []
        for path in paths:
            # The name of the file first: folders above it may match by chance.
            match = pattern.search(os.path.basename(str(path).rstrip("/"))) or pattern.search(str(path))
            if match is None:
                raise CombineError(f"the pattern {rule!r} for dimension {dim!r} does not match {path}")
            found.append(match.group(1) if pattern.groups else match.group())
        return [int(label) for label in found] if all(label.isdecimal() for label in found) else found
    if callable(rule):
        return [rule(str(path)) for path in paths]
    labels = list(rule)
    if len(labels) != len(paths):
        raise CombineError(f"{len(labels)} labels given for {len(paths)} files along dimension {dim!r}")
    return labels
