"""What is in a file of a stranger?

    python tests/oracles/strange_hdf5.py FOLDER FIRST COUNT

One file for each number from FIRST on, drawn at random: format version, width of addresses, user
block, pages, shared messages; groups compact and dense, links of every kind; datasets of any type
(`strange_types`), shape, limits, layout, filters, fill value, written whole, in part, chunk by
chunk or not at all, grown and shrunk; attributes; virtual and external ones among them. The same
number gives the same file.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
from h5py import h5a, h5d, h5p, h5s, h5t
from hdf5_property import create_file, fill_with, library
from strange_types import Drawn, any_type

__all__ = ["strange_file"]

LIBVERS = [
    name
    for name in ("earliest", "v108", "v110", "v112", "v114", "v200", "latest")
    if name in h5py._hl.files.libver_dict
]
PLUGINS: list[Callable[[], Any]] = [
    hdf5plugin.Zstd,
    hdf5plugin.LZ4,
    hdf5plugin.Blosc,
    hdf5plugin.Blosc2,
    hdf5plugin.Bitshuffle,
    hdf5plugin.BZip2,
]
MOST_ELEMENTS = 2000


def strange_file(path: Path, number: int) -> None:
    """Write the file of a number."""
    chance = random.Random(number)
    libver = chance.choice(LIBVERS)
    create_file(path, libver, _creation(chance, libver))
    with h5py.File(path, "r+", libver=libver) as file:
        groups: list[h5py.Group] = [file]
        for index in range(chance.randrange(4)):
            parent = chance.choice(groups)
            groups.append(parent.create_group(f"group {index}", track_order=chance.random() < 0.3))
        for index in range(chance.choice([2, 4, 8])):
            with suppress(ValueError, TypeError, OSError, RuntimeError):  # what the library does not write
                _dataset(chance, chance.choice(groups), f"d{index}", path)
        _furniture(chance, file, groups)


def _creation(chance: random.Random, libver: str) -> Any:
    fcpl = h5p.create(h5p.FILE_CREATE)
    wide = True
    if chance.random() < 0.3:
        # The library cannot open again what it wrote with lengths of 4 bytes, the newest format and
        # an unlimited axis.
        sizes = chance.choice([(4, 4), (4, 8), (8, 4), (2, 8)] if libver in ("earliest", "v108") else [(4, 8)])
        fcpl.set_sizes(*sizes)
        wide = sizes == (8, 8)
    block = chance.random() < 0.25
    if block:
        fcpl.set_userblock(chance.choice([512, 1024, 4096]))
    if chance.random() < 0.25:
        library("H5Pset_istore_k", fcpl.id, chance.choice([1, 3, 100]))
    if chance.random() < 0.2:
        library("H5Pset_sym_k", fcpl.id, chance.choice([2, 30]), chance.choice([1, 9]))
    if libver != "earliest" and wide and chance.random() < 0.3:
        library("H5Pset_shared_mesg_nindexes", fcpl.id, 1)
        library("H5Pset_shared_mesg_index", fcpl.id, 0, chance.choice([0x1F, 0x02, 0x10]), chance.choice([1, 20]))
        library("H5Pset_shared_mesg_phase_change", fcpl.id, chance.choice([50, 2]), chance.choice([0, 1]))
    elif libver not in ("earliest", "v108") and wide and not block and chance.random() < 0.3:
        fcpl.set_file_space_strategy(chance.randrange(4), chance.random() < 0.5, 1)
        fcpl.set_file_space_page_size(chance.choice([512, 4096]))
    if chance.random() < 0.3:
        fcpl.set_link_creation_order(h5p.CRT_ORDER_TRACKED | h5p.CRT_ORDER_INDEXED)
    if chance.random() < 0.3:
        fcpl.set_attr_creation_order(h5p.CRT_ORDER_TRACKED | chance.choice([0, h5p.CRT_ORDER_INDEXED]))
    return fcpl


def _shape(chance: random.Random) -> tuple[int, ...]:
    lengths = [chance.choice([1, 2, 3, 5, 7, 12, 30]) for _ in range(chance.choice([1, 1, 2, 2, 3, 4]))]
    if chance.random() < 0.06:
        lengths[-1] = 0
    while np.prod(lengths) > MOST_ELEMENTS:
        lengths.pop()
    return tuple(lengths)


def _dataset(chance: random.Random, group: h5py.Group, name: str, path: Path) -> None:
    drawn = any_type(chance)
    form = chance.random()
    if form < 0.08:
        space = h5s.create(chance.choice([h5s.SCALAR, h5s.NULL]))
        made = h5d.create(group.id, name.encode(), drawn.kind, space)
        if space.get_simple_extent_type() == h5s.SCALAR:
            _write(chance, made, drawn, ())
        return
    shape = _shape(chance)
    plist = h5p.create(h5p.DATASET_CREATE)
    limits: tuple[int, ...] | None = None
    layout = chance.choice(["compact", "contiguous", "external", "chunked", "chunked", "chunked", "chunked"])
    filtered = False
    if layout == "compact" and int(np.prod(shape)) * drawn.kind.get_size() < 30000:
        plist.set_layout(h5d.COMPACT)
    elif layout == "external" and drawn.bytes is not None:
        length, cut = int(np.prod(shape)) * drawn.kind.get_size(), chance.randrange(1, 400)
        for part, size in enumerate([min(cut, length), length - min(cut, length)]):
            if size:
                plist.set_external(f"{path.stem}-{name}-{part}.bin".encode(), chance.choice([0, 9]), size)
    elif layout == "chunked":
        plist.set_chunk(tuple(chance.randrange(1, max(length, 1) + 3) for length in shape))
        limits = tuple(chance.choice([h5s.UNLIMITED, length, length + 9]) for length in shape)
        limits = tuple(
            max(limit, chunk) if limit != h5s.UNLIMITED else limit
            for limit, chunk in zip(limits, plist.get_chunk(), strict=True)
        )
        filtered = _filters(chance, plist, drawn)
        if filtered and chance.random() < 0.3:
            library("H5Pset_chunk_opts", plist.id, 2)
        if chance.random() < 0.3:
            plist.set_alloc_time(chance.choice([h5d.ALLOC_TIME_EARLY, h5d.ALLOC_TIME_INCR]))
    if drawn.bytes is not None and chance.random() < 0.4:
        fill_with(plist, drawn.kind, np.frombuffer(drawn.bytes(chance), "u1"))
    if chance.random() < 0.1:
        plist.set_fill_time(h5d.FILL_TIME_NEVER)
    space = h5s.create_simple(shape, limits)
    kind = drawn.kind
    if chance.random() < 0.15:
        kind.commit(group.id, f"type of {name}".encode())
    made = h5d.create(group.id, name.encode(), kind, space, dcpl=plist)
    _write(chance, made, drawn, shape)
    if limits is not None and chance.random() < 0.3:
        _resized(chance, made, shape, limits)
    if limits is not None and not filtered and drawn.bytes is not None and chance.random() < 0.2 and 0 not in shape:
        chunk = plist.get_chunk()
        data = b"".join(drawn.bytes(chance) for _ in range(int(np.prod(chunk))))
        made.write_direct_chunk((0,) * len(shape), data)
    if chance.random() < 0.5:
        _attributes(chance, made)


def _filters(chance: random.Random, plist: Any, drawn: Drawn) -> bool:
    """Some filters that take this type."""
    if drawn.bytes is None and chance.random() < 0.5:
        return False
    for _ in range(chance.choice([0, 0, 1, 1, 2, 3])):
        way = chance.randrange(9)
        if way == 0:
            plist.set_shuffle()
        elif way == 1:
            plist.set_deflate(chance.randrange(10))
        elif way == 2:
            plist.set_fletcher32()
        elif way == 3:
            plist.set_filter(h5py.h5z.FILTER_LZF, h5py.h5z.FLAG_OPTIONAL)
        elif way == 4 and drawn.kind.get_class() in (h5t.INTEGER, h5t.FLOAT, h5t.COMPOUND, h5t.ARRAY) and drawn.bytes:
            plist.set_filter(h5py.h5z.FILTER_NBIT, h5py.h5z.FLAG_OPTIONAL)
        elif way == 5 and drawn.number and drawn.kind.get_class() == h5t.INTEGER:
            plist.set_scaleoffset(h5py.h5z.SO_INT, chance.choice([0, 0, 5]))
        elif way == 6 and drawn.number and h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP):
            with suppress(ValueError):
                plist.set_szip(
                    chance.choice([h5py.h5z.SZIP_NN_OPTION_MASK, h5py.h5z.SZIP_EC_OPTION_MASK]), chance.choice([4, 16])
                )
        elif way >= 7 and drawn.bytes is not None and not any(drawn.kind.get_class() == c for c in (h5t.REFERENCE,)):
            plugin = chance.choice(PLUGINS)()
            plist.set_filter(plugin.filter_id, h5py.h5z.FLAG_OPTIONAL, plugin.filter_options)
    return bool(plist.get_nfilters())


def _write(chance: random.Random, made: Any, drawn: Drawn, shape: tuple[int, ...]) -> None:
    """All of it, a corner of it, or nothing."""
    share = chance.random()
    if share < 0.15 or 0 in shape:
        return
    count = tuple(length if share < 0.7 else chance.randrange(1, length + 1) for length in shape)
    start = tuple(chance.randrange(length - some + 1) for length, some in zip(shape, count, strict=True))
    number = int(np.prod(count, dtype=int))
    if drawn.bytes is not None:
        memory = h5s.create_simple((number,))
        target = made.get_space()
        if shape:
            target.select_hyperslab(start, count)
        data = np.frombuffer(b"".join(drawn.bytes(chance) for _ in range(number)), f"V{drawn.kind.get_size()}")
        made.write(memory, target, data.copy(), drawn.kind)
    elif drawn.dtype is not None and drawn.value is not None:
        elements = np.empty(number, drawn.dtype)
        for index in range(number):
            elements[index] = drawn.value(chance)
        where = tuple(slice(a, a + n) for a, n in zip(start, count, strict=True))
        h5py.Dataset(made)[where] = elements.reshape(count) if shape else elements[0]


def _resized(chance: random.Random, made: Any, shape: tuple[int, ...], limits: tuple[int, ...]) -> None:
    """Longer or shorter along the axes that may be."""
    lengths = tuple(
        min(max(0, length + chance.choice([-3, -1, 0, 4, 11])), 60 if limit == h5s.UNLIMITED else limit)
        for length, limit in zip(shape, limits, strict=True)
    )
    made.set_extent(lengths)


def _attributes(chance: random.Random, made: Any) -> None:
    """A few, or so many that they are kept in a heap."""
    for index in range(chance.choice([1, 3, 12])):
        drawn = any_type(chance)
        shape = chance.choice([(), (1,), (3,), (2, 2)])
        name = f"attribute {index}".encode()
        if drawn.bytes is not None:
            space = h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)
            attribute = h5a.create(made, name, drawn.kind, space)
            count = int(np.prod(shape, dtype=int))
            data = np.frombuffer(b"".join(drawn.bytes(chance) for _ in range(count)), f"V{drawn.kind.get_size()}")
            attribute.write(data.reshape(shape).copy(), mtype=drawn.kind)
        elif drawn.dtype is not None and drawn.value is not None and np.dtype(drawn.dtype).names is None:
            value = np.empty(shape, drawn.dtype)
            for place in np.ndindex(shape):
                value[place] = drawn.value(chance)
            with suppress(TypeError, ValueError):  # what h5py cannot write as an attribute
                h5py.AttributeManager(h5py.Dataset(made)).create(name.decode(), value, dtype=drawn.dtype)


def _furniture(chance: random.Random, file: h5py.File, groups: list[h5py.Group]) -> None:
    """Links, references, virtual datasets, many members."""
    group = chance.choice(groups)
    if chance.random() < 0.4:
        for index in range(chance.choice([9, 40, 150])):
            group[f"one of many {index}"] = index
        for index in range(0, 9, 2):
            del group[f"one of many {index}"]
    source = file.create_dataset(
        "source", data=np.arange(60, dtype="i4").reshape(6, 10), chunks=(2, 3), maxshape=(None, 10)
    )
    group["soft"] = h5py.SoftLink("/source")
    group["nowhere"] = h5py.SoftLink("/not/here")
    group["hard"] = source
    group["round"] = file["/"]
    if chance.random() < 0.5:
        group["references"] = np.array([source.ref, group.ref], h5py.ref_dtype)
        source.attrs["to"] = group.ref
        group["regions"] = np.array([source.regionref[0:2, 1], source.regionref[...]], h5py.regionref_dtype)
    if chance.random() < 0.6:
        step = chance.choice([1, 2, 3])
        layout = h5py.VirtualLayout((12, 10), "i4", maxshape=(None, 10))
        layout[0:6:1] = h5py.VirtualSource(source)
        rows = len(range(0, 6, step))
        layout[6 : 6 + rows] = h5py.VirtualSource(source)[0:6:step]
        file.create_virtual_dataset("virtual", layout, fillvalue=chance.choice([None, -7]))
        endless = h5py.VirtualLayout((6, 10), "i4", maxshape=(None, 10))
        unlimited = h5py.VirtualSource(source)
        endless[: h5s.UNLIMITED, :] = unlimited[: h5s.UNLIMITED, :]
        file.create_virtual_dataset("endless", endless)


if __name__ == "__main__":
    os.chdir(sys.argv[1])  # external files are written where one is
    for number in range(int(sys.argv[2]), int(sys.argv[2]) + int(sys.argv[3])):
        strange_file(Path.cwd() / f"strange-{number:05d}.h5", number)
