"""Where do the oracles' files come from, and what was found in them?

The comparison modules of this folder and the makers in `tests/fixtures` are imported by name. Each
comparison runs once over all files of a set, in a worker process (see `isolation.py`); the tests
look their file up.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "fixtures")]

from finding import Finding  # noqa: E402
from isolation import findings_of, generate_once  # noqa: E402

Found = Callable[[str, Sequence[str]], Mapping[str, list[Finding]]]


@pytest.fixture
def quiet() -> Iterator[None]:
    """No logs and warnings of the reference reader."""
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every generated file, by name."""
    return generate_once(tmp_path_factory)


@pytest.fixture(scope="session")
def found(generated: dict[str, Path]) -> Found:
    """Give the findings of one comparison over some of the generated files, by name."""
    known: dict[str, dict[str, list[Finding]]] = {}

    def of(comparison: str, names: Sequence[str]) -> Mapping[str, list[Finding]]:
        if comparison not in known:
            paths = [generated[name] for name in names]
            known[comparison] = {path.stem: findings for path, findings in findings_of(comparison, paths)}
        return known[comparison]

    return of
