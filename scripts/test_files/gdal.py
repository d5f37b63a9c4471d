"""FITS, GRIB 2, HDF4, NetCDF and Zarr by the GDAL of Debian (`gdal_translate`), from one GeoTIFF."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import images
from registry import Write, by

PROGRAM = "gdal_translate"


def _translate(driver: str, *options: str, dtype: str = "float32", crs: str = "EPSG:4326") -> Write:
    def write(path: Path) -> None:
        if shutil.which(PROGRAM) is None:
            raise SystemExit(f"no {PROGRAM} here: python scripts/clients.py install")
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "source.tif"
            images.write_raster(1, dtype, (18, 36), crs=crs)(source)
            command = [PROGRAM, "-q", "-of", driver, *options, str(source), str(path)]
            subprocess.run(command, check=True, timeout=60)
        path.with_name(f"{path.name}.aux.xml").unlink(missing_ok=True)

    return write


by("fits/gdal.fits", "GDAL")(_translate("FITS"))
by("grib/gdal_complex.grib2", "GDAL")(_translate("GRIB", "-co", "DATA_ENCODING=COMPLEX_PACKING"))
by("grib/gdal_png.grib2", "GDAL")(_translate("GRIB", "-co", "DATA_ENCODING=PNG"))
by("hdf5/gdal.nc", "GDAL")(_translate("netCDF", "-co", "FORMAT=NC4C", "-co", "COMPRESS=DEFLATE"))
by("netcdf3/gdal.nc", "GDAL")(_translate("netCDF", "-co", "FORMAT=NC2"))
by("hdf4/gdal.hdf", "GDAL")(_translate("HDF4Image", dtype="int16"))
