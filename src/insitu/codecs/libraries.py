"""Lookup of functions in optional codec libraries (imagecodecs, numcodecs, our C kernels).

Libraries are imported when a codec is first met, never at import. Imagecodecs comes first: its
decoders release the GIL and write into a given buffer. Others replace what it lacks on a platform.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from insitu.errors import UnknownCodecError
from insitu.forking import delay_forks, import_before_fork

__all__ = ["Function", "find_function", "isolation", "require_function"]

Function = Callable[..., Any]


@dataclass(slots=True)
class Isolation:
    """Where libraries run that a damaged chunk can crash (ecCodes): in a process of their own."""

    allows_in_process: bool = True
    """Whether they may run in this process if no other can be started.

    Not in a server, where one damaged message would crash the work of all clients.
    """


isolation = Isolation()
"""The setting of the process."""


def find_function(module: str, name: str) -> Function | None:
    """Return a function of an optional library; None if it is not there.

    Parameters
    ----------
    module
        Module to import.
    name
        The function. Functions that imagecodecs lists but its build lacks count as missing.
    """
    try:
        with delay_forks():  # imagecodecs imports a codec when it is first named, under a lock of its own
            library: Any = import_before_fork(module)
            if module == "imagecodecs" and not getattr(library, name.split("_")[0].upper()).available:
                return None
            function: Function = getattr(library, name)
    except (ImportError, AttributeError):
        return None
    return function


def require_function(codec: str, *candidates: tuple[str, str], install: str = "insitu[codecs]") -> Function:
    """Return the first of several functions that is installed.

    Parameters
    ----------
    codec
        Name for the message.
    candidates
        Modules and names, the best first.
    install
        What pip takes.

    Raises
    ------
    UnknownCodecError
        If none is; the message says what to install.
    """
    for module, name in candidates:
        if (function := find_function(module, name)) is not None:
            return function
    raise UnknownCodecError(
        f"codec {codec!r} needs a library that is not installed",
        codec=codec,
        hint=f"Try `pip install '{install}'`",
    )
