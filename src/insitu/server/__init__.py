"""The HTTP server: decodes and reduces arrays next to the data.

| route | what it does |
|---|---|
| `POST /v2/{count,max,min,select,sum}` | the Reductionist protocol: one chunk per request (`reductionist`) |
| `POST /reduce`, `POST /read` | many arrays in one request, merged before they are sent (`batch`) |
| `POST /scan` | the metadata of an archive, with the location of every chunk (`app`) |
| `GET /zarr/…!/…`, `/zarr2/…!/…` | any archive as a Zarr store, V3 or V2 (`zarr_view`) |
| `GET /`, `/explorer/…` | a page for browsers that shows archives, and its API (`explorer`) |
| `GET /health`, `/ready`, `/metrics`, `/openapi.json` | state, counters and description of the server (`app`) |

A worker process (`worker`) starts a request when there is memory for it (`admission`). It reads
only what lies under its roots (`roots`, enforced by `insitu.sources.access_policy` wherever a
source is opened), and it passes Basic credentials on to the storage (`credentials`).
"""

from insitu.server.app import create_app
from insitu.server.certificate_files import CertificateFiles
from insitu.server.log_format import log_config
from insitu.server.run import run
from insitu.server.settings import Limits, Settings

__all__ = ["CertificateFiles", "Limits", "Settings", "create_app", "log_config", "run"]
