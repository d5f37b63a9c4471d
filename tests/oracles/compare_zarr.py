"""Does a Zarr store, damaged or not, say the same to zarr-python and to us?"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import zarr
from equality import different_values
from finding import Finding

import insitu
from insitu.errors import InsituError

__all__ = ["compare", "read_ours"]

MOST_BYTES = 1 << 22


def compare(path: str) -> list[Finding]:
    """Read every array of the store with both.

    What zarr-python finds damaged (a checksum, a length) we must not read.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        actual = read_ours(path)
        expected = _open_theirs(path, [] if isinstance(actual, Finding) else actual)
        return [actual] if isinstance(actual, Finding) else [*_compare_arrays(actual, expected)]


def _compare_arrays(actual: dict[str, Any], expected: dict[str, Any]) -> Iterator[Finding]:
    for name in sorted({*expected, *actual}):
        our, their = actual.get(name), expected.get(name)
        if isinstance(our, Finding):
            yield our
        elif our is None:
            yield Finding(name, "wrong", "is not there")
        elif their is None:
            yield Finding(name, "unchecked", "zarr-python does not open it")
        elif math.prod(their.shape) * max(their.dtype.itemsize, 1) > MOST_BYTES:
            yield Finding(name, "wrong", f"has the shape {our.shape}, not {their.shape}")
        else:
            try:
                problem = different_values(our, their[...])
            except Exception as refused:
                problem = f"zarr-python refuses it: {refused!r:.200}"
            yield Finding(name, "wrong" if problem else "equal", problem)


def _open_theirs(path: str, names: Iterable[str]) -> dict[str, Any]:
    """Return the arrays that zarr-python finds; where it does not open the group, those of the
    names that it opens by themselves.
    """
    found: dict[str, Any] = {}
    try:
        members = zarr.open_group(path, mode="r").members(max_depth=None)
        return {name: member for name, member in members if isinstance(member, zarr.Array)}
    except Exception:
        for name in names:
            with suppress(Exception):
                found[name] = zarr.open_array(path, path=name, mode="r")
    return found


def read_ours(path: str) -> dict[str, Any] | Finding:
    """Return the values of every small array, or what came in between: for the store, or for one."""
    try:
        group = insitu.scan(path, errors="warn", decode=False)
        found: dict[str, Any] = {name: Finding(name, "refused", why) for name, why in group.problems.items()}
        for name, array in group.all_arrays():
            try:
                if array.nbytes > MOST_BYTES:
                    found[name] = Finding(name, "unchecked", "too large to compare")
                else:
                    found[name] = insitu.read(group, name, decode=False)
            except InsituError as problem:
                found[name] = Finding(name, "refused", f"{type(problem).__name__}: {problem}")
    except InsituError as problem:
        return Finding("", "refused", f"{type(problem).__name__}: {problem}")
    except Exception as problem:
        return Finding("", "crashed", f"{type(problem).__name__}: {problem}")
    return found
