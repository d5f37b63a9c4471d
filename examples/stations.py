"""Time series at many places: a vectorised selection reads each chunk once, whatever the number of
stations.
"""

import numpy as np
import xarray as xr
from archive import make

import insitu

ds = insitu.open_mfdataset(make())
random = np.random.default_rng(0)
stations = xr.Dataset(
    {"lat": ("station", random.uniform(-80, 80, 200)), "lon": ("station", random.uniform(0, 355, 200))},
    {"station": [f"S{number:03}" for number in range(200)]},
)
series = ds.tas.sel(lat=stations.lat, lon=stations.lon, method="nearest").load()
print(series.sizes)
print(series.mean("time").to_series().describe())
assert series.shape == (366, 200)
