"""Do scans and values of HDF5 files made by others agree with h5py and xarray?

Many of the corpus are hostile or odd on purpose: each must agree, or be refused by an error of
ours. Nothing may be wrong, crash or hang.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from finding import BAD, lines_of, verdict_of
from isolation import findings_of

from real_files import FILES, corpus_files, list_files

REFUSED_AT_MOST = 0.1
"""The share of the corpus's files that may be refused, whole or in part."""
PARTS = 4
"""The corpus is compared in parts, so that several workers share it."""


def _bad(comparison: str, paths: Iterable[Path]) -> tuple[str, list[str]]:
    """Return what is wrong, as text, and the verdict on each file."""
    found = dict(findings_of(comparison, paths))
    lines = {path: lines_of(findings, BAD) for path, findings in found.items()}
    bad = "\n".join(f"{path.name} {text}" for path, text in lines.items() if text)
    return bad, [verdict_of(findings) for findings in found.values()]


def _is_netcdf(path: Path) -> bool:
    return path.suffix in (".nc", ".nc4")


def test_h5py_agrees() -> None:
    bad, verdicts = _bad("hdf5", list_files(FILES / "hdf5"))
    assert not bad
    assert len(verdicts) > 10
    assert "refused" not in verdicts


def test_xarray_agrees() -> None:
    bad, verdicts = _bad("xarray", filter(_is_netcdf, list_files(FILES / "hdf5")))
    assert not bad
    assert len(verdicts) > 4
    assert "refused" not in verdicts


@pytest.mark.parametrize("part", range(PARTS))
def test_h5py_agrees_on_the_corpus(corpus: Path, part: int) -> None:
    bad, verdicts = _bad("hdf5", corpus_files("hdf5")[part::PARTS])
    assert verdicts
    assert not bad
    assert verdicts.count("refused") <= REFUSED_AT_MOST * len(verdicts)


@pytest.mark.parametrize("part", range(PARTS))
def test_xarray_agrees_on_the_corpus(corpus: Path, part: int) -> None:
    bad, verdicts = _bad("xarray", list(filter(_is_netcdf, corpus_files("hdf5")))[part::PARTS])
    assert verdicts
    assert not bad
