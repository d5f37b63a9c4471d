"""Markers that tests get by what they do: where they lie, which fixtures they use, whether they
start a server.

| marker | a test has it that |
|---|---|
| `servers` | starts a server program (SeaweedFS, nginx, `insitu serve`, …), by itself or by a fixture |
| `corpus` | reads the large corpus of real files, which is not part of the project |
| `peers` | runs a peer (kerchunk, VirtualiZarr, GDAL, PyActiveStorage, zarrita.js) |
| `browser` | runs a browser, or a client that is made for browsers (zarrita.js, in Node) |
| `slow` | takes seconds; the table `SLOW` below names those that do not say so themselves |

Tests may carry the same markers by hand. `make quick` leaves all of them out.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]

STARTERS = {"serving", "started", "servers", "run_page", "run_steps", "free_port", "_running"}
"""Names of the functions and modules by which tests start servers in processes of their own."""
REMOTE = "remote/"
"""All tests of this folder need real servers; some ask for their fixtures only when they run."""

PEERS = ("references/test_peers.py", "server/test_active_storage.py", "server/test_zarr_view.py::test_gdal")
BROWSER = ("server/test_zarr_view.py::test_zarrita",)
SLOW = (
    "codecs/test_chain.py::test_bombs",
    "cli/test_cli.py", "cli/test_saved_archives.py", "cli/test_scan_and_read.py::test_a_killed_scan_goes_on",
    "cli/test_scan_and_read.py::test_scan_o",
    "combining/test_like_xarray.py", "xarray_bridge/test_open_many.py::test_dask_client",
    "xarray_bridge/test_open_many.py::test_executors_agree", "combining/test_combine_files_work.py",
    "examples/", "formats/fits/test_scan.py::test_flipped_bytes_do_no_harm",
    "formats/grib/test_inventory.py::test_at_random",
    "formats/grib/test_inventory.py::test_every_level_and_every_forecast",
    "formats/netcdf3/test_scan.py::test_flipped_bytes_do_no_harm",
    "formats/tiff/test_scan.py::test_flipped_bytes_do_no_harm", "fuzz/", "model/test_join_scale.py",
    "oracles/test_damage.py::test_a_damaged_file", "oracles/test_generated.py",
    "oracles/test_grib.py::test_datasets_are_those_of_cfgrib", "oracles/test_strange.py", "random_programs/",
    "active/test_wire.py::test_tables_that_were_tampered_with", "references/test_crashes.py",
    "server/explorer/test_page_files.py::test_the_bundle_is_what_the_pinned_versions_give",
    "server/explorer/test_page_files.py::test_types_that_contradict_are_a_failure",
    "server/test_crowd.py", "sources/test_http.py::test_batches_within_batches_do_not_lock_up",
)  # fmt: skip
"""Beginnings of the names of tests that take seconds, by the durations that `make test` prints."""


@pytest.hookimpl(tryfirst=True)  # before `-m` is evaluated, which happens in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its markers."""
    for item in items:
        for marker in _markers(item):
            item.add_marker(marker)


def _markers(item: pytest.Item) -> Iterator[str]:
    name = f"{_path_below_tests(item.path)}::{item.nodeid.partition('::')[2]}"
    if name.startswith(REMOTE) or any(map(_starts_server, _functions(item))):
        yield "servers"
    if "corpus" in getattr(item, "fixturenames", ()):
        yield "corpus"
    if name.startswith((*PEERS, *BROWSER)):
        yield "peers"
    if name.startswith(BROWSER):
        yield "browser"
    if name.startswith(SLOW):
        yield "slow"


@functools.cache  # one file has up to thousands of tests
def _path_below_tests(path: Path) -> str:
    return path.relative_to(TESTS).as_posix()


def _functions(item: pytest.Item) -> Iterator[Any]:
    """Yield the function of a test, and those of the fixtures that it uses."""
    function = getattr(item, "function", None)
    given = getattr(function, "hypothesis", None)
    yield getattr(given, "inner_test", function)
    fixtures = getattr(item, "_fixtureinfo", None)
    for definitions in fixtures.name2fixturedefs.values() if fixtures is not None else ():
        yield definitions[-1].func


@functools.cache  # one fixture serves thousands of tests
def _starts_server(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and not STARTERS.isdisjoint(code.co_names)
