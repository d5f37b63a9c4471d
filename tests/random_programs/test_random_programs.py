"""Random programs give what xarray and NumPy give on values in memory: the first time, again, and every other way.

The seeds are fixed; `make random-programs MINUTES=60` tries others. A failure prints the program
and the command that runs it again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from random_programs.check import Opened, check
from random_programs.compare import Failure, difference
from random_programs.known_differences import KNOWN_DIFFERENCES, KnownDifference, name_of
from random_programs.programs import Oracle, parse
from random_programs.suite import LEVELS, open_archive, run_cases
from server.serving import serving

ARCHIVES = range(24)
PROGRAMS = {"xarray": 20, "numpy": 40}
BESIDE_A_SERVER = range(0, 24, 4)


def _assert_no_difference(level: str, opened: Opened, numbers: range) -> None:
    cases = list(run_cases(level, opened, numbers))
    failures = [case for case in cases if case.problem and case.known is None]
    assert len(cases) == len(numbers)
    assert not failures, f"{len(failures)} of {len(cases)} programs differ\n\n" + "\n\n".join(map(str, failures[:5]))


@pytest.fixture(scope="module")
def opened_archive(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Opened]:
    """The archive of a seed, made once for all programs."""
    folder = tmp_path_factory.mktemp("archives")
    return functools.cache(lambda seed: open_archive(seed, folder))


@pytest.mark.parametrize("seed", ARCHIVES)
def test_loaded_archives_are_identical(seed: int, opened_archive: Callable[[int], Opened]) -> None:
    opened = opened_archive(seed)
    assert difference(opened.fresh().load(), opened.archive.loaded) == ""
    assert difference(opened.saved().load(), opened.archive.loaded) == ""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", ARCHIVES)
def test_programs(level: str, seed: int, opened_archive: Callable[[int], Opened]) -> None:
    _assert_no_difference(level, opened_archive(seed), range(PROGRAMS[level]))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("served")
    with serving([folder], tmp_path_factory.mktemp("log") / "serve.log") as running:
        yield folder, running.url


@pytest.mark.parametrize("seed", BESIDE_A_SERVER)
def test_programs_beside_a_server(seed: int, server: tuple[Path, str]) -> None:
    folder, url = server
    _assert_no_difference("xarray", open_archive(seed, folder, url), range(1000, 1015))


@pytest.mark.parametrize("known", KNOWN_DIFFERENCES, ids=lambda known: known.name)
def test_known_differences_are_still_there(known: KnownDifference, tmp_path: Path) -> None:
    archive, text = known.example
    opened = open_archive(archive, tmp_path)
    program, oracle = parse(text), Oracle({"ds": opened.archive.loaded})
    problem = check(opened, program, [oracle.apply(step) for step in program.steps], Random(0))
    assert problem, "this difference is gone: take it out of the table and of docs/limits.md"
    assert name_of(text, problem) == known.name


def test_known_differences_are_documented() -> None:
    limits = (Path(__file__).parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")
    assert [
        known.name for known in KNOWN_DIFFERENCES if f"**{known.name[0].upper()}{known.name[1:]}**" not in limits
    ] == []


def test_programs_depend_on_their_numbers_only(tmp_path: Path) -> None:
    one, other = (open_archive(3, tmp_path / name) for name in ("one", "other"))
    first = [case.program for case in run_cases("xarray", one, range(12))]
    assert first == [case.program for case in run_cases("xarray", other, range(12))]
    assert len(set(first)) > 8


WRONG = {
    "a value": lambda x: x + 1e-5,
    "the sign of a zero": lambda x: x * -1.0,
    "a type": lambda x: x.astype("f8"),
    "a label": lambda x: x.assign_coords(y=x.y + 1),
    "a coordinate": lambda x: x.drop_vars("area"),
    "an attribute": lambda x: x.assign_attrs(more=1),
    "the order of dimensions": lambda x: x.T,
    "a name": lambda x: x.rename("z"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_noticed(name: str, tmp_path: Path) -> None:
    right = open_archive(0, tmp_path).archive.loaded["a"].isel(time=0) * np.float32(0)
    assert difference(right.copy(), right) == ""
    assert difference(WRONG[name](right), right) != ""
    assert difference(Failure(ValueError()), right) != ""
    assert difference(right, Failure(ValueError())) != ""
    assert difference(Failure(KeyError()), Failure(ValueError())) != ""
    assert difference(Failure(UnicodeError()), Failure(ValueError())) == ""
