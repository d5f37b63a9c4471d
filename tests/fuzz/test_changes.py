"""Does any file, changed where it counts, hurt the HDF5 parser, or make it say something else than
h5py?

Hypothesis draws a generated file and a few changes of its structures (`changes`); checksums are put
right afterwards, so that the change is seen by the parser. Then: an error of ours that names file,
byte and structure, or values; in little time and memory; and where h5py
reads the file too, the same values.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "oracles")]

from anatomy import repaired  # noqa: E402
from bounds import bounded, measure_seconds  # noqa: E402
from changes import MOST, WAYS, Change, changed  # noqa: E402
from finding import Finding  # noqa: E402
from isolation import findings_of  # noqa: E402
from mutation import disagreement  # noqa: E402
from seeds import Seed, seeds_in  # noqa: E402

FINE = ("read", "in part", "refused")

numbers = st.integers(0, MOST - 1)
some_changes = st.lists(st.builds(Change, st.integers(0, WAYS - 1), numbers, numbers, numbers), min_size=1, max_size=3)
stable = settings(
    max_examples=100,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
"""The same changes in every run: `make fuzz` looks for others."""


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Seed]:
    """The generated files, and where their structures are."""
    return seeds_in(tmp_path_factory.mktemp("changes"))


@pytest.fixture(scope="module")
def seconds(seeds: list[Seed]) -> float:
    """What a file may take."""
    return measure_seconds(data for _, data, _ in seeds)


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[bytes], list[Finding]]]:
    """Hold a file beside h5py, in a process of its own: what h5py does with damaged files is not
    for this one.
    """
    path = tmp_path_factory.mktemp("beside") / "changed.h5"
    answers = findings_of("hdf5", itertools.repeat(path), seconds=60)

    def compared(data: bytes) -> list[Finding]:
        path.write_bytes(data)
        return next(answers)[1]

    yield compared
    answers.close()  # type: ignore[attr-defined]  # a generator: ends its worker


def test_the_structures_of_every_file_are_known(seeds: list[Seed]) -> None:
    """Without them nothing below would be a test of anything."""
    assert len(seeds) > 80
    for name, data, anatomy in seeds:
        assert len(anatomy.spans) > 3, name
        assert anatomy.pointers, name
        assert repaired(data) == data, name
    kinds = {data[start : start + 4] for _, data, anatomy in seeds for start, _ in anatomy.spans}
    assert kinds >= {b"OHDR", b"OCHK", b"TREE", b"SNOD", b"HEAP", b"GCOL", b"BTHD", b"BTLF", b"FRHP", b"FHDB", b"SMTB"}
    assert kinds >= {b"FAHD", b"FADB", b"EAHD", b"EAIB", b"EADB", b"BTIN", b"FHIB", b"EASB"}


def test_changes_reach_the_parser(seeds: list[Seed]) -> None:
    """A changed structure of the newest format has the checksum that it ought to have."""
    _, data, anatomy = next(seed for seed in seeds if seed[0] == "layouts-latest")
    start, end = next(span for span in anatomy.spans if data[span[0] : span[0] + 4] == b"OHDR")
    worse = bytearray(data)
    worse[end - 5] ^= 1
    mended = repaired(bytes(worse))
    assert mended[end - 4 : end] != data[end - 4 : end]
    assert mended[start : end - 4] == worse[start : end - 4]


@given(which=numbers, changes=some_changes)
@stable
def test_no_change_hurts(
    seeds: list[Seed], seconds: float, beside: Callable[[bytes], list[Finding]], which: int, changes: list[Change]
) -> None:
    name, data, anatomy = seeds[which % len(seeds)]
    worse = changed(data, anatomy, changes)
    with bounded(seconds, believe=False) as judged:
        outcome = judged(worse)
    assert outcome in FINE, f"{name}: {outcome}"
    if outcome != "refused":
        wrong = disagreement(beside(worse))
        assert not wrong, f"{name}: {wrong}"


@pytest.mark.parametrize(
    "kind", ["layouts", "attributes", "chunk_indexes", "shared_messages", "odd_deep_values", "fills"]
)
@pytest.mark.parametrize("libver", ["earliest", "v108", "latest"])
def test_cut_at_every_structure(seeds: list[Seed], seconds: float, kind: str, libver: str) -> None:
    """The file ends just before, at and just behind each beginning and end, and its superblock says
    that it does.
    """
    for name, data, anatomy in seeds:
        if name != f"{kind}-{libver}":
            continue
        bounds = range(0, len(anatomy.bounds), max(1, len(anatomy.bounds) // 40))
        with bounded(seconds, believe=False) as judged:
            for number, step in itertools.product(bounds, range(3)):
                outcome = judged(changed(data, anatomy, [Change(0, number, step, 1)]))
                assert outcome in FINE, f"{name} cut at {anatomy.bounds[number] + step - 1}: {outcome}"
