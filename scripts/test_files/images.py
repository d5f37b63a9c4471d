"""TIFF by GDAL (as rasterio calls it), tifffile and Pillow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from registry import by, field


def write_raster(
    count: int = 1,
    dtype: str = "float32",
    shape: tuple[int, int] = (70, 90),
    crs: str | None = "EPSG:32632",
    **profile: Any,
) -> Callable[[Path], None]:
    """Return a function that writes an image with rasterio."""

    def write(path: Path) -> None:
        import rasterio
        from rasterio.transform import from_origin

        values = field(count, *shape) if dtype[0] == "f" else field(count, *shape) % 250
        options = dict(profile)
        step, corner = (10, (-180, 90)) if crs == "EPSG:4326" else (30, (500_000, 5_400_000))
        if crs is not None:
            options.update(crs=crs, transform=from_origin(*corner, step, step))
        driver = options.pop("driver", "GTiff")
        if "SPARSE_OK" in options:
            values[:, :, :40] = 0
        with rasterio.open(
            path, "w", driver=driver, count=count, dtype=dtype, height=shape[0], width=shape[1], **options
        ) as file:
            file.write(values.astype(dtype))
            if crs is not None:
                file.update_tags(1, units="K")
                file.set_band_description(1, "temperature")

    return write


for _name, _write in {
    "gdal_plain.tif": write_raster(crs=None),
    "gdal_deflate_float_predictor.tif": write_raster(
        2, "float32", compress="deflate", predictor=3, tiled=True, blockxsize=32, blockysize=32
    ),
    "gdal_lzw_predictor_planar.tif": write_raster(3, "uint16", compress="lzw", predictor=2, interleave="band"),
    "gdal_zstd_big.tif": write_raster(1, "float64", compress="zstd", BIGTIFF="YES", nodata=-1),
    "gdal_packbits_bits.tif": write_raster(1, "uint8", compress="packbits", nbits=4),
    "gdal_big_endian.tif": write_raster(2, "int16", ENDIANNESS="BIG", interleave="pixel"),
    "gdal_sparse.tif": write_raster(1, "uint8", SPARSE_OK="TRUE", tiled=True, blockxsize=16, blockysize=16),
    "gdal_cog.tif": write_raster(
        3, "uint8", (300, 260), driver="COG", blocksize=128, compress="deflate", overview_resampling="average"
    ),
}.items():
    by(f"tiff/{_name}", "rasterio")(_write)


def _tifffile(shape: tuple[int, ...], dtype: str, **options: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        import tifffile

        values = field(*shape) if dtype[-2] == "f" else field(*shape) % 250
        tifffile.imwrite(path, values.astype(dtype), **options)

    return write


for _name, _write in {
    "tifffile_pages.tif": _tifffile((3, 40, 50), "<u2", photometric="minisblack", compression="zlib"),
    "tifffile_rgb_tiles.tif": _tifffile((64, 48, 3), "<u1", photometric="rgb", tile=(16, 32), compression="lzma"),
    "tifffile_imagej.tif": _tifffile((4, 30, 30), ">u2", imagej=True, metadata={"axes": "ZYX"}),
    "tifffile_half_float.tif": _tifffile((33, 17), "<f2", compression="zstd"),
    "tifffile_big.tif": _tifffile((20, 30), "<f8", bigtiff=True, rowsperstrip=3),
}.items():  # fmt: skip
    by(f"tiff/{_name}", "tifffile")(_write)


def _pillow(mode: str, **options: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        from PIL import Image

        Image.fromarray((field(50, 61) % 250).astype("u1")).convert(mode).save(path, **options)

    return write


for _name, _write in {
    "fax4": _pillow("1", compression="group4"),
    "lzw": _pillow("L", compression="tiff_lzw"),
    "palette": _pillow("P"),
}.items():
    by(f"tiff/pillow_{_name}.tif", "pillow")(_write)
