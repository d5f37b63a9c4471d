"""Does a scan of a NetCDF-4 file show the names, dimensions, attributes and values that xarray
shows?

xarray with `decode_cf=False`, engine netcdf4, else h5netcdf. A group that the engine cannot open is
left to the other oracle.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import h5py
import netCDF4
import numpy as np
import xarray
from differences import allowed
from equality import different_attributes, different_values
from finding import Finding

import insitu
from insitu.errors import InsituError
from insitu.model.chunks import UNWRITTEN, Unwritten

__all__ = ["compare"]

MOST_BYTES = 1 << 26


def compare(path: str, engine: str) -> list[Finding]:
    """Hold one file beside xarray with one engine; every group."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            root = insitu.scan(path, errors="warn", decode=False)
        except InsituError as error:
            return [Finding("", "refused", f"{type(error).__name__}: {error}")]
        except Exception as error:
            return [Finding("", "crashed", f"scan: {type(error).__name__}: {error}")]
        strict = _made_by_netcdf(path)
        with _file_of_all_groups(path, engine) as file:
            return [_judged(finding, strict) for finding in _groups(path, engine, file, root, root, "")]


def _made_by_netcdf(path: str) -> bool:
    try:
        with h5py.File(path) as file:
            return "_NCProperties" in file.attrs
    except (OSError, RuntimeError):
        return False


def _file_of_all_groups(path: str, engine: str) -> AbstractContextManager[netCDF4.Dataset | None]:
    """Return the file as netCDF4 opens it, once: each time it reads the names of all groups, of which some files
    have hundreds. None for the other engine, and where that fails: who opens a group then says why.
    """
    if engine == "netcdf4":
        try:
            return netCDF4.Dataset(path)
        except Exception:
            pass
    return nullcontext()


def _open_group(path: str, engine: str, file: Any, prefix: str) -> AbstractContextManager[xarray.Dataset]:
    options: dict[str, Any] = {"decode_cf": False, "cache": False}
    if file is not None:
        store = xarray.backends.NetCDF4DataStore(file, f"/{prefix}", "r")
        return nullcontext(xarray.open_dataset(store, **options))  # closed, it would close the file
    if engine == "h5netcdf":
        options["phony_dims"] = "access"
    return xarray.open_dataset(path, group=f"/{prefix}", engine=engine, **options)


def _groups(path: str, engine: str, file: Any, root: Any, group: Any, prefix: str) -> Iterator[Finding]:
    try:
        opened = _open_group(path, engine, file, prefix)
    except Exception as error:  # any of many: it is the oracle that fails here, and it is reported
        yield Finding(prefix, "unchecked", f"{engine}: {type(error).__name__}: {error}")
    else:
        with opened as oracle:
            yield from _variables(oracle, root, group, prefix, engine)
    for name, child in group.groups.items():
        yield from _groups(path, engine, file, root, child, f"{prefix}{name}/")


def _variables(oracle: xarray.Dataset, root: Any, group: Any, prefix: str, engine: str) -> Iterator[Finding]:
    if problem := _attribute_problem(oracle.attrs, group):
        yield Finding(prefix, "wrong", f"{engine}: {problem}")
    problems = {name.strip("/"): reason for name, reason in root.problems.items()}
    for name, variable in oracle.variables.items():
        path = f"{prefix}{name}"
        if name in group.arrays:
            yield from _variable(variable, group.arrays[name], root, path, engine)
        elif path in problems:
            yield Finding(path, "refused", problems[path])
        else:
            yield Finding(path, "wrong", f"{engine}: variable missing")
    for name in group.arrays:
        if name not in oracle.variables:
            yield Finding(f"{prefix}{name}", "wrong", f"{engine}: not shown by xarray")


