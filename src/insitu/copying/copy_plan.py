"""`CopyPlan`: what a copy does, before it is done: passes, bytes, memory, disk, an estimate of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from insitu.copying.append_plan import AppendPlan
from insitu.copying.copy_options import CopyOptions
from insitu.copying.sized_chunks import stored_bytes
from insitu.copying.target_arrays import TargetArray
from insitu.copying.targets import Target
from insitu.model.description import format_bytes
from insitu.reading import ReadContext
from insitu.reading.thread_pools import count_cores

__all__ = ["CopyPlan"]

DECODED_PER_SECOND = 800e6
"""Bytes of values that a core decodes in a second, about: zlib by libdeflate."""
ENCODED_PER_SECOND = 250e6
"""Bytes of values that a core encodes in a second, about: Zstandard at level 3, zlib at 4 takes three times as long."""
MOVED_PER_SECOND = 1e9


@dataclass(frozen=True, slots=True, eq=False)
class CopyPlan:
    """A copy that was checked: nothing is written yet."""

    target: Target
    arrays: tuple[TargetArray, ...]
    groups: Mapping[str, Mapping[str, Any]] = field(repr=False)
    options: CopyOptions = field(repr=False)
    context: ReadContext = field(repr=False)
    append: AppendPlan | None = field(default=None, repr=False)
    """What is added to a target that is there."""
    _stored: dict[int, int] = field(default_factory=dict, init=False, repr=False)
    """Bytes of the source's chunks behind an array, by its number: asking for the sizes of objects takes time."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What is stored in another way than in the source, and why."""
        about = () if self.append is None else (self.append.note,)
        return (*about, *(f"{array.path}: {array.form.note}" for array in self.arrays if array.form.note))

    @property
    def passes(self) -> int:
        """Passes over the values: two where the memory does not suffice for one."""
        return max((1 if array.through else array.passes.count for array in self.arrays), default=0)

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return sum(array.nbytes for array in self.arrays)

    @property
    def bytes_read(self) -> int:
        """Bytes of the chunks in the source."""
        return sum(map(self._stored_bytes, self.arrays))

    @property
    def bytes_written(self) -> int:
        """Bytes of the target, if its values are compressed as well as those of the source."""
        found = 0.0
        for array in self.arrays:
            stored = self._stored_bytes(array) or array.nbytes
            is_raw = not array.encoding.codecs and array.through is None
            found += array.padded_bytes if is_raw else min(stored, array.nbytes)
        return int(found)

    @property
    def memory(self) -> int:
        """Bytes of boxes and kept chunks at most."""
        return max((0 if array.through else array.passes.memory for array in self.arrays), default=0)

    @property
    def disk(self) -> int:
        """Bytes on disk beside the target while the copy runs: arrays between passes, what a file is made of."""
        between = max(
            (min(self._stored_bytes(a) or a.nbytes, a.nbytes) for a in self.arrays if a.passes.first), default=0
        )
        return between + (self.bytes_written if self.target.kind != "zarr" else 0)

    @property
    def seconds(self) -> float:
        """An estimate of the time on this machine, without waiting for disks and networks."""
        cores = count_cores()
        encoded = sum(array.nbytes * array.passes.count for array in self.arrays if array.through is None)
        moved = sum(self._stored_bytes(array) for array in self.arrays if array.through is not None)
        return encoded / cores * (1 / DECODED_PER_SECOND + 1 / ENCODED_PER_SECOND) + moved / MOVED_PER_SECOND

    def _stored_bytes(self, array: TargetArray) -> int:
        if array.order not in self._stored:
            self._stored[array.order] = stored_bytes(array, self.context)
        return self._stored[array.order]

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as numbers and texts, for JSON."""
        return {
            "target": self.target.url,
            "passes": self.passes,
            "bytes": self.nbytes,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "memory": self.memory,
            "disk": self.disk,
            "seconds": round(self.seconds, 1),
            "notes": list(self.notes),
            "variables": {array.path: _describe(array) for array in self.arrays},
            "new_labels": None if self.append is None else self.append.labels,
        }

    def __str__(self) -> str:
        lines = [
            f"{self.target.url}: {format_bytes(self.nbytes)} of values in {self.passes} pass{'es' * (self.passes > 1)}",
            f"reads {format_bytes(self.bytes_read)}, writes about {format_bytes(self.bytes_written)}, needs "
            f"{format_bytes(self.memory)} of memory for values and {format_bytes(self.disk)} of disk for a while",
            f"about {self.seconds:.0f} s on {count_cores()} cores, an estimate without waiting for storage",
        ]
        for array in self.arrays:
            about = _describe(array)
            lines.append(
                f"{array.path}: {about['shape']} in chunks {about['chunks']}"
                + (f" and shards {about['shards']}" if about["shards"] else "")
                + (", bytes pass through unchanged" if array.through else f", {about['codecs']}, boxes {about['box']}")
                + (f", in two passes with chunks {about['between']} between" if array.passes.first else "")
            )
        return "\n".join([*lines, *self.notes])


def _describe(array: TargetArray) -> dict[str, Any]:
    encoding = array.through.array.encoding if array.through is not None else array.encoding
    return {
        "shape": list(array.shape),
        "dtype": array.form.dtype.str,
        "chunks": list(array.chunks),
        "shards": list(array.shards) if array.shards else None,
        "codecs": " + ".join(codec.name for codec in encoding.codecs) or "uncompressed",
        "passes_through": array.through is not None,
        "box": list(array.passes.last.box),
        "between": list(array.passes.between) if array.passes.first else None,
        "decodes_once": array.passes.last.decodes_once,
    }
