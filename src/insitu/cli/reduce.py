"""`insitu reduce`: compute statistics of a variable, here or on a server next to the data."""

from __future__ import annotations

import json
import os
import time
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from insitu.archive import open_variable
from insitu.cli.access import Raw, StorageOption, Verbose, storage_options
from insitu.cli.read import parse_slices, split_slices
from insitu.cli.screen import print_table, stderr
from insitu.model.description import count_text, format_bytes
from insitu.reading import ReadStatistics
from insitu.reducing.statistics import STATISTICS
from insitu.sources.address import scheme_of

__all__ = ["reduce"]

FORMS = ("text", "table", "json")
METHODS = ", ".join(STATISTICS.names(lambda statistic: statistic.is_plain))
METHODS_WITH_Q = " and ".join(STATISTICS.names(lambda statistic: "q" in statistic.options))
METHODS_WITH_EDGES = " and ".join(STATISTICS.names(lambda statistic: "edges" in statistic.options))


def reduce(
    url: Annotated[str, typer.Argument(help="A path or a URL.")],
    variable: Annotated[
        str,
        typer.Argument(
            help="Variable; slices may follow in brackets: 'tas[0, 10:20]'. Or a formula after `=`: '=tas - 273.15', "
            "'=(tas - 273.15)[0]', '=sqrt(u**2 + v**2)'."
        ),
    ],
    method: Annotated[
        str,
        typer.Argument(help=f"One of {METHODS}; several, separated by commas, are computed in one pass."),
    ],
    dim: Annotated[
        list[str] | None, typer.Option("--dim", "-d", help="Dimension to reduce; may be repeated. Default: all.")
    ] = None,
    axes: Annotated[str | None, typer.Option(help="Axes to reduce, by number: '0,2'.")] = None,
    active: Annotated[
        str | None, typer.Option(help="URL of a server that computes next to the data: http://host:8080.")
    ] = None,
    skipna: Annotated[bool | None, typer.Option(help="Leave out NaN. Default: for floating-point values.")] = None,
    q: Annotated[
        str | None, typer.Option("--q", help=f"For {METHODS_WITH_Q}: numbers from 0 to 1, e.g. '0.1,0.9'.")
    ] = None,
    edges: Annotated[
        str | None,
        typer.Option(
            help=f"For {METHODS_WITH_EDGES}: edges of the bins, '0,10,20', or '250:310:24' for 24 bins of equal width."
        ),
    ] = None,
    form: Annotated[str | None, typer.Option("--as", help="Format: text, table or json (where NaN is null).")] = None,
    raw: Raw = False,
    option: StorageOption = None,
    verbose: Verbose = False,
) -> None:
    """Compute statistics of a variable or a formula, chunk by chunk, here or on a server next to the data.

    Results are those of xarray.
    """
    variable, slices = split_slices(variable)
    if form is not None and form not in FORMS:
        raise typer.BadParameter(f"must be one of {', '.join(FORMS)}", param_hint="--as")
    methods = [name.strip() for name in method.split(",") if name.strip()]
    along = None if axes is None else [int(axis) for axis in _parse_numbers(axes, "--axes")]
    quantiles = _parse_numbers(q, "--q") if q is not None else None
    parameters: dict[str, Any] = {
        "axes": along,
        "selection": parse_slices(slices),
        "skipna": skipna,
        "q": quantiles[0] if quantiles is not None and len(quantiles) == 1 else quantiles,
        "edges": _parse_edges(edges),
        "storage_options": storage_options(option),
    }
    begin = time.perf_counter()
    if active is not None and not variable.startswith("="):
        values, summary = _reduce_on_server(
            active, url, variable, methods, {**parameters, "dim": dim, "decode": not raw}
        )
    else:
        tally = ReadStatistics()
        # The variables of a formula may lie in several files: they are found here, and the server gets the expression.
        server: dict[str, Any] = {} if active is None else {"active": active, "active_required": True}
        place = url if active is None or scheme_of(url) else os.path.abspath(url)
        archive, name = open_variable(place, variable, storage_options=parameters.pop("storage_options"), **server)
        values = archive.reduce(name, methods, dim=dim or None, decode=not raw, tally=tally, **parameters)
        summary = (
            f"{count_text(tally.chunks, 'chunk')} | {format_bytes(tally.bytes_fetched)} fetched, "
            f"{format_bytes(tally.bytes_decoded)} decoded"
        )
    seconds = time.perf_counter() - begin
    _print_statistics(values, form, variable, parameters)
    if verbose:
        types = ", ".join(dict.fromkeys(str(np.asarray(found).dtype) for found in values.values()))
        stderr.print(f"{types} | {summary} | {1000 * seconds:.1f} ms", markup=False)


