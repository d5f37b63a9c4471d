"""Modules of the page that compute: run by Node, compared with contourpy and with names that CF has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from insitu.server.error_responses import STATUS_BY_KIND
from server.explorer.page_modules import run_module


def _length(lines: np.ndarray[Any, Any]) -> float:
    return float(np.hypot(lines[:, 2] - lines[:, 0], lines[:, 3] - lines[:, 1]).sum())


@pytest.mark.parametrize("has_gaps", [False, True])
def test_contour_lines_are_those_of_contourpy(tmp_path: Path, has_gaps: bool) -> None:
    contourpy = pytest.importorskip("contourpy", reason="no contourpy here (pip install matplotlib)")
    random = np.random.default_rng(2)
    values = random.normal(0, 1, (17, 23)).cumsum(0).cumsum(1)
    if has_gaps:
        values[random.random(values.shape) < 0.05] = np.nan
    level = float(np.nanmedian(values)) + 0.01
    numbers = json.dumps([None if np.isnan(value) else value for value in values.ravel()])
    code = f"module.contourSegments(Float64Array.from({numbers}, (v) => v ?? NaN), 17, 23, {level})"
    found = np.array(run_module(tmp_path, "contours.js", code))
    made = contourpy.contour_generator(z=np.ma.masked_invalid(values), corner_mask=False, quad_as_tri=False)
    lines = [np.hstack([line[:-1], line[1:]]) for line in made.lines(level)]
    expected = np.concatenate([line[np.any(line[:, :2] != line[:, 2:], axis=1)] for line in lines])
    assert len(found) == len(expected) > 20
    # The ends are the same; how two of them are joined in a saddle is a choice.
    ends = [np.unique(np.round(part.reshape(-1, 2), 9), axis=0) for part in (found, expected)]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-8)
    assert _length(found) == pytest.approx(_length(expected), rel=0.02)


def test_a_level_that_nothing_reaches_has_no_line(tmp_path: Path) -> None:
    assert run_module(tmp_path, "contours.js", "module.contourSegments(new Float32Array(12), 3, 4, 5)") == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("eastward_wind", "northward_wind"),
        ("x_wind", "y_wind"),
        ("sea_water_x_velocity", "sea_water_y_velocity"),
        ("surface_downward_eastward_stress", "surface_downward_northward_stress"),
        ("air_temperature", None),
        ("northward_wind", None),
    ],
)
def test_standard_names_of_components(tmp_path: Path, first: str, second: str | None) -> None:
    assert run_module(tmp_path, "vector_pairs.js", f"module.partnerStandardName({json.dumps(first)})") == second


def test_usual_names_of_components(tmp_path: Path) -> None:
    names = {"u": "v", "u10": "v10", "ua": "va", "uas": "vas", "uo": "vo", "U_component": "V_component", "u100": "v100",
             "tas": None, "v10": None, "units": None, "x": None, "xwind": "ywind"}  # fmt: skip
    found = run_module(tmp_path, "vector_pairs.js", f"{json.dumps(list(names))}.map(module.partnerName)")
    assert dict(zip(names, found, strict=True)) == names


def test_pairs_lie_on_one_grid(tmp_path: Path) -> None:
    def variable(name: str, dims: list[str], standard_name: str | None = None) -> dict[str, Any]:
        return {"path": name, "name": name, "kind": "number", "dims": dims, "standard_name": standard_name}

    grid = ["time", "lat", "lon"]
    variables = [
        variable("west", grid, "eastward_wind"),
        variable("north", grid, "northward_wind"),
        variable("u10", grid),
        variable("v10", ["lat", "lon"]),
        variable("u", ["time", "x"]),
    ]
    archive = json.dumps({"groups": [{"variables": variables}]})
    code = f"module.vectorPairs({archive}, 'lat', 'lon').map(({{ u, v }}) => [u.path, v.path])"
    assert run_module(tmp_path, "vector_pairs.js", code) == [["west", "north"]]


def test_an_animation_is_read_by_pillow(tmp_path: Path) -> None:
    """Frames of few colours come back exactly; those of many are close."""
    image = pytest.importorskip("PIL.Image", reason="no Pillow here")
    random = np.random.default_rng(4)
    few = random.integers(0, 32, (40, 3), dtype=np.uint8) * 8
    frames = few[random.integers(0, len(few), (3, 90, 130))]
    frames[0, :40] = frames[0, 0, 0]  # long runs, too
    for made, name in ((frames, "few.gif"), (random.integers(0, 256, (2, 90, 130, 3), dtype=np.uint8), "many.gif")):
        rgba = np.concatenate([made, np.full((*made.shape[:3], 1), 255, np.uint8)], axis=-1)
        (tmp_path / "frames.bin").write_bytes(rgba.tobytes())
        code = f"""(() => {{
            const data = fs.readFileSync("frames.bin");
            const frames = Array.from({{ length: {len(made)} }}, (_, at) =>
                ({{ width: 130, height: 90, data: data.subarray(at * 46800, (at + 1) * 46800) }}));
            fs.writeFileSync("{name}", module.encodeGif(frames, 20));
            return null;
        }})()"""
        run_module(tmp_path, "gif.js", code)
        with image.open(tmp_path / name) as found:
            assert (found.n_frames, found.size, found.info["duration"]) == (len(made), (130, 90), 200)
            for number, frame in enumerate(made):
                found.seek(number)
                pixels = np.asarray(found.convert("RGB")).astype(int)
                if name == "few.gif":
                    np.testing.assert_array_equal(pixels, frame)
                else:
                    assert np.abs(pixels - frame).mean() < 40


def _levels(colours: list[list[float]]) -> np.ndarray[Any, Any]:
    """CIE lightness of sRGB colours."""
    rgb = np.array(colours) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    luminance = linear @ [0.2126, 0.7152, 0.0722]
    return np.where(luminance > 0.008856, 116 * np.cbrt(luminance) - 16, 903.3 * luminance)


def test_colour_maps_are_perceptually_uniform(tmp_path: Path) -> None:
    """Lightness rises or falls all the way; from the middle of diverging maps it falls to both sides."""
    code = """Object.fromEntries(Object.entries(module.MAPS).map(([name, { at, diverging }]) =>
        [name, [Boolean(diverging), Array.from({ length: 256 }, (_, n) => module.parseColour(at(n / 255)))]]))"""
    maps = run_module(tmp_path, "colour.js", code)
    assert len(maps) >= 30
    for name, (diverging, colours) in maps.items():
        lightness = _levels(colours)
        if name in ("phase", "topo", "land", "oxy"):  # cyclic; seas and land; thresholds of oxygen
            continue
        halves = (
            (-lightness[:116], lightness[140:]) if diverging else (lightness * np.sign(lightness[0] - lightness[-1]),)
        )
        for half in halves:
            assert np.diff(half).max() < 0.8, name
    phase = maps["phase"][1]
    assert np.abs(np.array(phase[0]) - phase[-1]).max() <= 3


SUITABLE: list[tuple[dict[str, Any], str]] = [
    ({"standard_name": "air_temperature"}, "thermal"),
    ({"standard_name": "sea_surface_temperature_anomaly"}, "balance"),
    ({"name": "tas_anom", "long_name": "Near-surface temperature"}, "balance"),
    ({"long_name": "Difference of precipitation"}, "balance"),
    ({"standard_name": "sea_water_practical_salinity"}, "haline"),
    ({"standard_name": "precipitation_flux"}, "rain"),
    ({"standard_name": "sea_ice_area_fraction"}, "ice"),
    ({"standard_name": "mass_concentration_of_chlorophyll_a_in_sea_water"}, "algae"),
    ({"standard_name": "wind_speed"}, "speed"),
    ({"standard_name": "wind_from_direction"}, "phase"),
    ({"standard_name": "eastward_wind"}, "balance"),
    ({"standard_name": "sea_floor_depth_below_geoid"}, "deep"),
    ({"standard_name": "surface_altitude"}, "land"),
    ({"standard_name": "surface_altitude", "low": -4000}, "topo"),
    ({"name": "t2m"}, "thermal"),
    ({"name": "exchange_coefficient"}, "viridis"),
    ({"name": "exchange_coefficient", "low": -80}, "balance"),
    ({"name": "formula", "long_name": "temperature - other", "variables": ["temperature", "other"]}, "viridis"),
]


def test_a_map_suits_what_is_measured(tmp_path: Path) -> None:
    given = []
    for about, _ in SUITABLE:
        variable = {"name": "x", "standard_name": None, "long_name": None, **about}
        given.append([{"low": variable.pop("low", 1), "high": 100}, variable])
    found = run_module(tmp_path, "colour.js", f"{json.dumps(given)}.map((one) => module.suitableMap(...one))")
    assert found == [expected for _, expected in SUITABLE]


def test_ranges_of_colours(tmp_path: Path) -> None:
    """Diverging maps are centred at zero, also where all values lie on one side; steps have round borders."""
    limits = "{ min: -9, low: -3, high: 5, max: 7 }"
    code = f"""[module.automaticRange("balance", {limits}), module.automaticRange("thermal", {limits}),
        module.automaticRange("balance", {limits}, true), module.automaticRange("balance", {{ low: 2, high: 5 }}),
        module.automaticRange("rain", {{ low: 4, high: 4, min: 4, max: 4 }}),
        module.roundRange(277.2, 309.4, 8), module.roundRange(-3.1, 3.1, 10), module.roundRange(0, 1, 10)]"""
    *first, eight, ten, tenths = run_module(tmp_path, "colour.js", code)
    assert first == [[-5, 5], [-3, 5], [-9, 9], [-5, 5], [3.8, 4.2]]
    assert eight == [275, 315]
    assert ten == pytest.approx([-4, 4])
    assert tenths == pytest.approx([0, 1])


def test_colours_in_steps_beyond_the_range_and_missing(tmp_path: Path) -> None:
    state = {"map": "greys", "steps": 4, "low": 0, "high": 8, "above": "#ff0000", "missing": "#00ff00"}
    code = f"""(() => {{
        const range = {{ min: 0, low: 0, high: 8, max: 9 }};
        const colours = new module.ValueColours({json.dumps(state)}, range, {{ name: "x" }});
        const paint = colours.painter();
        return [colours.borders, [-1, 0, 1.99, 2, 5.9, 8, 8.1, NaN].map((value) => paint(value).toString(16)),
            [0, 1.99, 2, 8, 8.1].map((value) => colours.colourOf(value))]; }})()"""
    borders, pixels, texts = run_module(tmp_path, "value_colours.js", code)
    assert borders == [0, 2, 4, 6, 8]
    assert pixels[0] == pixels[1] == pixels[2]  # below the range as its end
    assert len({pixels[1], pixels[3], pixels[4], pixels[5]}) == 4
    assert pixels[6:] == ["ff0000ff", "ff00ff00"]  # opaque; blue, green, red
    assert texts[0] == texts[1] != texts[2]
    assert texts[4] == "#ff0000"


def test_ranges_at_the_ends_of_what_numbers_can_be(tmp_path: Path) -> None:
    """Widths that overflow, or that are too small to be divided, have no ticks."""
    code = """(() => [{ low: -1e308, high: 1e308 }, { low: 5, high: 5 }, {}].map((state) => {
        const range = { min: 1e-310, low: 1e-310, high: 3e-310, max: 3e-310 };
        const colours = new module.ValueColours({ map: "viridis", ...state }, range, { name: "x" });
        return [colours.low, colours.high]; }))()"""
    huge, equal, small = run_module(tmp_path, "value_colours.js", code)
    assert -huge[0] == huge[1] == pytest.approx(1e308, rel=1)
    assert np.isfinite(huge[1] - huge[0])
    assert equal == [5, 5]
    assert small == [-0.5, 0.5]


def test_a_mistyped_link_loses_what_cannot_be_shown(tmp_path: Path) -> None:
    regions = [
        {"polygon": [[0, 0], [1e300, 0], [0, 1]]},
        {"polygon": [[0, 0], [1e12, 0], [0, 1]]},
        {"box": [1, 2, 3]},
        7,
    ]
    code = f"""(() => {{
        const regions = encodeURIComponent({json.dumps(json.dumps(regions))});
        globalThis.location = {{ hash: "#zoom=-1&box=[1,2]&regions=" + regions }};
        return module.readState(); }})()"""
    assert run_module(tmp_path, "address.js", code) == {"regions": regions[1:2]}


def test_every_error_of_the_server_says_what_to_do(tmp_path: Path) -> None:
    failures = [{"kind": kind, "status": status, "retryAfter": None} for kind, status in STATUS_BY_KIND.items()]
    # Without a kind: no answer at all, the answers of Starlette, those of a proxy.
    failures += [{"kind": None, "status": status, "retryAfter": None} for status in (0, 401, 404, 500, 502, 504)]
    found = run_module(tmp_path, "error_advice.js", f"{json.dumps(failures)}.map(module.adviseOn)")
    for failure, advice in zip(failures, found, strict=True):
        assert advice["title"] != "This cannot be shown", failure
        assert advice["text"] or failure["kind"] == "unsupported", failure
        assert advice["way"] in ("again", "reload", "reset", "list", None)
    by_kind = {failure["kind"]: advice for failure, advice in zip(failures, found, strict=True)}
    assert by_kind["stale"]["way"] == "reload"
    assert by_kind["too-large"]["way"] == "reset"  # asking for the same again gives the same
    assert by_kind["not-found"]["way"] == by_kind["refused"]["way"] == "list"
    unknown = {"kind": "new", "status": 418, "retryAfter": None}
    assert (
        run_module(tmp_path, "error_advice.js", f"module.adviseOn({json.dumps(unknown)}).title")
        == "This cannot be shown"
    )


@pytest.mark.parametrize(
    ("status", "after", "seconds"),
    [(429, 3, 3), (503, 0, 1), (429, 0.2, 1), (503, 9999, 120), (429, None, None), (413, 3, None), (502, 3, None)],
)
def test_only_a_busy_server_is_asked_again_by_itself(
    tmp_path: Path, status: int, after: float | None, seconds: int | None
) -> None:
    failure = json.dumps({"kind": "busy", "status": status, "retryAfter": after})
    assert run_module(tmp_path, "error_advice.js", f"module.secondsToWait({failure})") == seconds


@pytest.mark.parametrize(
    ("positions", "placed"),
    [
        ([1.0, 2.5, 9.0], True),
        ([9.0, 2.5, 1.0], True),
        ([1.0, 1.0, 2.0], False),
        ([1.0, 3.0, 2.0], False),
        ([1.0, None, 2.0], False),
        ([4.0], True),
    ],
)
def test_a_line_whose_coordinate_lies_is_drawn_by_position(
    tmp_path: Path, positions: list[float | None], placed: bool
) -> None:
    side = {"dim": "x", "kind": "number", "units": "m", "name": "x", "labels": None}
    header = json.dumps({"size": 2 * len(positions), "position": side})
    code = (
        f"(() => {{ const made = module.withPlaces({{ header: {header}, arrays: {{ values: [1], position: "
        f"Float64Array.from({json.dumps(positions)}, (v) => v ?? NaN) }} }});"
        " return [made.header.position.kind, [...made.arrays.position]]; })()"
    )
    kind, found = run_module(tmp_path, "line_places.js", code)
    assert kind == ("number" if placed else "index")
    assert found == (positions if placed else [0.5 + 2 * at for at in range(len(positions))])
