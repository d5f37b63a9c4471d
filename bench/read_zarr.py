"""How fast are native Zarr V3 stores read, beside zarr-python, zarrs and TensorStore?

    python bench/read_zarr.py [--quick] [--case zstd|sharded|small_shards|slabs|noisy]

The stores are in the page cache: what is measured is the reader. The field is that of `read.py`,
rounded to sixteenths of a kelvin (as archives are, by packing or bit rounding: zstd then has
something to do); `noisy` is the same without rounding, where decoding zstd is nearly all there is
to do.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

import machine
from archives import _weather as weather
from archives import folder
from read import slabs
from table import Contestant, Target, arguments, compete, show

PEERS = {"zarr-python": "zarr_native", "zarrs": "zarrs", "TensorStore": "tensorstore"}
LAYOUTS: dict[str, dict[str, Any]] = {
    "zstd": {"chunks": (16, 256, 256)},
    "sharded": {"chunks": (16, 128, 128), "shards": (64, 512, 512)},
    "small_shards": {"chunks": (4, 32, 32), "shards": (64, 256, 256)},
    "noisy": {"chunks": (16, 256, 256)},
}
TITLES = {
    "zstd": "zstd, 4 MiB chunks",
    "sharded": "zstd, 1 MiB chunks in shards of 64 MiB",
    "small_shards": "zstd, 16 kB chunks in shards of 16 MiB",
    "slabs": "100 random small slabs of the sharded store",
    "noisy": "zstd, 4 MiB chunks, values that hardly compress",
}


def store(layout: str, quick: bool) -> Path:
    """A store of a field of float32 values."""
    import zarr
    from zarr.codecs import ZstdCodec

    path = folder() / f"v3-{layout}{'-quick' if quick else ''}.zarr"
    if not path.exists():
        shape = (64, 512, 512) if quick else (256, 1024, 1024)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"part-{os.getpid()}-{path.name}")
        array = zarr.create_array(
            part, shape=shape, dtype="f4", compressors=ZstdCodec(level=3), fill_value=0, **LAYOUTS[layout]
        )
        for begin, slab in weather(shape, 64):
            array[begin : begin + len(slab)] = slab if layout == "noisy" else np.round(slab * 16) / 16
        part.rename(path)
    return path


def main() -> None:
    """Run the cases."""
    options = arguments(__doc__)
    print(machine.describe())
    for case in options.case or TITLES:
        layout = "sharded" if case == "slabs" else case
        path, warm = str(store(layout, options.quick)), str(store(layout, True))
        shape = (64, 512, 512) if options.quick else (256, 1024, 1024)
        wanted = {"slabs": slabs(shape, 10 if options.quick else 100)} if case == "slabs" else {}
        contestants = [
            Contestant(name, f"zarr_readers:{call}", {"path": path, "warm": warm, **wanted})
            for name, call in {"insitu": "insitu", **PEERS}.items()
            if name == "insitu" or not options.only or name in options.only
        ]
        results = compete(contestants, rounds=options.rounds)
        show(TITLES[case], results, targets=[Target("zarr-python", 3), Target("zarrs", 1)])


if __name__ == "__main__":
    main()
