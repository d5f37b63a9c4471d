"""Does a DMR++ document whose data file is damaged give the values that h5py has?

A document stands for the metadata of its file, so h5py gets a file with whole metadata
(`whole.h5`, beside the document) and the damaged data.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import h5py
from compare_zarr import read_ours
from damage import data_bytes
from equality import different_values
from finding import Finding

__all__ = ["compare"]


def compare(path: str) -> list[Finding]:
    """Read every variable of a document, and the dataset of that name with h5py.

    What h5py refuses, a wrong checksum or a stream that does not end, we must refuse, too.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        actual = read_ours(path)
    if isinstance(actual, Finding):
        return [actual]
    expected = _read_theirs(str(Path(path).with_name("whole.h5")), Path(path.removesuffix(".dmrpp")).read_bytes())
    findings = []
    for name, values in actual.items():
        if not isinstance(values, Finding):
            problem = different_values(values, expected[name]) if name in expected else "h5py refuses it"
            values = Finding(name, "wrong" if problem else "equal", problem)
        findings.append(values)
    return findings


def _read_theirs(whole: str, damaged: bytes) -> dict[str, Any]:
    patched = bytearray(Path(whole).read_bytes())
    for place in data_bytes(whole):
        if place < len(damaged):
            patched[place] = damaged[place]
    found: dict[str, Any] = {}
    with tempfile.NamedTemporaryFile(suffix=".h5") as copy:
        copy.write(patched)
        copy.flush()
        with h5py.File(copy.name) as file:
            for name in file:
                try:
                    found[name] = file[name][...]
                except OSError:
                    continue
    return found
