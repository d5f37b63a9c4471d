"""Time and other axes of the page: dates of all calendars as cftime has them, typed positions, frames that are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cftime
import numpy as np
import pytest
import xarray as xr

from server.explorer.client import Explorer
from server.explorer.page_modules import run_module
from server.serving import serving

CALENDARS = ["noleap", "all_leap", "360_day", "julian", "standard", "proleptic_gregorian"]
DAY = 86_400_000


def test_dates_are_those_of_cftime(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    cases = []
    for calendar in CALENDARS:
        days = [*random.integers(-300_000, 300_000, 40), -141_428, -141_427, -1, 0, 58, 59, 60]
        for number in days:
            milliseconds = int(number) * DAY + int(random.integers(0, 86_400)) * 1000
            date = cftime.num2date(milliseconds, "milliseconds since 1970-01-01", calendar)
            cases.append((milliseconds, calendar, date.strftime("%Y-%m-%dT%H:%M:%S").strip(), date.year))
    code = f"""{json.dumps(cases)}.map(([ms, calendar, text]) =>
        [module.parseDate(text, calendar), module.toDate(ms, calendar).year, module.formatDate(ms, calendar)])"""
    for (milliseconds, calendar, text, year), (parsed, found, shown) in zip(
        cases, run_module(tmp_path, "calendar.js", code), strict=True
    ):
        assert parsed == milliseconds, (calendar, text)
        assert found == year
        assert f"{shown.replace(' ', 'T')}:00:00"[:19] == text, calendar


@pytest.mark.parametrize("calendar", ["360_day", "noleap", "standard"])
def test_ticks_are_round_dates_within_the_range(tmp_path: Path, calendar: str) -> None:
    spans = [3.0, 40.0, 200.0, 900.0, 20_000.0, 0.2]
    code = f"""{spans}.map((days) => {{
        const ticks = module.dateTicks({10_000 * DAY}, {10_000 * DAY} + days * {DAY}, 6, "{calendar}");
        return ticks.values.map((value) => [value, ticks.format(value)]); }})"""
    for span, ticks in zip(spans, run_module(tmp_path, "calendar.js", code), strict=True):
        values = [value for value, _ in ticks]
        assert 2 <= len(values) <= 8, (span, ticks)
        assert 10_000 * DAY <= values[0] < values[-1] <= (10_000 + span) * DAY
        dates = cftime.num2date(values, "milliseconds since 1970-01-01", calendar)
        for date, (_, text) in zip(dates, ticks, strict=True):
            fields = [f"{date.year:04}", date.strftime("%b"), date.strftime("%b %d"), date.strftime("%H:%M")]
            assert text in fields, (date, text)
        if span > 300:
            assert {date.day for date in dates} == {1}


def test_what_is_no_date(tmp_path: Path) -> None:
    texts = ["", "soon", "2001-13-01", "2001-02-32", "12:00", "2001-01-01x", "1e5"]
    assert run_module(tmp_path, "calendar.js", f"{texts}.map((text) => module.parseDate(text, null))") == [None] * 7


def test_typed_positions(tmp_path: Path) -> None:
    """The nearest one, of dates of any calendar, numbers, degrees, words."""
    times = [f"2001-{month:02}-{day:02}T00:00:00" for month in range(1, 13) for day in (1, 30)]
    coordinates: list[tuple[dict[str, Any], str, int | None]] = [
        ({"kind": "time", "calendar": "360_day", "values": times}, "2001-02-28", 3),
        ({"kind": "time", "calendar": "360_day", "values": times}, "1990", 0),
        ({"kind": "time", "values": times, "step": 10}, "2002", 230),
        ({"kind": "time", "values": times}, "noon", None),
        ({"kind": "number", "units": "hPa", "values": [1000, 850, 500]}, "700 hPa", 1),
        ({"kind": "number", "units": "degrees_north", "values": [-30.0, 0.0, 30.0]}, "26.6° S", 0),
        ({"kind": "number", "units": "degrees_east", "values": [0.0, 90.0, 270.0, 350.0]}, "90 W", 2),
        ({"kind": "number", "units": "degrees_east", "values": [0.0, 90.0, 270.0, 350.0]}, "359", 0),
        ({"kind": "text", "values": ["Kew", "Ytterøya"]}, "ytt", 1),
        ({"kind": "text", "values": ["Kew"]}, "Rom", None),
        ({"kind": "index", "values": []}, "99", 23),
        ({"kind": "number", "units": "m", "values": [1, 2]}, "deep", None),
    ]
    given = [[{"step": 1, "units": None, "calendar": None, **about}, 24, text] for about, text, _ in coordinates]
    code = f"{json.dumps(given)}.map((one) => module.nearestPosition(...one))"
    assert run_module(tmp_path, "sliders.js", code) == [position for *_, position in coordinates]


def test_degrees_as_maps_have_them(tmp_path: Path) -> None:
    code = """[[-26.6, "latitude"], [0, "latitude"], [90, "latitude"], [270, "longitude"], [-90, "longitude"],
        [180, "longitude"], [12.5, "longitude"]].map(([value, axis]) => module.formatDegrees(value, axis, String))
        .concat(module.shortenText("time 2001-01-01T00:00:00, lat -26.6 degrees_north, lon 300.5 degrees_east"))"""
    assert run_module(tmp_path, "format.js", code) == [
        "26.6° S", "0°", "90° N", "90° W", "90° W", "180°", "12.5° E", "time 2001-01-01, lat 26.6° S, lon 59.5° W"
    ]  # fmt: skip
    ticks = "[module.degreeTicks(-89.5, 89.5, 6), module.degreeTicks(1, 359, 8), module.degreeTicks(5.2, 5.9, 8)]"
    assert run_module(tmp_path, "format.js", ticks) == [
        [-60, -30, 0, 30, 60], [45, 90, 135, 180, 225, 270, 315], None
    ]  # fmt: skip


def test_which_coordinates_rise_downwards(tmp_path: Path) -> None:
    def attributes(**given: str) -> list[dict[str, str]]:
        return [{"name": name, "value": value} for name, value in given.items()]

    cases = [
        (attributes(positive="down"), "z", True),
        (attributes(positive="up", units="hPa"), "lev", False),
        (attributes(units="hPa"), "lev", True),
        (attributes(units="Pa"), "level", True),
        (attributes(standard_name="air_pressure"), "p", True),
        (attributes(standard_name="depth", units="m"), "z", True),
        (attributes(units="m"), "height", False),
        (attributes(), "isobaricInhPa", True),
        (attributes(units="degrees_north"), "lat", False),
    ]
    given = [[about, dim] for about, dim, _ in cases]
    code = f"{json.dumps(given)}.map((one) => module.risesDownwards(...one))"
    assert run_module(tmp_path, "dimension_scale.js", code) == [expected for *_, expected in cases]


def test_frames_are_asked_for_once_and_ahead(tmp_path: Path) -> None:
    code = """await (async () => {
        const requested = [], ended = [];
        const ask = (route, { at }, signal) => {
            requested.push(at);
            signal.addEventListener("abort", () => ended.push(at));
            return new Promise((resolve) => setTimeout(() => resolve({ arrays: { values: new Uint8Array(at) } }), 20));
        };
        const frames = new module.Frames("field", ask);
        const { signal } = new AbortController();
        const first = frames.get({ at: 1 }, signal);
        frames.fetchAhead([2, 3, 4, 5, 6, 7].map((at) => ({ at })));
        await Promise.all([first, frames.get({ at: 2 }, signal), frames.get({ at: 1 }, signal)]);
        await new Promise((resolve) => setTimeout(resolve, 40));
        frames.fetchAhead([{ at: 8 }, { at: 3 }]);
        frames.fetchAhead([{ at: 9 }]);  // elsewhere: nobody wants 8 any more
        await frames.get({ at: 9 }, signal);
        frames.clear();
        await frames.get({ at: 2 }, signal);
        return [requested, ended];
    })()"""
    requested, ended = run_module(tmp_path, "frames.js", code)
    assert requested == [1, 2, 3, 4, 8, 9, 2]  # four at once
    assert ended == [8]


def test_a_frame_that_was_ended_is_asked_for_again(tmp_path: Path) -> None:
    """Whoever wants it at once after its end gets it, not the error of the one before; one that is there stays."""
    code = """await (async () => {
        const requested = [];
        const ask = (route, { at }, signal) => {
            requested.push(at);
            return new Promise((resolve, reject) => {
                signal.addEventListener("abort", () => reject(signal.reason));
                setTimeout(() => resolve({ arrays: { values: new Uint8Array(at) } }), 20);
            });
        };
        const frames = new module.Frames("field", ask);
        const controllers = [new AbortController(), new AbortController(), new AbortController()];
        const ended = frames.get({ at: 1 }, controllers[0].signal).catch(() => "ended");
        controllers[0].abort();
        const found = await frames.get({ at: 1 }, controllers[1].signal);
        controllers[1].abort();
        await frames.get({ at: 1 }, controllers[2].signal);
        return [requested, await ended, found.arrays.values.length];
    })()"""
    assert run_module(tmp_path, "frames.js", code) == [[1, 1], "ended", 1]


@pytest.mark.servers
def test_the_calendar_of_a_side(tmp_path: Path) -> None:
    values = np.arange(12.0).reshape(3, 4)
    times = {"units": "days since 2000-02-28", "calendar": "360_day"}
    dataset = xr.Dataset({"v": (("time", "x"), values)}, {"time": ("time", [0.0, 1.0, 2.0], times)})
    dataset.to_netcdf(tmp_path / "days.nc", engine="h5netcdf")
    with serving([tmp_path], tmp_path / "serve.log") as running:
        api = Explorer(running, str(tmp_path / "days.nc"))
        found = api.picture("field", variable="v", y="time", x="x")
        dates = [cftime.datetime(2000, 2, day, calendar="360_day") for day in (28, 29, 30)]
        expected = cftime.date2num(dates, "milliseconds since 1970-01-01", "360_day")
        np.testing.assert_array_equal(found.arrays["y"], expected)
        assert (found.header["y"]["calendar"], found.header["y"]["labels"]) == ("360_day", None)
        assert found.header["x"]["calendar"] is None
        assert api.json("coordinate", variable="time")["calendar"] == "360_day"


def test_where_the_rows_of_a_picture_run(tmp_path: Path) -> None:
    """Images without a place on the earth have rising coordinates, those with one falling ones: north is up."""

    def rows(dim: str, rising: bool, is_image: bool, by_index: bool = False, labels: list[str] | None = None) -> Any:
        return [{"byIndex": by_index, "rising": rising, "side": {"dim": dim, "labels": labels}}, is_image, []]

    given = [rows("y", True, True), rows("y", False, True), rows("y", True, False), rows("depth", True, False),
             rows("station", True, False, True, ["Kew"]), rows("y", True, False, True)]  # fmt: skip
    code = f"{json.dumps(given)}.map((one) => module.rowsRunDown(...one))"
    assert run_module(tmp_path, "dimension_scale.js", code) == [True, False, False, True, True, False]
