"""Is a file by its index the file by its headers, whatever fields it holds, with one look at each
grid?

Modules: formats/grib/abbreviations.py, formats/grib/codecs/complex_packing.py,
formats/grib/codecs/packed_integers.py, formats/grib/composed_header.py, formats/grib/datasets.py,
formats/grib/header_numbers.py, formats/grib/message_search.py, formats/grib/sampled_messages.py,
formats/grib/scan_index.py, formats/grib/sections.py, formats/grib/short_message.py, formats/grib/surfaces.py,
formats/grib/variables.py, formats/grib/vocabulary.py
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import insitu
from insitu.errors import CodecError, InsituError
from insitu.formats.grib.scan_index import SampledMessages
from insitu.model import VirtualGroup

eccodes = pytest.importorskip("eccodes")

MEAN, TOTAL, LARGEST, LEAST = 0, 1, 2, 3
STATISTICS = {MEAN: "ave", TOTAL: "acc", LARGEST: "max", LEAST: "min"}


class Level(NamedTuple):
    """A level in a header, and as wgrib2 prints it."""

    text: str
    first: tuple[int, int | None, int | None]
    """Code, scale factor, scaled value."""
    second: tuple[int, int | None, int | None] = (255, None, None)


LEVELS = [
    *(Level(f"{level:g} mb", (100, 0, round(level * 100))) for level in (1000, 850, 500, 10, 1, 0.4)),
    Level("surface", (1, None, None)), Level("surface", (1, 0, 0)), Level("mean sea level", (101, None, None)),
    Level("2 m above ground", (103, 0, 2)),
    Level("80 m above ground", (103, 0, 80)), Level("0-0.1 m below ground", (106, 0, 0), (106, 1, 1)),
    Level("0.1-0.4 m below ground", (106, 1, 1), (106, 1, 4)),
    Level("tropopause", (7, 0, 0)), Level("max wind", (6, 0, 0)), Level("0C isotherm", (4, 0, 0)),
    Level("entire atmosphere", (10, 0, 0)),
    Level("entire atmosphere (considered as a single layer)", (200, 0, 0)), Level("low cloud layer", (214, 0, 0)),
    Level("0.995 sigma level", (104, 4, 9950)),
    Level("0.33-1 sigma layer", (104, 2, 33), (104, 2, 100)),
    Level("30-0 mb above ground", (108, 0, 3000), (108, 0, 0)), Level("1 hybrid level", (105, 0, 1)),
    Level("PV=2e-06 (Km^2/kg/s) surface", (109, 9, 2000)), Level("PV=-2e-06 (Km^2/kg/s) surface",
    (109, 9, 2000 + 2**31)), Level("320 K isentropic level", (107, 0, 320)),
    Level("3000-0 m above ground", (103, 0, 3000), (103, 0, 0)), Level("cloud ceiling", (215, 0, 0)),
    Level("planetary boundary layer", (220, 0, 0)),
    Level("surface - tropopause", (1, 0, 0), (7, 0, 0)), Level("local level type 250 7", (250, 0, 7)),
    Level("457 m above mean sea level", (102, 0, 457)),
    Level("500-1000 mb", (100, 0, 50000), (100, 0, 100000)),
]  # fmt: skip
NAMES = {
    "TMP": (0, 0, 0), "HGT": (0, 3, 5), "UGRD": (0, 2, 2), "VGRD": (0, 2, 3), "RH": (0, 1, 1), "PRES": (0, 3, 0),
    "PRMSL": (0, 3, 1), "CRAIN": (0, 1, 192),
    "DSWRF": (0, 4, 192), "TCDC": (0, 6, 1), "TSOIL": (2, 0, 2), "SOILW": (2, 0, 192), "ICEC": (10, 2, 0),
    "MSLET": (0, 3, 192), "HTSGW": (10, 0, 3), "APCP": (0, 1, 8),
    "var discipline=0 master_table=2 parmcat=1 parm=250": (0, 1, 250),
}  # fmt: skip


class What(NamedTuple):
    """One field, and what an inventory says about it."""

    name: str
    level: Level
    begin: int
    end: int
    statistic: int | None = None
    member: int | None = None
    date: int = 20240229
    grid: int = 0

    @property
    def forecast(self) -> str:
        """As wgrib2 prints it."""
        if self.statistic is None:
            return f"{self.end} hour fcst" if self.end else "anl"
        days = self.begin % 24 == 0 and self.end % 24 == 0
        begin, end, unit = (self.begin // 24, self.end // 24, "day") if days else (self.begin, self.end, "hour")
        return f"{begin}-{end} {unit} {STATISTICS[self.statistic]} fcst"


def message(what: What, packing: str = "grid_simple", **more: Any) -> bytes:
    """Its message, key by key."""
    side = 12 + 5 * what.grid
    keys: dict[str, Any] = {
        "centre": 7, "subCentre": 0, "dataDate": what.date, "dataTime": 600, "Ni": side, "Nj": side,
        "iDirectionIncrementInDegrees": 1, "jDirectionIncrementInDegrees": 1,
        "latitudeOfFirstGridPointInDegrees": side - 1, "latitudeOfLastGridPointInDegrees": 0,
        "longitudeOfFirstGridPointInDegrees": 0,
        "longitudeOfLastGridPointInDegrees": side - 1,
    }  # fmt: skip
    template = (8 if what.member is None else 11) if what.statistic is not None else (0 if what.member is None else 1)
    keys["productDefinitionTemplateNumber"] = template
    keys |= dict(zip(("discipline", "parameterCategory", "parameterNumber"), NAMES[what.name], strict=True))
    if what.member is not None:
        keys |= {
            "typeOfEnsembleForecast": 3,
            "perturbationNumber": what.member,
            "numberOfForecastsInEnsemble": 30,
        }
    if what.statistic is None:
        keys["forecastTime"] = what.end
    else:
        keys |= {"typeOfStatisticalProcessing": what.statistic, "stepRange": f"{what.begin}-{what.end}"}
    keys |= more
    handle = eccodes.codes_grib_new_from_samples("regular_ll_pl_grib2")
    try:
        for key, value in keys.items():
            eccodes.codes_set(handle, key, value)
        for order, (code, scale, value) in (("First", what.level.first), ("Second", what.level.second)):
            eccodes.codes_set(handle, f"typeOf{order}FixedSurface", code)
            for key, number in (
                (f"scaleFactorOf{order}FixedSurface", scale),
                (f"scaledValueOf{order}FixedSurface", value),
            ):
                if number is None:
                    eccodes.codes_set_missing(handle, key)
                else:
                    eccodes.codes_set(handle, key, number)
        values = np.random.default_rng(abs(hash(what)) % 2**32).normal(280, 10, side * side)
        eccodes.codes_set(handle, "packingType", packing)
        eccodes.codes_set(handle, "bitsPerValue", 12)
        eccodes.codes_set_values(handle, values)
        return bytes(eccodes.codes_get_message(handle))
    finally:
        eccodes.codes_release(handle)


def inventory(fields: list[What], messages: list[bytes]) -> str:
    """The lines of an `.idx`."""
    lines, offset = [], 0
    for number, (what, data) in enumerate(zip(fields, messages, strict=True), 1):
        member = "" if what.member is None else f"ENS=+{what.member}"
        lines.append(f"{number}:{offset}:d={what.date}06:{what.name}:{what.level.text}:{what.forecast}:{member}\n")
        offset += len(data)
    return "".join(lines)


def _write(folder: Path, fields: list[What], **how: Any) -> Path:
    messages = [message(what, **how) for what in fields]
    (folder / "a.grib2").write_bytes(b"".join(messages))
    (folder / "a.grib2.idx").write_text(inventory(fields, messages))
    return folder / "a.grib2"


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The messages that were looked at; with a first read that holds one of them only."""
    monkeypatch.setattr("insitu.formats.parsing.read_cache.LOCAL_HEAD", 400)
    found: list[int] = []
    at = SampledMessages.read

    def noted(self: SampledMessages, offsets: Any) -> None:
        offsets = list(offsets)
        found.extend(offset for offset in dict.fromkeys(offsets) if offset not in self.tried)
        at(self, offsets)

    monkeypatch.setattr(SampledMessages, "read", noted)
    return found


