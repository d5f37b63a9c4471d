"""Files that are alike can be saved in the forms of others: kerchunk for fsspec and zarr, Icechunk
for everybody with icechunk.
"""

import warnings

import xarray as xr
from archive import make

import insitu

warnings.filterwarnings("ignore")  # zarr-python has something to say about numcodecs' codecs
ds = insitu.open_mfdataset(make(alike=True))
expected = ds.compute()

ds.insitu.save("refs.json")
theirs = xr.open_dataset(
    "reference://", engine="zarr", backend_kwargs={"consolidated": False, "storage_options": {"fo": "refs.json"}}
)
xr.testing.assert_allclose(theirs.compute(), expected)
print("kerchunk JSON, read by fsspec and zarr-python: equal")

try:
    import icechunk
except ImportError:
    print("icechunk is not installed")
else:
    ds.insitu.save("refs.icechunk", message="A year of maps")
    storage = icechunk.local_filesystem_storage("refs.icechunk")
    config = icechunk.Repository.fetch_config(storage)
    free = getattr(icechunk.credentials, "LocalFileSystemAccess", None)
    access = dict.fromkeys(config.virtual_chunk_containers, free)
    session = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access).readonly_session("main")
    xr.testing.assert_allclose(xr.open_zarr(session.store, consolidated=False).compute(), expected)
    print("Icechunk, read by icechunk and zarr-python: equal")

mosaic = insitu.open_mfdataset(make("mosaic"))
try:
    mosaic.insitu.save("mosaic.json")
except insitu.errors.UnsupportedError as problem:
    print("files that differ:", problem)
