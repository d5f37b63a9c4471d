"""`insitu read`: what are the values of this slab?"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from insitu.cli.screen import plural, problems, size
from insitu.errors import SelectionError
from insitu.opening import read as read_values
from insitu.reading import Tally

__all__ = ["parse_slices", "read"]


def read(
    url: Annotated[str, typer.Argument(help="A path or a URL.")],
    variable: Annotated[
        str, typer.Argument(help="The variable, e.g. forecast/tas; slices may follow in brackets: 'tas[0, 10:20]'.")
    ],
    slices: Annotated[str | None, typer.Argument(help="e.g. '0, 10:20, ::2'.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the values to this .npy file.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say what the read did.")] = False,
) -> None:
    """Read one hyperslab of a variable, as stored, and print it or write it to a file."""
    bracket = re.fullmatch(r"(.+?)\[(.*)\]", variable)
    if bracket and slices is None:
        variable, slices = bracket.groups()
    tally = Tally()
    begin = time.perf_counter()
    values = read_values(url, variable, parse_slices(slices), tally=tally)
    seconds = time.perf_counter() - begin
    if output is not None:
        np.save(output, values, allow_pickle=False)
        problems.print(
            f"{output}: {values.dtype} {'×'.join(map(str, values.shape)) or 'scalar'}, {size(values.nbytes)}"
        )
    else:
        typer.echo(np.array2string(values, threshold=1000))
    if verbose:
        problems.print(
            f"{values.dtype} | {values.shape} | {plural(tally.chunks, 'chunk')} | {plural(tally.requests, 'request')} | "
            f"{size(tally.bytes_fetched)} fetched, {size(tally.bytes_decoded)} decoded | {1000 * seconds:.1f} ms",
            markup=False,
        )


def parse_slices(text: str | None) -> Any:
    """A selection as NumPy writes it: integers, slices, `...`, lists of integers.

    Examples
    --------
    >>> parse_slices("0, 10:20, ::-2, [1, 5]")
    (0, slice(10, 20, None), slice(None, None, -2), [1, 5])
    """
    if text is None or not text.strip():
        return ...
    return tuple(_one(part.strip()) for part in re.findall(r"\s*\[[^\]]*\]|[^,]+", text) if part.strip())


def _one(text: str) -> Any:
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
