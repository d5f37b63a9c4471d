"""Every route of the server, asked without credentials, with wrong ones, with those of another tenant, and with the
right ones. A route that is not in the table fails: whoever adds one says who may use it.

Modules: server/access.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import cbor2
import pytest
from starlette import requests
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from insitu.active.wire_array import array_to_wire
from insitu.model import Encoding
from insitu.reducing.chunk_storage import chunk_array
from insitu.server import Settings, create_app
from insitu.server.access import get_client
from insitu.sources.storage_options import detach_secrets
from server.in_process import Request, ask_app
from server.private_site import ANN, BOB, VALUES, Site, login
from server.serving import Answer

EVERYBODY = "everybody"
"""Says nothing about archives, clients or roots."""
CLIENTS = "clients"
"""Whoever has a token, whatever the storage lets them read."""
READERS = "readers"
"""Whoever has a token and may read the archive in the storage."""


@dataclass
class Use:
    """A request to a route, and who may send it."""

    route: str
    who: str
    request: Callable[[str], Request]
    """Makes the request to read below a URL."""


def get(route: str, who: str, path: str | None = None, **query: str) -> Use:
    """A use of a route by GET; `{site}` in the path and in the query is the place of the archive."""
    return Use(
        route,
        who,
        lambda site: Request(
            "GET",
            (path or route).replace("{site}", site),
            query={name: value.replace("{site}", site) for name, value in query.items()},
        ),
    )


def explore(name: str, **query: str) -> Use:
    return get(f"/explorer/api/{name}", READERS, url="{site}/x.nc", **query)


def chunk(site: str) -> dict[str, Any]:
    return {"interface_type": "http", "url": f"{site}/raw", "dtype": "int32", "byte_order": "big", "shape": [600]}


def table(**job: Any) -> Callable[[str], bytes]:
    """A batch of one job that brings the location of its chunks."""

    def body(site: str) -> bytes:
        array = chunk_array(f"{site}/raw", 0, VALUES.nbytes, Encoding(VALUES.dtype), VALUES.shape)
        return cbor2.dumps({"jobs": [{"array": array_to_wire(array), **job}]})

    return body


def post(route: str, body: Callable[[str], Any], path: str | None = None) -> Use:
    def request(site: str) -> Request:
        made = body(site)
        kind = "application/cbor" if isinstance(made, bytes) else "application/json"
        return Request("POST", path or route, made, {"content-type": kind})

    return Use(route, READERS, request)


PUBLIC = [
    get("/health", EVERYBODY),
    get("/ready", EVERYBODY),
    get("/openapi.json", EVERYBODY),
    get("/.well-known/reductionist-schema", EVERYBODY),
    get("/", EVERYBODY),
    get("/explorer/page/{name:path}", EVERYBODY, "/explorer/page/main.js"),
    get("/explorer/api/server", EVERYBODY),
    *(
        Use(
            f"/{name}/{{rest:path}}",
            EVERYBODY,
            lambda site, name=name: Request("OPTIONS", f"/{name}/{site}/x.nc!/"),
        )
        for name in ("zarr", "zarr2")
    ),
]
EXPLORED = [
    *PUBLIC,
    get("/metrics", CLIENTS),
    get("/zarr/{rest:path}", READERS, "/zarr/{site}/x.nc!/v/c/0"),
    get("/zarr2/{rest:path}", READERS, "/zarr2/{site}/x.nc!/v/0"),
    get("/explorer/api/list", CLIENTS),
    explore("archive"),
    explore("coordinate", dimension="row"),
    explore("field", variable="plane"),
    explore("formula", formula="plane + 1"),
    explore("geometry", variable="placed"),
    explore("line", variable="v"),
    explore("point", variable="v", index='{"x": 3}'),
    explore("range", variable="maps", along="row"),
    explore("region", variable="plane"),
    explore("table", variable="v"),
    explore("download", variable="plane"),
    explore("chunks", variable="v"),
    explore("chunk", variable="v", index='{"x": 0}'),
]
SERVED = [
    *EXPLORED,
    get("/explorer/api/list", READERS, folder="{site}/"),
    post("/v2/{operation}", chunk, "/v2/sum"),
    post("/keepdims/v2/{operation}", chunk, "/keepdims/v2/max"),
    post("/reduce", table(methods=["sum"])),
    post("/reduce", lambda site: {"jobs": [{"url": f"{site}/x.nc", "variable": "v", "methods": ["sum"]}]}),
    post("/read", table()),
    post("/read", lambda site: {"jobs": [{"url": f"{site}/x.nc", "variable": "v"}]}),
    post("/scan", lambda site: {"url": f"{site}/x.nc"}),
]

WRONG: list[dict[str, str]] = [
    {},
    login("ann", "guess"),
    login("eve"),
    {"Authorization": "Bearer guess"},
    {"Authorization": "Bearer "},
    {"X-Insitu-Token": ""},
    {"X-Insitu-Token": "ann"},
]


def routes_of(app: Any) -> set[tuple[str, str]]:
    """Method and path of each route; HEAD goes where GET goes."""
    while not isinstance(app, Starlette):
        app = app.app
    found = set()
    for route in app.routes:
        assert isinstance(route, Route), f"{route}: this test walks plain routes"
        assert route.methods is not None, f"{route.path} answers every method"
        found |= {(method, route.path) for method in route.methods - {"HEAD"}}
    return found


def described(uses: list[Use]) -> set[tuple[str, str]]:
    return {(use.request("http://host").method, use.route) for use in uses}


def is_refusal(answer: Answer) -> bool:
    return answer.status == 401 and set(json.loads(answer.body)) == {"error"}


def walk(settings: Settings, uses: list[Use], site: str, right: dict[str, str], wrong: list[dict[str, str]]) -> None:
    """Ask each route: with the wrong credentials before and after the right ones, whose answer is then in a cache."""
    requested = [
        (use, headers, replace(request, method=method, headers={**request.headers, **headers}))
        for use in uses
        for request in [use.request(site)]
        for method in (["GET", "HEAD"] if request.method == "GET" else [request.method])
        for headers in (*wrong, right, *wrong, right)
    ]
    answers = ask_app(create_app(settings), *(request for _, _, request in requested))
    for (use, headers, _), answer in zip(requested, answers, strict=True):
        about = (use.route, headers, answer.status, answer.body[:300])
        if headers is right or use.who == EVERYBODY:
            assert answer.status in (200, 204), about
        else:
            assert is_refusal(answer), about
        if headers is not right:
            assert b"hush" not in answer.body, about
            assert b"x.nc" not in answer.body or use.who == READERS, about


def settings_for(site: Site) -> Settings:
    return Settings(roots=(site.url,), tokens=("ann:hush", "bob:hush"))


def test_served_routes(site: Site) -> None:
    assert routes_of(create_app(settings_for(site))) == described(SERVED), "say in SERVED who may use a new route"
    walk(settings_for(site), SERVED, f"{site.url}/header", ANN, WRONG)


def test_another_tenant(site: Site) -> None:
    """Bob has a token, but the storage does not let him read what ann reads."""
    private = [use for use in SERVED if use.who == READERS]
    walk(settings_for(site), private, f"{site.url}/header", ANN, [BOB])
    shared = [use.request(site.url) for use in SERVED if use.who == CLIENTS]
    for answer in ask_app(create_app(settings_for(site)), *(replace(one, headers=BOB) for one in shared)):
        assert answer.status == 200


@pytest.mark.parametrize("secret", ["ann:hush@", ""])
def test_explored_routes(site: Site, secret: str) -> None:
    """With a token, and the user's password in the URL or in the storage options."""
    here = {"Host": "127.0.0.1"}
    url, options = f"http://{secret}{site.url.partition('://')[2]}/header/x.nc", {} if secret else {"headers": ANN}
    url, options = detach_secrets(url, options)
    settings = Settings(archives=(url,), tokens=("sesame",), storage_options=options)
    assert routes_of(create_app(settings)) == described(EXPLORED), "say in EXPLORED who may use a new route"
    right, wrong = {**here, "Authorization": "Bearer sesame"}, [{**here, **headers} for headers in [*WRONG, ANN, BOB]]
    walk(settings, EXPLORED, f"{site.url}/header", right, wrong)


def test_a_route_that_nobody_listed_is_closed(site: Site) -> None:
    """Whatever it forgets to check: it has no client unless the middleware let one in."""
    app: Any = create_app(settings_for(site))
    inner = app
    while not isinstance(inner, Starlette):
        inner = inner.app

    async def forgetful(request: requests.Request) -> Response:
        return Response(get_client(request).name or "")

    inner.router.routes += [Route("/new", forgetful), Route("/explorer/new", forgetful)]
    for path in ("/new", "//new", "/explorer/new"):
        refused, allowed = ask_app(app, Request("GET", path), Request("GET", path, headers=ANN))
        assert is_refusal(refused), path
        assert (allowed.status, allowed.body) == (200, b"ann"), path
    for path in ("/explorer/api/new", "/v2/new", "/health/new", "/explorer/pages", "/explorer/page"):
        refused, allowed = ask_app(app, Request("GET", path), Request("GET", path, headers=ANN))
        assert is_refusal(refused), path
        assert allowed.status in (404, 405), path
    with pytest.raises(KeyError):  # of a public path, there is no client
        get_client(requests.Request({"type": "http", "headers": []}))
