"""Does a scan of an HDF5 file say what h5py says, dataset by dataset?

For every dataset that h5py finds: is it there; do shape, dtype, dimension names, attributes and
fill value agree; does each chunk lie where `get_chunk_info` says, with its size and filter mask;
are the values the same, bit for bit, whole and by hyperslab?
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import h5py
import numpy as np
from compare_chunks import chunk_problem
from equality import different_attributes, different_values, flattened, overlapping, same_dtype
from finding import Finding

import insitu
from insitu.errors import InsituError

with suppress(ImportError):
    import hdf5plugin  # noqa: F401  h5py then reads the plugin filters too

__all__ = ["compare"]

NOT_A_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
NON_COORDINATE = "_nc4_non_coord_"
HIDDEN = frozenset(
    (
        "CLASS",
        "NAME",
        "REFERENCE_LIST",
        "DIMENSION_LIST",
        "_Netcdf4Dimid",
        "_Netcdf4Coordinates",
        "_nc3_strict",
        "_NCProperties",
    )
)
MOST_BYTES = 1 << 26
"""A dataset larger than this is compared by a corner of it."""


def compare(path: str) -> list[Finding]:
    """Hold one file beside h5py."""
    _names.clear()
    try:
        oracle = h5py.File(path, "r")
    except OSError as error:
        return _alone(path, f"h5py: {error}")
    with oracle:
        try:
            group = _scan(path)
        except InsituError as error:
            try:
                list(oracle)
            except (RuntimeError, OSError) as problem:
                return [Finding("", "unchecked", f"h5py: {problem}; here: {error}")]
            return [Finding("", "refused", f"{type(error).__name__}: {error}")]
        except Exception as error:
            return [Finding("", "crashed", f"scan: {type(error).__name__}: {error}")]
        return list(_compare_groups(oracle, group, "", group, ()))


def _scan(path: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # errors="warn" warns for each variable that it leaves out; `problems` holds them
        return insitu.scan(path, errors="warn", decode=False)


def _alone(path: str, why: str) -> list[Finding]:
    """Without an oracle: scan and read everything; only that nothing crashes can be seen."""
    try:
        group = _scan(path)
        findings = [Finding("", "unchecked", why)]
        for name, array in _arrays(group, ""):
            if array.dtype.itemsize * float(np.prod(array.shape, dtype="f8")) <= MOST_BYTES:
                try:
                    insitu.read(group, name, decode=False)
                except InsituError as error:
                    findings.append(Finding(name, "refused", f"{type(error).__name__}: {error}"))
        return findings
    except InsituError as error:
        return [Finding("", "unchecked", f"{why}; here: {type(error).__name__}: {error}")]
    except Exception as error:
        return [Finding("", "crashed", f"{type(error).__name__}: {error} ({why})")]


def _arrays(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, array in group.arrays.items():
        yield f"{prefix}{name}", array
    for name, child in group.groups.items():
        yield from _arrays(child, f"{prefix}{name}/")


def _compare_groups(
    oracle: h5py.Group, actual: Any, prefix: str, root: Any, above: tuple[int, ...]
) -> Iterator[Finding]:
    """Compare a group and all below it. `above`: the groups on the way here, so that a cycle of
    links ends.
    """
    try:
        above = (*above, h5py.h5o.get_info(oracle.id).addr)
        names = list(oracle)
        reference, unreadable = _attributes(oracle, actual)
    except RuntimeError as error:
        yield Finding(prefix, "unchecked", f"h5py: {error}")
        return
    if problem := _attribute_problem(actual, reference, unreadable):
        yield Finding(prefix, "wrong", problem)
    yield from _unread(actual, prefix)
    seen = set()
    for stored in names:
        name = _decoded(stored)
        path = f"{prefix}{name}"
        try:
            item = oracle[stored]
        except (KeyError, OSError, RuntimeError, ValueError) as error:
            seen |= {name}
            if name in actual.arrays or name in actual.groups:
                yield Finding(path, "unchecked", f"h5py: {error}")
            continue
        if isinstance(item, h5py.Group):
            seen.add(name)
            try:
                if h5py.h5o.get_info(item.id).addr in above:
                    continue
            except RuntimeError as error:
                yield Finding(path, "unchecked", f"h5py: {error}")
                continue
            if name in actual.groups:
                yield from _compare_groups(item, actual.groups[name], f"{path}/", root, above)
            elif reason := _problem(root, path):
                yield Finding(path, "refused", reason)
            else:
                yield Finding(path, "wrong", "group missing")
        elif isinstance(item, h5py.Dataset):
            shown = name.removeprefix(NON_COORDINATE)
            if isinstance(stored, str) and f"{NON_COORDINATE}{name}" in oracle:
                continue  # a dimension without a variable: the name belongs to the other one
            seen.add(shown)
            yield from _compare_dataset(item, actual, shown, f"{prefix}{shown}", root)
    for name in [*actual.arrays, *actual.groups]:
        if name not in seen:
            yield Finding(f"{prefix}{name}", "wrong", "not in the file")


def _decoded(name: str | bytes) -> str:
    """A name; h5py gives bytes for those that are not UTF-8."""
    return name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")


def _problem(root: Any, path: str) -> str:
    problems = {name.strip("/"): reason for name, reason in root.problems.items()}
    return str(problems.get(path.strip("/"), ""))


def _compare_dataset(reference: h5py.Dataset, actual: Any, name: str, path: str, root: Any) -> Iterator[Finding]:
    if name not in actual.arrays:
        if reason := _problem(root, path):
            problem = _unreadable(reference)
            yield Finding(
                path, "unchecked" if problem else "refused", f"{problem}; here: {reason}" if problem else reason
            )
        elif "NAME" in reference.attrs and np.bytes_(reference.attrs["NAME"]).startswith(NOT_A_VARIABLE):
            return
        else:
            yield Finding(path, "wrong", "dataset missing")
        return
    try:
        problems = [problem for problem in _differences(reference, actual.arrays[name], path, root) if problem]
    except InsituError as error:
        yield Finding(path, "refused", f"{type(error).__name__}: {error}")
    except Exception as error:
        yield Finding(path, "crashed", f"{type(error).__name__}: {error}")
    else:
        unchecked = [problem for problem in problems if problem.startswith("h5py:")]
        if len(problems) > len(unchecked):
            yield Finding(path, "wrong", "; ".join(problem for problem in problems if problem not in unchecked)[:500])
        elif unchecked:
            yield Finding(path, "unchecked", "; ".join(unchecked))
        else:
            yield Finding(path, "equal")
        yield from _unread(actual.arrays[name], path)


def _unreadable(reference: h5py.Dataset) -> str:
    """Why h5py cannot read a dataset either; "" if it can."""
    try:
        reference[()] if not reference.shape else reference[tuple(slice(0, 50) for _ in reference.shape)]
    except (OSError, RuntimeError, TypeError, ValueError, MemoryError, UnicodeDecodeError) as error:
        return f"h5py: {error}"
    return ""


def _unread(actual: Any, path: str) -> Iterator[Finding]:
    """What a scan says that it cannot take of an object's attributes."""
    for name, why in actual.details.unread_attributes.items():
        yield Finding(f"{path}@{name}", "refused", why)


