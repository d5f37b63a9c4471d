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
    active: str | None = None,
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
        `sum`, `mean`, `min`, `max`, `std`, `var`, `count`, `any`, `all`, `argmin`, `argmax`, `prod`, `median`.
    axes
        Which axes of the selection go; all if not given.
    selection
        As for `read`.
    skipna
        Whether NaN is left out; if not given, yes for floating-point values.
    active
        The address of a server that does it next to the data: see `open_dataset`.
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
    return (reduce_array if active is None else Active(active).reduce_array)(
        array,
        method,
        axes=axes,
        selection=selection,
        skipna=skipna,
        name=path,
        storage_options=storage_options,
        tally=tally,
    )
