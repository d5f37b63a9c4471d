"""Files of forecasts, written with ecCodes and netCDF4, and the dataset that they make, by cfgrib and xarray."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

FIRST = np.datetime64("2024-02-28T00", "h")
NAMES = {"TMP": (0, 0, 0), "PRES": (0, 3, 0), "APCP": (0, 1, 8)}
"""Of parameters at the surface; the last is a sum from the beginning of a run on."""
MARS = {"TMP": "t", "PRES": "sp", "APCP": "tp"}


class Field(NamedTuple):
    """One field of a file."""

    run: int
    """Hours after the first."""
    lead: int
    name: str
    member: int | None = None

    @property
    def moment(self) -> Any:
        """The reference time."""
        return (FIRST + self.run).astype(object)

    @property
    def text(self) -> str:
        """The forecast as wgrib2 prints it."""
        if self.name == "APCP":
            return f"0-{self.lead} hour acc fcst"
        return f"{self.lead} hour fcst" if self.lead else "anl"

    def message(self, values: np.ndarray | None = None) -> bytes:
        """Return the field as GRIB."""
        import eccodes

        handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
        ensemble, is_sum = self.member is not None, self.name == "APCP"
        try:
            keys: dict[str, Any] = {
                "centre": 7, "Ni": 4, "Nj": 3, "latitudeOfFirstGridPointInDegrees": 2,
                "latitudeOfLastGridPointInDegrees": 0, "longitudeOfFirstGridPointInDegrees": 0,
                "longitudeOfLastGridPointInDegrees": 3, "iDirectionIncrementInDegrees": 1,
                "jDirectionIncrementInDegrees": 1, "dataDate": int(f"{self.moment:%Y%m%d}"),
                "dataTime": int(f"{self.moment:%H%M}"),
                "productDefinitionTemplateNumber": 8 * is_sum + ensemble + 2 * (is_sum and ensemble),
            }  # fmt: skip
            keys |= dict(zip(("discipline", "parameterCategory", "parameterNumber"), NAMES[self.name], strict=True))
            keys["typeOfFirstFixedSurface"] = 1
            if ensemble:
                keys |= {"perturbationNumber": self.member, "numberOfForecastsInEnsemble": 5}
                keys |= {"typeOfEnsembleForecast": 3 if self.member else 1}
            keys |= {"stepRange": f"0-{self.lead}", "typeOfStatisticalProcessing": 1} if is_sum else {}
            keys |= {"bitsPerValue": 16} | ({} if is_sum else {"forecastTime": self.lead})
            for key, value in keys.items():
                eccodes.codes_set(handle, key, value)
            random = np.random.default_rng([self.run, self.lead, len(self.name), 1 + (self.member or 0)])
            eccodes.codes_set_values(handle, random.normal(280, 10, 12) if values is None else values.ravel())
            return bytes(eccodes.codes_get_message(handle))
        finally:
            eccodes.codes_release(handle)


def write_grib(path: Path, fields: Iterable[Field]) -> str:
    """Write a GRIB file with both kinds of index beside it; return its name."""
    offset, lines, objects, data = 0, [], [], []
    for number, field in enumerate(fields, 1):
        data.append(field.message())
        rest = "" if field.member is None else f"ENS=+{field.member}" if field.member else "ENS=low-res ctl"
        lines.append(f"{number}:{offset}:d={field.moment:%Y%m%d%H}:{field.name}:surface:{field.text}:{rest}\n")
        words = {"date": f"{field.moment:%Y%m%d}", "time": f"{field.moment:%H%M}", "step": str(field.lead)}
        words |= {
            "type": "fc",
            "levtype": "sfc",
            "param": MARS[field.name],
            "_offset": offset,
            "_length": len(data[-1]),
        }
        objects.append(json.dumps(words) + "\n")
        offset += len(data[-1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(data))
    Path(f"{path}.idx").write_text("".join(lines))
    path.with_suffix(".index").write_text("".join(objects))
    return str(path)


def fields_of(run: int, lead: int, member: int | None = None) -> list[Field]:
    """Return the fields of a file: no sum at lead time 0."""
    return [Field(run, lead, name, member) for name in NAMES if lead or name != "APCP"]


def write_runs(folder: Path, cells: Collection[tuple[int, int]]) -> list[str]:
    """Write a file of each run and lead time; return their names."""
    return [write_grib(folder / f"r{run:03}" / f"f{lead:03}.grib2", fields_of(run, lead)) for run, lead in cells]


def open_with_cfgrib(paths: Iterable[str]) -> xr.Dataset:
    """Return files of one field of each variable as xarray joins them, by hand, in the order of labels."""
    import cfgrib

    parts = []
    for path in paths:
        # Beside the GRIB file lies an index that is not cfgrib's.
        found = cfgrib.open_dataset(path, indexpath="", backend_kwargs={}, decode_timedelta=True).load()
        parts.append(found.drop_vars("valid_time").expand_dims(["time", "step"]))
    whole = (
        xr.combine_by_coords([xr.merge([part], compat="override") for part in parts], combine_attrs="override")
        if len(parts) == 1
        else _merge(parts)
    )
    valid = whole.time + whole.step
    return whole.assign_coords(valid_time=(("time", "step"), valid.values))


def _merge(parts: list[xr.Dataset]) -> xr.Dataset:
    """Return parts in a table of all labels; cells that none has are missing."""
    times = np.unique([part.time.values[0] for part in parts])
    steps = np.unique([part.step.values[0] for part in parts])
    whole = {}
    for name in sorted({name for part in parts for name in part.data_vars}):
        first = next(part[name] for part in parts if name in part)
        values = np.full((len(times), len(steps), *first.shape[2:]), np.nan, first.dtype)
        for part in parts:
            if name in part:
                at = np.searchsorted(times, part.time.values[0]), np.searchsorted(steps, part.step.values[0])
                values[at] = part[name].values[0, 0]
        whole[name] = (first.dims, values, first.attrs)
    return xr.Dataset(whole, {**parts[0].coords, "time": times, "step": steps})


def same_values(found: xr.Dataset, expected: xr.Dataset, names: Mapping[str, str] | None = None) -> None:
    """Raise if two datasets differ in variables, labels or values."""
    assert set(found.data_vars) == set(expected.data_vars)
    for name, variable in expected.data_vars.items():
        assert found[name].dims == variable.dims, name
        np.testing.assert_array_equal(found[name].values, variable.values, err_msg=str(name))
    for name in ("time", "step", "valid_time", "latitude", "longitude"):
        np.testing.assert_array_equal(found[name].values, expected[name].values, err_msg=name)


def indexes_of(paths: Iterable[str], suffix: str) -> list[str]:
    """Return the indexes beside GRIB files."""
    return [f"{path}.idx" if suffix == "idx" else os.path.splitext(path)[0] + ".index" for path in paths]