def _same(one: VirtualGroup, other: VirtualGroup) -> None:
    mine, expected = dict(one.all_arrays()), dict(other.all_arrays())
    assert mine.keys() == expected.keys()
    for name, array in mine.items():
        assert (array.dims, array.shape) == (expected[name].dims, expected[name].shape), name
        assert repr(dict(array.attributes)) == repr(dict(expected[name].attributes)), name
        np.testing.assert_array_equal(
            insitu.read(array, decode=False), insitu.read(expected[name], decode=False), err_msg=name
        )
    for name, group in one.groups.items():
        assert dict(group.attributes) == dict(other.groups[name].attributes)
    assert dict(one.attributes) == dict(other.attributes)


@pytest.mark.parametrize("packing", ["grid_simple", "grid_ccsds", "grid_complex_spatial_differencing"])
def test_one_look_at_a_cube(tmp_path: Path, looked: list[int], packing: str) -> None:
    fields = [
        What(name, level, step, step)
        for step, name, level in itertools.product((0, 6, 12, 24), ("TMP", "HGT", "UGRD"), LEVELS[:5])
    ]
    path = _write(tmp_path, fields, packing=packing)
    found = insitu.scan(f"{path}.idx", decode=False)
    assert looked == [0]
    _same(found, insitu.scan(path, decode=False))
    assert found.arrays["t"].shape == (4, 5, 12, 12)


