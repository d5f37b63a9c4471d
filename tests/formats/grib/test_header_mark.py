"""Is a message of another lead time, level, member or run than its index says found when it is read?

The file was written anew with its messages in another order, of the same sizes at the same offsets,
and the index beside it was not.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from forecast_files import Field, indexes_of, open_with_cfgrib, write_grib, write_runs
from formats.grib.conftest import Makes
from insitu.errors import CodecError, InsituError
from insitu.formats.grib.codecs.header_mark import LEVEL, RUN, START, common_mark, find_difference, make_mark
from server.serving import serving

eccodes = pytest.importorskip("eccodes")
RUNS = (0, 3, 6, 9)


def exchange(one: str, other: str) -> None:
    """Let two GRIB files have each other's messages."""
    first, second = Path(one).read_bytes(), Path(other).read_bytes()
    assert len(first) == len(second)
    Path(one).write_bytes(second)
    Path(other).write_bytes(first)


def exchange_messages(path: str, one: int, other: int) -> None:
    """Let two messages of a GRIB file have each other's place."""
    data, messages = Path(path).read_bytes(), []
    while data:
        length = int.from_bytes(data[8:16], "big")
        messages.append(data[:length])
        data = data[length:]
    messages[one], messages[other] = messages[other], messages[one]
    Path(path).write_bytes(b"".join(messages))


@pytest.mark.parametrize("kind", ["idx", "index"])
def test_lead_times_in_another_order(tmp_path: Path, kind: str) -> None:
    paths = write_runs(tmp_path, [(run, lead) for run in RUNS for lead in (3, 6, 9)])
    expected = open_with_cfgrib(paths)
    indexes = indexes_of(paths, kind)
    offsets = {name: insitu.scan(paths[3]).arrays[name].tiles[0].chunks[0, 0].offset for name in ("t", "sp", "tp")}
    with insitu.open_forecasts(indexes) as ds:
        ds.insitu.save(tmp_path / "before.insitu")
    exchange(paths[3], paths[5])  # what is of 9 hours lies in the file of 3 hours
    with insitu.open_forecasts(indexes) as ds:
        ds.insitu.save(tmp_path / "after.insitu")
        ds.insitu.save(tmp_path / "after.json")
        for found in (ds, insitu.open_dataset(tmp_path / "after.insitu")):
            for name in ("t", "sp", "tp"):
                for good in ({"time": [0, 2, 3]}, {"step": 1}):
                    np.testing.assert_array_equal(found[name].isel(good), expected[name].isel(good))
                for _ in range(2):
                    with pytest.raises(CodecError, match=r"has the lead time 9 h, not 3 h.*") as failed:
                        found[name].isel(time=1, step=0).load()
                    assert failed.value.place["url"].endswith("r003/f003.grib2")
                    assert failed.value.place["offset"] == offsets[name]
                with pytest.raises(CodecError, match="has the lead time 3 h, not 9 h"):
                    found[name].isel(time=1, step=2).load()
                with pytest.raises(CodecError, match="lead time"):
                    found[name].mean().load()
            with pytest.raises(CodecError, match="lead time"):
                insitu.reduce(str(tmp_path / "after.insitu"), "t", "max")
    # Kerchunk's references cannot say it: its readers see what lies there.
    with insitu.open_dataset(tmp_path / "after.json") as exported:
        np.testing.assert_array_equal(exported.t.isel(time=1, step=0), expected.t.isel(time=1, step=2))
    # What was written after it was saved is another version of the file.
    with insitu.open_dataset(tmp_path / "before.insitu") as saved, pytest.raises(InsituError):
        saved.t.load()


