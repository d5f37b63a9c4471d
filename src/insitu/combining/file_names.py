r"""What a caller gives as files: expansion of paths, open objects, and labels of new dimensions from
names.

Paths are local and remote globs, prefixes, files that list names, and nested lists of all of these.
A new dimension comes from the names themselves: `{"member": r"_(r\d+)i1p1"}`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import CombineError, SelectionError
from insitu.formats.containers import parse_entry_url
from insitu.scanning.file_labels import asks_file, dates_from_texts, labels_from_texts, text_of_name
from insitu.scanning.manifest_store import document_of_manifests, is_manifest_store
from insitu.sources import detach_secrets, open_source

__all__ = [
    "LabelsFromNames",
    "absolute_path",
    "expand_paths",
    "is_many",
    "iter_positions",
    "labels_of_files",
    "one_location",
    "open_objects",
    "resolve_references",
    "without_secrets",
]

LabelsFromNames = Mapping[str, str | Callable[[str], Any] | Sequence[Any]]
"""New dimension: how a file's name gives its label (a pattern whose first group it is, looked for
in the file's name and then in its whole path; or a function of the path), or the labels in order;
`"attr:…"`, `"var:…"`: the file itself gives it (`file_labels`).
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
    if isinstance(paths, Mapping) or is_manifest_store(paths):  # references in memory
        return [paths]
    from insitu.formats.containers import expand_entries  # not at the top: one file needs none of it

    return [absolute_path(path) for path in expand_entries(paths, storage_options)]


def absolute_path(path: Any) -> Any:
    """Return a local path as an absolute one; URLs and open files stay as they are."""
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    place = parse_entry_url(path)
    if place is not None and "://" not in path:
        return f"{absolute_path(place.archive)}::{path.partition('::')[2]}"
    if isinstance(path, str) and "://" not in path and "::" not in path:
        slash = "/" if path.endswith(("/", os.sep)) else ""  # which may mean a store, where the bare name is nothing
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


def labels_of_files(
    paths: Sequence[Any], how: LabelsFromNames, given: Mapping[str, Sequence[Any]]
) -> list[tuple[str, npt.NDArray[Any], list[int]]]:
    """Return for each new dimension its name, its labels, and the index of each file among them.

    Parameters
    ----------
    paths, how
        The files, and what labels them.
    given
        New dimension: the label that each file gives, where its name does not; None: it could not be opened,
        and has the index of the first.
    """
    result = []
    for dim, rule in how.items():
        labels = _labels_that_files_give(dim, given[dim]) if asks_file(rule) else _labels_of_dim(paths, dim, rule)
        distinct = list(dict.fromkeys(label for label in labels if label is not None))
        numbers = {label: number for number, label in enumerate(distinct)}
        result.append((dim, np.array(distinct), [numbers.get(label, 0) for label in labels]))
    return result


def _labels_that_files_give(dim: str, labels: Sequence[Any]) -> list[Any]:
    """Return labels, texts as dates if they are."""
    texts = [label for label in labels if isinstance(label, str)]
    dates = dates_from_texts(dim, texts) if texts else None
    if dates is None or any(label is not None and not isinstance(label, str) for label in labels):
        return list(labels)
    found = iter(dates)
    return [None if label is None else next(found) for label in labels]


def _labels_of_dim(paths: Sequence[Any], dim: str, rule: Any) -> list[Any]:
    if isinstance(rule, str):
        return labels_from_texts(dim, [text_of_name(str(path), dim, rule) for path in paths])
    if callable(rule):
        return [rule(str(path)) for path in paths]
    labels = list(rule)
    if len(labels) != len(paths):
        raise CombineError(f"{len(labels)} labels given for {len(paths)} files along dimension {dim!r}")
    return labels


def iter_positions(nested: Any, at: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield each item of nested lists, with its position."""
    if isinstance(nested, (list, tuple)):
        for number, part in enumerate(nested):
            yield from iter_positions(part, (*at, number))
    else:
        yield at, nested


def is_many(urls: Any) -> bool:
    """Return whether a location means files to combine: a list of several, a pattern, or `@` and a
    file of names.
    """
    if isinstance(urls, (list, tuple)):
        return len(urls) != 1 or is_many(urls[0])
    if isinstance(urls, os.PathLike):
        urls = os.fspath(urls)
    if not isinstance(urls, str) or os.path.exists(urls):
        return False
    return urls.startswith("@") or any(mark in urls.partition("?")[0] for mark in "*[")


def one_location(url: Any) -> Any:
    """Return what a function that opens one archive was given; of a list of one, its item.

    Raises
    ------
    TypeError
        If it is a list of several.
    OSError
        If it is an empty list.
    """
    while isinstance(url, (list, tuple)):
        if not url:
            raise OSError("there are no files to open: the list is empty")
        if len(url) > 1:
            raise TypeError(f"a list of {len(url)} files was given where one is opened: open many with open_mfdataset")
        (url,) = url
    return url


def resolve_references(urls: Any, storage_options: Mapping[str, Any] | None) -> tuple[Any, Mapping[str, Any] | None]:
    """Return the location behind fsspec's `reference://`, and the options for its files."""
    if not isinstance(urls, str) or not urls.startswith("reference://"):
        return urls, storage_options
    given = dict(storage_options or {})
    found = given.pop("fo", None) or urls.removeprefix("reference://")
    if not found:
        raise SelectionError("reference:// needs references", hint='Give storage_options={"fo": path or dictionary}')
    options = {**(given.get("target_options") or {}), **(given.get("remote_options") or {})}
    return found, options or None


def open_objects(
    urls: Sequence[Any], storage_options: Mapping[str, Any] | None
) -> tuple[list[Any], Mapping[str, Any] | None, tuple[Any, ...]]:
    """Return what to scan, the options to open it with, and the sources to keep alive.

    Secrets in URLs are moved to the options. Bytes and open files become sources, which are found
    by name only while something refers to them.
    """
    urls, options = without_secrets(urls, storage_options)
    found, in_memory = [], []
    for url in urls:
        if isinstance(url, os.PathLike):
            url = os.fspath(url)
        elif is_manifest_store(url):
            url = document_of_manifests(url)
        elif not isinstance(url, (str, Mapping)):
            source = open_source(url, options)
            if source.url.startswith(("memory:", "file-object:")):
                in_memory.append(source)  # it holds the bytes, or the open file
            url = source
        found.append(url)
    return found, options, tuple(in_memory)
