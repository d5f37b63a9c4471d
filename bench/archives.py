"""Which files are the benchmarks run on, and how is each one made again, the same, on any machine?

Each maker writes one file (or one folder of files) from a fixed seed. They are made once and kept
in the folder that `INSITU_BENCH_DIR` names (`.bench/` of this repository if it is not set, ignored
by git); `quick` makes a small one beside it.

    python bench/archives.py              # make all of them
    python bench/archives.py --quick      # small ones
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MAKERS", "archive", "folder"]

CHUNK = (16, 256, 256)  # 4 MiB of float32: not contiguous in the array, as in most archives


def folder() -> Path:
    """Where the files are kept."""
    return Path(os.environ.get("INSITU_BENCH_DIR") or Path(__file__).parents[1] / ".bench")


def archive(name: str, *, quick: bool = False) -> Path:
    """Give the path of an archive, making it first if it is not there."""
    make, suffix = MAKERS[name]
    path = folder() / (f"{name}-quick{suffix}" if quick else f"{name}{suffix}")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"part-{os.getpid()}-{path.name}")
        make(part, quick)
        part.rename(path)
    return path


def million_chunks(path: Path, quick: bool) -> None:
    """1,000,000 chunks of 16 bytes in one dataset, indexed by a version 1 B-tree."""
    import h5py

    side = 100 if quick else 1000
    with h5py.File(path, "w", libver="earliest") as file:
        data = np.arange(side * side * 4, dtype="f4").reshape(side, side * 4)
        file.create_dataset("x", data=data, chunks=(1, 4))


def cmip_like(path: Path, quick: bool) -> None:
    """500 files such as a climate model leaves: 5 variables of 20 chunks, coordinates with bounds,
    30 attributes.
    """
    path.mkdir()
    for number in range(20 if quick else 500):
        _cmip_file(path / f"model_{number:04d}.nc", number)


def _cmip_file(path: Path, number: int) -> None:
    import netCDF4

    random = np.random.default_rng(number)
    steps, rows, columns = 20, 16, 32
    with netCDF4.Dataset(path, "w") as file:
        for index in range(30):
            file.setncattr(f"global_attribute_{index:02d}", f"a value that is about as long as one in CMIP6, {index}")
        file.tracking_id = f"hdl:21.14100/{number:08d}"
        for name, length in (("time", None), ("lat", rows), ("lon", columns), ("bnds", 2)):
            file.createDimension(name, length)
        coordinates = {
            "time": (number * steps + np.arange(steps) + 0.5, "days since 1850-01-01", "T"),
            "lat": (np.linspace(-85, 85, rows), "degrees_north", "Y"),
            "lon": (np.linspace(0, 350, columns), "degrees_east", "X"),
        }
        for name, (values, units, axis) in coordinates.items():
            variable = file.createVariable(name, "f8", (name,))
            variable.setncatts({"standard_name": name, "units": units, "axis": axis, "bounds": f"{name}_bnds"})
            variable[:] = values
            width = np.gradient(values) / 2
            file.createVariable(f"{name}_bnds", "f8", (name, "bnds"))[:] = np.stack([values - width, values + width], 1)
        for name in ("tas", "pr", "psl", "uas", "vas"):
            variable = file.createVariable(
                name,
                "f4",
                ("time", "lat", "lon"),
                zlib=True,
                complevel=4,
                chunksizes=(1, rows, columns),
                fill_value=np.float32(1e20),
            )
            variable.setncatts(
                {
                    "standard_name": f"standard_name_of_{name}",
                    "long_name": f"the long name of {name}",
                    "units": "K",
                    "cell_methods": "area: time: mean",
                    "cell_measures": "area: areacella",
                    "missing_value": np.float32(1e20),
                    "comment": "near-surface (usually, 2 meter)",
                    "original_name": name.upper(),
                }
            )
            variable[:] = random.normal(280, 10, (steps, rows, columns)).astype("f4")


def head(path: Path, quick: bool) -> None:
    """100 variables, 100 MB, with all the metadata in one block at the head of the file."""
    import h5py

    variables, random = (10 if quick else 100), np.random.default_rng(1)
    with h5py.File(path, "w", libver="earliest", meta_block_size=1 << 20) as file:
        for number in range(variables):
            dataset = file.create_dataset(f"variable_{number:03d}", (4, 256, 256), "f4", chunks=(1, 256, 256))
            for name in ("units", "long_name", "standard_name", "cell_methods"):
                dataset.attrs[name] = f"{name} of variable {number}"
        for dataset in file.values():
            dataset[...] = random.random((4, 256, 256), dtype="f4")


def scattered(path: Path, quick: bool) -> None:
    """100 variables of 240 chunks, 290 MB, written step by step: the nodes of the B-trees lie all
    over the file.
    """
    import netCDF4

    variables, steps, rows, columns = (10 if quick else 100), (60 if quick else 240), 48, 64
    random = np.random.default_rng(2)
    with netCDF4.Dataset(path, "w") as file:
        for name, length in (("time", None), ("y", rows), ("x", columns)):
            file.createDimension(name, length)
        made = []
        for number in range(variables):
            variable = file.createVariable(
                f"variable_{number:03d}", "f4", ("time", "y", "x"), chunksizes=(1, rows, columns)
            )
            variable.units, variable.long_name = "K", f"variable number {number}"
            made.append(variable)
        for step in range(steps):
            for variable in made:
                variable[step] = random.random((rows, columns), dtype="f4")


def _weather(shape: tuple[int, int, int], slab: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Give slabs of a field like a temperature: waves that move, and noise that a sensor or a
    model's turbulence would have.
    """
    random = np.random.default_rng(3)
    y, x = np.meshgrid(np.linspace(0, 6, shape[1], dtype="f4"), np.linspace(0, 6, shape[2], dtype="f4"), indexing="ij")
    for first in range(0, shape[0], slab):
        count = min(slab, shape[0] - first)
        out = np.empty((count, *shape[1:]), "f4")
        for step in range(count):
            out[step] = 280 + 20 * np.sin(y + 0.01 * (first + step)) * np.cos(x) + 3 * np.sin(5 * x + 3 * y)
            out[step] += random.standard_normal(out[step].shape, dtype="f4") * np.float32(0.1)
        yield first, out


