"""Chunk keys of a Zarr array: from grid position to object name and back. Nothing is listed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from insitu.errors import FormatError

__all__ = ["ChunkKeys"]


@dataclass(frozen=True, slots=True)
class ChunkKeys:
    """The naming scheme of an array's chunks."""

    separator: str = "."
    prefix: str = ""
    """`c` in V3's default naming."""

    def __post_init__(self) -> None:
        if self.separator not in (".", "/"):
            raise FormatError(f"the separator of chunk keys must be . or /, not {self.separator!r}")

    def key(self, cell: Sequence[int]) -> str:
        """Return the key of a chunk, relative to the array.

        Examples
        --------
        >>> ChunkKeys("/", "c").key((3, 0)), ChunkKeys(".").key(()), ChunkKeys("/", "c").key(())
        ('c/3/0', '0', 'c')
        """
        numbers = [str(number) for number in cell]
        if self.prefix:
            return self.separator.join([self.prefix, *numbers])
        return self.separator.join(numbers) or "0"

    def cell(self, key: str, ndim: int) -> tuple[int, ...] | None:
        """Return the chunk that a key names; None if it is not a chunk key."""
        parts = key.split(self.separator)
        if self.prefix:
            if parts[0] != self.prefix:
                return None
            parts = parts[1:]
        elif ndim == 0:
            return () if key == "0" else None
        if len(parts) != ndim or not all(part.isascii() and part.isdecimal() and len(part) < 19 for part in parts):
            return None
        return tuple(int(part) for part in parts)

    def cells(self, keys: Sequence[str], ndim: int) -> npt.NDArray[np.int64] | None:
        """Return the chunks that many keys name, (keys, axes); None if some key is not a chunk key.

        Examples
        --------
        >>> ChunkKeys("/", "c").cells(["c/3/0", "c/12/5"], 2).tolist()
        [[3, 0], [12, 5]]
        """
        if not keys:
            return np.zeros((0, ndim), np.int64)
        numbers = [r"\d{1,18}"] * ndim if ndim or self.prefix else ["0"]
        line = re.escape(self.separator).join([self.prefix, *numbers] if self.prefix else numbers)
        text = "\n".join(keys) + "\n"
        if not text.isascii() or re.fullmatch(f"(?:{line}\n)*", text) is None:
            return None
        if not ndim:
            return np.zeros((len(keys), 0), np.int64)
        plain = text.replace(self.separator, " ")
        if self.prefix:
            plain = plain.replace(self.prefix, " ")
        return np.fromstring(plain, np.int64, sep=" ").reshape(len(keys), ndim)
