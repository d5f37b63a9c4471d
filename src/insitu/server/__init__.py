"""SERVE: decode and reduce next to the data.

| route | what it does |
|---|---|
| `POST /v2/{count,max,min,select,sum}` | the Reductionist protocol: one chunk a request (`compatible`) |
| `POST /reduce`, `POST /read` | many arrays in one request, merged before they travel (`batch`) |
| `GET /zarr/…!/…`, `/zarr2/…!/…` | any archive as a Zarr store, V3 or V2 (`zarr_view`) |
| `GET /health`, `/ready`, `/metrics`, `/openapi.json` | how it is, what it did, what it can |

A worker (`worker`) takes requests one after the other as memory allows (`admission`), reads from its roots only (`allowed`, and
`insitu.sources.access_policy` for everything that a request leads to), and passes Basic credentials on to the storage (`credentials`).
"""

from insitu.server.app import create_app
from insitu.server.run import run
from insitu.server.settings import Limits, Settings

__all__ = ["Limits", "Settings", "create_app", "run"]
