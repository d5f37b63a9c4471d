"""Pictures of sparse arrays of many terabytes show what was written, and say how much that is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from insitu.sources.listing import list_some_objects
from server.explorer.client import Explorer
from server.serving import serving

pytestmark = pytest.mark.servers
zarr = pytest.importorskip("zarr")

PLACES = [(50, 100_000, 50_000), (50, 3400, 199_000), (7, 0, 0)]


@pytest.fixture(scope="module", params=[2, 3])
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    folder = tmp_path_factory.mktemp("sparse")
    group = zarr.open_group(str(folder / "s.zarr"), mode="w", zarr_format=request.param)
    names = {"dimension_names": ["t", "y", "x"]} if request.param == 3 else {}
    array = group.create_array("w", shape=(500, 200_000, 200_000), chunks=(1, 100, 100), dtype="f4", **names)
    if request.param == 2:
        array.attrs["_ARRAY_DIMENSIONS"] = ["t", "y", "x"]
    for number, (t, y, x) in enumerate(PLACES):
        array[t, y : y + 100, x : x + 100] = number + 1
    with serving([folder], folder / "serve.log") as running:
        yield Explorer(running, str(folder / "s.zarr"))


def test_what_was_written_is_shown(api: Explorer) -> None:
    """A chunk of 100 × 100 elements is smaller than a pixel of 250 × 334."""
    found = api.picture("field", variable="w", index={"t": 50}, rows=600, columns=800)
    assert found.header["written"]["chunks"] == 3
    assert found.header["written"]["cells"] == 500 * 2000 * 2000
    assert found.header["written"]["here"] == 2
    assert found.header["sampling"]["share"] == 1
    values = np.nan_to_num(found.arrays["values"])  # of Zarr V2 the fill value is a missing value
    shown = {tuple(pixel): values[tuple(pixel)] for pixel in np.argwhere(values != 0)}
    step_y, step_x = found.header["sampling"]["step"]
    assert shown == {(int(y // step_y), int(x // step_x)): number + 1.0 for number, (_, y, x) in enumerate(PLACES[:2])}


def test_where_nothing_was_written(api: Explorer) -> None:
    found = api.picture("field", variable="w", index={"t": 0})
    assert not np.nan_to_num(found.arrays["values"]).any()
    assert found.header["written"] == {
        "chunks": 3, "cells": 500 * 2000 * 2000, "here": 0, "first": {"t": 7, "y": 0, "x": 0}
    }  # fmt: skip


def test_a_closer_look_is_exact(api: Explorer) -> None:
    found = api.picture("field", variable="w", index={"t": 50}, box=[99_950, 100_150, 49_990, 50_110])
    expected = np.zeros((200, 120), "f4")
    expected[50:150, 10:110] = 1
    np.testing.assert_array_equal(np.nan_to_num(found.arrays["values"]), expected)
    assert found.header["written"] is None


def test_a_listing_ends_at_the_limit(api: Explorer) -> None:
    keys = list_some_objects(f"{api.url}/w", 10)
    assert keys is not None
    assert len(keys) in (4, 5)  # three chunks and what describes the array
    assert list_some_objects(f"{api.url}/w", 2) is None