def _differences(reference: h5py.Dataset, array: Any, path: str, root: Any) -> Iterator[str]:
    try:
        dtype = reference.dtype
    except (TypeError, ValueError, OSError) as error:
        yield f"h5py: {error}"
        return
    shape = reference.shape if reference.shape is not None else array.shape
    base = (dtype.metadata or {}).get("vlen")
    if isinstance(base, np.dtype) and not base.isnative:
        yield "h5py: forgets to swap the bytes of sequences"
        return
    if overlapping(dtype):
        yield "h5py: puts members of this type over each other"
        return
    dtype, inner = flattened(dtype)  # of an array type: the axes inside each element
    # Along an unlimited dimension that other variables have made longer, netCDF shows fill values
    # behind what is stored.
    grown = shape != array.shape and tuple(array.details.stored_shape or ()) == shape
    if array.shape not in (shape, (*shape, *inner)) and not grown:
        yield f"shape {array.shape}, not {shape}"
        return
    if h5py.check_ref_dtype(dtype):
        dtype = array.dtype  # a reference is an address: any form of it will do
    if not same_dtype(array.dtype, dtype):
        yield f"dtype {array.dtype}, not {dtype}"
    attributes, unreadable = _attributes(reference, array)
    yield _attribute_problem(array, attributes, unreadable)
    yield _dimension_problem(reference, array)
    yield from _fill_problem(reference, array)
    if reference.shape is not None:
        if not grown:
            yield chunk_problem(reference, array)
        yield from _value_problems(reference, array, path, root)


