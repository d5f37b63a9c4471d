"""What is the mean, the maximum, … of a variable, from nothing but its URL?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from insitu.errors import VariableError
from insitu.model import VirtualArray, VirtualGroup
from insitu.opening import Location, scan
from insitu.reading import Tally
from insitu.reducing.active import Active
from insitu.reducing.reduce import reduce_array

__all__ = ["reduce"]


def reduce(
    url: Location | VirtualGroup | VirtualArray,
    path: str | None = None,
    method: str = "mean",
    *,
    axes: int | Sequence[int] | None = None,
    selection: Any = ...,
    skipna: bool | None = None,
    q: Any = None,
    edges: Any = None,
    active: str | None = None,
    active_required: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    tally: Tally | None = None,
) -> npt.NDArray[Any]:
    """Reduce a variable, chunk by chunk, in bounded memory: the stored values, as `read` gives them (no CF decoding).

    Parameters
    ----------
    url
        Where the archive is, or what `scan` returned.
    path
        The variable.
    method
        `sum`, `mean`, `min`, `max`, `std`, `var`, `count`, `any`, `all`, `argmin`, `argmax`, `prod`, `median`; `quantile` and
        `tdigest`, which want `q`; `histogram`, which wants `edges`.
    axes
        Which axes of the selection go; all if not given.
    selection
        As for `read`.
    skipna
        Whether NaN is left out; if not given, yes for floating-point values.
    q
        From 0 to 1; several make a first axis. A `tdigest` gives quantiles of values that are too many to be held, with an error of rank of at most 0.6 %.
    edges
        Of the bins, increasing; the counts have a first axis for the bins.
    active, active_required
        The address of a server that does it next to the data, and whether it is an error if it cannot: see `open_dataset`.
    storage_options, tally
        As for `read`.

    Examples
    --------
    >>> insitu.reduce("era5.nc", "t2m", "max", axes=0)  # doctest: +SKIP
    """
    if isinstance(url, VirtualArray):
        array = url
    else:
        if path is None:
            raise VariableError("which variable?", hint="Give its path as the second argument")
        group = url if isinstance(url, VirtualGroup) else scan(url, variables=[path], storage_options=storage_options)
        array = group.array(path)
    return (reduce_array if active is None else Active(active, active_required).reduce_array)(
        array,
        method,
        axes=axes,
        selection=selection,
        skipna=skipna,
        q=q,
        edges=edges,
        name=path,
        storage_options=storage_options,
        tally=tally,
    )
