"""The documentation does what it says: its pages run, its links lead somewhere, its names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import insitu
from docs.running import FENCE, RUNNABLE, Step, blocks, run_page, run_steps, steps
from docs.tours import FOLDERS, PLACES, TOURS, Tour
from ports import free_port

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


USERS = {"README.md": ROOT / "README.md"} | {
    page.relative_to(DOCS).as_posix(): page for page in (DOCS / "tutorial.md", *sorted((DOCS / "howto").glob("*.md")))
}
"""The pages of a new user's tour."""


@pytest.mark.parametrize("name", TOURS)
def test_a_page_of_a_user_runs(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Every command as it is printed, with the buckets that it names; only folders, hosts and ports are others."""
    for needed in ("h5netcdf", "netCDF4", "starlette", "distributed", "icechunk", "matplotlib"):
        pytest.importorskip(needed)
    if name == "howto/serving.md":
        pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the OTLP exporter is not installed")
    tour = TOURS[name]
    parts = tour.plan(steps(USERS[name].read_text(encoding="utf-8")))
    needs_buckets = any("s3://" in part.text for part in parts)
    environment = request.getfixturevalue("buckets") if needs_buckets else {}
    ports = {"8786": str(free_port()), "4318": str(free_port())}
    folder = tmp_path / tour.folder
    folder.mkdir(exist_ok=True)
    run_steps(parts, folder, {FOLDERS: rf"{tmp_path}/\1", **PLACES, **ports}, environment)


@pytest.mark.parametrize("name", USERS)
def test_nothing_that_a_page_tells_to_run_is_left_out(name: str) -> None:
    """A page that gains a block or a command has it run as it is printed, unless its tour says why not."""
    text = USERS[name].read_text(encoding="utf-8")
    printed = steps(text)
    assert name in TOURS or not printed, "no tour of it: tests/docs/tours.py"
    others = [block for block in FENCE.finditer(text) if block[1] not in RUNNABLE]
    assert {block[1] for block in others} <= {"", "text", "toml", "ini", "nginx", "json", "{toctree}"}
    assert not [block[0] for block in others if re.search(r"^(\$|insitu|pip) ", block[2], re.MULTILINE)]
    assert text.count("```") == 2 * len(FENCE.findall(text))  # all fences are found
    if name in TOURS:
        commands = [step.text.partition(" #")[0] for step in TOURS[name].plan(printed) if step.kind == "command"]
        assert [command for command in commands if re.search(r"…|\b[A-Z]{3,}\b", command)] == []  # placeholders


def test_what_a_page_tells_to_run() -> None:
    """Blocks, commands in sentences and in comments, in the order of the page."""
    page = """Say `insitu scan a
-o b` or `insitu.scan`.

```console
$ insitu info b    # `insitu check b` asks all
2 variables
3 files
$ insitu cache
```
```python
insitu.scan("a")  # or: insitu scan a
```
```toml
# insitu serve
```
```sh
for x in 1 2; do
    echo $x
done
pip install insitu
```
At the end `insitu compact b`.
"""
    assert steps(page) == [
        Step("command", "insitu scan a -o b"),
        Step("command", "insitu info b    # `insitu check b` asks all", ("2 variables", "3 files")),
        Step("command", "insitu cache"),
        Step("command", "insitu check b"),
        Step("python", 'insitu.scan("a")  # or: insitu scan a\n'),
        Step("command", "insitu scan a"),
        Step("command", "for x in 1 2; do\n    echo $x\ndone"),
        Step("command", "pip install insitu"),
        Step("command", "insitu compact b"),
    ]


def test_a_tour() -> None:
    """What is filled in, exempt, and added before and after; and a tour that names what the page has no more."""
    printed = [Step("command", "insitu scan X"), Step("command", "insitu check b"), Step("command", "insitu check")]
    tour = Tour(
        filled_in={"insitu scan X": "insitu scan a"}, before={"insitu check b": "one"}, after={"insitu scan…": "two"},
        exempt={"insitu check": "a name"},
    )  # fmt: skip
    _, *parts = tour.plan([*printed, Step("command", "pip install insitu"), Step("command", "insitu cache")])
    assert [part.text for part in parts] == ["insitu scan a", "two", "one", "insitu check b", "insitu cache"]
    with pytest.raises(AssertionError, match="insitu check b"):
        tour.plan(printed[::2])


@pytest.mark.parametrize(
    "page", [page for page in (DOCS / "gallery").glob("*.md") if page.stem != "index"], ids=lambda page: page.stem
)
def test_a_notebook_runs(page: Path, tmp_path: Path) -> None:
    for needed in ("matplotlib", "netCDF4", "starlette", "dask", *(["kerchunk"] if page.stem == "kerchunk" else [])):
        pytest.importorskip(needed)
    cells = [text for _, text in blocks(page)]
    assert len(cells) == page.read_text(encoding="utf-8").count("```{code-cell}") > 5
    assert any("xr.testing.assert_" in text for text in cells)  # its results are compared with xarray's
    assert any("plt." in text for text in cells)
    run_page(page, tmp_path)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_names_exist(page: Path) -> None:
    """Every `insitu.name(` that a page shows is a public name."""
    text = page.read_text(encoding="utf-8")
    for name in set(re.findall(r"(?<!\.)\binsitu\.([a-z_]+)\(", text)):
        assert hasattr(insitu, name), f"{page.name}: insitu.{name}"
