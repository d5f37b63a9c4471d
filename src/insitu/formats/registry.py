"""Registry of file formats: name → module, imported when a file needs it.

The formats of this package and those of other packages are registered alike: by a name and, as
text, the place of a `Format`. Other packages declare theirs as entry points in the group
`insitu.formats` (see `docs/own_format.md`). Importing `insitu` imports no format. A file imports
only those formats whose signature its first bytes match, and asks for other packages only if no
format of this one reads it: looking for entry points takes as long as ten scans.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from insitu.errors import UnsupportedError
from insitu.forking import import_before_fork
from insitu.formats.parsing.read_cache import ReadCache
from insitu.model import VirtualGroup

if TYPE_CHECKING:
    from insitu.formats.file_outline import FileOutline

__all__ = ["FORMATS", "GROUP", "Format", "RegisteredFormat", "Scan", "installed_formats", "iter_formats", "load_format"]

GROUP = "insitu.formats"
"""The group of entry points in which other packages declare their formats."""


class Scan(Protocol):
    """A function that finds the chunks of one file."""

    def __call__(
        self,
        window: ReadCache,
        *,
        group: str | None = None,
        variables: Collection[str] | None = None,
        errors: str = "raise",
    ) -> VirtualGroup:
        """Scan the file behind a window."""


class Format(NamedTuple):
    """A file format: how to recognise a file, how to scan it."""

    matches: Callable[[ReadCache], bool]
    """Return whether a file is of this format, by its first bytes."""
    scan: Scan
    """Find the chunks."""
    outline: Callable[[str, Mapping[str, Any] | None], FileOutline | None] | None = None
    """Return what tells a file from others of its kind, by URL and storage options."""


class RegisteredFormat(NamedTuple):
    """One row of the registry."""

    name: str
    """Of the format."""
    module: str
    """Where the `Format` is."""
    attribute: str
    """Its name there."""
    package: str
    """The package that brings it, for messages."""
    signature: re.Pattern[bytes]
    """Matches the first bytes of every file of the format, and perhaps of others: `Format.matches`
    decides. Formats whose signature does not match are not imported.
    """


def _row(name: str, target: str, signature: bytes) -> tuple[str, RegisteredFormat]:
    module, _, attribute = target.partition(":")
    place = f"insitu.formats.{module}"
    return name, RegisteredFormat(name, place, attribute, "insitu", re.compile(signature, re.DOTALL))


# In the order in which they are tried: archives before all formats that a member at their beginning
# may look like. HDF5 is the last, because to look for its signature behind a user block may cost a
# request.
FORMATS: dict[str, RegisteredFormat] = dict(
    (
        _row("zip", "containers.scan:ZIP", rb"PK(?:\x03\x04|\x05\x06)"),
        _row("tar", "containers.scan:TAR", rb".{257}ustar|.{148}[\x80\s+\-0-7]"),  # or the checksum of the first header
        _row("netcdf3", "netcdf3.scan:NETCDF3", rb"CDF[\x01\x02\x05]"),
        _row("tiff", "tiff.scan:TIFF", rb"II[*+]\0|MM\0[*+]"),
        _row("fits", "fits.scan:FITS", rb"SIMPLE  ="),
        _row("hdf4", "hdf4.scan:HDF4", rb"\x0e\x03\x13\x01"),
        _row("dmrpp", "dmrpp.scan:DMRPP", rb"[\xef\xbb\xbf \t\r\n]*<"),
        _row("grib", "grib.scan:GRIB", rb"[\0-\x7e]{0,4092}?GRIB"),  # a bulletin's heading may precede the message
        _row("grib_index", "grib.scan_index:GRIB_INDEX", rb"\s*[\d{]"),
        _row("hdf5", "hdf5.format:HDF5", rb""),
    )
)


@cache
def _third_party_formats() -> dict[str, RegisteredFormat]:
    from importlib.metadata import entry_points  # not at the top: slow to import

    anything = re.compile(b"")
    return {
        point.name: RegisteredFormat(
            point.name, point.module, point.attr or "", point.value if point.dist is None else point.dist.name, anything
        )
        for point in entry_points(group=GROUP)
    }


def iter_formats() -> Iterator[RegisteredFormat]:
    """Yield the formats in the order in which they are tried: those of this package, then those of
    other installed packages, which are looked for when they are reached.
    """
    yield from FORMATS.values()
    yield from (row for name, row in _third_party_formats().items() if name not in FORMATS)


def installed_formats() -> dict[str, RegisteredFormat]:
    """Return all formats by name, in the order in which they are tried."""
    return {row.name: row for row in iter_formats()}


def load_format(row: RegisteredFormat) -> Format:
    """Import a format.

    Raises
    ------
    UnsupportedError
        If its package cannot be imported, or gives something that is not a `Format`.
    """
    try:
        found: Any = import_before_fork(row.module)
        for name in filter(None, row.attribute.split(".")):
            found = getattr(found, name)
    except Exception as problem:  # whatever a foreign package raises when it is imported
        raise UnsupportedError(
            f"the format {row.name!r} of {row.package} cannot be loaded: {problem!r}",
            hint="Update or uninstall that package",
        ) from problem
    if not (callable(getattr(found, "matches", None)) and callable(getattr(found, "scan", None))):
        raise UnsupportedError(
            f"the format {row.name!r} of {row.package} is not an insitu.formats.Format but {found!r}",
            hint="Update or uninstall that package",
        )
    return found  # type: ignore[no-any-return]
