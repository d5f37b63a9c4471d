"""The functions of xarray that are wrapped: each is there, and each is needed.

A use is tried with the hook and without it. If xarray changes a function, so that the hook is not called or no longer
needed, both give the same, and the test fails.
"""

from __future__ import annotations

import asyncio
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.lazy_array import LazyArray
from insitu.xarray_bridge import xarray_hooks
from insitu.xarray_bridge.xarray_hooks import HOOKS, Hook
from plain_xarray import with_libraries

Try = Callable[[xr.Dataset, Path], Any]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two variables of 8 MB in small chunks, labels of x, and a mask."""
    rng = np.random.default_rng(1)
    time = np.datetime64("2001-01-01", "ns") + np.arange(2000) * np.timedelta64(1, "D")
    made = xr.Dataset(
        {
            "a": (("time", "x"), rng.normal(size=(2000, 500))),
            "n": (("time", "x"), rng.integers(0, 9, (2000, 500))),
            "labels": ("y", [3.5, 1.0, 2.0]),
            "some": ("time", rng.random(2000) < 0.5),
        },
        coords={"time": time, "x": np.arange(500.0)},
    )
    found: Path = tmp_path_factory.mktemp("hooks") / "a.nc"
    made.to_netcdf(found, encoding={name: {"zlib": True, "chunksizes": (20, 500)} for name in ("a", "n")})
    return found


def is_virtual(data: Any) -> bool:
    return isinstance(data.variable._data, LazyArray)


def count_reads(load: Callable[[], Any]) -> int:
    """How many times a call reads."""
    calls = []

    def note(arrays: Any) -> Any:
        calls.append(len(arrays))
        return read_all(arrays)

    read_all = xarray_hooks.read_all
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xarray_hooks, "read_all", note)
        load()
    return sum(count > 0 for count in calls)


def holds_all(ds: xr.Dataset, function: Callable[[], Any]) -> bool:
    """Whether a variable is held as a whole at some time."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1] > ds.a.nbytes
    finally:
        tracemalloc.stop()


def write(ds: xr.Dataset, folder: Path) -> bool:
    return holds_all(ds, lambda: ds[["a"]].drop_encoding().to_netcdf(folder / "b.nc"))


def find_outcome(function: Callable[[], Any]) -> str:
    """Whether something can be done."""
    try:
        function()
    except Exception as error:
        return type(error).__name__
    return "done"


def find_type_of_values(ds: xr.Dataset) -> set[str]:
    """What a function of `apply_ufunc` gets."""
    seen: set[str] = set()

    def function(values: Any) -> Any:
        seen.add(type(values).__name__)
        return values

    xr.apply_ufunc(function, ds.a)
    return seen


def subtract_months(ds: xr.Dataset) -> Any:
    months = ds.a.groupby("time.month")
    return months - months.mean().load()


USES: dict[str, Try] = {
    "Variable.load": lambda ds, folder: type(ds.a.variable.load()._data).__name__,
    "Dataset.load": lambda ds, folder: count_reads(ds.load),
    "Dataset.load_async": lambda ds, folder: count_reads(lambda: asyncio.run(ds.load_async())),
    "DataTree.load": lambda ds, folder: count_reads(xr.DataTree.from_dict({"/b": ds[["a"]], "/c": ds[["n"]]}).load),
    "Variable._broadcast_indexes": lambda ds, folder: find_outcome(lambda: ds.a.variable[ds.some.data]),
    "Dataset._validate_indexers": lambda ds, folder: find_outcome(
        lambda: ds.a.isel(time=slice(3)).interp(x=ds.labels.data)
    ),
    "ArrayWriter.add": write,
    "DaskManager.from_array": lambda ds, folder: ds.a.chunk({"time": 20}).data.name.split("-")[0],
    "groupby.contains_only_chunked_or_numpy": lambda ds, folder: find_outcome(
        lambda: ds.a.groupby("time.month").quantile(0.5)
    ),
    "_aggregations.contains_only_chunked_or_numpy": lambda ds, folder: holds_all(
        ds, lambda: ds.a.groupby("time.month").mean()
    ),
    "DataArrayGroupByBase.reduce": lambda ds, folder: find_outcome(
        lambda: ds.a.groupby("time.month").mean(method="map-reduce")
    ),
    "DatasetGroupByBase.reduce": lambda ds, folder: find_outcome(
        lambda: ds[["a"]].groupby("time.month").mean(method="map-reduce")
    ),
    "GroupBy._binary_op": lambda ds, folder: holds_all(ds, lambda: subtract_months(ds)),
    "DataArrayRolling._array_reduce": lambda ds, folder: holds_all(ds, lambda: ds.a.rolling(time=5).mean()),
    "DataArrayRolling._counts": lambda ds, folder: len(pickle.dumps(ds.n.rolling(time=5).count().data)),
    "apply_ufunc.apply_variable_ufunc": lambda ds, folder: find_type_of_values(ds),
}


def name_of(hook: Hook) -> str:
    module, _, name = hook.places[0].partition(":")
    return f"{name or module.rpartition('.')[2]}.{hook.function}"


@pytest.mark.parametrize("hook", HOOKS, ids=name_of)
def test_each_hook_is_needed(hook: Hook, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("flox", "bottleneck", "dask", "scipy"):
        pytest.importorskip(library)

    def use() -> Any:
        with insitu.options(block_bytes=1 << 20), with_libraries(), insitu.open_dataset(path, cache=False) as ds:
            return USES[name_of(hook)](ds, tmp_path)

    use()  # what is imported
    found = use()
    owner = hook.find_owner()
    assert owner is not None, "xarray has this function no longer, or elsewhere"
    monkeypatch.setattr(owner, hook.function, getattr(owner, hook.function).__wrapped__)
    assert use() != found
