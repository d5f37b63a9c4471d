"""Keys that cfgrib asks ecCodes for, and the attributes that it gives.

Datasets here look the same.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ABOUT_FIELD",
    "ABOUT_FILE",
    "ABOUT_GRID",
    "ABOUT_VARIABLE",
    "COORDINATES",
    "HEADERS",
    "NAMES",
    "ROWS_AND_COLUMNS",
    "UNIT_SECONDS",
]

ABOUT_FILE = ("edition", "centre", "centreDescription", "subCentre")
"""One value in a dataset."""
ABOUT_FIELD = (
    "paramId", "dataType", "numberOfPoints", "typeOfLevel", "stepUnits", "stepType", "gridType", "uvRelativeToGrid",
)  # fmt: skip
"""One value in a variable."""
HEADERS = (
    "number", "time", "step", "level", "directionNumber", "frequencyNumber", "percentile", "threshold",
    "upperThreshold",
)  # fmt: skip
"""What may become dimensions, in this order; the last three have no counterpart in cfgrib."""
NAMES = ("shortName", "units", "name", "cfName", "cfVarName")
"""One value for a parameter."""
ABOUT_VARIABLE = (
    "missingValue", "totalNumber", "numberOfDirections", "numberOfFrequencies", "NV", "gridDefinitionDescription",
)  # fmt: skip
"""Shown of the first field of a variable."""

_SCANNING = ("iScansNegatively", "jPointsAreConsecutive", "jScansPositively")
_FIRST = ("latitudeOfFirstGridPointInDegrees", "longitudeOfFirstGridPointInDegrees")
_LAST = ("latitudeOfLastGridPointInDegrees", "longitudeOfLastGridPointInDegrees")
_POLE = ("latitudeOfSouthernPoleInDegrees", "longitudeOfSouthernPoleInDegrees")
_STEPS = ("iDirectionIncrementInDegrees", "jDirectionIncrementInDegrees")

ABOUT_GRID: dict[str, tuple[str, ...]] = {
    "regular_ll": ("Nx", "Ny", *_STEPS, *_SCANNING, *_FIRST, *_LAST),
    "rotated_ll": ("Nx", "Ny", "angleOfRotationInDegrees", *_STEPS, *_SCANNING, *_FIRST, *_LAST, *_POLE),
    "reduced_ll": ("Ny", _STEPS[1], *_SCANNING[1:], _FIRST[0], _LAST[0]),
    "regular_gg": ("N", "Ni", "Nj", _STEPS[0], *_SCANNING, *_FIRST, *_LAST),
    "rotated_gg": ("Nx", "Ny", "angleOfRotationInDegrees", *_STEPS, *_SCANNING, *_FIRST, *_LAST, *_POLE, "N"),
    "lambert": (
        "LaDInDegrees", "LoVInDegrees", *_SCANNING, *_FIRST, *_POLE, "DyInMetres", "DxInMetres", "Latin2InDegrees",
        "Latin1InDegrees", "Ny", "Nx",
    ),
    "reduced_gg": ("N", "pl"),
    "sh": ("M", "K", "J"),
}  # fmt: skip

ROWS_AND_COLUMNS = {
    "rotated_ll", "rotated_gg", "lambert", "lambert_azimuthal_equal_area", "albers", "polar_stereographic",
}  # fmt: skip
"""Grids of rows and columns whose latitudes and longitudes have both axes."""

UNIT_SECONDS: dict[int, int] = {
    # Code table 4.4 of GRIB 2; 14 and 15 are GRIB 1's
    0: 60, 1: 3600, 2: 86400, 10: 10800, 11: 21600, 12: 43200, 13: 1, 14: 900, 15: 1800,
}  # fmt: skip

_CLOCK = {"units": "seconds since 1970-01-01T00:00:00", "calendar": "proleptic_gregorian"}
_SOIL = {"units": "m", "positive": "down", "long_name": "soil depth", "standard_name": "depth"}
_PRESSURE = {"standard_name": "air_pressure", "long_name": "pressure"}

COORDINATES: dict[str, dict[str, Any]] = {
    "latitude": {"units": "degrees_north", "standard_name": "latitude", "long_name": "latitude"},
    "longitude": {"units": "degrees_east", "standard_name": "longitude", "long_name": "longitude"},
    "depthBelowLand": _SOIL,
    "depthBelowLandLayer": _SOIL,
    "hybrid": {
        "units": "1",
        "positive": "down",
        "long_name": "hybrid level",
        "standard_name": "atmosphere_hybrid_sigma_pressure_coordinate",
    },
    "heightAboveGround": {
        "units": "m",
        "positive": "up",
        "long_name": "height above the surface",
        "standard_name": "height",
    },
    "isobaricInhPa": {"units": "hPa", "positive": "down", "stored_direction": "decreasing", **_PRESSURE},
    "isobaricInPa": {"units": "Pa", "positive": "down", "stored_direction": "decreasing", **_PRESSURE},
    "isobaricLayer": {"units": "Pa", "positive": "down", **_PRESSURE},
    "number": {"units": "1", "standard_name": "realization", "long_name": "ensemble member numerical id"},
    "percentile": {"units": "%", "long_name": "percentile of the distribution"},
    "threshold": {"long_name": "threshold of the probability, in the units of the parameter"},
    "upperThreshold": {"long_name": "upper end of the range whose probability it is, in the units of the parameter"},
    "step": {
        "units": "hours",
        "standard_name": "forecast_period",
        "long_name": "time since forecast_reference_time",
        "dtype": "timedelta64[ns]",
    },
    "time": {**_CLOCK, "standard_name": "forecast_reference_time", "long_name": "initial time of forecast"},
    "valid_time": {**_CLOCK, "standard_name": "time", "long_name": "time"},
}
