"""What did a read cost? Requests, bytes, round trips; and what a cache of decoded chunks saves."""

from archive import make

import insitu

files = make()
ds = insitu.open_mfdataset(files, cache=64 << 20)
point = ds.tas.sel(lat=47.5, lon=10, method="nearest")
with insitu.trace() as first:
    values = point.values
with insitu.trace() as second:
    again = point.values
print("first: ", repr(first))
print("second:", repr(second))
assert (values == again).all()
assert second.bytes < first.bytes
