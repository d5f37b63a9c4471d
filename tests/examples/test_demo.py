"""The demonstration (`make demo`), and the archive that it makes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest

import insitu
from real_files import FILES
from waiting import LONG

xr = pytest.importorskip("xarray")
pytest.importorskip("netCDF4")

FOLDER = Path(__file__).parents[2] / "examples" / "demo"


def test_files_are_written_in_several_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    from sample_archive import make_archive

    files = make_archive(tmp_path)
    assert len(files) == 12
    arrays = [insitu.scan(path, decode=False).array("tas") for path in files]
    assert len({array.tiles[0].encodings for array in arrays}) > 2
    assert len({array.attributes.get("scale_factor") for array in arrays}) > 1
    actual = insitu.open_dataset(files[0]).load()
    with xr.open_dataset(files[0], engine="netcdf4") as expected:
        xr.testing.assert_identical(actual, expected.load())


@pytest.mark.servers
def test_demo(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("starlette")
    command = [sys.executable, str(FOLDER / "run.py"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, env={**os.environ, "COLUMNS": "200"})
    assert done.returncode == 0, done.stderr[-3000:]
    text = done.stdout
    assert "attribute by attribute: True" in " ".join(text.split())
    for name in ("archive.insitu", "rain.json", "rain.parq", "rain.parquet"):
        assert any(line.startswith(name) and line.rstrip().endswith("True") for line in text.splitlines()), name
    assert "tas too? kerchunk-json cannot hold" in " ".join(text.split())
    assert "insitu, next to the data" in text
    for what in ("open the files, in a new Python", "open them again, in the same", "a whole job in a new Python"):
        (row,) = [line for line in text.splitlines() if line.startswith(what)]
        assert len(re.findall(r"\d+\.\d\d s", row)) == 2
    for picture in ("map.png", "chunks.png"):
        assert (tmp_path / "out" / picture).read_bytes().startswith(b"\x89PNG")
    assert len(list((tmp_path / "out" / "archive").glob("*.nc"))) == 12


@pytest.mark.servers
def test_the_end_of_the_demo_names_an_address_that_shows_the_archive(tmp_path: Path) -> None:
    """In a terminal `make demo` ends with the explorer, until Ctrl+C."""
    pytest.importorskip("starlette")
    (tmp_path / "archive").mkdir()
    shutil.copy(FILES / "hdf5" / "netcdf4_model.nc", tmp_path / "archive" / "a.nc")
    program = f"from pathlib import Path; import run; run.explore(Path({str(tmp_path)!r}))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        address = next(line.strip() for line in process.stdout if line.startswith("http://127.0.0.1:"))
        with build_opener(ProxyHandler({})).open(address, timeout=LONG) as answer:
            assert "explorer/page/main.js" in answer.read().decode()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(LONG) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
