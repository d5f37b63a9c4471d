"""Histograms and approximate quantiles of datasets: NumPy's counts, xarray's looks, here and next
to the data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import insitu
from insitu.active.transport import client_for
from insitu.errors import InsituError, UnsupportedError
from insitu.reducing import portions
from insitu.reducing.sketches import CENTROIDS, RANK_ERROR_BOUND
from server.serving import Server

EDGES = np.linspace(250, 310, 25)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(4)
    values = rng.normal(280, 9, (40, 30, 50)).astype("f4")
    values[rng.random(values.shape) < 0.1] = np.nan
    values[0, 0, :3] = 250, 310, 252.5  # on edges
    made = xr.Dataset(
        {
            "t": (("time", "lat", "lon"), values, {"units": "K"}),
            "n": (("time",), rng.integers(240, 320, 40)),
            "name": ("lat", ["x"] * 30),
        },
        coords={"time": np.arange(40), "lat": np.arange(30.0), "place": ("lat", np.arange(30))},
    )
    made.t.encoding = {"zlib": True, "chunksizes": (16, 30, 20), "_FillValue": np.float32(1e20)}
    found: Path = tmp_path_factory.mktemp("distributions") / "d.nc"
    made.to_netcdf(found, engine="netcdf4")
    return found


@pytest.fixture(params=["here", "there", "there, in pieces", "in memory"])
def dataset(request: Any, path: Path, server: Server, plain: xr.Dataset, monkeypatch: pytest.MonkeyPatch) -> xr.Dataset:
    if request.param == "in memory":
        return plain
    if request.param == "here":
        return insitu.open_dataset(path)
    if "pieces" in request.param:
        monkeypatch.setattr(portions, "PORTION_CHUNKS", 3)
    return insitu.open_dataset(path, active=server.url, active_required=True)


@pytest.mark.parametrize("dim", [None, "time", ("lat", "lon"), ("lon", "time")])
def test_histograms(dataset: xr.Dataset, plain: xr.Dataset, dim: Any) -> None:
    found = dataset.insitu.histogram(EDGES, dim)
    assert list(found.data_vars) == ["t", "n"]
    assert found.t.dims == (*(d for d in plain.t.dims if dim is not None and d not in np.atleast_1d(dim)), "bin")
    gone = plain.t.dims if dim is None else tuple(np.atleast_1d(dim))
    expected = xr.apply_ufunc(
        lambda row: np.histogram(row[~np.isnan(row)], EDGES)[0],
        plain.t.stack(all_=gone).transpose(..., "all_"),
        input_core_dims=[["all_"]],
        output_core_dims=[["bin"]],
        vectorize=True,
    )
    np.testing.assert_array_equal(found.t.values, expected.values)
    assert found.t.dtype == np.int64
    np.testing.assert_array_equal(found.bin_left, EDGES[:-1])
    np.testing.assert_array_equal(found.bin_right, EDGES[1:])
    if "lat" not in gone:
        xr.testing.assert_identical(found.place.variable, plain.place.variable)


@pytest.mark.parametrize("q", [0.5, [0.05, 0.5, 0.95]])
@pytest.mark.parametrize("dim", [None, "time", ("lat", "lon")])
def test_quantiles(dataset: xr.Dataset, plain: xr.Dataset, dim: Any, q: Any) -> None:
    found = dataset.insitu.quantile(q, dim, approximate=True)
    expected = plain[["t", "n"]].quantile(q, dim)
    assert list(found.data_vars) == list(expected.data_vars)
    assert set(found.coords) == set(expected.coords)
    for name in expected.variables:
        assert found[name].dims == expected[name].dims
        assert found[name].dtype == expected[name].dtype
        assert found[name].attrs == expected[name].attrs
    for number, one in enumerate(np.atleast_1d(q)):
        off = RANK_ERROR_BOUND * np.sqrt(one * (1 - one)) / CENTROIDS + 0.03  # of few values a rank is a wide step
        low, high = plain.t.quantile(max(one - off, 0), dim), plain.t.quantile(min(one + off, 1), dim)
        values = found.t if np.ndim(q) == 0 else found.t.isel(quantile=number)
        assert ((values >= low - 1e-4) & (values <= high + 1e-4)).all()
    xr.testing.assert_allclose(
        insitu.open_dataset(plain.encoding["source"])[["n"]].insitu.quantile(q).load(), plain[["n"]].quantile(q)
    )


def test_one_request_for_a_variable(path: Path, server: Server) -> None:
    there = insitu.open_dataset(path, active=server.url, active_required=True)[["t"]]
    before = client_for(server.url).traffic.requests
    there.insitu.histogram(EDGES)
    there.insitu.quantile([0.1, 0.9], "time", approximate=True)
    assert client_for(server.url).traffic.requests - before == 2


def test_what_is_refused(path: Path, server: Server) -> None:
    actual = insitu.open_dataset(path)
    with pytest.raises(UnsupportedError, match="weights"):
        actual.insitu.histogram(EDGES, weights=actual.lat)
    for edges in ([1], [3, 2, 1], [0, np.nan]):
        with pytest.raises(InsituError):
            actual.insitu.histogram(edges)
    where = {"url": str(path), "variable": "t", "methods": ["histogram"]}
    for wrong in (
        {},
        {"edges": [2, 1]},
        {"edges": [1]},
        {"edges": ["x", "y"]},
        {"edges": {"a": 1}},
        {"edges": [1, 2], "groups": {"axis": 0, "codes": [0] * 40, "count": 1}},
    ):
        answer = server.post("/reduce", {"jobs": [{**where, **wrong}]})
        assert answer.status == 400, wrong
    wrong = {**where, "methods": ["tdigest"]}
    assert server.post("/reduce", {"jobs": [wrong]}).status == 400
    assert server.post("/reduce", {"jobs": [{**wrong, "q": 2}]}).status == 400
