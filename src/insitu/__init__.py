"""Open any archive of scientific arrays as one dataset, without copying it."""

from typing import TYPE_CHECKING

from insitu import errors
from insitu.forking import lazy_attributes

if TYPE_CHECKING:
    from insitu.archive import Archive
    from insitu.maintenance import check, refresh
    from insitu.process_options import options
    from insitu.reading import ChunkCache
    from insitu.sources import trace
    from insitu.verbs import read, reduce, scan, zarr_store
    from insitu.xarray_bridge import (
        open_dataset,
        open_datatree,
        open_forecasts,
        open_mfdataset,
        open_mfdatatree,
    )

__all__ = [
    "Archive",
    "ChunkCache",
    "check",
    "errors",
    "open_dataset",
    "open_datatree",
    "open_forecasts",
    "open_mfdataset",
    "open_mfdatatree",
    "options",
    "read",
    "reduce",
    "refresh",
    "scan",
    "trace",
    "zarr_store",
]
__version__ = "0.1.0"

# Imported when first asked for: a program that only names insitu, or scans one file, should not wait for
# NumPy, xarray and Arrow.
_MODULES = {
    "Archive": "insitu.xarray_bridge.archive_dataset",
    "ChunkCache": "insitu.reading",
    "check": "insitu.maintenance",
    "open_dataset": "insitu.xarray_bridge",
    "open_datatree": "insitu.xarray_bridge",
    "open_forecasts": "insitu.xarray_bridge",
    "open_mfdataset": "insitu.xarray_bridge",
    "open_mfdatatree": "insitu.xarray_bridge",
    "options": "insitu.process_options",
    "read": "insitu.verbs",
    "reduce": "insitu.verbs",
    "refresh": "insitu.maintenance",
    "scan": "insitu.verbs",
    "trace": "insitu.sources",
    "zarr_store": "insitu.verbs",
}


__getattr__ = lazy_attributes(__name__, _MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