def test_every_level_and_every_forecast(tmp_path: Path, looked: list[int]) -> None:
    times: list[tuple[int, int, int | None]] = [
        (0, 0, None),
        (6, 6, None),
        (0, 6, TOTAL),
        (6, 12, MEAN),
        (0, 24, LARGEST),
        (0, 120, TOTAL),
        (3, 6, LEAST),
    ]
    clear = [name for name in NAMES if " " not in name]
    for number, (begin, end, statistic) in enumerate(times):
        fields = [
            What(name, level, begin, end, statistic)
            for place, level in enumerate(LEVELS)
            for name in clear[(place + number) % 6 :: 6]
        ]
        path = _write(tmp_path, fields)
        looked.clear()
        found = insitu.scan(f"{path}.idx", decode=False)
        # Beyond the first: levels that only their centre knows, or of coefficients; names of two
        # parameters; texts of two levels.
        assert len(looked) < 0.6 * len(fields)
        _same(found, insitu.scan(path, decode=False))


def test_at_random(tmp_path: Path, looked: list[int]) -> None:
    random = np.random.default_rng(7)
    for packing in ("grid_simple", "grid_ccsds") * 4:
        count = int(random.integers(1, 30))
        fields = []
        for _ in range(count):
            statistic = random.choice([None, None, MEAN, TOTAL, LARGEST, LEAST])
            end = int(random.choice([1, 3, 6, 24, 36, 240]))
            begin = end if statistic is None else int(random.integers(0, end))
            fields.append(
                What(
                    str(random.choice(list(NAMES))), LEVELS[random.integers(len(LEVELS))], begin, end, statistic,
                    random.choice([None, 1, 7]), int(random.choice([20231231, 20240229])),
                    int(packing == "grid_simple" and random.integers(8) == 0),
                )
            )  # fmt: skip
        path = _write(tmp_path, fields, packing=packing)
        _same(insitu.scan(f"{path}.idx", decode=False), insitu.scan(path, decode=False))


def test_members_and_their_number(tmp_path: Path, looked: list[int]) -> None:
    fields = [
        What(name, LEVELS[2], *span, member=member)
        for member in (1, 2, 30)
        for name, span in (("TMP", (6, 6, None)), ("APCP", (0, 6, TOTAL)), ("TMP", (12, 12, None)))
    ]
    path = _write(tmp_path, fields)
    found = insitu.scan(f"{path}.idx", decode=False)
    assert looked == [0]
    _same(found, insitu.scan(path, decode=False))


def test_one_look_at_each_grid(tmp_path: Path, looked: list[int]) -> None:
    fields = [
        What(name, level, 6, 6, grid=grid)
        for name, grid in (("TMP", 0), ("HGT", 1), ("UGRD", 0), ("VGRD", 2))
        for level in LEVELS[:5]
    ]
    path = _write(tmp_path, fields)
    found = insitu.scan(f"{path}.idx", decode=False)
    assert len(looked) == 3
    _same(found, insitu.scan(path, decode=False))


def test_another_grid_of_the_same_size_is_found_when_it_is_read(tmp_path: Path, looked: list[int]) -> None:
    fields = [What("TMP", level, 6, 6) for level in LEVELS[:4]]
    messages = [message(what) for what in fields]
    messages[2] = message(fields[2], longitudeOfFirstGridPointInDegrees=1, longitudeOfLastGridPointInDegrees=12)
    messages[3] = message(fields[3]._replace(name="RH"))
    (tmp_path / "a.grib2").write_bytes(b"".join(messages))
    (tmp_path / "a.grib2.idx").write_text(inventory(fields, messages))
    t = insitu.scan(tmp_path / "a.grib2.idx", decode=False).arrays["t"]
    np.testing.assert_array_equal(insitu.read(t, selection=slice(0, 2), decode=False).shape, (2, 12, 12))
    with pytest.raises(CodecError, match="on another grid"):
        insitu.read(t, selection=2, decode=False)
    with pytest.raises(CodecError, match=r"parameter \[0, 1, 1\]"):
        insitu.read(t, selection=3, decode=False)


