"""Generated archives: small files of every kind of storage, and what xarray's own engines read from them.

An archive is made from one seed. It has dimensions `time`, `y` and `x`, a few variables of random
types, packings, fills and chunks, and lies in one file (netCDF-4, netCDF-3), in several that are cut
and packed differently (a mosaic), in a Zarr store, or in kerchunk references to a file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import netCDF4
import numpy as np
import xarray as xr

import insitu

__all__ = ["FORMS", "Archive", "make_archive"]

FORMS = ("netcdf4", "mosaic", "zarr3", "kerchunk", "netcdf4", "mosaic", "zarr2", "netcdf3")
"""How an archive is kept; one after the other by the seed."""
CALENDARS = ("standard", "proleptic_gregorian", "standard", "noleap", "360_day")
STEPS = ("D", "D", "6h", "MS")
FLOATS = ("f4", "f4", "f8", ">f4", ">f8")
WHOLE = ("i2", "i4", "u1", "i8", "i1", "u2", "u4", ">i2", ">i4")
PACKINGS: tuple[dict[str, Any], ...] = (
    {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768},
    {"dtype": "i2", "scale_factor": np.float32(0.125), "add_offset": np.float32(270), "_FillValue": -32768},
    {"dtype": "i4", "scale_factor": np.float32(0.01), "_FillValue": -2147483648},
    {"dtype": "u1", "scale_factor": 0.5, "add_offset": 250.0, "_FillValue": 255},
)
KINDS = ("float", "packed", "whole", "float", "flag", "date", "duration", "text", "whole")


@dataclass(frozen=True)
class Archive:
    """An archive on disk."""

    seed: int
    form: str
    paths: list[str]
    loaded: xr.Dataset = field(repr=False)
    """What xarray's own engine reads, in memory."""
    opener: Callable[..., xr.Dataset] = field(repr=False)

    def __post_init__(self) -> None:
        for variable in self.loaded.variables.values():
            if isinstance(variable._data, np.ndarray):
                variable._data.flags.writeable = False  # programs share them

    def open(self, **options: Any) -> xr.Dataset:
        """Open it anew with insitu."""
        return self.opener(self.paths if self.form == "mosaic" else self.paths[0], **options)


def make_archive(seed: int, folder: Path) -> Archive:
    """Write the archive of this seed into a folder of its own, and read it by xarray."""
    dice, form = Random(f"archive {seed}"), FORMS[seed % len(FORMS)]
    folder = folder / f"archive_{seed}"
    folder.mkdir(parents=True)
    ds = _dataset(dice, np.random.default_rng(seed), form)
    if not form.startswith(
        "zarr"
    ):  # xarray's writer wants the order of this machine; `_add_variables` writes the other
        ds = ds.map(lambda v: v.astype(v.dtype.newbyteorder("=")) if v.dtype.kind in "fiu" else v, keep_attrs=True)
    if form.startswith("zarr"):
        path = str(folder / "a.zarr")
        version = int(form[-1])
        ds.to_zarr(path, zarr_format=version, encoding=_zarr_encoding(dice, ds, version), consolidated=False)
        loaded = xr.load_dataset(path, engine="zarr", consolidated=False)
        loaded = loaded[list(ds.data_vars)]  # a folder has no order
        return Archive(seed, form, [path], _with_texts(loaded), insitu.open_dataset)
    if form == "mosaic":
        paths = [str(folder / f"{number}.nc") for number in range(8)]
        parts, is_along_time = _parts(dice, ds)
        for path, part in zip(paths, parts, strict=False):
            part.to_netcdf(path, engine="netcdf4", encoding=_file_encoding(dice, part, form), unlimited_dims=["time"])
            if is_along_time:
                _add_variables(path, dice)
        paths = paths[: len(parts)]
        with xr.open_mfdataset(paths, engine="netcdf4") as opened:
            loaded = opened.compute()
        _keep_common_encoding(loaded, paths)
        return Archive(seed, form, paths, loaded, insitu.open_mfdataset)
    path = str(folder / "a.nc")
    kind: Any = "NETCDF3_64BIT" if form == "netcdf3" else "NETCDF4"
    unlimited = ["time"] if dice.random() < 0.5 and form != "netcdf3" else []
    encoding = _file_encoding(dice, ds, form, contiguous=not unlimited)
    ds.to_netcdf(path, engine="netcdf4", format=kind, encoding=encoding, unlimited_dims=unlimited)
    if form != "netcdf3":
        _add_variables(path, dice)
    loaded = xr.load_dataset(path, engine="netcdf4")
    if form == "kerchunk":
        target = str(folder / "a.json")
        insitu.open_dataset(path).insitu.save(target)
        return Archive(seed, form, [target], _with_texts(loaded), insitu.open_dataset)
    return Archive(seed, form, [path], loaded, insitu.open_dataset)


