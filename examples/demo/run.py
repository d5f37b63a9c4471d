"""`make demo`: combine, save, reduce and draw an archive that is made on the spot.

    python examples/demo/run.py [FOLDER]

A year of daily maps, in files that differ in chunks, codecs and packing, becomes one dataset. It is
compared with what xarray reads, saved in every format, reduced here and by a server, and drawn.
Takes about a minute, offline. In a terminal it ends with the address of the explorer, which shows
the archive in a browser until Ctrl+C.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from rich.rule import Rule
from rich.table import Table
from sample_archive import YEAR, land, make_archive
from waiting_times import waiting_times

from insitu import open_dataset, open_mfdataset, scan
from insitu.cli.screen import format_chunk_shape, format_codecs, stdout
from insitu.errors import InsituError, UnsupportedError
from insitu.model.description import count_text, format_bytes
from insitu.sources import trace
from pictures import draw_map, draw_mosaic
from server import run_server

os.environ.setdefault("ICECHUNK_LOG", "error")  # that its folders are not for concurrent commits is no news here

TARGETS = ("archive.insitu", "rain.json", "rain.parq", "rain.parquet", "rain.icechunk")
PORT = 8765
"""Of the explorer, so that the address is known before it runs."""


def demo(folder: Path) -> None:
    """Make an archive of differing files, then combine, save, reduce and draw it.

    Parameters
    ----------
    folder
        For the archive, the references and the pictures.
    """
    folder.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    stdout.print(Rule("1. an archive: a year of daily maps, in files that differ"))
    (folder / "archive").mkdir(exist_ok=True)
    files = make_archive(folder / "archive")
    _show_files(files)
    stdout.print(Rule("2. one dataset"))
    ours, theirs = _open_and_compare(files)
    _show_waiting_times(files, folder)
    stdout.print(Rule("3. saved in five formats, and opened again"))
    _save_in_all_formats(ours, folder)
    stdout.print(Rule("4. mean of the year: by xarray, by insitu, by a server next to the data"))
    mean = _compare_means(files, folder, theirs)
    stdout.print(Rule("5. pictures"))
    title = f"Mean temperature of {YEAR}, reduced by a server next to the data"
    draw_map(mean, land(), folder / "map.png", title)
    array = scan(folder / TARGETS[0]).array("tas")
    title = f"tas: one array from 12 files, a mosaic of {count_text(len(array.tiles), 'grid')} of chunks"
    draw_mosaic(array, folder / "chunks.png", title)
    stdout.print(f"{folder / 'map.png'}, {folder / 'chunks.png'}", markup=False)
    stdout.print(f"\nAll of it took {time.perf_counter() - begin:.1f} s. Try next:")
    program = "insitu" if shutil.which("insitu") else os.path.relpath(Path(sys.executable).with_name("insitu"))
    for command in (
        f"info {folder / TARGETS[0]}",
        f"read {folder / TARGETS[0]} tas --sel time={YEAR}-07-01 --sel lat=45..50 --sel lon=8 --as table",
        f"serve {folder.resolve()}",
        f"explore '{folder / 'archive' / '*.nc'}' --no-browser --port {PORT}",
    ):
        stdout.print(f"  [bold]{program} {command}[/]", soft_wrap=True)
    stdout.print(f"The last one shows the archive in a browser: open http://127.0.0.1:{PORT}/", markup=False)


def explore(folder: Path) -> None:
    """Serve the archive for the browser, until Ctrl+C; the address is printed."""
    stdout.print(Rule("6. the explorer: open this address in a browser"))
    command = [sys.executable, "-c", "import insitu.cli; insitu.cli.main()", "explore", "--no-browser"]
    try:
        subprocess.run([*command, str(folder / "archive" / "*.nc")], check=False)
    except KeyboardInterrupt:
        return


def _show_files(files: list[Path]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("file", "bytes", "tas", "chunk", "codecs", "scale_factor", "add_offset", "pr chunk"):
        table.add_column(heading)
    for path in files[::2]:
        group = scan(path)
        tas = group.array("tas")
        scale, offset = (tas.attributes.get(name, "–") for name in ("scale_factor", "add_offset"))
        codecs = format_codecs(tas.tiles[0].encodings)
        row = (
            path.name,
            format_bytes(path.stat().st_size),
            str(tas.dtype),
            format_chunk_shape(tas),
            codecs,
            str(scale),
            str(offset),
        )
        table.add_row(*row, format_chunk_shape(group.array("pr")))
    stdout.print(table)
    stdout.print(
        "(every other file; one Zarr array has one chunk shape, one chain of codecs and one packing)", style="dim"
    )


def _open_and_compare(files: list[Path]) -> tuple[Any, Any]:
    """Return the dataset, and that of xarray from the same files; an error if they differ."""
    ours = open_mfdataset(files)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about defaults that will change
        theirs = xr.open_mfdataset(files, engine="netcdf4", data_vars="minimal")
    stdout.print(str(ours), markup=False, highlight=False)
    same = ours.compute().identical(theirs.load())
    if not same:
        raise InsituError("the dataset differs from what xarray.open_mfdataset gives")
    stdout.print(f"identical to xarray's, value by value, type by type, attribute by attribute: [bold green]{same}[/]")
    return ours, theirs


def _show_waiting_times(files: list[Path], folder: Path) -> None:
    _remove(folder / "scans")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("what one waits for", "insitu", "xarray"):
        table.add_column(heading, justify="left" if heading.startswith("what") else "right")
    for what, seconds in waiting_times(files, folder).items():
        table.add_row(what, f"{seconds['insitu']:.2f} s", f"{seconds['xarray']:.2f} s")
    stdout.print(table)
    stdout.print(
        "(the job comes after the opening: insitu has kept what it found in the files, if that took it a quarter of "
        "a second or more)",
        style="dim",
    )


def _save_in_all_formats(ours: Any, folder: Path) -> None:
    """Save the dataset as .insitu, and in the other formats what Zarr can represent."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("target", "holds", "bytes", "saved in", "opened in", "equal"):
        table.add_column(heading)
    for name in TARGETS:
        target = folder / name
        part = ours if name.endswith(".insitu") else ours[["pr"]]
        _remove(target)
        try:
            _, saving = _time_call(lambda target=target, part=part: part.insitu.save(target))
        except UnsupportedError as problem:
            table.add_row(name, f"[yellow]{problem.message}[/]")
            continue
        again, opening = _time_call(lambda target=target: open_dataset(target))
        equal = again.compute().equals(part.compute())
        if not equal:
            raise InsituError(f"{name}: the opened dataset differs from the saved one")
        held = ", ".join(str(variable) for variable in again.data_vars)
        table.add_row(
            name, held, format_bytes(_bytes_of(target)), f"{saving:.2f} s", f"{opening:.3f} s", f"[green]{equal}[/]"
        )
    stdout.print(table)
    try:
        ours.insitu.save(folder / "tas.json")
    except UnsupportedError as problem:
        # The second half of the sentence is about another variable, or more of the same.
        stdout.print(f"tas too? {problem.message.partition('; ')[0]}. {problem.hint}", style="yellow", markup=False)


