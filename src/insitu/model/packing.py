"""Packings: CF decoding of stored values by scale, offset, missing values and time units.

A packing is a row of numbers (scale, offset, missing values, epoch) and a `kind` (types, unit,
calendar, unsigned flag). Files of one archive often differ in the numbers and share the kind, so a
tile keeps one table of rows and a small pool of kinds: ten thousand files with a `scale_factor` of
their own each cost ten thousand rows, not ten thousand objects.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from insitu.errors import ModelError

__all__ = ["IDENTITY", "Packing", "PackingKind", "Packings"]


@dataclass(frozen=True, slots=True)
class PackingKind:
    """The part of a packing that is not numbers: which steps there are, and in which types they are
    taken.

    The steps, each if it is there: text (`charset`), sign (`unsigned`), missing values (`masked`),
    scale and offset (`scaled`), time (`unit`), and at last the decoded type (`dtype`).
    """

    dtype: str | None = None
    """What one file's values decode to, as a dtype string; None: the stored type, unchanged."""
    masked: str | None = None
    """Type in which missing values are marked; None: that of the next step."""
    scaled: str | None = None
    """Type in which scale and offset are applied; None: that of the next step."""
    scale_dtype: str | None = None
    """Type of the scale as the file holds it (NumPy rounds by it).

    `float` or `int`: a plain number; None: no scale.
    """
    offset_dtype: str | None = None
    """The same for the offset."""
    unsigned: bool | None = None
    """The `_Unsigned` attribute, if it changes the sign."""
    charset: str | None = None
    """Of text stored as bytes."""
    missing: tuple[Any, ...] = ()
    """Missing values that a row has no room for: text, numbers of more than eight bytes."""
    unit: str | None = None
    """Of times: the unit of the stored numbers, e.g. `days`."""
    base: str | None = None
    """Of times: the unit that the numbers are brought to first, e.g. `s`."""
    fine: str | None = None
    """Of times: the unit in which fractional numbers have no fraction left, e.g. `ms`.

    None: found for each chunk.
    """
    epoch: str | None = None
    """Of times that need a calendar: unit and reference date, as the file writes them.

    Else a row holds the date, as a number.
    """
    calendar: str | None = None
    """Of times that need a calendar: which."""
    invalid: str | None = None
    """Why the values cannot be decoded: which attribute of the variable is wrong."""


@dataclass(frozen=True, slots=True)
class Packing:
    """One row of the table, as an object: how one file's stored values are decoded."""

    scale: float | None = None
    offset: float | None = None
    missing: tuple[Any, ...] = ()
    """Stored values that mean missing, as NumPy scalars.

    A plain `int` takes the type of what it is compared with.
    """
    kind: PackingKind = field(default_factory=PackingKind)
    epoch: int = 0
    """Of times without a calendar: the reference date, counted from 1970 in the unit of the decoded
    type.
    """

    @property
    def identity(self) -> bool:
        """Whether the stored values need no decoding."""
        return self == _NO_PACKING

    @property
    def key(self) -> tuple[Any, ...]:
        """A key that differs from that of every packing that decodes differently: 1 and 1.0, 0.0
        and -0.0 are equal.
        """
        numbers = struct.pack("<dd", *(0.0 if number is None else number for number in (self.scale, self.offset)))
        return self, numbers, tuple([type(value) for value in self.missing])


_NO_PACKING = Packing()
PLAIN_NUMBER_TYPES: dict[str, np.dtype[Any]] = {
    "int": np.dtype(np.int64),
    "uint": np.dtype(np.uint64),
    "float": np.dtype(np.float64),
}
"""Types in which plain Python numbers are stored in a row."""
PACKING_COLUMNS: dict[str, type[Any]] = {
    "kind": np.int32,
    "scale": np.float64,
    "offset": np.float64,
    "missing": np.uint64,
    "missing_type": np.int32,
    "epoch": np.int64,
}
"""The columns of `Packings`, which stores and messages write as they are."""


def _missing_type(value: Any) -> str:
    """Return the type of a missing value, for the pool of types."""
    if isinstance(value, np.generic) or not isinstance(value, (int, float)) or isinstance(value, bool):
        return np.asarray(value).dtype.str
    if isinstance(value, float):
        return "float"
    return "uint" if value > np.iinfo(np.int64).max else "int"


def _to_bits(value: Any, name: str) -> int:
    """Return the bits of a scalar of up to eight bytes as an integer (NaN payloads differ too)."""
    data = np.asarray(value, PLAIN_NUMBER_TYPES.get(name)).tobytes()
    if len(data) > 8:
        raise ModelError(f"a missing value of {len(data)} bytes does not fit in a packing: at most 8 bytes do")
    return int.from_bytes(data.ljust(8, b"\0"), "little")


def _from_bits(bits: np.uint64, name: str) -> Any:
    """Return the missing value that `_to_bits` made an integer of."""
    value = np.frombuffer(bits.tobytes(), PLAIN_NUMBER_TYPES.get(name) or np.dtype(name), count=1)[0]
    return value.item() if name in PLAIN_NUMBER_TYPES else value