def _keep_common_encoding(loaded: xr.Dataset, paths: list[str]) -> None:
    """Leave out what files say differently of how values are stored, where xarray takes the word of the first: on
    purpose, see `docs/explanation/laws.md`.
    """
    files = [xr.load_dataset(path, engine="netcdf4") for path in paths]
    for name, variable in loaded.variables.items():
        first, *others = [file[name].encoding for file in files]
        variable.encoding = {
            key: value for key, value in first.items() if all(repr(other.get(key)) == repr(value) for other in others)
        }


def _with_texts(loaded: xr.Dataset) -> xr.Dataset:
    """Return a dataset with texts as objects: the known difference "type of texts"."""
    return loaded.map(lambda v: v.astype(object) if v.dtype.kind in "UT" else v, keep_attrs=True)


def _dataset(dice: Random, rng: np.random.Generator, form: str) -> xr.Dataset:
    lengths = {"time": dice.randint(6, 14), "y": dice.randint(2, 5), "x": dice.randint(2, 4)}
    if dice.random() < 0.2:
        lengths["y"] = lengths["x"]  # axes that are confused show up as values, not as shapes
    calendar = dice.choice(CALENDARS)
    times = xr.date_range(
        "2001-01-28", periods=lengths["time"], freq=dice.choice(STEPS), calendar=calendar, use_cftime=None
    )
    y = np.linspace(-40, 50, lengths["y"])[:: dice.choice((1, -1))]
    coords: dict[str, Any] = {
        "time": times,
        "y": ("y", y.astype(dice.choice(("f4", "f8"))), {"units": "degrees_north"}),
        "zone": ("time", rng.integers(0, 3, lengths["time"]).astype("i4")),
        "area": (("y", "x"), rng.random((lengths["y"], lengths["x"])).astype("f4")),
        "level": ((), np.float64(dice.randint(1, 9))),
    }
    if dice.random() < 0.7:
        coords["x"] = ("x", np.arange(lengths["x"]) * 10)
    data = {"a": _variable(dice, rng, "float", ("time", "y", "x"), lengths)}
    for name in "bcdef"[: dice.randint(2, 5)]:
        dims = tuple(dim for dim in ("time", "y", "x") if dice.random() < 0.65)
        dims = tuple(dice.sample(dims, len(dims)))
        data[name] = _variable(dice, rng, dice.choice(KINDS), dims, lengths)
    ds = xr.Dataset(data, coords=coords, attrs={"title": "generated"})
    ds.time.encoding.update(units="days since 2001-01-01", calendar=calendar, dtype="f8")
    if form == "netcdf3":
        ds = ds.drop_vars([name for name in ds.data_vars if ds[name].dtype.str[1:] in ("u1", "u2", "u4", "i8")])
        ds = ds.drop_vars([name for name in ds.data_vars if ds[name].dtype.kind in "Om"])
    return ds


def _variable(
    dice: Random, rng: np.random.Generator, kind: str, dims: tuple[str, ...], lengths: dict[str, int]
) -> tuple[Any, ...]:
    shape = tuple(lengths[dim] for dim in dims)
    attributes = {"long_name": kind}
    if kind == "float":
        values = _floats(dice, rng, shape, dice.choice(FLOATS))
        return dims, values, attributes
    if kind == "packed":
        packing = dict(dice.choice(PACKINGS))
        spread = {"i2": 20, "i4": 50, "u1": 20}[packing["dtype"]]
        values = packing.get("add_offset", 0) + 10 + rng.uniform(-spread / 3, spread, shape)
        values = np.where(rng.random(shape) < 0.1, np.nan, values)
        return dims, values, attributes, packing
    if kind == "whole":
        dtype = np.dtype(dice.choice(WHOLE))
        wide = dice.random() < 0.3
        info = np.iinfo(dtype)
        low, high = (info.min, info.max) if wide else (max(info.min, -20), min(info.max, 20))
        return (
            dims,
            rng.integers(low, high, shape, dtype=dtype.newbyteorder("="), endpoint=True).astype(dtype),
            attributes,
        )
    if kind == "flag":
        return dims, rng.random(shape) < 0.5, attributes
    if kind == "date":
        days = np.datetime64("2000-01-01", "ns") + rng.integers(0, 1000, shape) * np.timedelta64(1, "D")
        return dims, days, attributes
    if kind == "duration":
        return dims, rng.integers(-90, 90, shape) * np.timedelta64(1, "h").astype("m8[ns]"), attributes
    texts = np.array(["", "a", "bc", "äö", "text"], object)
    return dims, texts[rng.integers(0, len(texts), shape)], attributes


