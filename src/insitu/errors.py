"""Exceptions of insitu, grouped by what the caller does next.

::

    InsituError                     every error of insitu
    ├── FormatError      ValueError           the file is damaged, or not what it claims: repair it or leave it out
    ├── UnsupportedError NotImplementedError  the file is fine, this part is not supported: errors="warn" keeps the rest
    ├── SourceError      OSError              bytes cannot be read: check the network, the path, the credentials
    │   ├── NotFoundError    FileNotFoundError
    │   ├── AccessError      PermissionError
    │   ├── TimedOutError    TimeoutError
    │   ├── TruncatedError                    the object ends before the range does
    │   └── StaleSourceError                  the object has changed since the scan: scan again
    ├── CodecError       ValueError           the bytes cannot be decoded as the encoding says
    │   ├── UnknownCodecError LookupError     no decoder is installed: install what the message names
    │   └── ChecksumError                     the bytes are damaged
    ├── SelectionError   IndexError           the selection does not fit the array
    │   └── SelectionSizeError MemoryError    the selection does not fit into memory: select less
    ├── VariableError    KeyError             no such variable
    │   └── GroupError       OSError          no such group (xarray's engines raise OSError, too)
    └── ModelError       ValueError           arrays that cannot be joined or shaped that way
        └── CombineError                      files that do not make one dataset

Each class has a stable `kind`, which the server maps to an HTTP status and logs print.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

__all__ = [
    "AccessError",
    "ChecksumError",
    "CodecError",
    "CombineError",
    "FormatError",
    "GroupError",
    "InsituError",
    "ModelError",
    "NotFoundError",
    "SelectionError",
    "SelectionSizeError",
    "SourceError",
    "StaleSourceError",
    "TimedOutError",
    "TruncatedError",
    "UnknownCodecError",
    "UnsupportedError",
    "VariableError",
]


class InsituError(Exception):
    """Base class of all errors of insitu.

    Parameters
    ----------
    message
        What is wrong, in one sentence.
    hint
        What to do about it.
    place
        Context: any of `url`, `offset`, `length`, `structure`, `codec`, `variable`, `chunk`.
    """

    kind: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str | None = None, **place: Any) -> None:
        self.message = message
        self.hint = hint
        self.place = {name: value for name, value in place.items() if value is not None}
        super().__init__(message)

    def with_context(self, **place: Any) -> InsituError:
        """Add context that an inner layer does not have (a decoder knows no URL); what is known
        already stays.
        """
        for name, value in place.items():
            if value is not None:
                self.place.setdefault(name, value)
        return self

    @property
    def url(self) -> str | None:
        """URL of the object concerned."""
        return self.place.get("url")

    @property
    def offset(self) -> int | None:
        """Byte offset in that object."""
        return self.place.get("offset")

    def __str__(self) -> str:
        where = _format_context(self.place)
        text = f"{self.message} [{where}]" if where else self.message
        return f"{text}. {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.place)


def _rebuild(cls: type[InsituError], message: str, hint: str | None, place: dict[str, Any]) -> InsituError:
    return cls(message, hint=hint, **place)


def _format_context(place: dict[str, Any]) -> str:
    parts = [f"{name} {place[name]}" for name in ("structure", "variable", "chunk", "codec") if name in place]
    offset, length = place.get("offset"), place.get("length")
    if offset is not None:
        parts.append(f"bytes {offset}-{offset + length}" if length is not None else f"offset {offset}")
    parts += [f"{name} {value}" for name, value in place.items() if name not in _ORDERED_CONTEXT]
    if "url" in place:
        parts.append(f"in {place['url']}")
    return ", ".join(parts)


_ORDERED_CONTEXT = frozenset({"structure", "variable", "chunk", "codec", "offset", "length", "url"})


class FormatError(InsituError, ValueError):
    """The file is damaged, or not of the format that it claims."""

    kind = "format"


class UnsupportedError(InsituError, NotImplementedError):
    """The file is fine; this part of it is not supported."""

    kind = "unsupported"


class SourceError(InsituError, OSError):
    """Bytes cannot be read from storage."""

    kind = "source"


class NotFoundError(SourceError, FileNotFoundError):
    """There is no such object."""

    kind = "not-found"

    @property
    def is_dead_redirect(self) -> bool:
        """Whether a server named another address, where nothing lies: the object is lost, not missing."""
        return "redirect" in self.place


class AccessError(SourceError, PermissionError):
    """These credentials do not allow access to the object."""

    kind = "access"


class TimedOutError(SourceError, TimeoutError):
    """The storage did not answer in time."""

    kind = "timeout"


class TruncatedError(SourceError):
    """The object ends before the range does."""

    kind = "truncated"


class StaleSourceError(SourceError):
    """The object has changed since it was scanned."""

    kind = "stale"


class CodecError(InsituError, ValueError):
    """The bytes cannot be decoded as the encoding says."""

    kind = "codec"


class UnknownCodecError(CodecError, LookupError):
    """No decoder for this codec is installed."""

    kind = "unknown-codec"


class ChecksumError(CodecError):
    """The bytes do not match their checksum."""

    kind = "checksum"


class SelectionError(InsituError, IndexError):
    """The selection does not fit the array."""

    kind = "selection"


class SelectionSizeError(SelectionError, MemoryError):
    """The selection does not fit into memory."""

    kind = "selection-size"


class VariableError(InsituError, KeyError):
    """There is no such variable or group."""

    kind = "variable"


class GroupError(VariableError, OSError):
    """There is no such group."""

    kind = "group"


class ModelError(InsituError, ValueError):
    """Arrays that cannot be joined or shaped that way."""

    kind = "model"


class CombineError(ModelError):
    """The files do not make one dataset in the way that was asked for."""

    kind = "combine"


@contextmanager
def error_context(**place: Any) -> Iterator[None]:
    """Add context to the errors of a block: see `InsituError.with_context`."""
    try:
        yield
    except InsituError as problem:
        problem.with_context(**place)
        raise


class InsituWarning(UserWarning):
    """Something was left out or failed, and the result can still be used."""


class ActiveWarning(UserWarning):
    """A reduction ran on this machine although a server was named."""


# After all filters of the user: by default Python shows a warning from one line of code only once.
warnings.simplefilter("always", ActiveWarning, append=True)
