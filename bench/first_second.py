"""What does a new process pay for its first dataset, value or command?

python bench/first_second.py [--quick] [--case NAME]

Here the clock runs for a whole process, from its start to its end: the imports count. Every program
has run once before, so that its bytecode is compiled.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import machine
from archives import folder
from small_files import write_small_archives
from table import Contestant, Target, arguments, compete, show

ROUNDS = 5
"""At least: a process takes so short a time that a busy machine shows."""
CACHE = "INSITU_SCAN_CACHE"

OPEN = "import insitu; ds = insitu.open_dataset({path!r})"
ENGINE = "import xarray; ds = xarray.open_dataset({path!r}, engine={engine!r})"
VALUE = "; print(round(float(ds.tas[0, 0, 0].values), 3))"
H5PY = "import h5py; values = h5py.File({path!r})['tas'][:]"
COMMAND = "import sys; from insitu.cli import main; sys.argv = {words!r}; main()"
TWENTY = "import insitu; ds = insitu.open_mfdataset({paths!r}); print(round(float(ds.tas[0, 0, 0].values), 3))"
NUMPY = "import numpy"


def programs(path: str, paths: list[str]) -> dict[str, tuple[str, dict[str, str], list[Target]]]:
    """Return the cases: title, programs by name, targets."""
    xarray = ENGINE.format(path=path, engine="netcdf4")
    h5py = H5PY.format(path=path)
    read = f"import insitu; values = insitu.read({path!r}, 'tas')"
    total = "print(round(float(values.sum(dtype='f8')), 3))"
    return {
        "dataset": (
            "A dataset and one of its values",
            {"insitu": OPEN.format(path=path) + VALUE, "xarray, netcdf4": xarray + VALUE},
            [Target("xarray, netcdf4", 1)],
        ),
        "engine": (
            "A dataset of the engine insitu and one of its values",
            {"insitu": ENGINE.format(path=path, engine="insitu") + VALUE, "xarray, netcdf4": xarray + VALUE},
            [Target("xarray, netcdf4", 0.91)],
        ),
        "read": (
            "insitu.read: a variable of a file",
            {"insitu": f"{read}; {total}", "h5py": f"{h5py}; {total}"},
            [Target("h5py", 0.4)],
        ),
        "reduce": (
            "insitu.reduce: a maximum",
            {
                "insitu": f"import insitu; print(round(float(insitu.reduce({path!r}, 'tas', 'max')), 3))",
                "h5py": f"{h5py}; print(round(float(values.max()), 3))",
                "xarray, netcdf4": f"{xarray}; print(round(float(ds.tas.max()), 3))",
            },
            [Target("xarray, netcdf4", 1)],
        ),
        "version": (
            "insitu --version",
            {"insitu": COMMAND.format(words=["insitu", "--version"]), "import numpy": NUMPY},
            [Target("import numpy", 0.83)],
        ),
        "info": (
            "insitu info FILE",
            {"insitu": COMMAND.format(words=["insitu", "info", path]), "import numpy": NUMPY},
            [],
        ),
        "twenty": (
            "20 files as one, found in the scan cache",
            {"insitu": TWENTY.format(paths=paths), "insitu, without the scan cache": TWENTY.format(paths=paths)},
            [Target("insitu, without the scan cache", 1)],
        ),
    }


def process(program: str, environment: Mapping[str, str]) -> Callable[[], str]:
    """Return a function that runs a program in a new process and gives the last line that it prints."""
    bytecode = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def work() -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True, text=True, check=True, env={**bytecode, **environment},
        )  # fmt: skip
        return "" if "sys.argv" in program or program == NUMPY else done.stdout.splitlines()[-1]

    work()
    return work


def main() -> None:
    """Run the cases that were asked for."""
    options = arguments(__doc__)
    print(machine.describe())
    here = folder() / "small"
    write_small_archives(here)
    cases = programs(str(here / "few.nc"), sorted(map(str, Path(here).glob("month*.nc"))))
    for case in options.case or cases:
        title, codes, targets = cases[case]
        with TemporaryDirectory() as cache:
            contestants = [
                Contestant(
                    name,
                    "first_second:process",
                    {
                        "program": code,
                        "environment": {CACHE: cache if case == "twenty" and name == "insitu" else "off"},
                    },
                )
                for name, code in codes.items()
            ]
            results = compete(contestants, rounds=options.rounds if options.quick else max(options.rounds, ROUNDS))
        show(title, results, targets=targets)


if __name__ == "__main__":
    main()