def _floats(dice: Random, rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    style = dice.choice(("weather", "weather", "small", "halves", "wide"))
    if style == "weather":
        values = rng.normal(280, 15, shape)
    elif style == "halves":  # sums are exact in any order
        values = rng.integers(-40, 40, shape) / 2
    elif style == "small":
        values = rng.normal(0, 1, shape)
    else:
        values = rng.normal(0, 1, shape) * 10.0 ** rng.integers(-12, 12, shape)
    values = np.where(rng.random(shape) < dice.choice((0, 0.1, 0.4)), np.nan, values)
    if dice.random() < 0.1:
        values = np.where(rng.random(shape) < 0.1, rng.choice([np.inf, -np.inf, -0.0], shape), values)
    return values.astype(dtype)


def _chunks(dice: Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dice.randint(1, max(length, 1)) for length in shape)


def _file_encoding(dice: Random, ds: xr.Dataset, form: str, *, contiguous: bool = False) -> dict[str, Any]:
    """Return how each variable is stored; files of a mosaic each in their own way."""
    encoding: dict[str, Any] = {}
    for name, variable in ds.variables.items():
        if name in ds.xindexes or variable.dtype.kind == "O" or form == "netcdf3":
            continue
        own: dict[str, Any] = {}
        if variable.ndim and not (contiguous and dice.random() < 0.3):
            own = {
                "chunksizes": _chunks(dice, variable.shape),
                "zlib": dice.random() < 0.5,
                "shuffle": dice.random() < 0.5,
            }
        if form == "mosaic" and variable.encoding and dice.random() < 0.5:
            own |= dice.choice(PACKINGS[:3])
        elif form == "mosaic" and variable.dtype.kind == "f" and dice.random() < 0.2:
            own["dtype"] = dice.choice(("f4", "f8"))
        if variable.dtype.kind == "f" and not variable.encoding and "scale_factor" not in own:
            own["_FillValue"] = dice.choice((np.nan, -999.0, 1e20))
        encoding[str(name)] = own
    return encoding


def _zarr_encoding(dice: Random, ds: xr.Dataset, version: int) -> dict[str, Any]:
    encoding: dict[str, Any] = {}
    for name, variable in ds.data_vars.items():
        if not variable.ndim or variable.dtype.kind == "O":
            continue
        chunks = _chunks(dice, variable.shape)
        encoding[str(name)] = {"chunks": chunks}
        if version == 3 and dice.random() < 0.3:
            encoding[str(name)]["shards"] = tuple(size * dice.randint(1, 2) for size in chunks)
        if variable.dtype.kind == "f" and not variable.encoding and dice.random() < 0.5:
            encoding[str(name)]["_FillValue"] = -999.0
    return encoding


def _parts(dice: Random, ds: xr.Dataset) -> tuple[list[xr.Dataset], bool]:
    """Cut a dataset along time, and sometimes along y too; say whether along time only."""
    count = dice.randint(2, 4)
    cuts = sorted(dice.sample(range(1, ds.sizes["time"]), count - 1))
    parts = [ds.isel(time=slice(*ends)) for ends in zip([0, *cuts], [*cuts, None], strict=True)]
    if dice.random() < 0.25 and all("time" in ds[name].dims and "y" in ds[name].dims for name in ds.data_vars):
        half = ds.sizes["y"] // 2
        parts = [part.isel(y=half_of_it) for part in parts for half_of_it in (slice(half), slice(half, None))]
        return parts, False
    return parts, True


def _add_variables(path: str, dice: Random) -> None:
    """Add what xarray does not write: numbers in either byte order, chunks that were never written."""
    with netCDF4.Dataset(path, "a") as file:
        chunks = (dice.randint(1, 3), 1)
        made = file.createVariable("gaps", "f4", ("time", "x"), chunksizes=chunks, fill_value=-1.0, endian="big")
        made[2 : min(4, len(file.dimensions["time"]))] = 7.5
        swapped = file.createVariable("swapped", "i2", ("time",), endian=dice.choice(("big", "little")))
        swapped[:] = np.arange(len(file.dimensions["time"])) * 77 - 100
