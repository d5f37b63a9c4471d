"""Virtual arrays inside xarray: opening datasets, the engine `insitu`, the accessor `ds.insitu`.

What stays virtual: selecting (also of points), concat, merge, transpose, expand and squeeze,
broadcast, reindex and align, pad, shift, roll; element-wise arithmetic, where, isnull, astype;
rolling and coarsen; copy, pickle. Reductions stream. Everything else reads: the values up to
`options.read_limit`, above that as a Dask array. Assigning to elements reads the variable first, up
to the same limit.

What does not work, by xarray's design: `xr.apply_ufunc` needs `dask="allowed"` or `"parallelized"`;
a dataset that holds both Dask arrays and virtual ones cannot be loaded (call `ds.chunk()`: then all
are Dask arrays).
"""

from typing import TYPE_CHECKING

from insitu.forking import lazy_attributes
from insitu.xarray_bridge.open_functions import (
    open_dataset,
    open_datatree,
    open_forecasts,
    open_groups,
    open_mfdataset,
    open_mfdatatree,
)

if TYPE_CHECKING:
    from insitu.lazy_array.duck_array import LazyArray
    from insitu.process_options import Options, options
    from insitu.xarray_bridge.accessor import InsituAccessor

__all__ = [
    "InsituAccessor",
    "LazyArray",
    "Options",
    "open_dataset",
    "open_datatree",
    "open_forecasts",
    "open_groups",
    "open_mfdataset",
    "open_mfdatatree",
    "options",
]

# Opening functions are named without what opens.
__getattr__ = lazy_attributes(
    __name__,
    {
        "InsituAccessor": "insitu.xarray_bridge.accessor",
        "LazyArray": "insitu.lazy_array.duck_array",
        "Options": "insitu.process_options",
        "options": "insitu.process_options",
    },
)
