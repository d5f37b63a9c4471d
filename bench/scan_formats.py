"""How long does it take to find every chunk of NetCDF-3, GRIB, TIFF, FITS, DMR++, HDF4 and Zarr
files, beside kerchunk, VirtualiZarr, gribberish, cfgrib and virtual-tiff?

    python bench/scan_formats.py [--quick] [--case
    netcdf3|netcdf3_many|grib|grib_many|tiff|tiff_many|fits|dmrpp|hdf4|zarr|zarr_zip] [--only NAME]

With `--http` the same files come from a server that adds 50 ms to each request; requests, round
trips and bytes are counted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import machine
from archives import folder
from latency_server import LatencyServer
from table import Contestant, Target, arguments, compete, show

KERCHUNK, VIRTUALIZARR, VIRTUAL_TIFF = "kerchunk", "VirtualiZarr", "virtual-tiff"
TIFFFILE = "tifffile"
GRIBBERISH, CFGRIB = "gribberish", "cfgrib (index)"


def records(path: Path, quick: bool) -> None:
    """Ten record variables of 24 KB a record, interleaved."""
    import netCDF4

    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as file:
        file.set_fill_off()
        file.createDimension("time", None)
        file.createDimension("x", 6000)
        for number in range(10):
            file.createVariable(f"v{number}", "f4", ("time", "x")).units = "K"
        for number in range(10):
            file[f"v{number}"][: 50 if quick else 2000] = number


def many_netcdf3(path: Path, quick: bool) -> None:
    """Many small files of five variables and their coordinates."""
    import netCDF4

    path.mkdir()
    for number in range(10 if quick else 200):
        with netCDF4.Dataset(path / f"file_{number:04d}.nc", "w", format="NETCDF3_CLASSIC") as file:
            for dim, size in (("time", 12), ("lat", 32), ("lon", 64)):
                file.createDimension(dim, size)
                file.createVariable(dim, "f8", (dim,))[:] = np.arange(size)
            for name in ("tas", "pr", "psl", "uas", "vas"):
                variable = file.createVariable(name, "f4", ("time", "lat", "lon"))
                variable.setncatts({"units": "K", "long_name": name * 8, "cell_methods": "time: mean"})
                variable[:] = number


def _messages(file: Any, steps: range, levels: int, names: int, date: int = 20240101) -> None:
    """GRIB 2: fields of one degree on pressure levels, simple packing of 12 bits."""
    import eccodes

    handle = eccodes.codes_grib_new_from_samples("regular_ll_pl_grib2")
    keys: dict[str, Any] = {
        "Ni": 360,
        "Nj": 181,
        "iDirectionIncrementInDegrees": 1,
        "jDirectionIncrementInDegrees": 1,
        "latitudeOfFirstGridPointInDegrees": 90,
        "latitudeOfLastGridPointInDegrees": -90,
        "longitudeOfLastGridPointInDegrees": 359,
        "bitsPerValue": 12,
        "dataDate": date,
    }
    for key, value in keys.items():
        eccodes.codes_set(handle, key, value)
    eccodes.codes_set_values(handle, np.random.default_rng(0).normal(280, 20, 360 * 181))
    parameters = [
        "t",
        "u",
        "v",
        "gh",
        "q",
        "r",
        "w",
        "vo",
        "d",
        "o3",
        "clwc",
        "ciwc",
        "cc",
        "crwc",
        "cswc",
        "z",
        "pv",
        "absv",
        "strf",
        "vp",
    ]
    for step in steps:
        for name in parameters[:names]:
            for level in np.linspace(1000, 50, levels).astype(int):
                for key, value in (("shortName", name), ("level", int(level)), ("step", step)):
                    eccodes.codes_set(handle, key, value)
                file.write(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)


def grib(path: Path, quick: bool) -> None:
    """A file of 1,200 messages."""
    with path.open("wb") as file:
        _messages(file, range(2 if quick else 6), 5 if quick else 10, 4 if quick else 20)


def many_gribs(path: Path, quick: bool) -> None:
    """Many files of a run each."""
    path.mkdir()
    for number in range(4 if quick else 60):
        with (path / f"run_{number:04d}.grib2").open("wb") as file:
            _messages(file, range(1), 5, 4, 20240101 + number % 28)


def _raster(path: Path, side: int) -> None:
    import rasterio
    import rasterio.shutil
    from affine import Affine

    values = np.random.default_rng(0).integers(0, 9, (1, side, side)).astype("u1")
    profile = {
        "count": 1,
        "height": side,
        "width": side,
        "dtype": "u1",
        "crs": "EPSG:32633",
        "transform": Affine(10, 0, 3e5, 0, -10, 5e6),
    }
    with rasterio.MemoryFile() as memory:
        with memory.open(driver="GTiff", **profile) as file:
            file.write(values)
        with memory.open() as file:
            rasterio.shutil.copy(file, path, driver="COG", blocksize=128, compress="deflate")


def cog(path: Path, quick: bool) -> None:
    """A Cloud Optimized GeoTIFF of some 16,000 tiles, with overviews."""
    _raster(path, 2048 if quick else 16384)


def many_cogs(path: Path, quick: bool) -> None:
    """Many small ones."""
    path.mkdir()
    for number in range(5 if quick else 100):
        _raster(path / f"scene_{number:04d}.tif", 1024)


def units(path: Path, quick: bool) -> None:
    """Three hundred images with headers of eighty cards."""
    from astropy.io import fits

    images = [fits.PrimaryHDU()]
    for number in range(10 if quick else 300):
        image = fits.ImageHDU(np.zeros((64, 64), "f4"), name=f"SCI{number}")
        for card in range(80):
            image.header[f"KEY{card}"] = card * 1.5
        images.append(image)
    fits.HDUList(images).writeto(path)


def side_file(path: Path, quick: bool) -> None:
    """A document with 200,000 chunks."""
    side = 30 if quick else 200
    with path.open("w") as file:
        file.write(
            '<Dataset xmlns="http://xml.opendap.org/ns/DAP/4.0#" '
            'xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#" name="a.nc">'
        )
        for number in range(5):
            file.write(
                f'<Float32 name="v{number}"><Dim size="{side * 10}"/><Dim size="{side * 10}"/>'
                '<dmrpp:chunks compressionType="shuffle deflate" deflateLevel="4" fillValue="0" byteOrder="LE">'
                "<dmrpp:chunkDimensionSizes>10 10</dmrpp:chunkDimensionSizes>"
            )
            for i, j in np.ndindex(side, side):
                file.write(
                    f'<dmrpp:chunk offset="{(i * side + j) * 400}" nBytes="400" '
                    f'chunkPositionInArray="[{i * 10},{j * 10}]"/>'
                )
            file.write("</dmrpp:chunks></Float32>")
        file.write("</Dataset>")


def hdf4(path: Path, quick: bool) -> None:
    """Datasets of 256 chunks each, deflated, as MODIS has them."""
    import ctypes

    import pyhdf._hdfext as ext
    from pyhdf.SD import SD, SDC

    class Definition(ctypes.Structure):
        _fields_ = (("lengths", ctypes.c_int32 * 32), ("rest", ctypes.c_int32 * 64))

    library = ctypes.CDLL(ext.__file__)
    library.SDsetchunk.argtypes = [ctypes.c_int32, Definition, ctypes.c_int32]
    file = SD(str(path), SDC.WRITE | SDC.CREATE)
    for number in range(3 if quick else 20):
        dataset = file.create(f"Cloud_{number:02d}", SDC.INT16, (640, 640))
        definition = Definition()
        definition.lengths[0] = definition.lengths[1] = 40
        definition.rest[0], definition.rest[1], definition.rest[2] = 4, 4, 5  # deflate, level 5
        library.SDsetchunk(dataset._id, definition, 3)
        dataset[:] = np.random.default_rng(number).integers(0, 999, (640, 640)).astype("i2")
        dataset.units = "K"
        dataset.endaccess()
    file.end()


def zarr_store(path: Path, quick: bool) -> None:
    """A store of 20 arrays of 400 chunks each; consolidated."""
    import warnings

    import zarr

    warnings.simplefilter("ignore")
    root = zarr.open_group(path, mode="w", zarr_format=3)
    for number in range(3 if quick else 20):
        array = root.create_array(f"v{number:02d}", shape=(200, 200), chunks=(10, 10), dtype="f4")
        array[...] = number + 1.0
    zarr.consolidate_metadata(path)


def zipped_store(path: Path, quick: bool) -> None:
    """The same store as one zip file."""
    import tempfile
    import zipfile

    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store.zarr"
        zarr_store(store, quick)
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(store.rglob("*")):
                if file.is_file():
                    archive.write(file, file.relative_to(store))


Case = tuple[str, Callable[[Path, bool], None], str, dict[str, str]]
CASES: dict[str, Case] = {
    "netcdf3": (
        "NetCDF-3: 10 variables x 2,000 records",
        records,
        "records.nc",
        {KERCHUNK: "kerchunk_netcdf3", VIRTUALIZARR: "virtualizarr_netcdf3"},
    ),
    "netcdf3_many": (
        "NetCDF-3: 200 files of 8 variables",
        many_netcdf3,
        "many_netcdf3",
        {KERCHUNK: "kerchunk_netcdf3", VIRTUALIZARR: "virtualizarr_netcdf3"},
    ),
    "grib": (
        "GRIB 2: 1,200 messages",
        grib,
        "fields.grib2",
        {KERCHUNK: "kerchunk_grib", GRIBBERISH: "gribberish", CFGRIB: "cfgrib_index"},
    ),
    "grib_many": (
        "GRIB 2: 60 files of 20 messages",
        many_gribs,
        "many_gribs",
        {KERCHUNK: "kerchunk_grib", GRIBBERISH: "gribberish", CFGRIB: "cfgrib_index"},
    ),
    "tiff": (
        "COG: 16,384 tiles and overviews",
        cog,
        "cog.tif",
        {KERCHUNK: "kerchunk_tiff", VIRTUAL_TIFF: "virtual_tiff", TIFFFILE: "tifffile"},
    ),
    "tiff_many": (
        "COG: 100 files of 64 tiles",
        many_cogs,
        "many_cogs",
        {KERCHUNK: "kerchunk_tiff", VIRTUAL_TIFF: "virtual_tiff", TIFFFILE: "tifffile"},
    ),
    "fits": ("FITS: 300 images", units, "units.fits", {KERCHUNK: "kerchunk_fits", VIRTUALIZARR: "virtualizarr_fits"}),
    "dmrpp": ("DMR++: 200,000 chunks", side_file, "side.nc.dmrpp", {VIRTUALIZARR: "virtualizarr_dmrpp"}),
    "hdf4": (
        "HDF4: 20 datasets of 256 chunks",
        hdf4,
        "modis.hdf",
        {KERCHUNK: "kerchunk_hdf4", VIRTUALIZARR: "virtualizarr_hdf4"},
    ),
    "zarr": ("Zarr: 20 arrays of 400 chunks", zarr_store, "store.zarr", {VIRTUALIZARR: "virtualizarr_zarr"}),
    "zarr_zip": (
        "Zarr in a zip file: 20 arrays of 400 chunks",
        zipped_store,
        "store.zarr.zip",
        {VIRTUALIZARR: "virtualizarr_zip"},
    ),
}
WARM = {"netcdf3_many": "netcdf3", "grib_many": "grib", "tiff_many": "tiff"}
RATIO = 5


def _made(case: str, quick: bool) -> Path:
    _, make, name, _ = CASES[case]
    path = folder() / f"formats{'-quick' if quick else ''}" / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"part-{os.getpid()}-{name}")
        make(part, quick)
        part.rename(path)
    return path


def _touched(files: list[Path]) -> str:
    """What of the files our scan looks at."""
    import insitu

    with insitu.trace() as cost:
        for file in files:
            insitu.scan(file, decode=False)
    whole = sum(part.stat().st_size for file in files for part in ([file] if file.is_file() else file.rglob("*")))
    return f"insitu touched {cost.bytes:,} of {whole:,} bytes, in {cost.requests:,} reads."


def main() -> None:
    """Run all cases."""
    over_http = "--http" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--http"]
    options = arguments(__doc__)
    print(machine.describe())
    for case in options.case or CASES:
        title, _, _, peers = CASES[case]
        path, warm = _made(case, options.quick), _made(WARM.get(case, case), True)
        several = path.is_dir() and path.suffix != ".zarr"
        files = sorted(path.iterdir()) if several else [path]
        chosen = {"insitu": "insitu_zarr" if case == "zarr" else "insitu"} | {
            n: call for n, call in peers.items() if not options.only or n in options.only
        }

        def contestants(paths: list[str], warm: Path = warm, chosen: dict[str, str] = chosen) -> list[Contestant]:
            return [
                Contestant(n, f"format_scanners:{call}", {"paths": paths, "warm": str(warm)})
                for n, call in chosen.items()
            ]

        targets = [Target(name, RATIO) for name in peers]
        if not over_http:
            show(title, compete(contestants([str(file) for file in files]), rounds=options.rounds), targets=targets)
            if case != "zarr":  # its metadata are files of their own, read whole
                print(f"\n{_touched(files)}")
            continue
        with LatencyServer(path if several else path.parent) as server:
            paths = [f"{server.url}/{file.name}" for file in files]
            counts: dict[str, Any] = {"before": server.reset, "after": server.stats}
            show(
                f"{title}; HTTP, 50 ms added to each request",
                compete(contestants(paths), rounds=1, **counts),
            )


if __name__ == "__main__":
    main()
