"""What is not needed is not imported: starting is fast because of it."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

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
    xr.Dataset({"tas": ("x", np.arange(4.0))}).to_netcdf(path, encoding={"tas": {"zlib": True}})
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
        (_command("--version"), {"typer", "numpy"}),
        (_command("--help"), {"typer", "rich"}),
        (_command("info", "--help"), {"typer", "rich", "numpy"}),
    ],
)
def test_nothing_heavy(code: str, heavy: set[str]) -> None:
    found, formats = _imported(code)
    assert found <= heavy
    assert not {name for name in formats if name.rpartition(".")[2] in ("hdf5", "grib", "tiff", "zarr", "fits", "hdf4")}


def test_looking_into_a_file(file: Path) -> None:
    found, formats = _imported(_command("info", str(file)))
    assert found <= {"typer", "rich", "numpy", "numcodecs", "imagecodecs"}
    assert "insitu.formats.hdf5" in formats
    assert not formats & {"insitu.formats.grib", "insitu.formats.tiff", "insitu.formats.zarr", "insitu.formats.fits"}


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


def test_opening_a_file(file: Path) -> None:
    """xarray imports pandas, and that Arrow where it is installed, and the foundation of Dask for an index."""
    found, formats = _imported(f"import insitu; insitu.open_dataset({str(file)!r})")
    assert "dask.array" not in _imported_modules(f"import insitu; insitu.open_dataset({str(file)!r})")[0]
    assert not found & {"astropy", "cbor2", "eccodes", "fsspec", "icechunk", "obstore", "starlette", "urllib3", "zarr"}
    assert not formats & {"insitu.formats.grib", "insitu.formats.tiff", "insitu.formats.zarr", "insitu.formats.fits"}


@pytest.mark.parametrize("verb", VERBS)
def test_summaries_of_verbs(verb: str) -> None:
    """The list of verbs is shown without importing them: it says what their docstrings say."""
    function = getattr(import_module(f"insitu.cli.{verb}"), verb)
    assert VERBS[verb] == " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
