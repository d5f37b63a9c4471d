"""Unpacking: CF decoding of a chunk's stored values (sign, missing values, scale, times, text).

What each step does, in which type and with which rounding, is what xarray's decoding does, so that
the bits agree. A packing is prepared once for a stored type and cached; a chunk then costs a few
NumPy passes into the result, which release the GIL, and no temporary but a mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from insitu.cf import times
from insitu.cf.casting import needs_date_objects, to_date_objects
from insitu.cf.numbers import missing_dtype
from insitu.errors import CodecError, FormatError
from insitu.model import Packing, PackingKind

__all__ = ["Unpacker", "decode_text", "get_unpacker", "unpack"]

FIRST_INEXACT_INTEGER = 1 << 53
"""Smallest integer from which on float64 cannot represent all integers."""


def unpack(stored: NDArray[Any], packing: Packing, out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return the decoded values of stored ones.

    Parameters
    ----------
    stored
        Stored values of a chunk, or of a part of it. They are not changed, unless they are `out`.
    packing
        How to decode them.
    out
        Output array: the same shape, any strides, a type that the decoded one can be cast to. It
        may be `stored` itself.

    Returns
    -------
    ndarray
        `out` if given; else an array of the decoded type, or `stored` where there is nothing to do.

    Examples
    --------
    >>> import numpy as np
    >>> from insitu.model import Packing, PackingKind
    >>> kind = PackingKind(dtype="float32", scale_dtype="float32")
    >>> unpack(np.array([1, -9], "i2"), Packing(scale=0.5, missing=(np.int16(-9),), kind=kind))
    array([0.5, nan], dtype=float32)
    """
    stored = np.asarray(stored)  # one element may come as a scalar
    return get_unpacker(packing, stored.dtype)(stored, out)


def get_unpacker(packing: Packing, stored: np.dtype[Any]) -> Unpacker:
    """Return the unpacker of all chunks of one packing and stored type; threads may share it."""
    return _cached_unpacker(packing.key, stored)


@lru_cache(maxsize=4096)
def _cached_unpacker(key: tuple[Any, ...], stored: np.dtype[Any]) -> Unpacker:
    packing: Packing = key[0]
    kind = packing.kind
    signed = _apply_unsigned(stored.newbyteorder("="), kind.unsigned)
    scale, offset = _typed_number(packing.scale, kind.scale_dtype), _typed_number(packing.offset, kind.offset_dtype)
    missing = (*packing.missing, *kind.missing)
    has_time = kind.unit is not None
    dtype = None if kind.dtype is None else np.dtype(kind.dtype)
    numbers = None if has_time or dtype is None or dtype.kind == "b" else dtype
    scaled = None
    if kind.scaled is not None:
        scaled = np.dtype(kind.scaled)
    elif scale is not None or offset is not None:
        scaled = numbers or np.dtype(np.float64)
    masked = None
    if kind.masked is not None:
        masked = np.dtype(kind.masked)
    elif missing:
        masked = scaled or numbers or missing_dtype(signed)
    result = dtype or scaled or masked or (np.dtype(object) if kind.charset else signed)
    plain = (
        kind.charset is None and not has_time and (masked is not None or scaled is not None)
        and masked in (None, result) and scaled in (None, result)
        and result.kind in "fc" and stored.kind in "iufc" and (result.kind == "c" or stored.kind != "c")
    )  # fmt: skip
    stored_missing: tuple[Any, ...] = missing
    if plain and missing:
        early = _missing_as_stored(missing, signed, result)
        plain = early is not None
        stored_missing = missing if early is None else early
    fused = plain and scale is not None and np.result_type(result, scale) == result
    return Unpacker(kind, signed, masked, stored_missing, scaled, scale, offset, result, packing.epoch, plain, fused)


