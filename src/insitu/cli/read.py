"""`insitu read`: read values of a variable, by position or by label."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from insitu.archive import open_variable
from insitu.cli.access import Raw, StorageOption, Verbose, describe_array, storage_options, trace_storage
from insitu.cli.screen import stderr
from insitu.cli.values import output_format, show_table, write_csv, write_netcdf, write_npy, write_text
from insitu.errors import InsituError, SelectionError, VariableError
from insitu.model.description import count_text, format_bytes
from insitu.open_options import ScanOptions
from insitu.reading import ReadStatistics
from insitu.scanning.scan_url import scan_stored
from insitu.xarray_bridge.archive_dataset import Archive

__all__ = ["parse_slices", "read", "split_slices"]


def _complete_variable(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names of variables for the completion of the shell."""
    try:
        found = scan_stored(ctx.params["url"], ScanOptions(errors="warn")).all_arrays()
        return [name for name, _ in found if name.startswith(incomplete)]
    except (InsituError, KeyError):
        return []


def read(
    url: Annotated[str, typer.Argument(help="A path or a URL.")],
    variable: Annotated[
        str,
        typer.Argument(
            help="Variable, e.g. forecast/tas; slices may follow in brackets: 'tas[0, 10:20, ::2]'.",
            autocompletion=_complete_variable,
        ),
    ],
    slices: Annotated[str | None, typer.Argument(help="Slices, e.g. '0, 10:20, ::2'.")] = None,
    sel: Annotated[
        list[str] | None,
        typer.Option(
            "--sel",
            "-s",
            metavar="DIM=LABEL",
            help="Select by label, e.g. time=2010-01, lat=-30..30, lon=7.5; may be repeated.",
        ),
    ] = None,
    nearest: Annotated[bool, typer.Option("--nearest", help="With --sel: select the nearest label.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write to this file; the suffix selects the format: .npy, .nc, .csv, .txt."
        ),
    ] = None,
    form: Annotated[str | None, typer.Option("--as", help="Format: text, table, csv, npy or nc.")] = None,
    raw: Raw = False,
    option: StorageOption = None,
    verbose: Verbose = False,
) -> None:
    """Read a slice of a variable: the values that xarray shows."""
    if slices is None:
        variable, slices = split_slices(variable)
    kind = output_format(form, output)
    selection = parse_slices(slices)
    with trace_storage(verbose):
        archive, name = open_variable(url, variable, storage_options=storage_options(option))
        if sel or kind in ("table", "csv", "nc"):
            array = _read_labelled(archive, name, variable, selection, sel, nearest, raw)
            values = array.values
        else:
            array = None
            values = _read_values(archive, name, selection, raw, variable if verbose else None)
    if kind == "text" and output is None:
        typer.echo(np.array2string(values, threshold=1000))
    elif kind == "text":
        assert output is not None
        write_text(np.array2string(values, threshold=values.size + 1) + "\n", output)
    elif kind == "npy":
        write_npy(values, output)
    elif kind == "csv":
        write_csv(array, output)
    elif kind == "table":
        show_table(array)
    else:
        write_netcdf(array, output)
    if output is not None:
        shape = "×".join(map(str, values.shape)) or "scalar"
        stderr.print(f"{output}: {values.dtype} {shape}, {format_bytes(values.nbytes)}", markup=False, soft_wrap=True)


def _read_values(archive: Archive, name: str, selection: Any, raw: bool, shown_name: str | None) -> Any:
    """Return values without their labels; with a name, say what was read."""
    tally = ReadStatistics()
    values = archive.read(name, selection, decode=not raw, tally=tally)
    if shown_name is not None:
        array = archive.array(name, decode=not raw)
        stderr.print(describe_array(shown_name, array, archive.member()), markup=False, soft_wrap=True)
        stderr.print(
            f"read | {values.dtype} | {'×'.join(map(str, values.shape)) or 'scalar'} | "
            f"{count_text(tally.chunks, 'chunk')} | "
            f"{count_text(tally.requests, 'request')} | {format_bytes(tally.bytes_fetched)} fetched, "
            f"{format_bytes(tally.bytes_decoded)} decoded | {1000 * tally.total_seconds:.1f} ms",
            markup=False,
            soft_wrap=True,
        )
    return values


