"""A year of hourly forecast runs as one dataset: opened by indexes, saved, opened again, appended to, read at a point.

    python bench/forecasts.py [--quick] [--runs 8760] [--leads 19]

Each of the files has five fields on one grid, and an `.idx` beside it. Files of one lead time differ
in nothing but their reference time.
"""

from __future__ import annotations

import argparse
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FIELDS = {"TMP": (0, 0, 0), "RH": (0, 1, 1), "PRES": (0, 3, 0), "HGT": (0, 3, 5), "UGRD": (0, 2, 2)}
FIRST_RUN = np.datetime64("2023-01-01T00", "h")
DATE = slice(28, 33)
"""Where a message has its reference time: octets 13 to 17 of section 1, behind the 16 of section 0."""


def write_message(name: str, run: int, lead: int, value: float) -> bytes:
    """Return a message of one field at the surface, on a grid of 16 by 31 points."""
    import eccodes

    handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
    try:
        date = (FIRST_RUN + run).astype(object)
        keys: dict[str, Any] = {"centre": 7, "dataDate": date.strftime("%Y%m%d"), "dataTime": date.strftime("%H%M")}
        keys |= dict(zip(("discipline", "parameterCategory", "parameterNumber"), FIELDS[name], strict=True))
        keys |= {"typeOfFirstFixedSurface": 1, "forecastTime": lead, "bitsPerValue": 12}
        for key, each in keys.items():
            eccodes.codes_set(handle, key, int(each))
        count = eccodes.codes_get_size(handle, "values")
        eccodes.codes_set_values(handle, np.random.default_rng(lead).normal(value, 3, count))
        return bytes(eccodes.codes_get_message(handle))
    finally:
        eccodes.codes_release(handle)


def write_runs(folder: Path, runs: range, leads: int) -> list[str]:
    """Write runs; return the names of the indexes."""
    found = []
    for lead in range(leads):
        messages = [write_message(name, runs[0], lead, 200.0 + number) for number, name in enumerate(FIELDS)]
        offsets = np.concatenate([[0], np.cumsum([len(each) for each in messages])]).tolist()
        rows = [
            f"{number}:{offset}:d={{date}}:{name}:surface:{f'{lead} hour fcst' if lead else 'anl'}:\n"
            for number, (name, offset) in enumerate(zip(FIELDS, offsets, strict=False), 1)
        ]
        text = "".join(rows)
        for run in runs:
            moment = (FIRST_RUN + run).astype(object)
            date = struct.pack(">H3B", moment.year, moment.month, moment.day, moment.hour)
            stem = folder / f"{moment:%Y%m}" / f"{moment:%Y%m%d%H}.f{lead:03}.grib2"
            stem.parent.mkdir(parents=True, exist_ok=True)
            stem.write_bytes(b"".join(each[: DATE.start] + date + each[DATE.stop :] for each in messages))
            found.append(f"{stem}.idx")
            Path(found[-1]).write_text(text.format(date=f"{moment:%Y%m%d%H}"))
    return found


def measure(runs: int, leads: int, folder: Path) -> None:
    """Print seconds and bytes of each step as a table."""
    import insitu

    files = write_runs(folder, range(runs), leads)
    more = write_runs(folder, range(runs, runs + 1), leads)
    target = folder / "year.insitu"
    print(f"\n## {runs:,} hourly forecast runs of {leads} lead times, by the indexes of {len(files):,} GRIB files\n")
    print("| | seconds | of the processor | target | |\n|---|---|---|---|---|")

    def step(name: str, call: Callable[[], Any], target: float | None = None, note: Callable[[Any], str] = str) -> Any:
        begin = now()
        found = call()
        seconds, processor = (after - before for after, before in zip(now(), begin, strict=True))
        aim = "" if target is None else f"≤ {target:g}: {'yes' if seconds <= target else '**no**'}"
        print(f"| {name} | {seconds:.2f} | {processor:.2f} | {aim} | {note(found)} |", flush=True)
        return found

    ds = step("open", lambda: insitu.open_forecasts(files), 60, lambda ds: f"{dict(ds.sizes)}")
    step("save", lambda: ds.insitu.save(target), None, lambda _: f"{_bytes(target) / 1e6:.1f} MB, target ≤ 30")
    step("open again, in this process", lambda: insitu.open_dataset(target), 0.1, lambda _: "")
    saved = step("open again, in this process", lambda: insitu.open_dataset(target), 0.1, lambda _: "")
    best = step("best()", saved.insitu.best, None, lambda _: "")
    point = best.t.isel(latitude=3, longitude=5)
    ranges = step(
        "its chunks at a point", lambda: point.insitu.references(), None, lambda own: f"{len(own['offset']):,}"
    )
    with insitu.trace() as cost:
        step(
            "their values", lambda: point.values, None, lambda values: f"{values.size:,}, in {cost.requests:,} requests"
        )
    assert cost.bytes <= 2 * ranges["length"].sum()
    step(
        "append a run",
        lambda: insitu.Archive.open(str(target)).append(more, "time"),
        1,
        lambda done: f"{done.steps} step",
    )


def now() -> tuple[float, float]:
    """Return seconds, and those of the processor."""
    return time.perf_counter(), time.process_time()


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=8760)
    parser.add_argument("--leads", type=int, default=19)
    parser.add_argument("--quick", action="store_true", help="100 runs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(100 if given.quick else given.runs, given.leads, Path(folder))


if __name__ == "__main__":
    main()
