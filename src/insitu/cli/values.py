"""Output of values: text, table, CSV, .npy and NetCDF, to the terminal or atomically to a file."""

from __future__ import annotations

import csv
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.table import Table

from insitu.cli.screen import print_table, stdout
from insitu.errors import InsituError, SourceError, UnsupportedError
from insitu.model.description import count_text

__all__ = [
    "FORMS",
    "complete_file",
    "labelled_rows",
    "output_format",
    "show_table",
    "write_csv",
    "write_netcdf",
    "write_npy",
    "write_text",
]

FORMS = ("text", "table", "csv", "npy", "nc")
_SUFFIXES = {".npy": "npy", ".nc": "nc", ".nc4": "nc", ".csv": "csv", ".txt": "text"}
_MAX_ROWS = 40


@contextmanager
def complete_file(output: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; the file replaces `output` once it is complete, and never
    after an error.

    Pipes and devices are written to directly.
    """
    if output.exists() and not output.is_file():
        yield output
        return
    target = output.resolve()  # a link stays, its target is replaced
    temporary = target.with_name(f".{target.stem}.{uuid.uuid4().hex[:8]}.tmp{target.suffix}")
    try:
        yield temporary
        os.replace(temporary, target)
    except OSError as error:
        if isinstance(error, InsituError):
            raise
        raise SourceError(f"writing failed: {error.strerror or error}", url=str(output)) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(text: str, output: Path) -> None:
    """Write text."""
    with complete_file(output) as path:
        path.write_text(text, encoding="utf-8")


def output_format(name: str | None, output: Path | None) -> str:
    """Return the format, by name or by the suffix of the output file.

    Examples
    --------
    >>> output_format(None, Path("x.csv")), output_format(None, None)
    ('csv', 'text')
    """
    if name is not None:
        if name not in FORMS:
            raise typer.BadParameter(f"must be one of {', '.join(FORMS)}", param_hint="--as")
        return name
    if output is None:
        return "text"
    try:
        return _SUFFIXES[output.suffix.lower()]
    except KeyError:
        raise typer.BadParameter(
            f"cannot tell the format from the name {output}: use {', '.join(_SUFFIXES)}, or give --as",
            param_hint="--output",
        ) from None


def labelled_rows(array: Any) -> Iterator[list[Any]]:
    """Yield one row for each element of a DataArray: its labels, then its value."""
    labels = [array[dim].values if dim in array.coords else np.arange(array.sizes[dim]) for dim in array.dims]
    values = np.asarray(array.values)
    for index in np.ndindex(values.shape):
        yield [*(_to_python(label[i]) for label, i in zip(labels, index, strict=True)), _to_python(values[index])]


def _to_python(value: Any) -> Any:
    if isinstance(value, np.datetime64):
        return np.datetime_as_string(value, unit="auto")
    return value.item() if isinstance(value, np.generic) else value


def write_csv(array: Any, output: Path | None) -> None:
    """Write labels and values, separated by commas."""
    if output is None:
        _write_rows(array, sys.stdout)
        return
    with complete_file(output) as path, open(path, "w", newline="", encoding="utf-8") as file:
        _write_rows(array, file)


def _write_rows(array: Any, file: Any) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*map(str, array.dims), str(array.name)])
    writer.writerows(labelled_rows(array))


def show_table(array: Any) -> None:
    """Print the first rows as a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in (*map(str, array.dims), str(array.name)):
        table.add_column(heading, justify="right")
    for row in islice(labelled_rows(array), _MAX_ROWS):
        table.add_row(*(f"{value:.6g}" if isinstance(value, float) else str(value) for value in row))
    print_table(table)
    if array.size > _MAX_ROWS:
        stdout.print(f"… and {count_text(array.size - _MAX_ROWS, 'row')} more", style="dim")


def write_npy(values: Any, output: Path | None) -> None:
    """Write the .npy format of NumPy; without a file, to standard output."""
    if output is None:
        if sys.stdout.isatty():
            raise typer.BadParameter(
                "a terminal cannot show .npy: give a file with -o, or use a pipe", param_hint="--as"
            )
        np.save(sys.stdout.buffer, values, allow_pickle=False)
        return
    with complete_file(output) as path, open(path, "wb") as file:
        np.save(file, values, allow_pickle=False)


def write_netcdf(array: Any, output: Path | None) -> None:
    """Write NetCDF, with the coordinates."""
    if output is None:
        raise typer.BadParameter("NetCDF needs a file: give it with -o", param_hint="--as")
    try:
        with complete_file(output) as path:
            array.drop_encoding().to_dataset(name=array.name or "data").to_netcdf(path)
    except (ValueError, ImportError) as problem:
        raise UnsupportedError(f"xarray cannot write NetCDF: {problem}", hint="pip install netCDF4") from None
