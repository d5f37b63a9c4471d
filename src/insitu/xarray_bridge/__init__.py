"""Virtual arrays inside xarray: the duck array, opening datasets, the engine `insitu`, the accessor `ds.insitu`."""

from insitu.xarray_bridge.accessor import InsituAccessor
from insitu.xarray_bridge.lazy import LazyArray
from insitu.xarray_bridge.open_many import open_mfdataset
from insitu.xarray_bridge.opening import open_dataset, open_datatree, open_groups
from insitu.xarray_bridge.options import Options, options

__all__ = [
    "InsituAccessor",
    "LazyArray",
    "Options",
    "open_dataset",
    "open_datatree",
    "open_groups",
    "open_mfdataset",
    "options",
]