@dataclass(frozen=True, slots=True, eq=False)
class Packings:
    """A table of packings: numeric columns, and the kinds they refer to."""

    kinds: tuple[PackingKind, ...]
    kind: npt.NDArray[np.int32]
    scale: npt.NDArray[np.float64]
    offset: npt.NDArray[np.float64]
    missing: npt.NDArray[np.uint64]
    """(rows, k): the bits of the missing values."""
    missing_types: tuple[str, ...]
    """Type of the missing values, a pool."""
    missing_type: npt.NDArray[np.int32]
    """(rows, k): index into `missing_types`, -1 where there is none."""
    epoch: npt.NDArray[np.int64]
    """Reference dates, counted in the unit of the decoded type."""

    @classmethod
    def of(cls, rows: Sequence[Packing]) -> Packings:
        """Return the table of these rows."""
        kinds: dict[PackingKind, int] = {}
        types: dict[str, int] = {}
        width = max((len(row.missing) for row in rows), default=0)
        missing = np.zeros((len(rows), width), np.uint64)
        missing_type = np.full((len(rows), width), -1, np.int32)
        for i, row in enumerate(rows):
            for j, value in enumerate(row.missing):
                name = _missing_type(value)
                missing[i, j] = _to_bits(value, name)
                missing_type[i, j] = types.setdefault(name, len(types))
        return cls(
            kind=np.array([kinds.setdefault(row.kind, len(kinds)) for row in rows], np.int32),
            kinds=tuple(kinds),
            scale=np.array([np.nan if row.scale is None else row.scale for row in rows], np.float64),
            offset=np.array([np.nan if row.offset is None else row.offset for row in rows], np.float64),
            missing=missing,
            missing_types=tuple(types),
            missing_type=missing_type,
            epoch=np.array([row.epoch for row in rows], np.int64),
        )

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def identity(self) -> bool:
        """Whether no row changes any value."""
        return self is IDENTITY or (
            all(kind == _NO_PACKING.kind for kind in self.kinds)
            and bool(np.isnan(self.scale).all() and np.isnan(self.offset).all())
            and not bool((self.missing_type >= 0).any())
        )

    def __getitem__(self, row: int) -> Packing:
        """Return one row as an object."""
        kind = self.kinds[self.kind[row]]
        missing = tuple(
            _from_bits(bits, self.missing_types[code])
            for bits, code in zip(self.missing[row], self.missing_type[row], strict=True)
            if code >= 0
        )
        return Packing(
            scale=None if kind.scale_dtype is None and np.isnan(self.scale[row]) else float(self.scale[row]),
            offset=None if kind.offset_dtype is None and np.isnan(self.offset[row]) else float(self.offset[row]),
            missing=missing,
            kind=kind,
            epoch=int(self.epoch[row]),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Packings):
            return NotImplemented
        return len(self) == len(other) and all(self[i] == other[i] for i in range(len(self)))

    def __hash__(self) -> int:
        return hash(self.kinds)

    @staticmethod
    def pool(tables: Sequence[Packings]) -> tuple[Packings, list[npt.NDArray[np.int64]]]:
        """Return one table for all, and for each table the new positions of its rows."""
        if all(table is tables[0] for table in tables):
            return tables[0], [np.arange(len(tables[0]))] * len(tables)
        kinds: dict[PackingKind, int] = {}
        types: dict[str, int] = {}
        width = max(table.missing.shape[1] for table in tables)
        total = sum(map(len, tables))
        rows = np.zeros((total, 4 + 2 * width), np.uint64)
        at = 0
        for table in tables:
            part = rows[at : (at := at + len(table))]
            kind_map = np.array([kinds.setdefault(kind, len(kinds)) for kind in table.kinds], np.int64)
            type_map = np.array([types.setdefault(t, len(types)) for t in table.missing_types] + [-1], np.int64)
            part[:, 0] = kind_map[table.kind]
            part[:, 1] = table.scale.view(np.uint64)
            part[:, 2] = table.offset.view(np.uint64)
            k = table.missing.shape[1]
            part[:, 3] = table.epoch.view(np.uint64)
            part[:, 4 : 4 + k] = table.missing
            part[:, 4 + width :] = np.uint64(np.iinfo(np.uint64).max)
            part[:, 4 + width : 4 + width + k] = type_map[table.missing_type].view(np.uint64)
        unique, inverse = np.unique(rows, axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        pooled = Packings(
            kinds=tuple(kinds),
            kind=unique[:, 0].astype(np.int32),
            scale=unique[:, 1].copy().view(np.float64),
            offset=unique[:, 2].copy().view(np.float64),
            missing=unique[:, 4 : 4 + width].copy(),
            missing_types=tuple(types),
            missing_type=unique[:, 4 + width :].copy().view(np.int64).astype(np.int32),
            epoch=unique[:, 3].copy().view(np.int64),
        )
        ends = np.cumsum([len(table) for table in tables])[:-1]
        return pooled, np.split(inverse, ends)


IDENTITY = Packings.of([Packing()])
"""The table of one row that leaves values as they are stored."""