def _attributes(item: Any, actual: Any) -> tuple[dict[str, Any], set[str]]:
    """The attributes that netCDF does not hide, and the names of those that h5py cannot read."""
    readable, unreadable = {}, set()
    try:
        names = list(item.attrs)
    except RuntimeError:  # one of them is too odd for the library, which then shows none
        return {}, set(actual.attributes)
    for name in names:
        if name in HIDDEN:
            continue
        shown = _decoded(name)
        try:
            value = item.attrs[name]
            kind = item.attrs.get_id(name).get_type()
            overlaps = overlapping(kind.dtype)
        except (OSError, TypeError, ValueError, RuntimeError, KeyError, AttributeError):
            unreadable.add(shown)
            continue
        if isinstance(kind, h5py.h5t.TypeVlenID) and np.asarray(value).size and not kind.get_super().dtype.isnative:
            unreadable.add(shown)  # h5py (3.16) forgets to swap the bytes of variable-length attributes
        if overlaps:
            unreadable.add(shown)
        if isinstance(kind, h5py.h5t.TypeArrayID) and isinstance(kind.get_super(), h5py.h5t.TypeStringID):
            unreadable.add(shown)  # of texts in an array type it takes the padding for text, in attributes only
        if isinstance(value, np.ndarray) and value.dtype.kind == "S":
            # Texts end at their first NUL; in attributes h5py shows what lies behind it.
            value = np.array([text.split(b"\0")[0] for text in value.reshape(-1)], value.dtype).reshape(value.shape)
        readable[shown] = None if isinstance(value, h5py.Empty) else value
    return readable, unreadable


def _attribute_problem(actual: Any, reference: dict[str, Any], unreadable: set[str]) -> str:
    # References and what h5py cannot read have no value to compare: they may be there or not.
    loose = unreadable | {name for name, value in reference.items() if _has_references(value)}
    loose |= set(actual.details.unread_attributes)  # told apart, see `_unread`
    shown = {name: value for name, value in actual.attributes.items() if name not in loose}
    expected = {name: value for name, value in reference.items() if name not in loose}
    return different_attributes(shown, expected, strict=False)


def _has_references(value: Any) -> bool:
    if isinstance(value, h5py.Reference | h5py.RegionReference):
        return True
    dtype = getattr(value, "dtype", None)
    if dtype is None or not isinstance(value, np.ndarray | np.generic):
        return False
    if dtype.names:
        return any(_has_references(value[name]) for name in dtype.names)
    return dtype.kind == "O" and any(_has_references(element) for element in np.asarray(value).reshape(-1)[:3])


def _dimension_problem(reference: h5py.Dataset, array: Any) -> str:
    for axis, shown in enumerate(array.dims[: reference.ndim if reference.shape is not None else 0]):
        try:
            scales = reference.dims[axis].values()
        except (RuntimeError, KeyError, ValueError, OSError):
            return ""
        # A scale that is in neither this group nor one above is no dimension by netCDF's rules.
        scales = [scale for scale in scales if _above(reference, _name_of(scale)) and _is_scale(scale)]
        if scales and not any(_named(reference.parent, shown, scale) for scale in scales):
            return f"dimension {axis} is {shown!r}, not {_name_of(scales[0])!r}"
    return ""