def _dataset(path: Path, shape: tuple[int, int, int], chunks: tuple[int, int, int], **how: Any) -> None:
    """Write the field with h5py, with the attributes that xarray and the virtual peers take
    dimension names from.
    """
    import h5py

    with h5py.File(path, "w", libver="earliest") as file:
        scales = []
        for name, length in zip(("time", "y", "x"), shape, strict=True):
            scale = file.create_dataset(name, data=np.arange(length, dtype="f8"))
            scale.make_scale(name)
            scales.append(scale)
        dataset = file.create_dataset("t", shape, "f4", chunks=chunks, **how)
        for axis, scale in enumerate(scales):
            dataset.dims[axis].attach_scale(scale)
        for first, slab in _weather(shape, chunks[0]):
            dataset[first : first + len(slab)] = slab


def _big(quick: bool) -> tuple[int, int, int]:
    return (32, 512, 512) if quick else (256, 1024, 1024)


def zlib(path: Path, quick: bool) -> None:
    """1.07 GB of float32 in 4 MiB chunks: shuffle, then deflate at level 4."""
    _dataset(path, _big(quick), CHUNK, shuffle=True, compression="gzip", compression_opts=4)


def zstd(path: Path, quick: bool) -> None:
    """The same field: shuffle, then zstd at level 3."""
    import hdf5plugin

    _dataset(path, _big(quick), CHUNK, shuffle=True, **hdf5plugin.Zstd(clevel=3))


def plain(path: Path, quick: bool) -> None:
    """The same field, uncompressed."""
    _dataset(path, _big(quick), CHUNK)


def small_chunks(path: Path, quick: bool) -> None:
    """102,400 chunks of 4 kB (before compression): shuffle, then deflate."""
    side = 64 if quick else 320
    shape = (1, side * 32, side * 32)
    _dataset(path, shape, (1, 32, 32), shuffle=True, compression="gzip", compression_opts=4)


def zarr_copy(of: str, compressor: str | None) -> Callable[[Path, bool], None]:
    """Make the maker of a native Zarr 3 copy of an archive, for the peers that read nothing else.

    They know no separate shuffle codec: blosc, which shuffles inside, is the nearest that both of
    them decode.
    """

    def make(path: Path, quick: bool) -> None:
        import h5py
        import zarr
        from zarr.codecs import BloscCodec

        codecs = BloscCodec(cname=compressor, clevel=4, shuffle="shuffle", typesize=4) if compressor else None
        with h5py.File(archive(of, quick=quick)) as file:
            source = file["t"]
            copy = zarr.create_array(
                path, shape=source.shape, chunks=source.chunks, dtype="f4", compressors=codecs, zarr_format=3
            )
            for first in range(0, source.shape[0], source.chunks[0]):
                copy[first : first + source.chunks[0]] = source[first : first + source.chunks[0]]

    return make


MAKERS: dict[str, tuple[Callable[[Path, bool], None], str]] = {
    "million_chunks": (million_chunks, ".h5"),
    "cmip_like": (cmip_like, ""),
    "head": (head, ".h5"),
    "scattered": (scattered, ".nc"),
    "zlib": (zlib, ".h5"),
    "zstd": (zstd, ".h5"),
    "plain": (plain, ".h5"),
    "small_chunks": (small_chunks, ".h5"),
    "zlib_copy": (zarr_copy("zlib", "zlib"), ".zarr"),
    "zstd_copy": (zarr_copy("zstd", "zstd"), ".zarr"),
    "plain_copy": (zarr_copy("plain", None), ".zarr"),
    "small_chunks_copy": (zarr_copy("small_chunks", "zlib"), ".zarr"),
}


def main() -> None:
    """Make them all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(MAKERS), help="which ones (all)")
    parser.add_argument("--quick", action="store_true", help="small ones")
    parser.add_argument("--again", action="store_true", help="make them even if they are there")
    options = parser.parse_args()
    for name in options.names:
        if options.again:
            path = folder() / (f"{name}{'-quick' if options.quick else ''}{MAKERS[name][1]}")
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path = archive(name, quick=options.quick)
        size = (
            sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            if path.is_dir()
            else path.stat().st_size
        )
        print(f"{path}  {size / 1e6:,.1f} MB", flush=True)


if __name__ == "__main__":
    main()
