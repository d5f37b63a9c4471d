"""Does an index beside a GRIB file save requests, and never change what is found?

Modules: formats/grib/mars.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

import insitu
from insitu.errors import FormatError, InsituWarning, NotFoundError
from insitu.formats.grib import mars
from insitu.formats.grib.index_file import read_index
from insitu.formats.parsing.read_cache import ReadCache
from insitu.sources import MemorySource

eccodes = pytest.importorskip("eccodes")
from .conftest import Makes, together  # noqa: E402

SIZE = 16 * 31


@pytest.fixture(autouse=True)
def _forget() -> None:
    mars._memory.clear()


def _day(make: Makes, date: int, steps: tuple[int, ...]) -> list[tuple[bytes, dict[str, Any]]]:
    """Messages with what an index says about each."""
    random = np.random.default_rng(date)
    found = []
    for step in steps:
        for name, level in (("t", 500), ("t", 850), ("u", 500), ("u", 850)):
            values = random.normal(0, 1, SIZE) * (random.random(SIZE) > 0.5)
            how = {
                "packingType": "grid_ccsds",
                "shortName": name,
                "level": level,
                "dataDate": date,
                "dataTime": 600,
                "step": step,
            }
            found.append((make(values=values, **how), {"name": name, "level": level, "step": step, "date": date}))
    return found


def _idx(messages: list[tuple[bytes, dict[str, Any]]]) -> str:
    names = {"t": "TMP", "u": "UGRD"}
    lines, offset = [], 0
    for number, (message, keys) in enumerate(messages, 1):
        step = f"{keys['step']} hour fcst"
        lines.append(f"{number}:{offset}:d={keys['date']}06:{names[keys['name']]}:{keys['level']} mb:{step}:")
        offset += len(message)
    return "\n".join(lines) + "\n"


def _index(messages: list[tuple[bytes, dict[str, Any]]]) -> str:
    lines, offset = [], 0
    for message, keys in messages:
        line = {
            "type": "fc", "levtype": "pl", "param": keys["name"], "levelist": str(keys["level"]),
            "date": str(keys["date"]), "time": "0600",
            "step": str(keys["step"]), "_offset": offset, "_length": len(message),
        }  # fmt: skip
        lines.append(json.dumps(line))
        offset += len(message)
    return "\n".join(lines) + "\n"


WRITERS = {"idx": (_idx, "{}.grib2", "{}.grib2.idx"), "index": (_index, "{}.grib2", "{}.index")}


def _write(folder: Path, kind: str, name: str, messages: list[tuple[bytes, dict[str, Any]]]) -> tuple[str, str]:
    writer, data, side = WRITERS[kind]
    (folder / data.format(name)).write_bytes(b"".join(message for message, _ in messages))
    (folder / side.format(name)).write_text(writer(messages))
    return data.format(name), side.format(name)


@pytest.mark.parametrize("kind", WRITERS)
def test_the_same_dataset_with_one_look_a_grid(tmp_path: Path, make: Makes, kind: str, served: Any) -> None:
    for number, (date, steps) in enumerate([(20240101, (3, 6, 9)), (20240102, (3, 6, 9)), (20240102, (12, 15))]):
        data, side = _write(tmp_path, kind, f"part{number}", _day(make, date, steps))
        served.requests.clear()
        actual = insitu.open_dataset(served.url(side))
        touched = {request for request in served.requests if request[0] == data}
        # The first bytes, which hold all that has to be looked at.
        assert len(touched) <= 1
        xarray.testing.assert_identical(actual.load(), insitu.open_dataset(tmp_path / data).load())


@pytest.mark.parametrize("kind", WRITERS)
def test_a_line_that_means_something_else_is_found_out(tmp_path: Path, make: Makes, kind: str) -> None:
    messages = _day(make, 20240101, (3,))
    _, side = _write(tmp_path, kind, "a", messages)
    insitu.scan(tmp_path / side, decode=False)
    other = [
        (
            make(shortName="t", level=500, Ni=31, Nj=16, dataDate=20240102, dataTime=600, step=3),
            keys | {"date": 20240102},
        )
        for _, keys in messages[:1]
    ]
    data, side = _write(tmp_path, kind, "b", other)
    assert (
        insitu.scan(tmp_path / side, decode=False).arrays["t"].shape
        == insitu.scan(tmp_path / data, decode=False).arrays["t"].shape
        == (16, 31)
    )


def test_several_fields_in_a_message(tmp_path: Path, make: Makes) -> None:
    keys = {"dataDate": 20240101, "dataTime": 600, "step": 3, "level": 500}
    both = together(make(shortName="u", **keys), make(shortName="v", **keys))
    (tmp_path / "a.grib2").write_bytes(both)
    (tmp_path / "a.grib2.idx").write_text(
        "1.1:0:d=2024010106:UGRD:500 mb:3 hour fcst:\n1.2:0:d=2024010106:VGRD:500 mb:3 hour fcst:\n"
    )
    for _ in range(2):
        found = insitu.open_dataset(tmp_path / "a.grib2.idx").load()
        xarray.testing.assert_identical(found, insitu.open_dataset(tmp_path / "a.grib2").load())


def test_an_index_of_another_file(tmp_path: Path, make: Makes) -> None:
    data, side = _write(tmp_path, "idx", "a", _day(make, 20240101, (3,)))
    whole = (tmp_path / data).read_bytes()
    (tmp_path / data).write_bytes(whole[7:])
    with pytest.raises(FormatError, match=r"index"):
        insitu.scan(tmp_path / side, decode=False)
    (tmp_path / data).write_bytes(whole[:1000])
    with pytest.raises(FormatError, match=r"another file"):
        insitu.scan(tmp_path / side, decode=False)
    (tmp_path / data).unlink()
    with pytest.raises(NotFoundError, match=r"a\.grib2"):
        insitu.scan(tmp_path / side, decode=False)


@pytest.mark.parametrize(("lines", "message"), [((0, 2), "message 3 after 1"), ((1, 2), "message 2 after its begin")])
def test_an_index_without_all_messages(tmp_path: Path, make: Makes, lines: tuple[int, int], message: str) -> None:
    """It would give missing values where the file has some."""
    _, side = _write(tmp_path, "idx", "a", _day(make, 20240101, (3, 6, 9)))
    every = (tmp_path / side).read_text().splitlines(keepends=True)
    (tmp_path / side).write_text("".join(every[line] for line in lines) + "".join(every[3:]))
    with pytest.raises(FormatError, match=rf"{message}.*a\.grib2\.idx.*wgrib2 -s"):
        insitu.scan(tmp_path / side, decode=False)
    with pytest.raises(FormatError, match=message):
        insitu.open_forecasts([tmp_path / side])


@pytest.mark.parametrize("left_out", [0, 1, -1])
def test_an_index_of_ecmwf_without_all_messages(tmp_path: Path, make: Makes, left_out: int) -> None:
    """Its lines have lengths of their own, so it may be a selection: it is read, and says so."""
    data, side = _write(tmp_path, "index", "a", _day(make, 20240101, (3, 6, 9)))
    whole = (tmp_path / side).read_text().splitlines(keepends=True)
    assert (
        insitu.scan(tmp_path / side, decode=False).arrays.keys()
        == insitu.scan(tmp_path / data, decode=False).arrays.keys()
    )
    del whole[left_out]
    (tmp_path / side).write_text("".join(whole))
    with pytest.warns(InsituWarning, match=r"a\.index lists only some messages of .*a\.grib2: "):
        found = insitu.scan(tmp_path / side, decode=False)
    assert found.arrays


@pytest.mark.parametrize(
    "text",
    ["1:0:d=20240101", "1:zero:d=20240101", '{"_offset": 0, "_length": "x"}', '{"_offset": 0, "_length": 5}\n[]'],
)
def test_damaged(tmp_path: Path, make: Makes, text: str) -> None:
    (tmp_path / "a.grib2").write_bytes(make())
    (tmp_path / "a.grib2.idx").write_text(text)
    with pytest.raises(FormatError):
        insitu.scan(tmp_path / "a.grib2.idx", format="grib_index", decode=False)


def test_found_beside_a_large_file(tmp_path: Path, make: Makes, served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("insitu.formats.grib.scan.WORTH_A_LOOK", 1000)
    data, side = _write(
        tmp_path, "idx", "a", [message for date in range(20240101, 20240131) for message in _day(make, date, (3, 6, 9))]
    )
    assert (tmp_path / data).stat().st_size > 131072 * 2
    expected = insitu.open_dataset(tmp_path / data).load()
    served.requests.clear()
    xarray.testing.assert_identical(insitu.open_dataset(served.url(data)).load(), expected)
    assert side in {name for name, _, _ in served.requests}
    # One that lies is of no use, and does no harm.
    (tmp_path / side).write_text((tmp_path / side).read_text().replace(":d=", "1:d="))
    xarray.testing.assert_identical(insitu.open_dataset(served.url(data)).load(), expected)


GOOD_LINE = {"date": "20240101", "time": "0000", "step": "6", "param": "2t", "_offset": 0, "_length": 100}
BAD_LINES = [
    *(json.dumps({**GOOD_LINE, name: odd}) for name in ("_offset", "_length") for odd in ("x", -1, 1e400, None, [],
    0.5, 10**30)),
    *(json.dumps({**GOOD_LINE, "date": odd}) for odd in ("2024", "2024x101", "20240231", "99999999", -20240101)),
    *(json.dumps({**GOOD_LINE, "time": odd}) for odd in ("9900", "ab", -1)),
    "{" * 100_000, json.dumps({**GOOD_LINE, "_length": 5}), '{"_offset": 0, "_length": ' + "9" * 5000 + "}",
    "1:0:d=2024010100:TMP:500 mb", "1:x:d=2024010100:TMP:500 mb:6 hour fcst:",
    "1:0:d=2024013100000:TMP:500 mb:6 hour fcst:\n2:-5:::::",
    "1:0:d=20241301:TMP:500 mb:6 hour fcst:", "1:50:d=20240101:TMP:500 mb:anl:\n2:40:d=20240101:TMP:500 mb:anl:",
    "1:0:d=20240101:TMP\n\xff",
]  # fmt: skip


@pytest.mark.parametrize("line", BAD_LINES, ids=range(len(BAD_LINES)))
@pytest.mark.parametrize("before", [True, False])
def test_a_damaged_index_is_a_format_error(line: str, before: bool) -> None:
    good = json.dumps(GOOD_LINE) if line.startswith("{") else "1:0:d=2024010100:TMP:500 mb:6 hour fcst:"
    text = f"{good}\n{line}\n" if before else f"{line}\n{good}\n"
    with pytest.raises(FormatError):
        read_index(ReadCache(MemorySource(text.encode("latin-1"))), 100)
