"""GRIB by ecCodes, FITS by astropy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from registry import by, field


def _grib(sample: str, *packings: str, **keys: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        import eccodes

        with path.open("wb") as file:
            for number, packing in enumerate(packings):
                handle = eccodes.codes_grib_new_from_samples(sample)
                for key, value in {**keys, "level": 1000 - 100 * number}.items():
                    eccodes.codes_set(handle, key, value)
                size = eccodes.codes_get_size(handle, "values")
                values = field(size, seed=number, dtype="f8")
                eccodes.codes_set_values(handle, values)
                eccodes.codes_set(handle, "packingType", packing)
                if number == 1:
                    eccodes.codes_set(handle, "bitmapPresent", 1)
                    values[::7] = eccodes.codes_get(handle, "missingValue")
                eccodes.codes_set_values(handle, values)
                eccodes.codes_write(handle, file)
                eccodes.codes_release(handle)

    return write


_PRESSURE = {"typeOfLevel": "isobaricInhPa"}
for _name, _write in {
    "eccodes_edition1.grib": _grib("regular_ll_pl_grib1", "grid_simple", "grid_simple", "grid_second_order"),
    "eccodes_edition2.grib2": _grib(
        "regular_ll_pl_grib2",
        "grid_simple",
        "grid_simple",
        "grid_ccsds",
        "grid_complex",
        "grid_complex_spatial_differencing",
        "grid_jpeg",
    ),
    "eccodes_reduced_gaussian.grib2": _grib("reduced_gg_pl_32_grib2", "grid_simple", "grid_ccsds"),
    "eccodes_polar_stereographic.grib2": _grib("polar_stereographic_pl_grib2", "grid_simple"),
    "eccodes_ieee.grib2": _grib("regular_ll_pl_grib2", "grid_ieee"),
}.items():
    by(f"grib/{_name}", "eccodes")(_write)


@by("fits/astropy_images.fits", "astropy")
def _fits_images(path: Path) -> None:
    from astropy.io import fits

    units = [fits.PrimaryHDU(field(10, 12, dtype=">f4"))]
    for name, dtype in (("BYTE", "u1"), ("SHORT", "i2"), ("USHORT", "u2"), ("LONG", "i8"), ("DOUBLE", "f8")):
        units.append(fits.ImageHDU(field(4, 5, 6).astype(dtype), name=name))
    scaled = fits.ImageHDU(field(6, 7), name="SCALED")
    scaled.scale("int16", bscale=0.01, bzero=280)
    fits.HDUList([*units, scaled]).writeto(path)


@by("fits/astropy_tables.fits", "astropy")
def _fits_tables(path: Path) -> None:
    from astropy.io import fits

    ragged = np.array([np.arange(n, dtype="i4") for n in (3, 0, 2)], object)
    columns = [
        fits.Column("NUMBER", "J", array=np.arange(3)),
        fits.Column("VALUE", "D", array=field(3, dtype="f8")),
        fits.Column("NAME", "6A", array=np.array(["one", "two", ""])),
        fits.Column("VECTOR", "4E", array=field(3, 4)),
        fits.Column("FLAG", "L", array=np.array([True, False, True])),
        fits.Column("RAGGED", "PJ()", array=ragged),
    ]
    table = fits.BinTableHDU.from_columns(columns, name="BINARY")
    text = fits.TableHDU.from_columns(
        [fits.Column("A", "I6", array=np.arange(4)), fits.Column("B", "F9.3", array=field(4, dtype="f8").round(3))],
        name="TEXT",
    )
    fits.HDUList([fits.PrimaryHDU(), table, text]).writeto(path)


@by("fits/astropy_compressed.fits", "astropy")
def _fits_compressed(path: Path) -> None:
    from astropy.io import fits

    whole = (field(40, 50) * 10).astype("i4")
    units = [
        fits.CompImageHDU(whole, name=name, compression_type=f"{name}_1", tile_shape=(16, 20))
        for name in ("RICE", "GZIP", "HCOMPRESS", "PLIO")
    ]
    floating = fits.CompImageHDU(field(40, 50), name="FLOATING", compression_type="GZIP_2", quantize_level=0)
    fits.HDUList([fits.PrimaryHDU(), *units, floating]).writeto(path)
