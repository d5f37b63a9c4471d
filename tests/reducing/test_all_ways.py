"""The same question has the same bits as its answer in every way: here for the first time and again, after pickling,
by an executor, by Dask, by one server, two servers, a server with two workers, `Archive.reduce`, `insitu.reduce` and
the command line; and its value is xarray's.

Questions and archives are drawn by hypothesis, always the same ones. A failure prints the archive and the question.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from asking import same_bits, with_numpy_only
from insitu.errors import ActiveWarning
from insitu.reducing import portions
from insitu.reducing.statistics import STATISTICS
from reducing.all_ways import (
    ARCHIVES,
    EXAMPLES,
    KINDS,
    LARGE_QUESTIONS,
    LARGE_WAYS,
    PORTION,
    STORED_METHODS,
    WAYS,
    Archive,
    Question,
    Setting,
    make_large_archive,
    questions,
)
from server.serving import Server, serving
from waiting import wait_until

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
    ),  # of empty slices; and of Dask's sockets
    pytest.mark.filterwarnings(f"ignore::{ActiveWarning.__module__}.ActiveWarning"),  # windows are not for servers
]

SMALL_PORTIONS = 100_000
"""Bytes of a portion, for all ways within this process: the bits depend on it, so that all must have the same one."""


@pytest.fixture(scope="session")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    folder: Path = tmp_path_factory.mktemp("all_ways")
    logs: Path = tmp_path_factory.mktemp("logs")
    setup = f"from insitu.reducing import portions; portions.PORTION_BYTES = {PORTION}"
    # Python runs it as it starts, in the processes of several workers, too.
    (logs / "sitecustomize.py").write_text(setup)
    path = os.pathsep.join(filter(None, [str(logs), os.environ.get("PYTHONPATH")]))

    def serve(name: str, *options: str, **how: Any) -> Server:
        return stack.enter_context(serving([folder], logs / f"{name}.log", *options, **how))

    with ExitStack() as stack:
        server, other = serve("server", setup=setup), serve("other", setup=setup)
        workers = serve("workers", "--workers", "2", environment={"PYTHONPATH": path})
        wait_until(lambda: workers.log.read_text().count("Application startup complete") == 2, "no two workers")
        clients = {many: stack.enter_context(_cluster(many)) for many in (1, 3)}
        pool = stack.enter_context(ThreadPoolExecutor(2))
        yield Setting(folder, server.url, other.url, workers.url, pool, clients)


@pytest.fixture(autouse=True)
def _portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits depend on the portions, so that all ways must have the same ones."""
    monkeypatch.setattr(portions, "PORTION_BYTES", PORTION)


@contextmanager
def _cluster(many: int) -> Iterator[Any]:
    """Start a cluster of so many workers, threads of this process."""
    how: dict[str, Any] = {"processes": False, "dashboard_address": "127.0.0.1:0", "protocol": "inproc://"}
    with (
        distributed.LocalCluster(n_workers=many, threads_per_worker=1, **how) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def _pairs(ways: Iterable[str], kinds: Iterable[str]) -> list[Any]:
    """Return each way with each kind of question that it takes."""
    return [
        pytest.param(kind, way, id=f"{kind}-{way}")
        for kind, way in itertools.product(kinds, ways)
        if not WAYS[way].stored or kind in (*STORED_METHODS, "large sum")
    ]


def _draw(examples: int) -> Any:
    """Return settings by which all ways get the same examples, every time. There is nothing to shrink."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@functools.cache
def _first_answer(setting: Setting, seed: int, text: str, portion: int) -> Any:
    return Question(text).ask(setting.archive(seed).open()).values


def _assert_same_bits(setting: Setting, archive: Archive, way: str, question: Question, expected: Any) -> None:
    for number, found in enumerate(WAYS[way].ask(setting, archive, question)):
        if WAYS[way].is_text:
            found = found.astype(expected.dtype)
        assert same_bits(found, expected), f"{question.text} of {', '.join(archive.paths)} (answer {number})"


def test_every_statistic_is_asked_for() -> None:
    assert {*itertools.chain(*STORED_METHODS.values()), "sum_of_weights"} == set(STATISTICS)


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_xarray(setting: Setting, kind: str) -> None:
    @_draw(EXAMPLES)
    @given(st.integers(0, ARCHIVES - 1), questions(kind))
    def check(seed: int, question: Question) -> None:
        found = _first_answer(setting, seed, question.text, portions.PORTION_BYTES)
        with with_numpy_only():
            least, most = (one.values for one in question.ask_xarray(setting.archive(seed).loaded))
        assert found.shape == least.shape
        close = 1e-3 + 1e-5 * np.abs(least)  # formulas of float32 are computed in float32 here
        missing = np.isnan(found) if found.dtype.kind == "f" else np.zeros(found.shape, bool)
        np.testing.assert_array_equal(missing, np.isnan(least) if least.dtype.kind == "f" else missing)
        assert ((found >= least - close) & (found <= most + close) | missing).all(), question.text

    check()


@pytest.mark.parametrize(("kind", "way"), _pairs([way for way in WAYS if not WAYS[way].is_engine], KINDS))
def test_every_way_has_the_same_bits(setting: Setting, kind: str, way: str) -> None:
    stored = WAYS[way].stored

    @_draw(WAYS[way].examples)
    @given(st.integers(0, ARCHIVES - 1), questions(kind, stored=stored))
    def check(seed: int, question: Question) -> None:
        expected = _first_answer(setting, seed, question.text, portions.PORTION_BYTES)
        _assert_same_bits(setting, setting.archive(seed), way, question, expected)

    check()


@pytest.mark.parametrize(("kind", "way"), _pairs([way for way in WAYS if WAYS[way].here], KINDS))
def test_the_same_bits_in_small_portions(
    setting: Setting, kind: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that an executor and Dask have something to do, and kept values are cut, too."""
    monkeypatch.setattr(portions, "PORTION_BYTES", SMALL_PORTIONS)

    @_draw(WAYS[way].examples)
    @given(st.integers(0, ARCHIVES - 1), questions(kind))
    def check(seed: int, question: Question) -> None:
        expected = _first_answer(setting, seed, question.text, SMALL_PORTIONS)
        _assert_same_bits(setting, setting.archive(seed), way, question, expected)

    check()


@pytest.fixture(scope="session")
def large(setting: Setting) -> Archive:
    made = make_large_archive(setting.folder)
    with made.open() as ds:
        assert ds.x.size * ds.x.dtype.itemsize > PORTION
    return made


@functools.cache
def _first_large_answer(archive: Archive, question: Question) -> Any:
    return question.ask(archive.open()).values


@pytest.mark.parametrize("kind", LARGE_QUESTIONS)
def test_large_values_are_those_of_xarray(large: Archive, kind: str) -> None:
    question = LARGE_QUESTIONS[kind]
    with xr.open_mfdataset(large.paths, engine="netcdf4") as opened, with_numpy_only():
        wanted, _ = question.ask_xarray(opened.load())
    np.testing.assert_allclose(_first_large_answer(large, question), wanted, rtol=1e-10)


@pytest.mark.parametrize(("kind", "way"), _pairs(LARGE_WAYS, LARGE_QUESTIONS))
def test_large_arrays_have_the_same_bits(setting: Setting, large: Archive, kind: str, way: str) -> None:
    """Arrays of more than one portion, which servers with the same data share."""
    question = LARGE_QUESTIONS[kind]
    _assert_same_bits(setting, large, way, question, _first_large_answer(large, question))
