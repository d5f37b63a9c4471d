"""What is small stays here: files are sent to an engine if that is worth it, and for no other reason.

Modules: engines/worth_sending.py
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
import xarray as xr

import insitu
from fixtures.make_archive import Part, write_all
from insitu.combining import combine
from insitu.engines import worth_sending
from insitu.engines.executor import ThisThread
from insitu.engines.worth_sending import FIRST_ITEMS, SENDING_SECONDS, WorthSending
from insitu.errors import FormatError


def items_before_sending(seconds: Sequence[float]) -> int | None:
    """After how many items the rest is sent; None: never."""
    rule = WorthSending(len(seconds))
    return next((done for done, spent in enumerate(seconds, 1) if rule.after(spent)), None)


def test_what_takes_little_time_is_never_sent() -> None:
    assert items_before_sending([0.5] + [0.0026] * 199) is None
    assert items_before_sending([0.0026] * int(SENDING_SECONDS / 0.0026)) is None
    assert items_before_sending([1e-9]) is None


def test_what_takes_long_is_sent_soon() -> None:
    assert items_before_sending([0.5] + [0.0026] * 4999) == FIRST_ITEMS
    assert items_before_sending([30.0] * 5) == 1
    assert items_before_sending([30.0]) is None
    assert items_before_sending([0.5, 3.0, *[3.0] * 8]) == 2


def test_one_that_was_interrupted_decides_nothing() -> None:
    assert items_before_sending([0.0026, 0.5, *[0.0026] * 198]) is None


def test_what_becomes_slow_is_sent_when_it_does() -> None:
    found = items_before_sending([0.001] * 100 + [1.0] * 100)
    assert found is not None
    assert 101 < found < 120


class Counting(ThisThread):
    """Counts what is sent."""

    def __init__(self) -> None:
        self.calls = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls += 1
        return super().submit(fn, *args, **kwargs)


def open_with(executor: Executor, paths: Sequence[str], **how: Any) -> xr.Dataset:
    return insitu.open_mfdataset(paths, parallel=executor, **how)


def test_a_few_files_stay_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worth_sending, "SENDING_SECONDS", float("inf"))
    paths = write_all(tmp_path, [Part(first=2 * i) for i in range(8)])
    executor, shown = Counting(), []
    ds = open_with(executor, paths, progress=lambda done, total: shown.append((done, total)))
    assert executor.calls == 0
    assert shown[-1] == (8, 8)
    xr.testing.assert_identical(ds.load(), insitu.open_mfdataset(paths).load())
    assert str(ds.insitu.report()) == str(insitu.open_mfdataset(paths).insitu.report())


def test_many_are_sent_after_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worth_sending, "SENDING_SECONDS", 0.0)
    scanned = count_scans(monkeypatch)
    paths = write_all(tmp_path, [Part(first=2 * i) for i in range(8)])
    executor = Counting()
    ds = open_with(executor, paths)
    assert executor.calls >= 8
    assert len(scanned) == 1 + 8
    xr.testing.assert_identical(ds.load(), insitu.open_mfdataset(paths).load())


def count_scans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    scanned = []
    one = combine.Job.one

    def note(self: Any, url: Any, memory: Any = None) -> Any:
        scanned.append(url)
        return one(self, url, memory)

    monkeypatch.setattr(combine.Job, "one", note)
    return scanned


@pytest.mark.parametrize("errors", ["raise", "skip"])
def test_what_cannot_be_read_here_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errors: str) -> None:
    """A worker may have what is missing here; what it says of a file counts."""
    monkeypatch.setattr(worth_sending, "SENDING_SECONDS", float("inf"))
    paths = write_all(tmp_path, [Part(first=2 * i) for i in range(4)])
    Path(paths[2]).write_bytes(b"no data")
    executor = Counting()
    if errors == "raise":
        with pytest.raises(FormatError, match="part_002"):
            open_with(executor, paths)
    else:
        ds = open_with(executor, paths, errors="skip")
        assert list(ds.insitu.report().left_out) == [paths[2]]
    assert executor.calls > 0


def test_what_is_kept_while_it_is_scanned_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(worth_sending, "SENDING_SECONDS", float("inf"))
    paths = write_all(tmp_path, [Part(first=2 * i) for i in range(4)])
    executor = Counting()
    open_with(executor, paths, resume=True)
    assert executor.calls > 0
