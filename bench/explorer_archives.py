"""Archives that are large to look at: a picture of 100,000 × 100,000 pixels with overviews, an ocean
model of four dimensions, ten thousand files of a day each, and ten files of a year of daily maps.

Writing takes seconds: the bytes of a few compressed chunks are written again and again, each at a
place of its own, so that a reader has to fetch as much as from a real archive.
"""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["daily_files", "large_cog", "ocean_model", "ten_years"]

TILE = 512
SHADES = 64
TYPE_SIZES = {3: 2, 4: 4, 16: 8}
"""Bytes of TIFF's SHORT, LONG and LONG8 (BigTIFF design, "Field types")."""


def large_cog(path: Path, quick: bool) -> None:
    """A Cloud Optimized GeoTIFF of 100,000 × 100,000 bytes with all overviews: 51,000 tiles."""
    side = 8_000 if quick else 100_000
    pool = _shaded_tiles()
    levels = []
    while not levels or levels[-1] > TILE:
        levels.append(side if not levels else -(-levels[-1] // 2))
    counts = [-(-level // TILE) for level in levels]
    directories = [_directory(level, count) for level, count in zip(levels, counts, strict=True)]
    for entries in directories[1:]:
        entries[0] = (254, 4, [1])  # of reduced resolution
    # The directories come first, then the smallest overview, the full picture last.
    places, at = [], 16
    for entries in directories:
        places.append(at)
        at += 8 + 20 * len(entries) + 8 + sum(_outside_bytes(kind, values) for _, kind, values in entries)
    data: list[tuple[int, list[int]]] = []
    tables: dict[int, tuple[list[int], list[int]]] = {}
    for number in reversed(range(len(levels))):
        shades = _shades(counts[number])
        sizes = [len(pool[shade]) for shade in shades]
        offsets = (at + np.cumsum([0, *sizes])[:-1]).tolist()
        at += sum(sizes)
        tables[number] = (offsets, sizes)
        data.append((number, shades))
    with path.open("wb") as file:
        file.write(struct.pack("<2sHHHQ", b"II", 43, 8, 0, places[0]))
        for number, entries in enumerate(directories):
            offsets, sizes = tables[number]
            filled = [(tag, kind, {324: offsets, 325: sizes}.get(tag, values)) for tag, kind, values in entries]
            following = places[number + 1] if number + 1 < len(places) else 0
            file.write(_directory_bytes(filled, places[number], following))
        for _, shades in data:
            file.write(b"".join(pool[shade] for shade in shades))


def _shaded_tiles() -> list[bytes]:
    """Compressed tiles of some shades of grey, with noise."""
    noise = np.random.default_rng(0).integers(0, 3, (TILE // 8, TILE // 8), np.uint8).repeat(8, 0).repeat(8, 1)
    return [zlib.compress((noise + np.uint8(shade * 3 + 10)).tobytes(), 1) for shade in range(SHADES)]


def _shades(count: int) -> list[int]:
    """The shade of each tile of a level: rings around the centre, the same on all levels."""
    place = (np.arange(count) + 0.5) / count - 0.5
    distance = np.hypot(place[:, None], place[None, :]) * 2
    shades: list[int] = np.minimum(distance * SHADES * 0.7, SHADES - 1).astype(int).ravel().tolist()
    return shades


Entry = tuple[int, int, list[int]]


def _directory(side: int, count: int) -> list[Entry]:
    """The entries of an image: tag, type, values; those of the tiles are filled in later (TIFF 6, section 8)."""
    tiles = [0] * (count * count)
    return [
        (254, 4, [0]),
        (256, 4, [side]),
        (257, 4, [side]),
        (258, 3, [8]),
        (259, 3, [8]),
        (262, 3, [1]),
        (277, 3, [1]),
        (284, 3, [1]),
        (322, 4, [TILE]),
        (323, 4, [TILE]),
        (324, 16, tiles),
        (325, 4, tiles),
        (339, 3, [1]),
    ]


def _outside_bytes(kind: int, values: list[int]) -> int:
    size = TYPE_SIZES[kind] * len(values)
    return size if size > 8 else 0


def _directory_bytes(entries: list[Entry], place: int, following: int) -> bytes:
    """A directory of BigTIFF with the values that do not fit into its entries behind it."""
    rows, outside = [], b""
    behind = place + 8 + 20 * len(entries) + 8
    for tag, kind, values in entries:
        packed = np.array(values, f"<u{TYPE_SIZES[kind]}").tobytes()
        if len(packed) > 8:
            where = struct.pack("<Q", behind + len(outside))
            outside += packed
        else:
            where = packed.ljust(8, b"\0")
        rows.append(struct.pack("<HHQ", tag, kind, len(values)) + where)
    return struct.pack("<Q", len(entries)) + b"".join(rows) + struct.pack("<Q", following) + outside


def ocean_model(path: Path, quick: bool) -> None:
    """Temperature of 24 times, 40 depths, 1,000 × 1,200 points: 4.6 GB of float32, packed and compressed."""
    import h5py

    shape = (4, 10, 250, 300) if quick else (24, 40, 1000, 1200)
    chunk = (1, 10, 250, 300)
    with h5py.File(path, "w") as file:
        for name, size, units in (("time", shape[0], "days since 2000-01-01"), ("depth", shape[1], "m")):
            axis = file.create_dataset(name, data=np.arange(size, dtype="f8") * 5)
            axis.attrs["units"] = units
            axis.make_scale(name)
        for name, size in (("y", shape[2]), ("x", shape[3])):
            file.create_dataset(name, data=np.arange(size)).make_scale(name)
        grid = np.meshgrid(np.linspace(-70, 70, shape[2]), np.linspace(0, 359, shape[3]), indexing="ij")
        for name, values, units in zip(("nav_lat", "nav_lon"), grid, ("degrees_north", "degrees_east"), strict=True):
            found = file.create_dataset(name, data=values.astype("f4"), chunks=chunk[2:], compression="gzip")
            found.attrs["units"] = units
            _attach(found, file, ("y", "x"))
        how = {"compression": "gzip", "shuffle": True, "fillvalue": -32768}
        variable = file.create_dataset("thetao", shape, "<i2", chunks=chunk, **how)
        variable.attrs.update(
            scale_factor=np.float32(0.001), add_offset=np.float32(10), _FillValue=np.int16(-32768), units="degC",
            long_name="sea water potential temperature", coordinates="nav_lat nav_lon",
        )  # fmt: skip
        _attach(variable, file, ("time", "depth", "y", "x"))
        pool = [_ocean_chunk(number, chunk) for number in range(16)]
        for number, cell in enumerate(np.ndindex(*(n // c for n, c in zip(shape, chunk, strict=True)))):
            corner = tuple(at * size for at, size in zip(cell, chunk, strict=True))
            variable.id.write_direct_chunk(corner, pool[number % len(pool)])


def _attach(variable: Any, file: Any, dims: tuple[str, ...]) -> None:
    for number, name in enumerate(dims):
        variable.dims[number].attach_scale(file[name])


def _ocean_chunk(number: int, shape: tuple[int, ...]) -> bytes:
    """Waves with noise, and land in a corner; shuffled and compressed as HDF5 does it."""
    random = np.random.default_rng(number)
    y, x = np.mgrid[: shape[2], : shape[3]]
    waves = 8000 * np.sin(y / 40 + number) * np.cos(x / 30) + np.linspace(5000, -5000, shape[1])[:, None, None]
    values = (waves[None] + random.normal(0, 40, shape)).astype("<i2")
    values[..., : 60 + 5 * number, : 40 + 3 * number] = -32768
    shuffled = np.frombuffer(values.tobytes(), np.uint8).reshape(-1, 2).T.tobytes()
    return zlib.compress(shuffled, 1)


def ten_years(path: Path, quick: bool) -> None:
    """Ten files of a year each: daily maps of one degree, a chunk for each, 950 MB decoded."""
    import h5py

    path.mkdir()
    height, width = (36, 72) if quick else (180, 360)
    random = np.random.default_rng(0)
    zones = 280 + 20 * np.cos(np.deg2rad(np.linspace(-89.5, 89.5, height)))[:, None]
    maps = [np.round(64 * (zones + random.normal(0, 2, (height, width)))) / 64 for _ in range(32)]
    pool = [zlib.compress(values.astype("<f4").tobytes(), 4) for values in maps]
    for year in range(10):
        with h5py.File(path / f"tas_{2001 + year}.nc", "w") as file:
            for name, labels, units in (
                ("time", np.arange(365) + 365 * year, "days since 2001-01-01"),
                ("lat", np.linspace(-89.5, 89.5, height), "degrees_north"),
                ("lon", np.arange(width) * 360 / width, "degrees_east"),
            ):
                axis = file.create_dataset(name, data=labels)
                axis.attrs["units"] = units
                axis.make_scale(name)
            shape = 365, height, width
            variable = file.create_dataset("tas", shape, "<f4", chunks=(1, height, width), compression="gzip")
            for day in range(365):
                variable.id.write_direct_chunk((day, 0, 0), pool[(7 * day + year) % 32])
            variable.attrs["units"] = "K"
            _attach(variable, file, ("time", "lat", "lon"))


def daily_files(path: Path, quick: bool) -> None:
    """10,000 files of one day each: maps of one degree with a scale factor of their own."""
    import h5py

    path.mkdir()
    template = path.with_name(f"{path.name}.template")
    marker = np.float64(1.2345678901234567e100)
    with h5py.File(template, "w", libver="earliest") as file:
        for name, values, units in (
            ("time", np.full(1, marker), "days since 1990-01-01"),
            ("lat", np.linspace(-89.5, 89.5, 180), "degrees_north"),
            ("lon", np.arange(360.0), "degrees_east"),
        ):
            axis = file.create_dataset(name, data=values)
            axis.attrs["units"] = units
            axis.make_scale(name)
        noise = np.random.default_rng(0).normal(0, 300, (180, 360))
        waves = 9000 * np.cos(np.deg2rad(np.linspace(-89.5, 89.5, 180)))[:, None] + noise
        variable = file.create_dataset("tas", data=waves[None].astype("<i2"), chunks=(1, 90, 180), compression="gzip")
        variable.attrs.update(scale_factor=marker, add_offset=np.float64(250), units="K", long_name="air temperature")
        _attach(variable, file, ("time", "lat", "lon"))
    # The format of 1.8 has no checksums: the two numbers of each file are put into a copy.
    data = bytearray(template.read_bytes())
    template.unlink()
    places = [at for at in range(len(data) - 7) if data[at : at + 8] == marker.tobytes()]
    if len(places) != 2:
        raise RuntimeError(f"the template has {len(places)} places to change, not 2")
    with h5py.File(io.BytesIO(bytes(data))) as file:
        time = file["time"].id.get_offset()
    for number in range(200 if quick else 10_000):
        for place in places:
            value = float(number) if place == time else 0.003 + 1e-7 * number
            data[place : place + 8] = np.float64(value).tobytes()
        (path / f"day_{number:05d}.nc").write_bytes(data)