def test_next_to_the_data(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    paths = write_runs(folder, [(run, lead) for run in RUNS for lead in (3, 6)])
    exchange(paths[2], paths[3])
    expected = open_with_cfgrib([*paths[:2], *paths[4:]])
    with (
        serving([folder], tmp_path / "log") as server,
        insitu.open_forecasts(indexes_of(paths, "idx"), active=server.url, active_required=True) as ds,
    ):
        good = ds.t.isel(time=[0, 2, 3]).max(("latitude", "longitude")).load()
        np.testing.assert_array_equal(good, expected.t.max(("latitude", "longitude")))
        with pytest.raises(InsituError, match="has the lead time 6 h, not 3 h"):
            ds.t.max(("latitude", "longitude")).load()


def test_members_in_another_order(tmp_path: Path) -> None:
    paths = [write_grib(tmp_path / f"r{run}.grib2", [Field(run, 3, "TMP", m) for m in (1, 2, 3)]) for run in RUNS]
    exchange_messages(paths[1], 1, 2)
    with insitu.open_forecasts(indexes_of(paths, "idx")) as ds:
        np.testing.assert_array_equal(ds.t.isel(time=0).squeeze(), open_with_cfgrib(paths[:1]).t.squeeze())
        with pytest.raises(CodecError, match=r"another level, member, .*member 3"):
            ds.t.sel(number=2).isel(time=1).load()
        np.testing.assert_array_equal(ds.t.sel(number=1).isel(time=1).shape, ds.t.sel(number=1).isel(time=0).shape)
        ds.t.sel(number=1).load()


PRESSURES = (1000, 850, 500)


def write_levels(path: Path, run: int, make: Makes) -> str:
    """Write a file of temperatures at three pressures with both kinds of index."""
    offset, data, lines, objects = 0, [], [], []
    for number, pressure in enumerate(PRESSURES, 1):
        values = np.random.default_rng([run, pressure]).normal(280, 10, 12)
        keys: dict[str, Any] = {"Ni": 4, "Nj": 3, "dataDate": 20240228, "dataTime": run * 100, "step": 6}
        data.append(make(values=values, bitsPerValue=16, centre="ecmf", shortName="t", level=pressure, **keys))
        lines.append(f"{number}:{offset}:d=20240228{run:02}:TMP:{pressure} mb:6 hour fcst:\n")
        words = {"date": "20240228", "time": f"{run:02}00", "step": "6", "type": "fc", "levtype": "pl", "param": "t"}
        objects.append(
            json.dumps({**words, "levelist": str(pressure), "_offset": offset, "_length": len(data[-1])}) + "\n"
        )
        offset += len(data[-1])
    path.write_bytes(b"".join(data))
    Path(f"{path}.idx").write_text("".join(lines))
    path.with_suffix(".index").write_text("".join(objects))
    return str(path)


@pytest.mark.parametrize("kind", ["idx", "index"])
def test_levels_in_another_order(tmp_path: Path, make: Makes, kind: str) -> None:
    paths = [write_levels(tmp_path / f"r{run}.grib2", run, make) for run in RUNS]
    exchange_messages(paths[2], 0, 1)
    with insitu.open_forecasts(indexes_of(paths, kind)) as ds:
        assert ds.isobaricInhPa.values.tolist() == list(PRESSURES)
        with pytest.raises(CodecError, match=r"another level, .*level 85000 \(surface 100\)"):
            ds.t.sel(isobaricInhPa=1000).isel(time=2).load()
        for run in (0, 1, 3):
            truth = xr.open_dataset(paths[run], engine="cfgrib", backend_kwargs={"indexpath": ""})
            np.testing.assert_array_equal(ds.t.isel(time=run).squeeze(), truth.t)
        ds.t.sel(isobaricInhPa=500).load()


def test_runs_in_another_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("insitu.formats.parsing.read_cache.LOCAL_HEAD", 64)
    path = write_grib(tmp_path / "a.grib2", [Field(run, 3, "TMP") for run in RUNS])
    truth = insitu.open_dataset(path).t.load()
    xr.testing.assert_equal(insitu.open_dataset(f"{path}.idx").t.load(), truth)
    exchange_messages(path, 1, 2)
    with insitu.open_dataset(f"{path}.idx") as ds:
        np.testing.assert_array_equal(ds.t.isel(time=[0, 3]), truth.isel(time=[0, 3]))
        with pytest.raises(CodecError, match=r"another level, .*run 2024-02-28T06:00:00"):
            ds.t.isel(time=1).load()


Change = Callable[[bytearray], None]


def product(code: int = 100, scale: int = 0, value: int = 50000, unit: int = 1, lead: int = 6) -> bytes:
    """Return section 4 of an instant."""
    return struct.pack(">IBHH8xBIBBIBBI", 34, 4, 0, 0, unit, lead, code, scale, value, 255, 255, 0xFFFFFFFF)


SECTION1 = b"\0\0\0\x15\1\0\7\0\0\2\1\1" + struct.pack(">H5B", 2024, 2, 28, 6, 0, 0) + b"\0\1"


class TestMark:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({}, {"unit": 0, "lead": 360}),
            ({}, {"unit": 11, "lead": 1}),
            ({"code": 104, "scale": 3, "value": 995}, {"code": 104, "scale": 4, "value": 9950}),
            ({"code": 1, "value": 0}, {"code": 1, "scale": 255, "value": 0xFFFFFFFF}),
            ({"scale": 128 + 2, "value": 500}, {"value": 50000}),
            ({"code": 160, "scale": 1, "value": 1 << 31 | 20}, {"code": 160, "value": 1 << 31 | 2}),
        ],
    )
    def test_the_same_written_in_two_ways(self, one: dict[str, int], other: dict[str, int]) -> None:
        flags = LEVEL | START | RUN
        mark = make_mark(SECTION1, product(**one), flags)
        assert mark == make_mark(SECTION1, product(**other), flags)
        assert find_difference(mark, SECTION1, product(**other)) is None

    @pytest.mark.parametrize(
        ("other", "message"),
        [
            ({"lead": 7}, "the lead time 7 h, not 6 h"),
            ({"unit": 0, "lead": 361}, "the lead time 361 min, not 6 h"),
            ({"unit": 13, "lead": 21601}, "the lead time 21601 s, not 6 h"),
            ({"unit": 200}, "an unknown lead time, not 6 h"),
            ({"value": 85000}, r"level 85000 \(surface 100\)"),
            ({"code": 105}, r"level 50000 \(surface 105\)"),
        ],
    )
    def test_another_header(self, other: dict[str, int], message: str) -> None:
        with pytest.raises(AssertionError, match=message):
            assert not find_difference(make_mark(SECTION1, product(), LEVEL), SECTION1, product(**other))

    def test_what_the_index_does_not_say(self) -> None:
        mark = make_mark(SECTION1, product(), 0)
        assert find_difference(mark, SECTION1, product(value=85000)) is None
        later = SECTION1[:14] + b"\3" + SECTION1[15:]
        assert find_difference(make_mark(SECTION1, product(), LEVEL), later, product()) is None
        assert find_difference(make_mark(SECTION1, product(), RUN), later, product()) is not None

    def test_candidates(self) -> None:
        marks: Sequence[int] = [make_mark(SECTION1, product(lead=lead, value=v), LEVEL) for lead, v in ((6, 1), (6, 2))]
        assert common_mark(marks[:1]) == marks[0]
        assert find_difference(common_mark(marks), SECTION1, product(value=3)) is None
        assert "7 h" in str(find_difference(common_mark(marks), SECTION1, product(lead=7)))
        assert common_mark([marks[0], make_mark(SECTION1, product(lead=8), LEVEL)]) == 0

    def test_long_and_short_lead_times(self) -> None:
        leads = [(13, 1), (13, 90), (0, 15), (1, 16382), (1, 16383), (1, 200000), (2, 3650)]
        marks = [make_mark(SECTION1, product(unit=unit, lead=lead), 0) for unit, lead in leads]
        assert len(set(marks)) == len(marks)
        assert all(0 < mark < 1 << 30 for mark in marks)
        for mark, (unit, lead) in zip(marks, leads, strict=True):
            assert find_difference(mark, SECTION1, product(unit=unit, lead=lead)) is None
            assert find_difference(mark, SECTION1, product(unit=unit, lead=lead + 1)) is not None

    def test_any_bytes(self) -> None:
        random = np.random.default_rng(3)
        for _ in range(300):
            header = random.bytes(int(random.integers(0, 80)))
            if random.random() < 0.7:
                header = header[:7] + bytes((0, int(random.integers(0, 14)))) + header[9:]
            mark = make_mark(SECTION1, header, int(random.integers(8)))
            assert 0 < mark < 1 << 30
            assert find_difference(mark, SECTION1, header) is None
            find_difference(int(random.integers(1 << 30)), random.bytes(21), header)
