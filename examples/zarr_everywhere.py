"""A mosaic of files that differ, read by zarr-python and xarray as if it were a Zarr store."""

import numpy as np
import xarray as xr
import zarr
from archive import make

import insitu

ds = insitu.open_mfdataset(make())
ds.insitu.save("archive.insitu")

store = insitu.zarr_store("archive.insitu")
group = zarr.open_group(store, mode="r")
print(group.tree() if hasattr(group, "tree") else group)
np.testing.assert_array_equal(group["tas"][200, 10:20], ds.tas[200, 10:20].values)
xr.testing.assert_equal(xr.open_zarr(store).compute(), ds.compute())
print("zarr-python and xarray see the same values")
