"""Keywords of xarray's netCDF engines, taken so that a call can change its engine and nothing else.

Most of them concern how a library opens a file, and mean nothing here. Values that would change
what is read are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from insitu.errors import UnsupportedError
from insitu.open_options import OpenOptions

if TYPE_CHECKING:
    from insitu.scanning.member import Member

__all__ = ["ENGINE_KEYWORDS", "check_complex", "options_of_call"]

IGNORED = ("clobber", "diskless", "persist", "lock", "autoclose", "invalid_netcdf", "mmap", "auto_complex")
"""Of netCDF4, h5netcdf and scipy: how files are opened and written."""
ONLY: Mapping[str, tuple[Any, ...]] = {
    "mode": (None, "r"),
    "phony_dims": (None,),  # dimensions without a name are numbered as netCDF-4 numbers them, not as h5netcdf does
    "decode_vlen_strings": (None, True),
    "driver": (None,),
    "driver_kwds": (None, {}),
    "open_kwargs": (None, {}),
}
"""Keywords that are taken with these values only."""
ENGINE_KEYWORDS = (*IGNORED, *ONLY)
NETCDF_FORMATS = frozenset(
    {
        *("NETCDF4", "NETCDF4_CLASSIC", "NETCDF3", "NETCDF3_CLASSIC"),
        *("NETCDF3_64BIT", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"),
    }
)
"""Values of `format` that say how a file would be written."""
COMPLEX_DIMS = ("_pfnc_complex", "complex", "ri")
"""Names of dimensions along which netCDF4's `auto_complex` finds real and imaginary parts."""


def options_of_call(parameters: Mapping[str, Any], others: Mapping[str, Any]) -> OpenOptions:
    """Return the options of a call that may have keywords of xarray's netCDF engines.

    Parameters
    ----------
    parameters, others
        The function's own parameters, and its further keywords: see `OpenOptions.of_call`.

    Raises
    ------
    UnsupportedError
        If a keyword asks for something that insitu does not do.
    """
    for name, allowed in ONLY.items():
        if name in others and others[name] not in allowed:
            shown = " or ".join(repr(value) for value in allowed if value is not None) or "only None"
            raise UnsupportedError(
                f"{name}={others[name]!r} is not supported: insitu takes {shown} (the keyword belongs to other "
                "engines)",
                hint=f"Leave {name} out",
            )
    own = {**parameters, "auto_complex": bool(others.get("auto_complex"))}
    if own.get("format") in NETCDF_FORMATS:
        own["format"] = None
    return OpenOptions.of_call(own, {name: value for name, value in others.items() if name not in ENGINE_KEYWORDS})


def check_complex(member: Member) -> None:
    """Raise for `auto_complex=True` where real and imaginary parts lie along a dimension.

    Complex numbers that are stored as pairs are always shown as such.
    """
    for name, variable in member.variables.items():
        if (
            variable.dims
            and variable.dims[-1] in COMPLEX_DIMS
            and variable.shape[-1] == 2
            and variable.dtype.kind == "f"
        ):
            raise UnsupportedError(
                f"auto_complex=True does not join real and imaginary parts along dimension {variable.dims[-1]!r}",
                variable=name,
                hint=f"Leave it out, and compute v.isel({variable.dims[-1]}=0) + 1j * v.isel({variable.dims[-1]}=1)",
            )
