"""Typed fields of a codec's configuration, which comes from metadata that others wrote.

A field that is missing or has another type raises `CodecError` where it is read. So a defect of a
codec is never reported as an invalid configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from insitu.codecs.buffer_spec import Configuration
from insitu.errors import CodecError

__all__ = [
    "dtype_field",
    "float_field",
    "floats_field",
    "integer_field",
    "integers_field",
    "reading_configuration",
]

_REQUIRED: Any = object()


def integer_field(configuration: Configuration, name: str, default: int = _REQUIRED) -> int:
    """Return a field that is an integer.

    None counts as missing. Without a default, a field must be there.

    Examples
    --------
    >>> integer_field({"level": "4"}, "level"), integer_field({"level": None}, "level", 5)
    (4, 5)
    """
    return _to_integer(_get(configuration, name, default), name)


def integers_field(configuration: Configuration, name: str, default: Sequence[int] = _REQUIRED) -> tuple[int, ...]:
    """Return a field that is a list of integers."""
    return tuple(_to_integer(value, name) for value in _get_list(configuration, name, default))


def float_field(configuration: Configuration, name: str, default: float = _REQUIRED) -> float:
    """Return a field that is a number."""
    return _to_float(_get(configuration, name, default), name)


def floats_field(configuration: Configuration, name: str, default: Sequence[float] = _REQUIRED) -> tuple[float, ...]:
    """Return a field that is a list of numbers."""
    return tuple(_to_float(value, name) for value in _get_list(configuration, name, default))


def dtype_field(configuration: Configuration, name: str, default: Any = _REQUIRED) -> np.dtype[Any]:
    """Return a field that is a NumPy type."""
    value = _get(configuration, name, default)
    try:
        found: np.dtype[Any] = np.dtype(value)
    except (TypeError, ValueError, SyntaxError, OverflowError) as error:  # what NumPy raises for texts of all kinds
        raise CodecError(f"{name!r} in the configuration is not a type: {value!r} ({error})") from None
    return found


@contextmanager
def reading_configuration(codec: str) -> Iterator[None]:
    """Report what the fields of a nested configuration raise as an invalid configuration.

    For descriptions that are trees; only their reading belongs into the block.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CodecError(f"the configuration of codec {codec!r} is invalid: {error!r}", codec=codec) from error


def _get(configuration: Configuration, name: str, default: Any) -> Any:
    value = configuration.get(name)
    if value is None:
        value = default
    if value is _REQUIRED:
        raise CodecError(f"the configuration has no {name!r}")
    return value


def _get_list(configuration: Configuration, name: str, default: Any) -> Sequence[Any]:
    values = _get(configuration, name, default)
    if isinstance(values, np.ndarray):
        values = values.reshape(-1).tolist()
    if not isinstance(values, (list, tuple, bytes)):
        raise CodecError(f"{name!r} in the configuration is not a list: {values!r}")
    return values


def _to_float(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise CodecError(f"{name!r} in the configuration is not a number: {value!r}") from None


def _to_integer(value: Any, name: str) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise CodecError(f"{name!r} in the configuration is not an integer: {value!r}") from None
