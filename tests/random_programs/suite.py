"""Cases by number: which archive, which program, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from random_programs import (
    numpy_grammar,
    numpy_values,  # noqa: F401  (adds productions)
    xarray_grammar,
    xarray_statistics,  # noqa: F401  (adds productions)
)
from random_programs.archives import make_archive
from random_programs.check import Opened, check
from random_programs.known_differences import name_of
from random_programs.programs import draw_program, quiet

__all__ = ["LEVELS", "Case", "open_archive", "run_cases"]

LEVELS = {"xarray": xarray_grammar.GRAMMAR, "numpy": numpy_grammar.GRAMMAR}


@dataclass(frozen=True)
class Case:
    """A program that was run."""

    level: str
    archive: int
    form: str
    number: int
    program: str
    problem: str
    known: str | None

    def __str__(self) -> str:
        return (
            f"{self.problem}\n\n    python -m random_programs {self.level} {self.archive} {self.number}"
            f"   # ds: archive {self.archive}, {self.form}\n\n"
            + "\n".join(f"    {line}" for line in self.program.splitlines())
        )


def open_archive(seed: int, folder: Path, server: str | None = None) -> Opened:
    """Make the archive of a seed and open it."""
    with quiet():
        return Opened(make_archive(seed, folder), folder, server)


def run_cases(level: str, opened: Opened, numbers: range) -> Iterator[Case]:
    """Run the programs of these numbers."""
    grammar = LEVELS[level]
    for number in numbers:
        dice = Random(f"{level} {opened.archive.seed} {number}")
        program, expected = draw_program(dice, opened.archive.loaded, grammar.begin, grammar.then)
        problem = check(opened, program, expected, dice)
        known = name_of(str(program), problem) if problem else None
        yield Case(level, opened.archive.seed, opened.archive.form, number, str(program), problem, known)
