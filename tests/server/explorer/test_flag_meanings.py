"""What flags mean, in words: from their attributes, through the API, to the colours and words of the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from insitu.server.explorer.flag_meanings import flags_of
from server.explorer.client import Explorer
from server.explorer.page_modules import run_module
from server.serving import serving


def _meanings(attributes: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(flag["value"], flag["mask"], flag["meaning"]) for flag in flags_of(attributes) or []]


def test_flags_as_files_have_them() -> None:
    values = np.array([-1, 0, 2], "i1")
    assert _meanings({"flag_values": values, "flag_meanings": "no_data open_sea land"}) == [
        (-1, None, "no data"), (0, None, "open sea"), (2, None, "land")
    ]  # fmt: skip
    masks = np.array([1, 2, 2], "u1")
    assert _meanings({"flag_masks": masks, "flag_values": [1, 0, 2], "flag_meanings": ["a", "b", "c"]}) == [
        (1, 1, "a"), (0, 2, "b"), (2, 2, "c")
    ]  # fmt: skip
    assert _meanings({"flag_values": "0b, 1b", "flag_meanings": "good  bad"}) == [(0, None, "good"), (1, None, "bad")]
    found = flags_of({"flag_values": [10, 20], "flag_meanings": "a b", "flag_colors": "#ffff64 #0000ff"})
    assert found is not None
    assert [flag["colour"] for flag in found] == ["#ffff64", "#0000ff"]


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"flag_values": [1, 2]},
        {"flag_meanings": "a b"},
        {"flag_values": ["x"], "flag_meanings": "a"},
        {"flag_values": [1.0, np.nan], "flag_meanings": "a b"},
        {"flag_masks": [1], "flag_values": [1, 2], "flag_meanings": "a b"},
    ],
)
def test_what_is_no_flag(attributes: dict[str, Any]) -> None:
    assert flags_of(attributes) is None


@pytest.mark.servers
def test_flags_are_never_averaged(tmp_path: Path) -> None:
    """The mean of water and forest is not grassland."""
    attributes = {"flag_values": np.array([0, 100], "i1"), "flag_meanings": "water forest"}
    values = np.indices((90, 90)).sum(0).astype("i1") % 2 * 100
    dataset = xr.Dataset({"cover": (("y", "x"), values.astype("i1"), attributes), "plain": (("y", "x"), values)})
    dataset.to_netcdf(tmp_path / "cover.nc", engine="h5netcdf")
    with serving([tmp_path], tmp_path / "serve.log") as running:
        api = Explorer(running, str(tmp_path / "cover.nc"))
        found = api.picture("field", variable="cover", rows=30, columns=30)
        assert set(np.unique(found.arrays["values"])) <= {0, 100}
        assert found.header["sampling"]["method"] == "nearest"
        assert api.picture("field", variable="plain", rows=30, columns=30).header["sampling"]["method"] == "mean"
        assert [flag["meaning"] for flag in api.variable("cover")["flags"]] == ["water", "forest"]
        assert api.variable("plain")["flags"] is None


def test_colours_and_words_on_the_page(tmp_path: Path) -> None:
    def flag(meaning: str, value: int | None, mask: int | None = None, colour: str | None = None) -> dict[str, Any]:
        return {"meaning": meaning, "value": value, "mask": mask, "colour": colour}

    def run(flags: list[dict[str, Any]], values: list[int]) -> list[list[str]]:
        code = f"""(() => {{ const colours = new module.FlagColours({json.dumps(flags)});
            return {values}.map((value) => [colours.wordsOf(value), colours.colourOf(value)]); }})()"""
        found: list[list[str]] = run_module(tmp_path, "flag_colours.js", code)
        return found

    plain = run([flag("water", 0), flag("land", 1, colour="#00ff00"), flag("ice", -7)], [0, 1, -7, 9])
    assert [words for words, _ in plain] == ["water", "land", "ice", "9: no flag"]
    assert plain[1][1] == "#00ff00"
    assert len({colour for _, colour in plain}) == 4
    bits = run([flag("cloudy", None, 1), flag("night", None, 2), flag("sea", None, -128)], [0, 1, 3, -127, 2])
    assert [words for words, _ in bits] == ["none", "cloudy", "cloudy, night", "cloudy, sea", "night"]
    assert len({colour for _, colour in bits}) == 5
    # CF 1.10, example 3.5: two bits hold one of four, a third one is a flag of its own.
    both = [flag("good", 0, 3), flag("poor", 1, 3), flag("bad", 2, 3), flag("calibrated", 4, 4)]
    assert [words for words, _ in run(both, [0, 1, 2, 6])] == ["good", "poor", "bad", "bad, calibrated"]
    entries = run_module(
        tmp_path, "flag_colours.js",
        f"""new module.FlagColours({json.dumps([flag("b", 5), flag("a", 1)])}).entries([1, 5, NaN, 1])
            .map(({{ words, count }}) => [words, count])""",
    )  # fmt: skip
    assert entries == [["b", 1], ["a", 2]]