def test_a_line_that_lies_about_what_is_looked_at(tmp_path: Path) -> None:
    fields = [What(name, level, 6, 6) for name in ("TMP", "HGT") for level in LEVELS[:4]]
    path = _write(tmp_path, fields)
    lines = Path(f"{path}.idx").read_text()
    for one, other in (("850 mb", "700 mb"), ("TMP", "RH"), (":6 hour", ":7 hour"), ("d=20240229", "d=20240228")):
        Path(f"{path}.idx").write_text(lines.replace(one, other))
        _same(insitu.scan(f"{path}.idx", decode=False), insitu.scan(path, decode=False))


@pytest.mark.parametrize("seed", range(4))
def test_damaged_anywhere(tmp_path: Path, looked: list[int], seed: int) -> None:
    fields = [What(name, level, 6, 6) for name in ("TMP", "HGT") for level in LEVELS[:4]]
    path = _write(tmp_path, fields)
    good = Path(f"{path}.idx").read_bytes()
    random = np.random.default_rng(seed)
    for _ in range(60):
        bad = bytearray(good)
        for place in random.integers(0, len(bad), int(random.integers(1, 4))):
            bad[place] = int(random.integers(10, 127))
        Path(f"{path}.idx").write_bytes(bad)
        try:
            for _, array in insitu.scan(f"{path}.idx", format="grib_index", decode=False).all_arrays():
                insitu.read(array, decode=False)
        except InsituError:
            continue


WORDS = {
    "2t": "sfc", "10u": "sfc", "msl": "sfc", "sp": "sfc", "tp": "sfc", "skt": "sfc", "tcwv": "sfc", "ssrd": "sfc",
    "lsm": "sfc", "z": "sfc", "t": "pl", "u": "pl", "gh": "pl", "q": "pl",
}  # fmt: skip


def _mars(folder: Path, types: tuple[str, ...] = ("fc",), steps: tuple[int, ...] = (0, 6, 144)) -> Path:
    """As ECMWF's open data: the same grid for all."""
    lines, messages, offset = [], [], 0
    for kind, step, (param, levels) in itertools.product(types, steps, WORDS.items()):
        for level in (1000, 500) if levels == "pl" else (None,):
            for number in (1, 2) if kind == "pf" else (None,):
                sample = "regular_ll_pl_grib2" if levels == "pl" else "regular_ll_sfc_grib2"
                handle = eccodes.codes_grib_new_from_samples(sample)
                keys: dict[str, Any] = {"centre": "ecmf", "dataDate": 20240101, "dataTime": 1200}
                if number is not None:
                    keys |= {"productDefinitionTemplateNumber": 1, "numberOfForecastsInEnsemble": 51}
                keys |= {"shortName": param, "step": step}
                if number is not None:
                    keys["perturbationNumber"] = number
                if level is not None:
                    keys["level"] = level
                for key, value in keys.items():
                    eccodes.codes_set(handle, key, value)
                eccodes.codes_set_values(
                    handle, np.full(eccodes.codes_get_size(handle, "values"), step + len(lines)) + np.arange(496)
                )
                messages.append(eccodes.codes_get_message(handle))
                eccodes.codes_release(handle)
                line: dict[str, Any] = {
                    "domain": "g", "date": "20240101", "time": "1200", "expver": "0001", "class": "od", "type": kind,
                    "stream": "oper", "step": str(step),
                    "levtype": levels, "param": param,
                }  # fmt: skip
                if level is not None:
                    line["levelist"] = str(level)
                if number is not None:
                    line["number"] = str(number)
                lines.append(json.dumps(line | {"_offset": offset, "_length": len(messages[-1])}))
                offset += len(messages[-1])
    (folder / "a.grib2").write_bytes(b"".join(messages))
    (folder / "a.index").write_text("\n".join(lines) + "\n")
    return folder / "a.grib2"


def test_words_of_mars(tmp_path: Path, looked: list[int]) -> None:
    path = _mars(tmp_path)
    found = insitu.scan(tmp_path / "a.index", decode=False)
    # The first, and what the name of a parameter at the surface leaves open: geopotential may be at
    # any level.
    assert len(looked) <= 1 + 3
    _same(found, insitu.scan(path, decode=False))


def test_words_of_mars_about_members(tmp_path: Path, looked: list[int]) -> None:
    path = _mars(tmp_path, ("cf", "pf"), (6,))
    found = insitu.scan(tmp_path / "a.index", decode=False)
    assert len(looked) <= 2 + 3
    _same(found, insitu.scan(path, decode=False))
