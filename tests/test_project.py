"""Do the files around the code agree with it: workflows, Makefile, metadata, citation, changelog?

Modules: cli/versions.py
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

import insitu
from insitu.cli.versions import EXTENSIONS, format_versions
from waiting import LONG

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.MULTILINE))
COMMAND = re.compile(r"^make ((?:[a-z][\w-]*|[A-Z]+=\S+)(?: (?:[a-z][\w-]*|[A-Z]+=\S+))*)$", re.MULTILINE)


def _load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _steps(workflow: Any) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def _targets(text: str) -> set[str]:
    return {word for line in COMMAND.findall(text) for word in line.split() if "=" not in word}


def _classified_versions() -> list[str]:
    found = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", text) for text in PROJECT["classifiers"])
    return [match[1] for match in found if match]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_targets_that_exist_by_pinned_actions(path: Path) -> None:
    workflow = _load(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())
    for step in _steps(workflow):
        assert _targets(step.get("run", "")) <= TARGETS
        if "uses" in step:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
        for package in re.findall(r"pip install (.+)", step.get("run", "")):
            assert "==" in package


def test_the_workflows_run_every_kind_of_test() -> None:
    run = {target for path in WORKFLOWS for step in _steps(_load(path)) for target in _targets(step.get("run", ""))}
    assert run == {"check", "quick", "test", "wheel", "docs"}


def test_the_supported_versions_of_python_are_tested() -> None:
    """The classifiers, what pip accepts, the quick tests, the wheels and the pins speak of the same versions."""
    versions = _classified_versions()
    accepted = SpecifierSet(PROJECT["requires-python"])
    assert [minor for minor in range(9, 15) if f"3.{minor}" in accepted] == [int(text[2:]) for text in versions]
    jobs = _load(ROOT / ".github/workflows/ci.yml")["jobs"]
    assert jobs["quick"]["strategy"]["matrix"]["python"] == versions
    assert set(jobs["test"]["strategy"]["matrix"]["python"]) <= set(versions)
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    oldest, newest = (f"cp{text.replace('.', '')}" for text in (versions[0], versions[-1]))
    assert tools["cibuildwheel"]["build"] == [f"{oldest}-*", f"{newest}-*", f"{newest}t-*"]
    assert tools["mypy"]["python_version"] == versions[0]
    assert tools["ruff"]["target-version"] == f"py{versions[0].replace('.', '')}"


def test_hooks_before_a_commit_run_targets_that_exist() -> None:
    (local,) = _load(ROOT / ".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    for hook in local["hooks"]:
        assert _targets(hook["entry"]) <= TARGETS
        assert _targets(hook["entry"])


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "RELEASING.md", "README.md"])
def test_targets_that_pages_name_exist(page: str) -> None:
    named = set(re.findall(r"`(?:[A-Z_]+=\S+ )*make ([a-z][\w-]*)", (ROOT / page).read_text(encoding="utf-8")))
    assert named - {"…"} <= TARGETS


def test_every_target_is_declared_to_be_no_file() -> None:
    declared = set(re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)[0].split())
    assert declared == TARGETS


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
@pytest.mark.parametrize(("system", "folder"), [("Windows_NT", "Scripts"), ("", "bin")])
def test_programs_of_an_environment_are_found_on_every_system(system: str, folder: str, tmp_path: Path) -> None:
    """`make -n` prints what it would run."""
    command = ["make", "-n", "check", f"OS={system}", f"VENV={tmp_path.as_posix()}/venv"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LONG, check=True).stdout
    assert f"/venv/{folder}/mypy" in printed
    assert set(re.findall(r"/venv/(Scripts|bin)/", printed)) == {folder}


def test_the_wheel_is_tested_by_the_quick_selection() -> None:
    """The script names the markers itself, so that it runs where there is no make."""
    script = (ROOT / "scripts" / "wheel.py").read_text(encoding="utf-8")
    quick = re.search(r'--quick -m "(.+)" @tests/quick.txt', MAKEFILE)
    assert quick is not None
    assert f'QUICK = "{quick[1]}"' in script
    assert f"EXTENSIONS = {tuple(name.replace('.', '/') for name in EXTENSIONS)}".replace("'", '"') in script


@pytest.mark.parametrize("name", ["bug", "format", "question"])
def test_issue_forms(name: str) -> None:
    """The keys that GitHub asks for; a bug report asks for the versions and for what the file holds."""
    path = ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml"
    form = _load(path)
    assert form["name"]
    assert form["description"]
    identifiers = [field["id"] for field in form["body"] if field["type"] != "markdown"]
    assert len(identifiers) == len(set(identifiers)) > 1
    assert all(field["attributes"].get("label") for field in form["body"] if field["type"] != "markdown")
    if name == "bug":
        assert {"insitu --version", "insitu info"} <= set(re.findall(r"`(insitu (?:--version|info))", str(form)))


def test_the_version_stands_in_one_place() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
    citation = _load(ROOT / "CITATION.cff")
    assert citation["version"] == insitu.__version__


def test_the_citation_has_what_its_format_asks_for() -> None:
    """Citation File Format 1.2.0: required keys, and those that we use with their types."""
    citation = _load(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software"
    assert citation["license"] == "Apache-2.0"
    assert citation["authors"] == [{"name": author["name"]} for author in PROJECT["authors"]]
    texts = ("message", "title", "abstract", "version")
    assert all(isinstance(citation[key], str) and citation[key] for key in texts)
    assert all(isinstance(word, str) for word in citation["keywords"])
    assert citation.keys() <= {*texts, "cff-version", "type", "license", "authors", "keywords", "date-released", "doi"}


def test_the_changelog_goes_by_versions() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", heading) for heading in headings[1:])


def test_all_is_all() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    named = set(re.fullmatch(r"insitu\[(.+)\]", everything)[1].split(","))  # type: ignore[index]
    assert named == extras.keys() - {"all", "bench", "check", "demo", "docs", "test"}


def test_every_core_dependency_has_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = text.partition("\ndependencies = [\n")[2].partition("\n]")[0].splitlines()
    reasons, names = block[::2], block[1::2]
    assert all(line.strip().startswith("# ") for line in reasons)
    assert [line.strip(' ",') for line in names] == PROJECT["dependencies"]


def test_versions_are_shown() -> None:
    first, python, compiled, *packages = format_versions().splitlines()
    assert first == f"insitu {insitu.__version__}"
    assert python.startswith(f"Python {sys.version_info.major}.{sys.version_info.minor}.")
    missing = [name for name in EXTENSIONS if find_spec(name) is None]
    assert compiled.startswith(f"compiled extensions: {'without ' + ', '.join(missing) if missing else 'all'};")
    names = [line.split()[0] for line in packages]
    assert {"numpy", "xarray", "zarr", "starlette"} <= set(names)
    assert not {"pytest", "ruff", "insitu"} & set(names)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """What setup.py needs to compile, without the sources of the libraries."""
    shutil.copy(ROOT / "setup.py", tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    return tmp_path


def _build_extensions(source: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        "import runpy, sys; sys.argv = ['setup.py', 'build_ext']; runpy.run_path('setup.py')",
    ]
    # No compiler, and no library of the system.
    variables = {**os.environ, "CC": "no-such-compiler", "PKG_CONFIG_LIBDIR": str(source), **environment}
    return subprocess.run(command, cwd=source, env=variables, capture_output=True, text=True, timeout=LONG, check=False)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="CC is for compilers of Unix")
def test_a_missing_compiler_stops_only_who_asked_for_it(source: Path) -> None:
    pytest.importorskip("setuptools")
    done = _build_extensions(source)
    assert done.returncode == 0, done.stderr
    assert "no-such-compiler" in done.stdout + done.stderr
    assert not list(source.rglob("*.so"))
    for library in ("zstd", "libdeflate"):
        (source / "native_sources" / library).mkdir(parents=True)
        (source / "native_sources" / library / "empty.c").touch()
    done = _build_extensions(source, INSITU_REQUIRE_EXTENSIONS="1")
    assert done.returncode != 0
    assert "no-such-compiler" in done.stdout + done.stderr


@pytest.mark.slow
def test_missing_libraries_stop_only_who_asked_for_them(source: Path) -> None:
    pytest.importorskip("setuptools")
    done = _build_extensions(source, INSITU_REQUIRE_EXTENSIONS="1")
    assert done.returncode != 0
    assert "there are no sources of zstd to link" in done.stderr
