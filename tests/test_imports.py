"""What is not needed is not imported: starting is fast because of it."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import xarray as xr

from insitu.cli import VERBS

HEAVY = (
    "astropy", "cbor2", "dask", "eccodes", "fsspec", "icechunk", "imagecodecs", "numcodecs", "numpy", "obstore",
    "pandas", "pyarrow", "rich", "starlette", "tifffile", "typer", "urllib3", "xarray", "zarr",
)  # fmt: skip
"""Packages that take long to import."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("imports") / "a.nc"
    times = np.datetime64("2000-01-01", "ns") + np.arange(4) * np.timedelta64(1, "D")
    made = xr.Dataset({"tas": ("time", np.arange(4.0))}, {"time": times})
    made.to_netcdf(path, encoding={"tas": {"zlib": True}})
    return path


def _imported_modules(code: str) -> tuple[set[str], set[str]]:
    """Return the modules of others and of insitu that a program imports."""
    ask = "import json, sys; print('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{ask}"], capture_output=True, text=True, check=True)
    modules = set(json.loads(done.stdout.splitlines()[-1]))
    actual = {name for name in modules if name == "insitu" or name.startswith("insitu.")}
    return modules - actual - {"json"}, actual


def _imported(code: str) -> tuple[set[str], set[str]]:
    """Return the heavy packages and the packages of formats that a program imports."""
    others, actual = _imported_modules(code)
    formats = {".".join(name.split(".")[:3]) for name in actual if name.startswith("insitu.formats.")}
    return {name for name in others if name in HEAVY}, formats


def _command(*words: str) -> str:
    return (
        "import sys\n"
        f"sys.argv = {['insitu', *words]!r}\n"
        "from insitu.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass"
    )


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import insitu", set()),
        ("from insitu import errors", set()),
        ("from insitu import open_dataset, open_datatree, open_mfdataset", set()),
        (_command("--help"), {"typer", "rich"}),
        (_command("info", "--help"), {"typer", "rich", "numpy"}),
        # The first page of the explorer waits for this: xarray and pandas would double it.
        ("import insitu.server", {"cbor2", "numpy", "starlette", "urllib3"}),
    ],
)
def test_nothing_heavy(code: str, heavy: set[str]) -> None:
    found, formats = _imported(code)
    assert found <= heavy
    assert not {name for name in formats if name.rpartition(".")[2] in ("hdf5", "grib", "tiff", "zarr", "fits", "hdf4")}


class Way(NamedTuple):
    """What one way of using insitu imports in a new process."""

    code: str
    """The program; `FILE` is an HDF5 file of a compressed variable and its times."""
    heavy: set[str]
    """Of the packages of others that take long to import, those that are needed."""
    of_insitu: set[str]
    """Our packages."""
    most: int
    """Modules of ours."""
    alone: bool = True
    """Whether there are no other packages of others, however small."""


SCANNING = {
    "cancellation", "codecs", "errors", "forking", "formats", "lru", "model", "open_options", "scanning", "sources",
}  # fmt: skip
READING = {*SCANNING, "archive", "cf", "combining", "maintenance", "reading", "verbs", "zarr_metadata"}
REDUCING = {*READING, "active", "engines", "expressions", "process_options", "reducing"}
COMMAND = {"imagecodecs", "numpy", "rich", "typer"}
WAYS = {
    "scan": Way("import insitu; insitu.scan(FILE)", {"numpy"}, READING, 170),
    "read": Way("import insitu; insitu.read(FILE, 'tas')", {"imagecodecs", "numpy"}, READING, 177),
    "reduce": Way("import insitu; insitu.reduce(FILE, 'tas', 'max')", {"imagecodecs", "numpy"}, REDUCING, 242),
    "insitu --version": Way(_command("--version"), set(), {"cli", "codecs", "errors", "forking"}, 10),
    "insitu info": Way(_command("info", "FILE"), COMMAND, {*SCANNING, "cli"}, 127, alone=False),
    "insitu read": Way(
        _command("read", "FILE", "tas"), COMMAND, {*READING, "cli", "xarray_bridge"} - {"verbs"}, 187, alone=False
    ),
    "insitu reduce": Way(
        _command("reduce", "FILE", "tas", "max"), COMMAND, {*REDUCING, "cli", "xarray_bridge"} - {"verbs"}, 253,
        alone=False,
    ),
    "insitu scan": Way(
        _command("scan", "FILE"), COMMAND - {"imagecodecs"}, {*READING, "cli", "process_options"} - {"verbs"}, 192,
        alone=False,
    ),
}  # fmt: skip
"""Typer decides itself which small packages it imports."""


@pytest.mark.parametrize("name", WAYS)
def test_only_what_is_needed(name: str, file: Path) -> None:
    """Neither pandas (times are decoded without it) nor xarray nor Arrow nor asyncio, unless a file needs them."""
    way = WAYS[name]
    code = way.code.replace("'FILE'", repr(str(file))).replace("FILE", repr(str(file)))
    modules, of_insitu = _imported_modules(code)
    others = {module.partition(".")[0] for module in modules} - sys.stdlib_module_names
    assert others & set(HEAVY) == way.heavy
    assert "asyncio" not in modules
    if way.alone:
        assert {other for other in others if not other.startswith("_")} - CYTHON == way.heavy
        assert not modules & SLOW or name == "insitu --version"  # which asks for the versions of packages
    assert {module.split(".")[1] for module in of_insitu if "." in module} == way.of_insitu
    assert len(of_insitu) <= way.most


