"""Do files that a stranger might have written agree with h5py?

A sample of what `strange_hdf5.py` draws, the same in every run; its other numbers can be tried by
hand:

    python tests/oracles/strange_hdf5.py FOLDER FIRST COUNT && python tests/oracles/agreement.py
    FOLDER --comparison hdf5
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from finding import BAD, lines_of
from isolation import DIED, environment, findings_of

from waiting import LONG

SAMPLE = range(0, 60, 20)
SIZE = 20
LEAST_EQUAL = 200


@pytest.mark.parametrize("first", SAMPLE)
def test_h5py_agrees(first: int, tmp_path: Path) -> None:
    maker = Path(__file__).with_name("strange_hdf5.py")
    # In a process of its own: some of these files are too much for the library that writes them.
    subprocess.run(
        [sys.executable, maker, tmp_path, str(first), str(SIZE)], env=environment(), timeout=LONG, check=False
    )
    paths = sorted(tmp_path.glob("*.h5"))
    equal = 0
    for path, findings in findings_of("hdf5", paths, seconds=60):
        actual = [finding for finding in findings if not finding.why.startswith(DIED)]
        assert not lines_of(actual, (*BAD, "refused")), path.name
        equal += sum(finding.verdict == "equal" for finding in findings)
    assert equal > LEAST_EQUAL
