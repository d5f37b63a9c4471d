"""Formats are registered by name and imported when a file needs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import netCDF4
import pytest

from insitu.formats.registry import FORMATS, load_format

SHOW = "print(*sorted(name for name in sys.modules if name.startswith('insitu.formats.')), sep='\\n')"


def _imported(code: str) -> set[str]:
    """Return the modules under insitu.formats that a fresh process imports for some code."""
    answer = subprocess.run([sys.executable, "-c", f"import sys\n{code}\n{SHOW}"], capture_output=True, check=True)
    return set(answer.stdout.decode().split())


def test_importing_insitu_imports_no_format() -> None:
    assert not _imported("import insitu")


def test_importing_the_registry_imports_no_format() -> None:
    assert not _imported("import insitu.formats") & {row.module for row in FORMATS.values()}


def test_a_file_imports_its_own_format_only(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w", format="NETCDF3_CLASSIC") as made:
        made.createDimension("x", 3)
        made.createVariable("x", "i4", ("x",))
    code = (
        "from insitu.formats import scan_format\nfrom insitu.sources import open_source\n"
        f"scan_format(open_source({str(tmp_path / 'a.nc')!r}))"
    )
    found = _imported(code) & {row.module for row in FORMATS.values()}
    assert found == {"insitu.formats.netcdf3.scan"}


@pytest.mark.parametrize("name", FORMATS)
def test_every_row_leads_to_a_format(name: str) -> None:
    found = load_format(FORMATS[name])
    assert callable(found.matches)
    assert callable(found.scan)
