"""When each file was written: by a date in its attributes if all files have one, else by its object's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas

from insitu.errors import CombineError

__all__ = ["DATE_ATTRIBUTES", "MODIFIED", "choose_times", "dates_of"]

DATE_ATTRIBUTES = ("date_modified", "creation_date", "date_created", "creation_time", "ProductionDateTime")
"""Of files: ACDD, CMIP, ACDD, SAFE products, NASA. The first that all files have is taken."""
MODIFIED = "modified"
"""Stands for the time of the object."""


def dates_of(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Return the attributes that say when a file was written."""
    return {name: str(attributes[name]) for name in DATE_ATTRIBUTES if name in attributes}


def choose_times(
    dates: Mapping[str, Sequence[str | None]], modified: npt.ArrayLike, urls: Sequence[str]
) -> tuple[str, npt.NDArray[np.float64]]:
    """Return what says when files were written, and the times in seconds since 1970.

    Parameters
    ----------
    dates
        Attribute: what each file says, None if nothing.
    modified
        The time of each object; NaN if it is unknown.
    urls
        The files, for messages.

    Raises
    ------
    CombineError
        If neither is known of all files.
    """
    for name in DATE_ATTRIBUTES:
        texts = dates.get(name, [])
        if len(texts) == len(urls) and all(texts) and (times := _parse(texts)) is not None:
            return name, times
    times = np.asarray(modified, np.float64)
    if np.isnan(times).any():
        raise CombineError(
            'overlap="newest" needs the time of each file, and neither a date in its attributes nor a time of '
            "its object is known",
            url=urls[int(np.argmax(np.isnan(times)))],
            hint='Give the files in the order in which they were written, with overlap="last"',
        )
    return MODIFIED, times


def _parse(texts: Sequence[str | None]) -> npt.NDArray[np.float64] | None:
    """Return dates in seconds since 1970; None if one is no date."""
    try:
        found = pandas.to_datetime(pandas.Series(texts), utc=True, format="ISO8601")
    except (ValueError, OverflowError):
        try:
            found = pandas.to_datetime(pandas.Series(texts), utc=True, format="mixed")
        except (ValueError, OverflowError):
            return None
    return None if found.isna().any() else np.asarray(found.astype("int64"), np.float64) / _units(found)


def _units(dates: Any) -> float:
    """Return how many units of dates are a second."""
    return {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[getattr(dates.dtype, "unit", "ns")]
