"""Which files are worth changing?

The generated ones of the tests that are not too large, and a few more that have much in little:
every kind of index in its deep form, heaps of every kind, one file in another.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
from anatomy import Anatomy, dissected
from h5py import h5d, h5p, h5s, h5t
from isolation import generate

__all__ = ["Seed", "seeds_in"]

LARGEST = 256 << 10
Seed = tuple[str, bytes, Anatomy]


def seeds_in(folder: Path) -> list[Seed]:
    """Write the files into a folder; give name, bytes and structures of each."""
    made = generate(folder)
    for maker in (indexes, heaps, odd_sizes, nested):
        for libver in ("earliest", "latest"):
            path = folder / f"{maker.__name__}-{libver}.h5"
            maker(path, libver)
            made[path.stem] = path
    small = [(name, path.read_bytes()) for name, path in made.items() if path.stat().st_size <= LARGEST]
    return [(name, data, dissected(data)) for name, data in small]


def indexes(path: Path, libver: str) -> None:
    """Chunk indexes with more than one level."""
    with h5py.File(path, "w", libver=libver) as file:
        for name, maxshape, more in (
            ("fixed", (40, 30), {}),
            ("extensible", (None, 30), {}),
            ("filtered", (None, 30), {"compression": "gzip"}),
            ("turned", (40, None), {"shuffle": True}),
            ("tree", (None, None), {"fletcher32": True}),
        ):
            data = np.arange(1200, dtype="u1").reshape(40, 30)
            file.create_dataset(name, data=data, chunks=(2, 3), maxshape=maxshape, **more)
        file.create_dataset("deep", data=np.arange(600, dtype="u1"), chunks=(1,), maxshape=(None,))
        file.create_dataset("one", data=np.arange(6, dtype="u1"), chunks=(6,), compression="gzip")
        early = h5p.create(h5p.DATASET_CREATE)
        early.set_chunk((2,))
        early.set_alloc_time(h5d.ALLOC_TIME_EARLY)
        h5d.create(file.id, b"implicit", h5t.STD_U8LE, h5s.create_simple((20,)), dcpl=early)


def heaps(path: Path, libver: str) -> None:
    """Fractal heaps with indirect blocks and with large objects, global heaps, many names."""
    with h5py.File(path, "w", libver=libver) as file:
        for number in range(60):
            file.attrs[f"attribute {number:03d}"] = "text" * (number % 40)
        if libver == "latest":
            file.attrs["large"] = np.zeros(3000, "i8")  # too large for a heap's block
        for number in range(40):
            file.create_group(f"a group with a rather long name {number:03d}")
        file["texts"] = np.array(["a", "bb", "ccc" * 100], h5py.string_dtype())
        file["mixed"] = np.array([("a", 1), ("bc", 2)], [("s", h5py.string_dtype()), ("n", "<i2")])
        file["texts"].attrs["scale"] = ["x", "yy"]


def odd_sizes(path: Path, libver: str) -> None:
    """Narrow addresses, a user block."""
    plist = h5p.create(h5p.FILE_CREATE)
    plist.set_sizes(4, 4)
    plist.set_userblock(512)
    access = h5p.create(h5p.FILE_ACCESS)
    if libver == "latest":
        access.set_libver_bounds(h5py.h5f.LIBVER_LATEST, h5py.h5f.LIBVER_LATEST)
    with h5py.File(h5py.h5f.create(str(path).encode(), h5py.h5f.ACC_TRUNC, plist, access)) as file:
        for number in range(12):
            file[f"d{number}"] = np.arange(number)
        file.create_dataset("c", data=np.arange(20), chunks=(3,), compression="lzf")


def nested(path: Path, libver: str) -> None:
    """A virtual dataset of its own file, soft links, references, a committed type."""
    with h5py.File(path, "w", libver=libver) as file:
        file.create_dataset("x", data=np.arange(24).reshape(4, 6), chunks=(2, 3))
        layout = h5py.VirtualLayout((2, 4, 6), "i8", maxshape=(None, 4, 6))
        layout[0] = h5py.VirtualSource(".", "x", (4, 6))
        file.create_virtual_dataset("virtual", layout, fillvalue=-1)
        file["type"] = np.dtype([("a", "<i4"), ("b", "<f8", (2,))])
        file.create_dataset("typed", (3,), file["type"], chunks=(2,))[0] = (1, (2, 3))
        file["g/soft"] = h5py.SoftLink("/x")
        file["g/back"] = h5py.SoftLink("/g")
        file["references"] = np.array([file["x"].ref, file["g"].ref], h5py.ref_dtype)
        file["x"].attrs["to"] = file["g"].ref
