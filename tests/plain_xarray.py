"""xarray's answers as NumPy gives them: without flox, bottleneck and numbagg.

xarray uses these libraries where they are installed. For values in memory they have other types
(numbagg reduces float16 to float32, and int32 to int32), other rules (flox: `min_count` of integers)
and another order of addition, so that what xarray answers depends on them. What we answer does not:
it is compared with xarray on NumPy. So tests begin without the libraries, and `with_libraries`
gives them back around what is asked of us.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import xarray as xr
from xarray.computation import rolling
from xarray.core import nputils, options

__all__ = ["LIBRARIES", "leave_libraries_out", "with_libraries"]

LIBRARIES = ("flox", "bottleneck", "numbagg")


def leave_libraries_out() -> None:
    """Let xarray reduce, group and roll by NumPy; filling and ranking have no other way than the libraries."""
    xr.set_options(use_flox=False)
    without = {**options.OPTIONS, "use_bottleneck": False, "use_numbagg": False}
    nputils.OPTIONS = rolling.OPTIONS = without  # type: ignore[assignment]


@contextmanager
def with_libraries() -> Iterator[None]:
    """Let xarray use the libraries that are installed, as it does for a user."""
    with (
        mock.patch.object(nputils, "OPTIONS", options.OPTIONS),
        mock.patch.object(rolling, "OPTIONS", options.OPTIONS),
        xr.set_options(use_flox=True),
    ):
        yield
