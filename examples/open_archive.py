"""One dataset from files that differ; a mean; saved and opened again."""

from archive import make

import insitu

files = make()
ds = insitu.open_mfdataset(files)
print(ds)
print(ds.insitu.report())

july = ds.tas.sel(time="2020-07", lat=slice(30, 60)).mean("time")  # still nothing but metadata was read
print("July, 30°N to 60°N:", float(july.mean()), "K")

ds.insitu.save("archive.insitu")
again = insitu.open_dataset("archive.insitu")
assert again.compute().identical(ds.compute())
