"""The OpenAPI document describes the server, and nothing that it describes makes the server fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
from hypothesis import HealthCheck, settings
from starlette.routing import Route

from insitu import __version__
from insitu.active.wire_expression import MAX_ARRAYS, MAX_NODES, STEP_SETTINGS
from insitu.model.elementwise import ARGUMENT_COUNTS
from insitu.reducing.statistics import STATISTICS
from insitu.server.app import openapi_document
from insitu.server.explorer import explorer_routes
from insitu.server.jobs import ARRAY_FIELDS, CLIENT_OPTIONS, JOB_FIELDS, MAX_JOBS
from insitu.server.reductionist.operations import OPERATIONS
from insitu.server.reductionist.request import DTYPES, FIELDS
from insitu.server.settings import Settings
from insitu.server.worker import Worker
from server.serving import Server

schemathesis = pytest.importorskip("schemathesis")
lazy = pytest.importorskip("schemathesis.pytest.lazy")


def _in_json() -> dict[str, Any]:
    """What can be asked in JSON: schemathesis writes nothing else."""
    described = json.loads(openapi_document())
    for methods in described["paths"].values():
        for method in methods.values():
            method.get("requestBody", {}).get("content", {}).pop("application/cbor", None)
    return described


def _operations() -> list[str]:
    return [f"{method.upper()} {path}" for path, methods in _in_json()["paths"].items() for method in methods]


def test_every_route_is_described(server: Server) -> None:
    found = server.get("/openapi.json").json
    chunk_routes = {f"{prefix}/v2/{operation}" for prefix in ("", "/keepdims") for operation in OPERATIONS}
    own = {"/", "/reduce", "/read", "/scan", "/health", "/ready", "/metrics", "/openapi.json"}
    worker = Worker(Settings())
    explorer = {route.path for route in explorer_routes(worker) if isinstance(route, Route) and "/api/" in route.path}
    worker.close()
    assert len(explorer) >= 11
    assert chunk_routes | own | explorer == set(found["paths"])
    assert found == json.loads(openapi_document())
    assert found["info"]["version"] == __version__


def test_names_are_those_of_the_code() -> None:
    schemas = json.loads(openapi_document())["components"]["schemas"]
    chunk, reduce, read = (schemas[name]["properties"] for name in ("ChunkRequest", "ReduceJob", "ReadJob"))
    assert tuple(chunk["dtype"]["enum"]) == DTYPES
    assert set(chunk) == set(FIELDS)
    assert reduce["methods"]["items"]["enum"] == list(STATISTICS)
    assert set(reduce) == JOB_FIELDS
    assert set(read) < JOB_FIELDS
    _, operation, *steps = schemas["ExpressionNode"]["oneOf"]
    assert operation["properties"]["operation"]["enum"] == list(ARGUMENT_COUNTS)
    described: set[str] = set()
    for entries in (step["properties"] for step in steps):
        names = entries["step"].get("enum", [entries["step"].get("const")])
        assert all(set(entries) == {"step", "of", *STEP_SETTINGS[name]} for name in names)
        described |= set(names)
    assert described == set(STEP_SETTINGS)
    assert schemas["Expression"]["properties"]["nodes"]["maxItems"] == MAX_NODES
    assert schemas["Expression"]["properties"]["arrays"]["maxItems"] == MAX_ARRAYS
    assert set(schemas["ExpressionArray"]["properties"]) == set(ARRAY_FIELDS)
    assert schemas["ReduceRequest"]["properties"]["jobs"]["maxItems"] == MAX_JOBS
    assert tuple(schemas["StorageOptions"]["properties"]) == CLIENT_OPTIONS


@pytest.mark.parametrize("operation", _operations())
def test_nothing_described_makes_it_fail(operation: str, server: Server, root: Path) -> None:
    """As by `schema.parametrize`, which makes the cases of all operations, for 20 s, wherever tests are collected."""

    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
    def check(case: Any) -> None:
        _assert_no_failure(case, server, root)

    schema = schemathesis.openapi.from_dict(_in_json()).include(name=operation)
    (found,) = lazy.get_all_tests(schema=schema, test_func=check, settings=None, given_kwargs=None)
    _, run = found.ok()
    run()


def _assert_no_failure(case: Any, server: Server, root: Path) -> None:
    path = root / "fuzzed"
    if not path.exists():
        path.write_bytes(bytes(range(256)) * 16)
    body = case.body
    if isinstance(body, dict):  # else it would be refused for its URL, and nothing behind would be tried
        body = (
            {**body, "url": f"file://{path}", "interface_type": "file"}
            if "interface_type" in body and "url" in body
            else body
        )
        jobs = body.get("jobs")
        if isinstance(jobs, list):
            body = {
                **body,
                "jobs": [{**job, "url": str(path)} if isinstance(job, dict) and "url" in job else job for job in jobs],
            }
        case.body = body
    if "/explorer/" in case.path and "url" in (case.query or {}):
        archive = root / "fuzzed.nc"
        if not archive.exists():
            xarray.Dataset({"a": (("y", "x"), np.zeros((3, 4)))}).to_netcdf(archive)
        case.query |= {"url": str(archive), "variable": "a"}
    answer = case.call(base_url=server.url)
    assert answer.status_code < 500, (case.path, case.body, answer.text)
    if answer.status_code >= 400 and answer.status_code not in (404, 405):
        assert answer.json()["error"]["message"]
