"""Do scans and values of files made by others agree with h5py and xarray?

Many of them are hostile or odd on purpose: each must agree, or be refused by an error of ours. Nothing may be wrong, crash or hang.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from finding import BAD, Finding, lines_of, verdict_of
from isolation import findings_of

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "hdf5"
pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")

REFUSED_AT_MOST = 0.1
"""The share of files that may be refused, whole or in part."""


def _bad(found: dict[Path, list[Finding]]) -> str:
    bad = {path.relative_to(CORPUS): lines_of(findings, BAD) for path, findings in found.items()}
    return "\n".join(f"{path} {lines}" for path, lines in bad.items() if lines)


def test_h5py_agrees() -> None:
    found = dict(findings_of("hdf5", sorted(path for path in CORPUS.rglob("*") if path.is_file())))
    assert found
    assert not _bad(found)
    refused = [path for path, findings in found.items() if verdict_of(findings) == "refused"]
    assert len(refused) <= REFUSED_AT_MOST * len(found)


def test_xarray_agrees() -> None:
    found = dict(findings_of("xarray", sorted(path for path in CORPUS.rglob("*") if path.suffix in (".nc", ".nc4"))))
    assert found
    assert not _bad(found)