def _is_scale(scale: h5py.Dataset) -> bool:
    """Whether a scale says that it is one: a damaged one may not."""
    try:
        return bool(h5py.h5ds.is_scale(scale.id)) and "CLASS" in list(scale.attrs)
    except RuntimeError:
        return False


_names: dict[tuple[int, int], str] = {}
"""Names of the scales of the file that is compared, by their addresses: HDF5 searches the whole
file for the name of an object that a reference led to.
"""


def _name_of(scale: h5py.Dataset) -> str:
    """Return the name of a scale; "" if it has none."""
    try:
        found = h5py.h5o.get_info(scale.id)
    except RuntimeError:  # damaged
        return ""
    address = (found.fileno, found.addr)
    if address not in _names:
        _names[address] = str(scale.name or "")
    return _names[address]


def _above(dataset: h5py.Dataset, scale: str) -> bool:
    """Whether a scale of this name is in the group of a dataset, or in one above it."""
    return bool(scale) and str(dataset.name).startswith(f"{scale.rpartition('/')[0]}/")


def _named(group: h5py.Group, name: str, scale: h5py.Dataset) -> bool:
    """Whether a scale is found under this name here or in a group above (a scale may have several
    names).
    """
    while True:
        if any(candidate in group and group[candidate] == scale for candidate in (name, NON_COORDINATE + name)):
            return True
        if group == group.file:
            return False
        group = group.parent


def _fill_problem(reference: h5py.Dataset, array: Any) -> Iterator[str]:
    try:
        if reference.id.get_create_plist().fill_value_defined() != h5py.h5d.FILL_VALUE_USER_DEFINED:
            return
        fill = reference.fillvalue
    except (RuntimeError, TypeError, ValueError, OSError):
        return
    if reference.dtype.kind == "O" or reference.dtype.subdtype:
        return
    if reference.dtype.names and reference.dtype.itemsize != array.dtype.itemsize:
        return  # with gaps: h5py forgets the members behind them
    expected = np.asarray(fill, reference.dtype)
    if problem := different_values(np.asarray(array.fill_value), expected):
        yield f"fill value {array.fill_value!r}: {problem}"


def _value_problems(reference: h5py.Dataset, array: Any, path: str, root: Any) -> Iterator[str]:
    if reference.dtype.kind == "O" and h5py.check_ref_dtype(reference.dtype):
        insitu.read(root, path, decode=False)
        return
    large = reference.size * reference.dtype.itemsize > MOST_BYTES
    stored: Any = (
        tuple(slice(length) for length in reference.shape) if reference.shape != array.shape[: reference.ndim] else ...
    )
    selection: Any = tuple(slice(0, 50) for _ in reference.shape) if large else stored
    try:
        expected = (
            reference[()] if not reference.shape else reference[...] if 0 in reference.shape else reference[selection]
        )
    except (OSError, RuntimeError, TypeError, ValueError, MemoryError, UnicodeDecodeError, KeyError) as error:
        yield f"h5py: {error}"
        return
    read = insitu.read(root, path, selection, decode=False)
    problem = different_values(read, expected)
    if problem and reference.id.get_create_plist().get_fill_time() == h5py.h5d.FILL_TIME_NEVER:
        yield "h5py: shows its own memory where nothing was written"
        return
    yield problem
    if reference.ndim and reference.size and not large:
        whole = np.asarray(expected)
        steps = tuple(slice(length // 3, length, 2 if length > 4 else 1) for length in reference.shape)
        yield from (
            f"{steps}: {problem}"
            for problem in [different_values(insitu.read(root, path, steps, decode=False), whole[steps])]
            if problem
        )