CYTHON = {"cython_runtime"}
"""What imagecodecs puts beside itself."""
SLOW = {"email", "importlib.metadata", "multiprocessing", "ssl", "unittest", "xml"}
"""Modules of Python that take long to import."""


@pytest.mark.parametrize("engine", [False, True])
def test_opening_a_file(file: Path, engine: bool) -> None:
    """A dataset needs what xarray itself needs for a dataset with an index, and a decoder: no more of others."""
    opening = "xarray.open_dataset(FILE, engine='insitu')" if engine else "insitu.open_dataset(FILE)"
    before = "xarray.backends.list_engines()" if engine else ""  # xarray imports all engines to find one
    plain = "xarray.Dataset({'tas': ('time', numpy.arange(4.0))}, {'time': numpy.arange(4)})"
    usual, _ = _imported_modules(f"import numpy, xarray\n{before}\nds = {plain}\nfloat(ds.tas[1])")
    code = f"import insitu, xarray\n{before}\nds = {opening.replace('FILE', repr(str(file)))}\nfloat(ds.tas[1])"
    found, of_insitu = _imported_modules(code)
    others = {module.partition(".")[0] for module in found - usual} - sys.stdlib_module_names
    assert {other for other in others if not other.startswith("_")} - CYTHON == {"imagecodecs"} - usual
    assert "xarray.computation.rolling" not in found  # imports numbagg and numba, where they are installed
    packages = {module.split(".")[1] for module in of_insitu if "." in module}
    assert packages == {*READING, "expressions", "lazy_array", "process_options", "xarray_bridge"} - {"verbs"}
    assert len(of_insitu) <= 209


def test_opening_several_files_imports_no_dask(file: Path) -> None:
    """xarray's first variable of an array imports dask.array, and that numba, where they are installed."""
    opening = (
        "import insitu, pathlib, xarray\n"
        f"one = pathlib.Path({str(file)!r}); two = one.with_name('b.nc')\n"
        "ds = insitu.open_mfdataset([one, two])\nassert ds.sizes['time'] == 8"
    )
    with xr.open_dataset(file) as ds:
        later = ds.assign_coords(time=ds.time + np.timedelta64(4, "D"))
        later.to_netcdf(file.with_name("b.nc"), encoding={"tas": {"zlib": True}})
    found, _ = _imported_modules(opening)
    assert not found & {"dask.array", "numba", "numbagg"}


def test_the_text_of_a_dataset_draws_no_picture(file: Path) -> None:
    """The modules that draw chunks are imported for HTML, which has a picture of them."""
    shown = f"import insitu; ds = insitu.open_dataset({str(file)!r}); text = str(ds), repr(ds.tas.variable.data)"
    _, texts = _imported_modules(shown)
    _, html = _imported_modules(f"{shown}; ds.tas.variable.data._repr_html_()")
    assert "insitu.lazy_array.representation" in texts
    assert not {name for name in texts if name.startswith("insitu.pictures")}
    assert "insitu.pictures.chunk_svg" in html


def test_opening_functions_import_no_module_that_opens() -> None:
    """`from insitu import open_mfdataset` costs less than a tenth of `import xarray`."""
    _, actual = _imported_modules("from insitu import open_dataset, open_datatree, open_mfdataset")
    assert actual == {
        "insitu", "insitu.errors", "insitu.forking", "insitu.open_options", "insitu.xarray_bridge",
        "insitu.xarray_bridge.engine_keywords", "insitu.xarray_bridge.open_functions",
    }  # fmt: skip


def test_engine_imports_no_module_that_opens() -> None:
    """xarray imports every engine when it looks for one that opens a file."""
    code = "import xarray; from insitu.xarray_bridge.engine import InsituBackendEntrypoint"
    before, _ = _imported_modules("import xarray")
    found, actual = _imported_modules(code)
    assert found == before
    assert not {name for name in actual if name.startswith(("insitu.archive", "insitu.model", "insitu.lazy_array"))}


@pytest.mark.parametrize("verb", VERBS)
def test_summaries_of_verbs(verb: str) -> None:
    """The list of verbs is shown without importing them: it says what their docstrings say."""
    function = getattr(import_module(f"insitu.cli.{verb}"), verb)
    assert VERBS[verb] == " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())


def test_what_scripts_benchmarks_and_examples_import_is_there() -> None:
    """They are not part of the package, so nothing else sees that a name of it has moved."""
    root = Path(__file__).parents[1]
    missing = []
    for path in (path for folder in ("bench", "examples", "scripts") for path in (root / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "insitu":
                module = import_module(node.module or "")
                for alias in node.names:
                    within = hasattr(module, "__path__") and find_spec(f"{node.module}.{alias.name}")
                    if not hasattr(module, alias.name) and not within:
                        missing.append(f"{path.relative_to(root)}: {node.module}.{alias.name}")
    assert missing == []
