"""Does the suite keep its promises: pins that fit the project, a quick selection that exists and is
complete, an end that says what is missing?
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from plugins import absent
from plugins.markers import BROWSER, PEERS, SLOW
from waiting import LONG

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = sorted((ROOT / "constraints").glob("python*.txt"))
SOURCES = ROOT / "src" / "insitu"
TESTS = ROOT / "tests"
MODULES = re.compile(r"^Modules: ([^\"]+)", re.MULTILINE)
"""The end of a docstring that names modules which the file's own name does not."""
EXTRAS = ("test", "check", "demo", "codecs", "copy", "dask", "fits", "grib", "icechunk", "serve", "tiff", "zarr")


def _pins(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert all(line.count("==") == 1 for line in lines)  # no addresses, no paths, no ranges
    return dict(line.split("==") for line in lines)


def test_there_are_pins_for_the_oldest_and_a_new_python() -> None:
    assert {"python3.11.txt", "python3.13.txt"} <= {path.name for path in CONSTRAINTS}


@pytest.mark.parametrize("path", CONSTRAINTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_dependency_is_pinned_to_a_version_that_fits(path: Path, machine: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(text for extra in EXTRAS for text in project["optional-dependencies"][extra])]
    python = path.stem.removeprefix("python")
    here = {"python_version": python, "platform_machine": machine, "platform_system": "Linux"}
    pins = _pins(path)
    for requirement in map(Requirement, wanted):
        if requirement.name == project["name"] or (requirement.marker and not requirement.marker.evaluate(here)):
            continue
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not pinned: make update-constraints"
        assert version in requirement.specifier, f"{requirement.name} {version}: make update-constraints"


def test_the_quick_selection_exists() -> None:
    lines = (ROOT / "tests" / "quick.txt").read_text(encoding="utf-8").splitlines()
    assert lines == sorted(set(lines))
    assert [line for line in lines if not (ROOT / line).exists()] == []


def test_the_tables_of_markers_name_tests_that_exist() -> None:
    missing = [name for name in (*PEERS, *BROWSER, *SLOW) if not _exists(name)]
    assert missing == []


def _exists(name: str) -> bool:
    """Whether there is a folder or a file, and a test whose name begins like this."""
    path, _, test = name.partition("::")
    place = ROOT / "tests" / path
    return place.exists() and (not test or f"def {test}" in place.read_text(encoding="utf-8"))


def _modules() -> list[str]:
    paths = (path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.py"))
    return sorted(path for path in paths if not path.endswith(("__init__.py", "__main__.py")))


def _is_named_after(test: PurePosixPath, module: PurePosixPath) -> bool:
    """Whether a file of tests, in the folder of a package, has the name of a module there or of a package within, alone
    or before a topic.
    """
    if test.parent not in module.parents or (test.parent == PurePosixPath(".")) != (
        module.parent == PurePosixPath(".")
    ):
        return False
    within = module.relative_to(test.parent).with_suffix("").parts
    return any(test.stem == f"test_{name}" or test.stem.startswith(f"test_{name}_") for name in within)


def _listed(test: Path) -> set[str]:
    """The modules that a file of tests names in its docstring."""
    found = MODULES.search(test.read_text(encoding="utf-8"))
    return {name.strip().removesuffix(".py") + ".py" for name in found[1].rstrip(". \n").split(",")} if found else set()


def test_the_tests_of_a_module_are_found_by_its_name() -> None:
    """`reading/plan.py`: `tests/reading/test_plan*.py`, or what `grep -rl reading/plan.py tests` finds."""
    tests = [PurePosixPath(path.relative_to(TESTS).as_posix()) for path in TESTS.rglob("test_*.py")]
    listed = {name for path in TESTS.rglob("test_*.py") for name in _listed(path)}
    modules = _modules()
    assert sorted(listed.difference(modules)) == []
    assert [
        name for name in modules
        if name not in listed and not any(_is_named_after(test, PurePosixPath(name)) for test in tests)
    ] == []  # fmt: skip


def test_a_module_that_is_skipped_as_a_whole_is_named() -> None:
    """As the tests of HDF4 are where pyhdf is missing: the end of the run crashed."""
    skipped = pytest.CollectReport("tests/test_hdf4.py", "skipped", ("test_hdf4.py", 1, "Skipped: no pyhdf"), [])
    written: list[str] = []
    terminal = SimpleNamespace(stats={"skipped": [skipped]}, section=lambda *_, **__: None, line=written.append)
    absent.pytest_terminal_summary(terminal, None)  # type: ignore[arg-type]
    assert "other: 1 skipped: no pyhdf" in written


@pytest.mark.slow
def test_the_end_of_a_run_says_what_is_missing(tmp_path: Path) -> None:
    """A run without the corpus, whose selection calls functions of few packages."""
    command = [sys.executable, "-m", "pytest", "-q", "--quick", "-p", "no:cacheprovider", "tests/test_errors.py"]
    environment = {**os.environ, "INSITU_CORPUS": str(tmp_path / "nothing")}
    without = [name for name in environment if name.startswith("PYTEST_")]  # of the run that this one is part of
    for name in without:
        del environment[name]
    done = subprocess.run(
        [*command, "tests/formats/hdf5/test_cache_image.py"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "no large corpus of real files here" in done.stdout
    assert "corpus: 1 skipped: " in done.stdout
    missing = done.stdout.partition("no test of this selection calls a function of: ")[2].partition("\n")[0]
    assert {"xarray_bridge", "server"} <= set(missing.split(", "))
    assert "formats/hdf5/structures" not in missing.split(", ")
