"""What do many small pieces cost: mosaics of files that are all cut differently, a million tiny
chunks, groups?

    python bench/scale_pieces.py [--quick] [--case mosaic|tiny|groups]

Every figure is processor seconds of all threads, the least of three rounds, in the page cache; the
exponent is that of the growth with the count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import insitu
import machine
from archives import folder
from growth import exponent
from insitu.model import Selection
from insitu.reading import plan_read
from table import arguments

ROUNDS = 3
SHAPE = (4, 60, 80)
"""Of one file of a mosaic."""
FILES = (100, 500, 2_000)
TINY = (10_000, 100_000, 1_000_000)
DAYS = 7_305


def processor_seconds(work: Callable[[], Any]) -> float:
    """Return the least processor seconds of some rounds."""
    spent = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        work()
        spent.append(time.process_time() - begin)
    return min(spent)


def print_table(title: str, first: str, rows: Sequence[tuple[str, Sequence[str]]], columns: Sequence[str]) -> None:
    """Print a table in Markdown."""
    print(f"\n## {title}\n\n| {first} | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name, cells in rows:
        print(f"| {name} | {' | '.join(cells)} |")


# Mosaics


def write_mosaic(count: int) -> list[str]:
    """Return files of one variable, each with chunks of another shape."""
    place = folder() / "scale-mosaic"
    place.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(21)
    shapes = [(a, b) for a in range(8, 61) for b in range(9, 81)]
    rng.shuffle(shapes)
    paths = [place / f"{number:05d}.nc" for number in range(count)]
    for number, path in enumerate(paths):
        if path.exists():
            continue
        with h5py.File(path, "w") as file:
            labels = {"time": 4.0 * number + np.arange(4), "lat": np.linspace(-90, 90, 60), "lon": np.arange(80.0)}
            values = rng.standard_normal(SHAPE).astype("f4").round(2)
            made = file.create_dataset("t", data=values, chunks=(2, *shapes[number]), compression=1, shuffle=True)
            for axis, (name, numbers) in enumerate(labels.items()):
                file[name] = numbers
                file[name].make_scale(name)
                made.dims[axis].attach_scale(file[name])
            file["time"].attrs["units"] = "days since 2000-01-01"
    return [str(path) for path in paths]


def measure_mosaic(counts: Sequence[int]) -> None:
    """Measure plans, point series and means of mosaics."""
    named: dict[str, list[float]] = {}
    opened_again = insitu.open_mfdataset
    for count in counts:
        paths = write_mosaic(count)
        scanned = opened_again(paths, cache=False)
        saved = folder() / "scale-mosaic.insitu"
        scanned.insitu.save(saved)
        for how, ds in (("opened", scanned), ("saved", insitu.open_dataset(saved, cache=False))):
            array = ds.t.variable._data.array
            assert len(array.tiles) == count, "files that are cut alike were fused"
            for what, key in (("a point", np.s_[:, 30, 40]), ("a box", np.s_[:, 10:50, :]), ("all", ...)):
                chosen = Selection.of(key, array.shape)
                spent = processor_seconds(lambda array=array, chosen=chosen: plan_read(array, chosen))
                named.setdefault(f"plan of {what}, {how}: µs a file", []).append(1e6 * spent / count)
        for what, work in (
            ("point series: s", lambda ds=scanned: ds.t.isel(lat=30, lon=40).copy().values),
            ("mean over time: s", lambda ds=scanned: ds.t.mean("time").values),
            ("all values: s", lambda ds=scanned: ds.t.copy().values),
        ):
            named.setdefault(what, []).append(processor_seconds(work))
        scanned.close()
    rows = [
        (
            name,
            [
                *(f"{value:.3g}" for value in values),
                f"{exponent(counts, values) + (1 if 'a file' in name else 0):.2f}",
            ],
        )
        for name, values in named.items()
    ]
    print_table(
        "Mosaic of files that are all cut differently", "", rows, [*(f"{n:,} files" for n in counts), "exponent"]
    )


# Tiny chunks


def write_tiny(count: int) -> tuple[Path, np.ndarray]:
    """Return a file of chunks of 16 bytes, and its values."""
    path = folder() / f"scale-tiny-{count}.h5"
    values = np.random.default_rng(21).standard_normal((count, 4)).astype("f4")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(path, "w", libver="latest") as file:
            made = file.create_dataset("x", values.shape, "f4", chunks=(1, 4))
            for number, row in enumerate(values):
                made.id.write_direct_chunk((number, 0), row.tobytes())
    return path, values


def measure_tiny(counts: Sequence[int]) -> None:
    """Measure means of many chunks of 16 bytes."""
    named: dict[str, list[float]] = {}
    for count in counts:
        path, values = write_tiny(count)
        group = insitu.scan(path)
        first, last = group.arrays["x"].dims
        for what, dim, axes in (("all", None, None), ("the rows", first, 0), ("each row", last, 1)):
            found = insitu.reduce(group, "x", "mean", dim=dim)
            np.testing.assert_allclose(found, values.mean(axes, dtype="f8"), rtol=1e-4, atol=1e-6)
            spent = processor_seconds(lambda group=group, dim=dim: insitu.reduce(group, "x", "mean", dim=dim))
            named.setdefault(f"mean of {what}", []).append(spent)
        named.setdefault("read", []).append(processor_seconds(lambda group=group: insitu.read(group, "x")))
    rows = [
        (name, [*(f"{value:.3f}" for value in values), f"{exponent(counts, values):.2f}"])
        for name, values in named.items()
    ]
    print_table("Chunks of 16 bytes: processor seconds", "", rows, [*(f"{n:,} chunks" for n in counts), "exponent"])


# Groups


def write_days(quick: bool) -> Path:
    """Return a file of daily values in chunks of days, of steps and of columns."""
    days = 800 if quick else DAYS
    path = folder() / f"scale-days-{days}.nc"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(21)
    with h5py.File(path, "w") as file:
        labels = {"time": np.arange(float(days)), "lat": np.linspace(-90, 90, 96), "lon": np.arange(96.0)}
        for name, numbers in labels.items():
            file[name] = numbers
            file[name].make_scale(name)
        file["time"].attrs["units"] = "days since 2000-01-01"
        for name, chunks in {"weeks": (50, 96, 96), "days": (1, 96, 96), "columns": (days, 8, 8)}.items():
            made = file.create_dataset(name, (days, 96, 96), "f4", chunks=chunks, compression=1, shuffle=True)
            values = (10 * rng.standard_normal((days, 96, 96), dtype="f4")).round(1)
            made.write_direct(values)
            for axis, label in enumerate(labels):
                made.dims[axis].attach_scale(file[label])
    return path


GROUPED: dict[str, Callable[[Any], Any]] = {
    "mean": lambda ds: ds.mean("time"),
    "month": lambda ds: ds.insitu.groupby("time.month").mean(),
    "day of year": lambda ds: ds.insitu.groupby("time.dayofyear").mean(),
    "resampled to months": lambda ds: ds.insitu.resample(time="MS").mean(),
    "month, largest": lambda ds: ds.insitu.groupby("time.month").max(),
}


def measure_groups(quick: bool) -> None:
    """Measure grouped means beside the mean."""
    path = write_days(quick)
    rows = []
    with insitu.open_dataset(path) as ds:
        for name in ("weeks", "days", "columns"):
            spent = {
                what: processor_seconds(lambda of=of, name=name: of(ds[[name]]).load()) for what, of in GROUPED.items()
            }
            cells = [f"{spent['mean']:.2f} s"]
            cells += [
                f"{spent[what]:.2f} s ({spent[what] / spent['mean']:.2f} ×)" for what in GROUPED if what != "mean"
            ]
            rows.append((f"chunks of {name}", cells))
    print_table("Groups: processor seconds, and how many times those of the mean", "", rows, list(GROUPED))


def cases() -> Iterator[str]:
    """Yield the cases, in the order of the tables."""
    yield from ("mosaic", "tiny", "groups")


def main() -> None:
    """Run the cases that were asked for."""
    options = arguments(__doc__)
    print(machine.describe())
    for case in options.case or cases():
        if case == "mosaic":
            measure_mosaic(FILES[:2] if options.quick else FILES)
        elif case == "tiny":
            measure_tiny(TINY[:2] if options.quick else TINY)
        else:
            measure_groups(options.quick)


if __name__ == "__main__":
    main()
