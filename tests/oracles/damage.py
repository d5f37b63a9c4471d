"""What does a scan make of a file that is cut short, or has a wrong byte somewhere?

An error of ours, or the right values; no other exception, no hang. `cut` shortens a file at many
lengths; `flip` changes single bytes outside of the data. In a file of the newest format every
metadata block has a checksum, so a flipped byte there cannot go unseen; the oldest format has none,
so there a flip may well give another file, and only its manners are looked at.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from equality import different_values
from finding import Finding

import insitu
from damaged_bytes import flip_one
from insitu.errors import InsituError

__all__ = ["cut", "data_bytes", "flip"]

MOST_BYTES = 1 << 24
CHANGES = 100


def cut(path: str) -> list[Finding]:
    """Scan and read the file cut at many lengths."""
    whole, size = _contents(path), Path(path).stat().st_size
    lengths = sorted(
        {0, 1, 7, 8, 9, 40, 63, 96, 200, 512, size - 1, size - 8, *(size * part // 60 for part in range(60))}
        & set(range(size))
    )
    findings = []
    for length in lengths:
        damaged = Path(path).with_suffix(".cut")
        damaged.write_bytes(Path(path).read_bytes()[:length])
        findings.append(_judge(f"cut at {length}", damaged, whole, checked=True))
    return findings


def flip(path: str) -> list[Finding]:
    """Scan and read the file with one byte changed, many times over."""
    whole, data = _contents(path), Path(path).read_bytes()
    checked = "latest" in Path(path).name
    metadata = sorted(set(range(len(data))) - data_bytes(path))
    findings = []
    for place in random.Random(5).sample(metadata, min(CHANGES, len(metadata))):
        damaged = Path(path).with_suffix(".flipped")
        damaged.write_bytes(flip_one(data, place, random.Random(place).choice((0x01, 0x80, 0xFF, 0x10))))
        findings.append(_judge(f"byte {place}", damaged, whole, checked=checked))
    return findings


def data_bytes(path: str) -> set[int]:
    """The bytes of chunks and contiguous data: changed there, a value is another one, and nobody
    can know.
    """
    found: set[int] = set()

    def visit(_: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        if item.chunks is not None:
            item.id.chunk_iter(lambda info: found.update(range(info.byte_offset, info.byte_offset + info.size)))
        elif item.id.get_offset() is not None:
            found.update(range(item.id.get_offset(), item.id.get_offset() + item.id.get_storage_size()))

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


def _contents(path: str) -> dict[str, Any]:
    group = insitu.scan(path, decode=False)
    return {name: insitu.read(group, name, decode=False) for name, _ in group.all_arrays()}


def _judge(what: str, path: Path, whole: dict[str, Any], *, checked: bool) -> Finding:
    try:
        problem = next(_problems(path, whole), "")
    except InsituError as error:
        return Finding(what, "equal", f"{type(error).__name__}: {error}")
    except Exception as error:
        return Finding(what, "crashed", f"{type(error).__name__}: {error}")
    return Finding(what, "wrong" if problem and checked else "equal", problem)


def _problems(path: Path, whole: dict[str, Any]) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        group = insitu.scan(str(path), errors="warn", decode=False)
    arrays = dict(group.all_arrays())
    for name, expected in whole.items():
        if name not in arrays:
            parts = name.split("/")
            if not any("/".join(parts[:count]) in group.problems for count in range(1, len(parts) + 1)):
                yield f"{name} is not there"
            continue
        array = arrays[name]
        if array.shape != np.shape(expected):
            yield f"{name} has shape {array.shape}"
        elif float(np.prod(array.shape, dtype="f8")) * max(array.dtype.itemsize, 1) <= MOST_BYTES:
            try:
                values = insitu.read(group, name, decode=False)
            except InsituError:
                continue
            if problem := different_values(values, expected):
                yield f"{name}: {problem}"
    yield from (f"{name} is new" for name in arrays if name not in whole)
    for name, array in arrays.items():
        if name not in whole and float(np.prod(array.shape, dtype="f8")) * max(array.dtype.itemsize, 1) <= MOST_BYTES:
            insitu.read(group, name, decode=False)