@dataclass(frozen=True, slots=True, eq=False)
class Unpacker:
    """A packing prepared for one stored type."""

    kind: PackingKind
    signed: np.dtype[Any]
    """The stored type, in native byte order and with the sign that `_Unsigned` gives it."""
    masked: np.dtype[Any] | None
    missing: tuple[Any, ...]
    scaled: np.dtype[Any] | None
    scale: Any
    offset: Any
    dtype: np.dtype[Any]
    """Type of the decoded values."""
    epoch: int
    plain: bool
    """Whether missing values are recognisable before the cast, so that all steps work in the
    result.
    """
    fused: bool
    """Whether scaling in the decoded type gives the right bits, so that cast and scaling are one
    pass.
    """

    def __call__(self, stored: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Unpack a chunk; see `unpack`."""
        if self.kind.invalid is not None:
            raise FormatError(self.kind.invalid, hint="Open the file with mask_and_scale=False")
        with np.errstate(all="ignore"):
            if self.plain:
                return self._unpack_in_place(stored, out)
            values = self._unpack_by_steps(stored)
        if out is None:
            return values
        if needs_date_objects(values, out.dtype):
            values = to_date_objects(values)
        np.copyto(out, values, casting="unsafe" if out.dtype.kind == values.dtype.kind else "same_kind")
        return out

    def _unpack_in_place(self, stored: NDArray[Any], out: NDArray[Any] | None) -> NDArray[Any]:
        """Mask and scale numbers in as few passes as there are steps."""
        values = stored
        if stored.dtype != self.signed:
            values = stored.view(self.signed) if stored.dtype.isnative else stored.astype(self.signed)
        hidden = None
        for value in self.missing:
            found = values == value
            if hidden is None:
                hidden = found
            else:
                hidden |= found
        result = out if out is not None and out.dtype == self.dtype else np.empty(stored.shape, self.dtype)
        if self.fused:
            # One pass: the ufunc casts block by block, with the same rounding as a cast of the
            # whole.
            np.multiply(values, self.scale, out=result, dtype=self.dtype, casting="unsafe")
        else:
            np.copyto(result, values, casting="unsafe")
            if self.scale is not None:
                np.multiply(result, self.scale, out=result, casting="same_kind")
        if self.offset is not None:
            np.add(result, self.offset, out=result, casting="same_kind")
        # any() saves a pass where no value is missing; for small chunks the call costs more than
        # the pass.
        if hidden is not None and (hidden.size < 4096 or hidden.any()):
            np.copyto(result, missing_marker(self.dtype), where=hidden)
        if out is not None and result is not out:
            np.copyto(out, result, casting="same_kind")
            return out
        return result

    def _unpack_by_steps(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Apply one step after the other, as xarray does."""
        kind = self.kind
        values = stored
        if kind.charset is not None:
            values = decode_text(values, kind.charset)
        elif values.dtype != self.signed and values.dtype.kind != "O":
            values = values.astype(self.signed)
        if self.masked is not None:
            values = _cast_numbers(values, self.masked) if values is stored or values.dtype != self.masked else values
            self._mask(values)
        if self.scaled is not None:
            values = _cast_numbers(values, self.scaled)
            if self.scale is not None:
                values = np.asarray(np.multiply(values, self.scale, out=values, casting="same_kind"))
            if self.offset is not None:
                values = np.asarray(np.add(values, self.offset, out=values, casting="same_kind"))
        if kind.unit is not None:
            values = times.decode_time_numbers(values, kind, self.dtype, self.epoch)
        return values if values.dtype == self.dtype else values.astype(self.dtype)

    def _mask(self, values: NDArray[Any]) -> None:
        """Replace missing values by NaN or NaT, in place."""
        hidden: Any = False
        for value in self.missing:
            hidden = hidden | (values == value)
        if not np.any(hidden):
            return
        # Integers that become times have NaT; those with an integer scale_factor have no value for
        # missing.
        if values.dtype.kind in "iu" and (self.scale is not None or self.offset is not None):
            raise CodecError(
                f"the scale_factor has the integer type {values.dtype}, which cannot hold missing values",
                hint="Open the file with mask_and_scale=False",
            )
        values[hidden] = missing_marker(values.dtype)


def _cast_numbers(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a copy of the values in the type in which they are masked or scaled.

    Raise if they are no numbers.
    """
    try:
        return values.astype(dtype)
    except (TypeError, ValueError) as refused:
        raise CodecError(
            f"values of {values.dtype} cannot be masked or scaled as {dtype}: {refused}",
            hint="Open the file with mask_and_scale=False",
        ) from refused


def missing_marker(dtype: np.dtype[Any]) -> Any:
    """Return the value that marks missing values of a type.

    For integers the one that becomes NaT.
    """
    if dtype.kind in "iu":
        return np.iinfo(np.int64).min
    if dtype.kind == "c":
        return np.nan + np.nan * 1j
    return np.nan


def decode_text(stored: NDArray[Any], charset: str) -> NDArray[Any]:
    """Return byte strings decoded to texts."""
    try:
        texts = [value if isinstance(value, str) else value.decode(charset) for value in stored.ravel()]
    except (UnicodeDecodeError, LookupError, AttributeError) as error:
        raise CodecError(f"the text cannot be decoded as {charset}: {error}") from error
    result = np.empty(len(texts), object)
    result[:] = texts
    return result.reshape(stored.shape)


def _apply_unsigned(dtype: np.dtype[Any], unsigned: bool | None) -> np.dtype[Any]:
    if unsigned is True and dtype.kind == "i":
        return np.dtype(f"u{dtype.itemsize}")
    if unsigned is False and dtype.kind == "u":
        return np.dtype(f"i{dtype.itemsize}")
    return dtype


def _typed_number(value: float | None, name: str | None) -> Any:
    """Return a scale or offset in the type that it has in the file, which decides how NumPy rounds."""
    if value is None:
        return None
    if name in (None, "float"):
        return value
    return int(value) if name == "int" else np.dtype(name).type(value)


def _missing_as_stored(
    missing: tuple[Any, ...], stored: np.dtype[Any], result: np.dtype[Any]
) -> tuple[Any, ...] | None:
    """Return the missing values in the stored type, without those that cannot occur.

    None if the cast may make different values equal: then they are compared after the cast, as
    xarray does.
    """
    if not np.can_cast(stored, result, "safe"):
        return None
    possible = []
    for value in missing:
        if not isinstance(value, (int, float, complex, np.number)):
            continue  # text is no number
        if abs(value.item() if isinstance(value, np.generic) else value) >= FIRST_INEXACT_INTEGER and (
            stored.kind in "iu" or isinstance(value, (int, np.integer))
        ):
            return None
        with np.errstate(all="ignore"):
            own = np.asarray(value)
            same = own.astype(stored)
        if same == own:
            possible.append(same[()])
    return tuple(possible)