def _parse_numbers(text: str, option: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",") if number.strip()]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of numbers separated by commas", param_hint=option) from None


def _parse_edges(text: str | None) -> list[float] | None:
    """Return edges of bins, from a list or from first:last:bins.

    Examples
    --------
    >>> _parse_edges("0,1,10"), _parse_edges("0:1:4")
    ([0.0, 1.0, 10.0], [0.0, 0.25, 0.5, 0.75, 1.0])
    """
    if text is None or ":" not in text:
        return None if text is None else _parse_numbers(text, "--edges")
    parts = _parse_numbers(text.replace(":", ","), "--edges")
    if len(parts) != 3 or parts[2] != int(parts[2]) or not 1 <= parts[2] <= 65_536:
        raise typer.BadParameter(f"{text!r} is not first:last:bins with 1 to 65536 bins", param_hint="--edges")
    found: list[float] = np.linspace(parts[0], parts[1], int(parts[2]) + 1).tolist()
    return found


def _reduce_on_server(
    active: str, url: str, variable: str, methods: list[str], parameters: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """Compute statistics on a server, which opens the archive itself."""
    from insitu.active.client import Active
    from insitu.reducing.query import ReductionQuery
    from insitu.sources.redaction import redact_url

    place = url if scheme_of(url) else os.path.abspath(url)
    query = ReductionQuery.of(
        methods, **{name: parameters.pop(name) for name in ("axes", "selection", "skipna", "q", "edges")}
    )
    values, done = Active(active, required=True).reduce_url(place, variable, query, **parameters)
    summary = (
        f"{count_text(done['chunks'], 'chunk')} | {format_bytes(done['bytes_fetched'])} fetched and "
        f"{format_bytes(done['bytes_decoded'])} decoded by {redact_url(active)}"
    )
    return {name: values[name] for name in methods}, summary


def _print_statistics(
    values: dict[str, Any], form: str | None, variable: str, given_parameters: dict[str, Any]
) -> None:
    """Print statistics as text, table or JSON; by default several as a table."""
    arrays = {name: np.asarray(found) for name, found in values.items()}
    if form == "json":
        shown = {name: _to_json(found.tolist()) for name, found in arrays.items()}
        parameters = {name: given_parameters[name] for name in ("q", "edges") if given_parameters[name] is not None}
        typer.echo(json.dumps({"variable": variable, **parameters, **shown}))
    elif form == "table" or (form is None and len(arrays) > 1) or (form is None and "histogram" in arrays):
        _print_tables(arrays, given_parameters)
    else:
        for found in arrays.values():
            typer.echo(np.array2string(found, threshold=1000))


def _to_json(value: Any) -> Any:
    """Return a value for JSON, which has neither NaN nor infinity."""
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None if np.isnan(value) else str(value)
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _print_tables(arrays: dict[str, Any], parameters: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("statistic")
    table.add_column("value", justify="right")
    for name, found in arrays.items():
        if name != "histogram" or found.ndim > 1:
            table.add_row(name, np.array2string(found, threshold=20))
    if table.row_count:
        print_table(table)
    if "histogram" not in arrays or arrays["histogram"].ndim > 1:
        return
    bins = Table(box=None, pad_edge=False)
    for heading in ("from", "to", "count"):
        bins.add_column(heading, justify="right")
    for low, high, count in zip(
        parameters["edges"][:-1], parameters["edges"][1:], arrays["histogram"].tolist(), strict=True
    ):
        bins.add_row(f"{low:g}", f"{high:g}", f"{count}")
    print_table(bins)
