"""Composites of three bands: which bands are red, green and blue, their pixels, and the code that gives them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.explorer.page_modules import run_module


def test_dimensions_of_bands(tmp_path: Path) -> None:
    cases: list[tuple[list[str], list[int], str | None]] = [
        (["band", "y", "x"], [3, 9, 9], "band"),
        (["y", "x", "wavelength"], [9, 9, 200], "wavelength"),
        (["band", "y", "x"], [2, 9, 9], None),
        (["time", "lat", "lon"], [12, 9, 9], None),
    ]
    given = [{"dims": dims, "shape": shape} for dims, shape, _ in cases]
    code = f"{json.dumps(given)}.map((one) => module.bandDimension(one) ?? null)"
    assert run_module(tmp_path, "composite.js", code) == [expected for *_, expected in cases]


def test_bands_by_names_and_wavelengths(tmp_path: Path) -> None:
    cases: list[tuple[list[Any], str | None, list[int]]] = [
        ([1, 2, 3], None, [0, 1, 2]),
        (["blue", "green", "red", "nir"], None, [2, 1, 0]),
        (["B", "G", "R"], None, [2, 1, 0]),
        ([442.7, 492.4, 559.8, 664.6, 832.8], "nm", [3, 2, 1]),
        ([0.47, 0.55, 0.65, 0.86], "um", [2, 1, 0]),
        ([3.9, 8.4, 10.8, 12.0], "um", [0, 1, 2]),
    ]
    given = [{"values": values, "units": units, "step": 1} for values, units, _ in cases]
    code = f"[...{json.dumps(given)}, null].map((one) => module.trueColours(one))"
    assert run_module(tmp_path, "composite.js", code) == [*(expected for *_, expected in cases), [0, 1, 2]]


def test_pixels_of_a_composite(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    bands = random.normal(50, 20, (3, 300))
    bands[1, 7] = np.nan
    limits = [[10, 90], [20, 80], [0, 100]]
    numbers = json.dumps([[None if np.isnan(value) else value for value in band] for band in bands])
    code = f"""(() => {{
        const bands = {numbers}.map((band) => Float64Array.from(band, (value) => value ?? NaN));
        const paint = module.compositePainter(bands, {limits});
        return Array.from({{ length: 300 }}, (_, cell) => paint(cell)); }})()"""
    found = np.array(run_module(tmp_path, "composite.js", code), np.uint32)
    assert found[7] == 0  # missing in one band
    pixels = found.view(np.uint8).reshape(-1, 4)[np.arange(300) != 7]
    low, high = np.array(limits).T[:, :, None]
    expected = np.clip((bands - low) / (high - low), 0, 1)[:, np.arange(300) != 7].T * 255
    assert np.abs(pixels[:, :3] - expected).max() <= 1
    assert (pixels[:, 3] == 255).all()


@pytest.mark.parametrize(
    ("state", "dtype", "expected"),
    [
        ({}, "uint8", [0, 255]),
        ({}, "uint16", [2, 8]),
        ({"limits": "extremes"}, "uint16", [1, 9]),
        ({"low": 3}, "float32", [3, 8]),
    ],
)
def test_limits_of_a_band(tmp_path: Path, state: dict[str, Any], dtype: str, expected: list[float]) -> None:
    code = f"module.bandLimits({json.dumps(state)}, {{ min: 1, low: 2, high: 8, max: 9 }}, '{dtype}')"
    assert run_module(tmp_path, "composite.js", code) == expected


def test_the_code_of_a_composite(tmp_path: Path) -> None:
    variable = {"path": "band_data", "name": "band_data", "group": "", "dims": ["band", "y", "x"], "shape": [4, 9, 12]}
    code = f"""(() => {{
        const variable = {json.dumps(variable)};
        const plane = {{ variable, y: "y", x: "x", rest: ["band"], over: [], statistic: "", index: {{ band: 0 }},
            box: [0, 9, 3, 12], whole: [0, 9, 0, 12], composite: {{ dim: "band", bands: [2, 1, 0] }} }};
        const archive = {{ url: "image.tif", urls: ["image.tif"] }};
        return [module.pythonSnippet(archive, plane), module.commandSnippet(archive, plane)]; }})()"""
    python, command = run_module(tmp_path, "snippets.js", code)
    assert python.splitlines()[-1] == (
        'field = ds["band_data"].isel(band=[2, 1, 0], x=slice(3, 12)).transpose("y", "x", "band")'
    )
    assert command is None
