"""No function of the C extensions keeps the GIL to itself while it works on something large.

Threads switch only where one of them gives up the GIL: the interval after which Python takes it away is
set to hours. So another thread that counts gets on during a call only if the function lets it, and calls
are repeated until it did.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from insitu.codecs.linked_libraries import linked_libraries
from insitu.formats.hdf5.structures.links import Link
from waiting import LONG

NAMES = ("insitu.codecs._kernels", "insitu.formats.hdf5.structures._metadata", "insitu.sources._scatter")
SMALL = {"linked_libraries"}
"""Functions that are given nothing."""
HOURS = 10_000.0
FILE_SIZE = 64 << 20


def _module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError:
        pytest.skip(f"{name} was not built")


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    """A large file, open."""
    (tmp_path / "large").write_bytes(bytes(FILE_SIZE))
    number = os.open(tmp_path / "large", os.O_RDONLY)
    yield number
    os.close(number)


@contextmanager
def _counting() -> Iterator[list[int]]:
    """Count in another thread as often as it is let."""
    count, ended = [0], threading.Event()

    def work() -> None:
        while not ended.is_set():
            count[0] += 1
            time.sleep(0)  # gives up the GIL, or this thread would keep it for hours

    thread = threading.Thread(target=work)
    before = sys.getswitchinterval()
    thread.start()
    sys.setswitchinterval(HOURS)
    try:
        yield count
    finally:
        sys.setswitchinterval(before)
        ended.set()
        thread.join()


def _heap(objects: int) -> bytes:
    body = b"".join(number.to_bytes(2, "little") + bytes(6) + bytes(8) for number in range(1, objects + 1))
    return b"GCOL\1\0\0\0" + (16 + len(body)).to_bytes(8, "little") + body


def _leaf(count: int) -> bytes:
    keys = np.zeros((count + 1, 4), "<u8")
    keys[:, 0], keys[:, 1], keys[:, 3] = 1, np.arange(count + 1), 0
    return b"TREE\1\0" + count.to_bytes(2, "little") + b"\xff" * 16 + keys.tobytes()


def _group(links: int) -> bytes:
    """The header of a group that links to itself under many names, in blocks that lie one behind the other."""
    per_block = 2000
    blocks = []
    for first in range(0, links, per_block):
        names = range(first, min(first + per_block, links))
        blocks.append(
            b"".join(
                b"\6\0\x10\0" + bytes(4) + b"\1\0\5" + b"%05d" % (99_999 - name) + (0).to_bytes(8, "little")
                for name in names
            )
        )
    size = 16 + 24 * len(blocks)
    places = [size + sum(map(len, blocks[:number])) for number in range(len(blocks))]
    further = b"".join(
        b"\x10\0\x10\0" + bytes(4) + place.to_bytes(8, "little") + len(block).to_bytes(8, "little")
        for place, block in zip(places, blocks, strict=True)
    )
    return b"\1\0\1\0" + bytes(4) + len(further).to_bytes(4, "little") + bytes(4) + further + b"".join(blocks)


def _metadata_calls(module: Any, _: int) -> dict[str, Callable[[], Any]]:
    text, leaf, heap, group = bytes(32 << 20), _leaf(60_000), _heap(60_000), _group(60_000)
    numbers = (len(group), 0, 8, 8, 8, 32, 64)
    return {
        "lookup3": lambda: module.lookup3(text),
        "full_leaf": lambda: module.full_leaf(leaf, 0, 8, 1 << 40, 65_000, (60_000,), (1,)),
        "collection_objects": lambda: module.collection_objects(heap, 8),
        "read_objects": lambda: module.read_objects(group, numbers, [0], [], True, True, Link),
    }


def _scatter_calls(module: Any, descriptor: int) -> dict[str, Callable[[], Any]]:
    count = 1 << 20
    nowhere, target = np.zeros(count, np.int64), np.empty(FILE_SIZE, np.uint8)
    return {
        "read_scattered": lambda: module.read_scattered(descriptor, 0, target),
        "read_ranges": lambda: module.read_ranges(descriptor, nowhere, nowhere, target[:0]),
    }


def _kernel_calls(module: Any, _: int) -> dict[str, Callable[[], Any]]:
    large, out = np.zeros(32 << 20, np.uint8), np.empty(32 << 20, np.uint8)
    floats, room = np.zeros(8 << 20, np.float32), np.empty(64, np.uint8)
    count = 200_000
    chunks = [bytes(8)] * count
    places = [(8 * number,) for number in range(count)]
    columns = (bytes(8 * count), 8 * np.arange(count), np.full(count, 8))
    boxes = (1, False, (8,), (0,), (8,), out)
    calls: dict[str, Callable[[], Any]] = {
        "unshuffle": lambda: module.unshuffle(large, 4, out),
        "unshuffle_box": lambda: module.unshuffle_box(large, 1, (32 << 20,), (0,), out),
        "unpack_bits": lambda: module.unpack_bits(large, 0, 7, 7, out),
        "fletcher32": lambda: module.fletcher32(large),
        "total": lambda: module.total(floats),
        "measure": lambda: module.measure(large, 4, True, 0, 8 << 20, (), 3),
        "decode_boxes": lambda: module.decode_boxes(None, chunks, *boxes, places, None),
        "decode_boxes of columns": lambda: module.decode_boxes(
            None, columns, *boxes, 8 * np.arange(count)[:, None], None
        ),
    }
    if "zlib" in linked_libraries():
        packed = [zlib.compress(bytes(32))] * 50_000
        calls["measure_chunks"] = lambda: module.measure_chunks("zlib", packed, 8, room, 4, False, 0, 8, (), 3)
    if "zstd" in linked_libraries():
        # Frames of an empty text: magic number, header of a frame without content, one last raw block of no bytes.
        texts = [b"\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00"] * 50_000
        calls["decompress_texts"] = lambda: module.decompress_texts(b"", texts, 64)
    return calls


CALLS = dict(zip(NAMES, (_kernel_calls, _metadata_calls, _scatter_calls), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_others_get_on_meanwhile(name: str, descriptor: int) -> None:
    module = _module(name)
    calls = CALLS[name](module, descriptor)
    functions = {function for function in vars(module) if not function.startswith("_")} - SMALL
    if name.endswith("_kernels"):
        functions -= {"measure_chunks"} if "zlib" not in linked_libraries() else set()
        functions -= {"decompress_texts"} if "zstd" not in linked_libraries() else set()
    assert {call.partition(" ")[0] for call in calls} == functions
    for what, call in calls.items():
        assert call() is not None or what in ("unshuffle", "unshuffle_box", "unpack_bits"), what
        end = time.monotonic() + LONG
        with _counting() as count:
            while True:
                before = count[0]
                call()
                if count[0] > before:
                    break
                assert time.monotonic() < end, f"{what} keeps the GIL"


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="there is no GIL to keep")
def test_a_function_that_keeps_the_gil_is_noticed() -> None:
    """The test above can fail: to sort a list of numbers does not give up the GIL."""
    numbers = list(range(1 << 20, 0, -1))
    with _counting() as count:
        for _ in range(20):
            before = count[0]
            sorted(numbers)
            assert count[0] == before
