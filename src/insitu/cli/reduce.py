"""`insitu reduce`: what is the mean, the maximum, … of this variable?"""

from __future__ import annotations

import os
import re
import time
from typing import Annotated, Any

import numpy as np
import typer

from insitu.cli.read import parse_slices
from insitu.cli.screen import plural, problems, size
from insitu.opening import scan
from insitu.reading import Tally
from insitu.reducing import reduce_array

__all__ = ["reduce"]


def reduce(
    url: Annotated[str, typer.Argument(help="A path or a URL.")],
    variable: Annotated[str, typer.Argument(help="The variable; slices may follow in brackets: 'tas[0, 10:20]'.")],
    method: Annotated[
        str, typer.Argument(help="sum, mean, min, max, std, var, count, any, all, argmin, argmax, prod, median.")
    ],
    axes: Annotated[str | None, typer.Option(help="Which axes go, e.g. '0,2'; all if not given.")] = None,
    active: Annotated[
        str | None, typer.Option(help="A server that does it next to the data: http://host:8080.")
    ] = None,
    skipna: Annotated[
        bool | None, typer.Option(help="Whether NaN is left out; by default for floating-point values.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say what was read.")] = False,
) -> None:
    """Reduce a variable, as stored, chunk by chunk: here, or next to the data."""
    slices = None
    bracket = re.fullmatch(r"(.+?)\[(.*)\]", variable)
    if bracket:
        variable, slices = bracket.groups()
    along = None if axes is None else [int(axis) for axis in axes.split(",") if axis.strip()]
    begin = time.perf_counter()
    tally = Tally()
    if active is not None:
        values, told = _remote(active, url, variable, method, slices, along, skipna)
    else:
        array = scan(url, variables=[variable]).array(variable)
        values = reduce_array(
            array, method, axes=along, selection=parse_slices(slices), skipna=skipna, name=variable, tally=tally
        )
        told = f"{plural(tally.chunks, 'chunk')} | {size(tally.bytes_fetched)} fetched, {size(tally.bytes_decoded)} decoded"
    seconds = time.perf_counter() - begin
    typer.echo(np.array2string(np.asarray(values), threshold=1000))
    if verbose:
        problems.print(f"{np.asarray(values).dtype} | {told} | {1000 * seconds:.1f} ms", markup=False)


def _remote(
    active: str, url: str, variable: str, method: str, slices: str | None, axes: list[int] | None, skipna: bool | None
) -> tuple[np.ndarray[Any, Any], str]:
    """The same by a server, which finds the variable itself."""
    from insitu.reducing.active import Active

    place = url if "://" in url else os.path.abspath(url)
    values, done = Active(active, required=True).reduce_url(
        place, variable, [method], selection=parse_slices(slices), axes=axes, skipna=skipna
    )
    told = f"{plural(done['chunks'], 'chunk')} | {size(done['bytes_fetched'])} fetched and {size(done['bytes_decoded'])} decoded by {active}"
    return values[method], told