def _read_labelled(
    archive: Archive, name: str, path: str, selection: Any, sel: Sequence[str] | None, nearest: bool, raw: bool
) -> Any:
    """Return the values of the variable of a path with their labels, as a DataArray."""
    dataset = archive.dataset()
    if raw and name in dataset.variables:
        dataset = dataset.assign({name: (dataset[name].dims, archive.read(name, decode=False))})
    if name not in dataset.variables:
        raise VariableError(
            f"there is no variable {path!r}",
            url=str(archive.urls[0]),
            hint=f"There are: {', '.join(map(str, dataset.variables)) or 'none'}",
        )
    array = dataset[name]
    labels = parse_labels(sel or ())
    unknown = [dim for dim in labels if dim not in array.coords]
    if unknown:
        raise SelectionError(
            f"{path} has no labels along {unknown[0]!r}",
            hint=f"There are: {', '.join(map(str, array.coords)) or 'none'}; or select by position: '{path}[0, 10:20]'",
        )
    try:
        # Of the labels alone: an error of the variable itself is none of the labels.
        _select(array.coords.to_dataset()[[*labels]], labels, nearest)
    except (KeyError, ValueError, TypeError) as problem:
        raise SelectionError(
            f"no value has the label {', '.join(sel or ())}: {problem}",
            hint="Use --nearest to select the nearest label",
        ) from None
    array = _select(array, labels, nearest)
    if selection is not Ellipsis:
        array = array[selection]
    return array.load()


def _select(labelled: Any, labels: dict[str, Any], nearest: bool) -> Any:
    """Return what has these labels."""
    # A range selects all labels between its ends; "nearest" does not apply to it.
    ranges = {dim: label for dim, label in labels.items() if isinstance(label, slice)}
    single = {dim: label for dim, label in labels.items() if dim not in ranges}
    return labelled.sel(ranges).sel(single, method="nearest" if nearest else None)


def parse_labels(pairs: Sequence[str]) -> dict[str, Any]:
    """Return labels by dimension: one, or a range with two dots.

    Examples
    --------
    >>> parse_labels(["time=2010-01", "lat=-30..30", "lon=7.5"])
    {'time': '2010-01', 'lat': slice(-30.0, 30.0, None), 'lon': 7.5}
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        dim, mark, text = pair.partition("=")
        if not mark or not dim or not text:
            raise typer.BadParameter(f"{pair!r} is not DIM=LABEL", param_hint="--sel")
        first, dots, last = text.partition("..")
        found[dim] = slice(_parse_label(first), _parse_label(last)) if dots else _parse_label(text)
    return found


def _parse_label(text: str) -> Any:
    if not text:
        return None
    try:
        # Four digits are a year, and xarray takes dates as text.
        return float(text) if not re.fullmatch(r"\d{4}(-\d\d){0,2}", text) else text
    except ValueError:
        return text


def split_slices(variable: str) -> tuple[str, str | None]:
    """Return the path of a variable, and the slices that follow it in brackets; None if there are none.

    Examples
    --------
    >>> split_slices("forecast/tas[0, 10:20]"), split_slices("tas")
    (('forecast/tas', '0, 10:20'), ('tas', None))

    Of a formula, only what follows its closing parenthesis: `=a - b[0]` could mean either.

    >>> split_slices("=(tas - 273.15)[0, 10:20]"), split_slices("=a - b[0]")
    (('=(tas - 273.15)', '0, 10:20'), ('=a - b[0]', None))
    """
    pattern = r"(.+?\)|=\w+)\[([^`]*)\]" if variable.startswith("=") else r"(.+?)\[(.*)\]"
    found = re.fullmatch(pattern, variable)
    return (variable, None) if found is None else (found[1], found[2])


def parse_slices(text: str | None) -> Any:
    """Return a selection as NumPy writes it: integers, slices, `...`, lists of integers.

    Examples
    --------
    >>> parse_slices("0, 10:20, ::-2, [1, 5]")
    (0, slice(10, 20, None), slice(None, None, -2), [1, 5])
    """
    if text is None or not text.strip():
        return ...
    return tuple(_parse_index(part.strip()) for part in re.findall(r"\s*\[[^\]]*\]|[^,]+", text) if part.strip())


def _parse_index(text: str) -> Any:
    try:
        if text == "...":
            return ...
        if text.startswith("["):
            return [int(number) for number in text.strip("[]").split(",") if number.strip()]
        if ":" in text:
            bounds = [int(number) if number.strip() else None for number in text.split(":")]
            if len(bounds) > 3:
                raise ValueError(text)
            return slice(*bounds)
        return int(text)
    except ValueError:
        raise SelectionError(f"{text!r} is not a slice", hint="Write e.g. 0, 10:20, ::2, ..., [1, 5]") from None