def _undefined(array: Any) -> bool:
    """Whether nothing was written and no fill value is defined: netCDF4 then gives what was in
    memory before.
    """
    tile = array.tiles[0] if len(array.tiles) else None
    if tile is None or any(encoding.fill is not None for encoding in tile.encodings):
        return False
    if not tile.chunks.shape:
        return isinstance(tile.chunks[()], Unwritten)
    cells = np.indices(tile.chunks.shape).reshape(len(tile.chunks.shape), -1)
    return bool((tile.chunks.locate(list(cells)).source == UNWRITTEN).all())


def _attribute_problem(reference: Mapping[Any, Any], actual: Any) -> str:
    loose = {name for name, value in reference.items() if not _has_value(value)} | set(actual.details.unread_attributes)
    shown = {name: value for name, value in actual.attributes.items() if name not in loose}
    expected = {name: value for name, value in reference.items() if name not in loose}
    return different_attributes(shown, expected, strict=True)


def _alike(actual: np.dtype[Any], reference: np.dtype[Any]) -> bool:
    """Whether two dtypes mean the same: xarray shows native byte order always, and strings as
    whatever fits the values.
    """
    if actual.kind in "SOU" and reference.kind in "SOUT":
        return True
    if actual.names is not None and reference.names is not None:  # padding is no difference
        return actual.names == reference.names and all(_alike(actual[name], reference[name]) for name in actual.names)
    return actual == reference or (actual.names is None and actual.newbyteorder("=") == reference)


def _has_value(value: Any) -> bool:
    return not isinstance(value, h5py.Empty | h5py.Reference | netCDF4.EnumType)


def _variable(reference: Any, actual: Any, root: Any, path: str, engine: str) -> Iterator[Finding]:
    try:
        problems = [problem for problem in _differences(reference, actual, root, path, engine) if problem]
    except InsituError as error:
        yield Finding(path, "refused", f"{type(error).__name__}: {error}")
    except Exception as error:
        yield Finding(path, "crashed", f"{type(error).__name__}: {error}")
    else:
        findings = [Finding(path, "wrong", f"{engine}: {problem}") for problem in problems]
        yield from findings or [Finding(path, "equal")]


def _differences(reference: Any, actual: Any, root: Any, path: str, engine: str) -> Iterator[str]:
    phony = engine == "h5netcdf" and any("phony_dim" in name for name in actual.dims)
    # netCDF does not know what HDF-EOS calls its dimensions.
    unnamed = path.strip("/").startswith("HDFEOS/") and all("phony_dim" in name for name in reference.dims)
    if actual.dims != reference.dims and not phony and not unnamed:
        yield f"dims {actual.dims}, not {reference.dims}"
    if actual.shape != reference.shape:
        yield f"shape {actual.shape}, not {reference.shape}"
        return
    if not _alike(actual.dtype, reference.dtype):
        yield f"dtype {actual.dtype}, not {reference.dtype}"
    yield _attribute_problem(reference.attrs, actual)
    if reference.nbytes > MOST_BYTES or _undefined(actual):
        return
    if (
        engine == "netcdf4"
        and actual.dtype.names
        and any(actual.dtype[name].kind == "S" for name in actual.dtype.names)
    ):
        return  # netCDF4 (1.7) takes such strings for single characters, and reads all fields behind them wrongly
    try:
        expected = reference.values
    except Exception as error:  # the oracle's, and reported
        yield f"oracle: {type(error).__name__}: {error}"
        return
    yield different_values(insitu.read(root, path, decode=False), expected)


def _judged(finding: Finding, made_by_netcdf: bool) -> Finding:
    """The finding with a milder verdict where the oracle failed, or the difference is meant."""
    engine, _, problem = finding.why.partition(": ")
    if finding.verdict != "wrong":
        return finding
    if problem.startswith("oracle: "):
        return Finding(finding.name, "unchecked", finding.why)
    if reason := allowed(problem, made_by_netcdf):
        return Finding(finding.name, "differs", f"{engine}: {problem} ({reason})")
    return finding
