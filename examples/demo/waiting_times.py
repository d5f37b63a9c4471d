"""How long a user waits: openings and a whole job, each in a new Python, by insitu and by xarray.

A time that is taken in a process that has everything imported already, or for the second time, is not what
somebody feels who starts a script. So each job is a script of its own: imports count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["waiting_times"]

OPENERS = {
    "insitu": "from insitu import open_mfdataset as open_files; how = {}",
    "xarray": "from xarray import open_mfdataset as open_files; how = {'engine': 'netcdf4', 'data_vars': 'minimal'}",
}
SCRIPT = """
import time; begin = time.perf_counter()
import json, sys, warnings; warnings.simplefilter("ignore")
{opener}
seconds = []
for _ in range({openings}):
    ds = open_files(sys.argv[1:], **how)
    seconds.append(time.perf_counter() - begin); begin = time.perf_counter()
if {reduces}:
    ds.tas.mean("time").load()
    seconds[-1] += time.perf_counter() - begin
print(json.dumps(seconds))
"""


def waiting_times(files: Sequence[Path], folder: Path) -> dict[str, dict[str, float]]:
    """Return seconds by what is done, and by who does it.

    Parameters
    ----------
    files
        The archive.
    folder
        For what insitu keeps of a scan: a new one, so that an earlier demonstration makes nothing faster.
    """
    found: dict[str, dict[str, float]] = {
        "open the files, in a new Python": {},
        "open them again, in the same": {},
        "a whole job in a new Python: imports, opening, mean of the year": {},
    }
    first, again, whole = found.values()
    for who in OPENERS:
        first[who], again[who] = _run(who, files, folder, openings=2, reduces=False)
        (whole[who],) = _run(who, files, folder, openings=1, reduces=True)
    return found


def _run(who: str, files: Sequence[Path], folder: Path, *, openings: int, reduces: bool) -> list[float]:
    code = SCRIPT.format(opener=OPENERS[who], openings=openings, reduces=reduces)
    environment = {**os.environ, "INSITU_SCAN_CACHE": str(folder / "scans")}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, files)], capture_output=True, text=True, check=True, env=environment
    )
    seconds: list[float] = json.loads(done.stdout)
    return seconds
