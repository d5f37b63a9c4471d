"""The `encoding` of a variable as xarray's engines give it: chunks, filters and their levels.

Writing a dataset again with this encoding gives a file like the one that was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from insitu.model import VirtualArray

__all__ = ["NETCDF", "stored_encoding"]

NETCDF = ("hdf5", "dmrpp")
"""Formats that xarray's netCDF engines read."""

DIGITS = "least_significant_digit"
"""An attribute by which netCDF4 rounds when it writes: its engine counts it as encoding."""
FLAGS = {"zlib": "zlib", "zstd": "zstd", "bz2": "bzip2", "shuffle": "shuffle", "fletcher32": "fletcher32"}
"""Codecs that netCDF4 reports as a bool, and its name for them."""
BLOSC = {
    "blosclz": "blosc_lz",
    "lz4": "blosc_lz4",
    "lz4hc": "blosc_lz4hc",
    "zlib": "blosc_zlib",
    "zstd": "blosc_zstd",
}
SZIP_NN = 32
"""Bit of szip's options: nearest neighbour coding; else entropy coding."""


def stored_encoding(
    array: VirtualArray, attributes: Mapping[str, Any], format: str | None
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return a variable's encoding as xarray's engine names it, and the remaining attributes.

    Parameters
    ----------
    array
        As scanned.
    attributes
        Of the variable.
    format
        Of its file.
    """
    found = _chunks(array, format)
    if DIGITS in attributes and format in (*NETCDF, "netcdf3"):
        found[DIGITS] = attributes[DIGITS]
        attributes = {key: value for key, value in attributes.items() if key != DIGITS}
    return found, attributes


def _chunks(array: VirtualArray, format: str | None) -> dict[str, Any]:
    if not array.tiles or not array.details.is_chunking_known:
        return {}
    chunks = array.details.chunks
    if format not in NETCDF:
        if chunks is None:
            return {}
        return {"chunks": tuple(chunks), "preferred_chunks": dict(zip(array.dims, chunks, strict=False))}
    codecs = {codec.name: codec.configuration for codec in array.tiles[0].encodings[0].codecs}
    found = _filters(codecs)
    found["contiguous"] = chunks is None
    found["chunksizes"] = None if chunks is None else tuple(chunks)
    if chunks is not None:
        found["preferred_chunks"] = dict(zip(array.dims, chunks, strict=False))
    return found


def _filters(codecs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the filters as `netCDF4.Variable.filters` does; LZF as h5netcdf does."""
    found: dict[str, Any] = {"zlib": False, "szip": False, "zstd": False, "bzip2": False, "blosc": False}
    found |= {"shuffle": False, "fletcher32": False, "complevel": 0}
    for name, configuration in codecs.items():
        level = configuration.get("level", configuration.get("clevel"))
        if name in FLAGS:
            found[FLAGS[name]] = True
        elif name == "blosc":
            compressor = BLOSC.get(str(configuration.get("cname")), "blosc_lz")
            found["blosc"] = {"compressor": compressor, "shuffle": int(configuration.get("shuffle", 0))}
        elif name == "szip":
            coding = "nn" if int(configuration.get("options_mask", 0)) & SZIP_NN else "ec"
            found["szip"] = {"coding": coding, "pixels_per_block": int(configuration.get("pixels_per_block", 0))}
        elif name == "lzf":
            found |= {"compression": "lzf", "compression_opts": None}
            continue
        else:
            continue
        if isinstance(level, (int, np.integer)):
            found["complevel"] = int(level)
    return found
