"""Files that other projects wrote: the small set in `tests/files`, and the large corpus where it is
present.

`tests/files` is part of the project (`tests/files/README.md` names each file's writer and licence),
so the oracle tests always run. The corpus is not: it lies beside the checkout or where
`INSITU_CORPUS` says, and tests that read it carry the marker `corpus`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

__all__ = ["CORPUS", "FILES", "corpus_files", "list_files", "parameters"]

FILES = Path(__file__).resolve().parent / "files"
CORPUS = Path(os.environ.get("INSITU_CORPUS") or Path(__file__).resolve().parents[2] / "shared" / "corpus")


def list_files(folder: Path) -> list[Path]:
    """Return all files below a folder, sorted; none if there is no such folder."""
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []


def corpus_files(*kinds: str) -> list[Path]:
    """Return the corpus's files of these kinds (`hdf5`, `netcdf3`, `grib`, `tiff`, `bigtiff`,
    `fits`).
    """
    return [path for kind in kinds for path in list_files(CORPUS / kind)]


def parameters(*kinds: str, without: frozenset[str] | set[str] = frozenset()) -> list[Any]:
    """Return the files of these kinds as parameters of a test, those of the corpus marked;
    `without` are names to leave out.
    """
    actual = [pytest.param(path, id=f"files-{path.name}") for kind in kinds for path in list_files(FILES / kind)]
    expected = [pytest.param(path, id=path.name, marks=pytest.mark.corpus) for path in corpus_files(*kinds)]
    return [parameter for parameter in [*actual, *expected] if parameter.values[0].name not in without]