def _compare_means(files: list[Path], folder: Path, theirs: Any) -> Any:
    """Return the mean over time; print the cost of three ways to compute it."""
    saved = folder / TARGETS[0]
    expected = theirs.tas.astype("f8").mean("time")

    def plainly() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with xr.open_mfdataset(files, engine="netcdf4", data_vars="minimal") as opened:
                return opened.tas.mean("time").load()

    rows: list[_Cost] = []
    rows.append(_measure("xarray, reading it all", plainly))
    rows.append(_measure("insitu, here", lambda: open_dataset(saved).tas.mean("time").load()))
    with run_server(folder, folder / "serve.log") as server:
        reduced_there = open_dataset(saved, active=server.url, active_required=True).tas.mean
        with trace() as cost:
            far = _measure("insitu, next to the data", lambda: reduced_there("time").load())
        far.nbytes = cost.bytes
        rows.append(far)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("mean of tas over time", "bytes read here", "seconds", "largest difference (K)"):
        table.add_column(heading, justify="left" if heading.startswith("mean") else "right")
    for row in rows:
        away = float(np.abs(row.value - expected).max())
        if not away < 1e-3:
            raise InsituError(f"{row.name}: the mean differs by {away} K")
        table.add_row(
            row.name, "–" if row.nbytes is None else format_bytes(row.nbytes), f"{row.seconds:.3f}", f"{away:.1e}"
        )
    stdout.print(table)
    stdout.print(
        "(in this process, which has imported everything; difference to the mean in double precision; all three start "
        "from files on this machine)",
        style="dim",
    )
    return far.value


@dataclass(slots=True)
class _Cost:
    """Result and cost of one way to compute the mean."""

    name: str
    value: Any
    seconds: float
    nbytes: int | None


def _measure(name: str, act: Callable[[], Any]) -> _Cost:
    before = _bytes_read()
    value, seconds = _time_call(act)
    after = _bytes_read()
    return _Cost(name, value, seconds, None if before is None or after is None else after - before)


def _bytes_read() -> int | None:
    """Return how many bytes this process has read from files, where the system counts them."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("rchar")), None)


def _time_call(act: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    value = act()
    return value, time.perf_counter() - begin


def _bytes_of(path: Path) -> int:
    return path.stat().st_size if path.is_file() else sum(f.stat().st_size for f in path.rglob("*") if f.is_file())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    try:
        output = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output")
        demo(output)
        if sys.stdout.isatty():  # nobody would end it in a script
            explore(output)
    except InsituError as problem:
        sys.exit(str(problem))
