"""Virtual arrays inside xarray: opening datasets, the engine `insitu`, the accessor `ds.insitu`.

What stays virtual: selecting (also of points), concat, merge, stack of whole dimensions, transpose,
expand and squeeze, broadcast, reindex and align, pad, shift, roll, where with a condition in
memory, isnull, astype, copy, pickle. Reductions stream. Everything else reads: the values up to
`options.read_limit`, above that as a Dask array. Assigning to elements reads the variable first, up
to the same limit.

What does not work, by xarray's design: `xr.apply_ufunc` needs `dask="allowed"` or `"parallelized"`;
a dataset that holds both Dask arrays and virtual ones cannot be loaded (call `ds.chunk()`: then all
are Dask arrays).
"""

from insitu.lazy_array.duck_array import LazyArray
from insitu.lazy_array.options import Options, options
from insitu.xarray_bridge.accessor import InsituAccessor
from insitu.xarray_bridge.open_many import open_mfdataset
from insitu.xarray_bridge.opening import open_dataset, open_datatree, open_groups

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
