"""Does a damaged Zarr store, DMR++ document or data file of one give values that its reference reader
does not have?

Mutants by seeds, held beside zarr-python or h5py in a process of their own. Allowed are the same
values, or an error of ours.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "oracles")]

from finding import BAD, lines_of, verdict_of  # noqa: E402
from isolation import findings_of  # noqa: E402
from mutation import mutated  # noqa: E402

import insitu  # noqa: E402
from damaged_bytes import count_refused, read_all  # noqa: E402
from dmrpp_documents import document  # noqa: E402
from waiting import LONG  # noqa: E402

MUTANTS = 60
VALUES = np.arange(60, dtype="<i4").reshape(10, 6)


def _check(comparison: str, mutants: Iterable[tuple[str, Path]]) -> Counter[str]:
    """Compare each mutant; return how many there were of each verdict."""
    lines: list[str] = []
    verdicts: Counter[str] = Counter()
    names: list[str] = []

    def paths() -> Iterator[Path]:
        for name, path in mutants:
            names.append(name)
            yield path

    for _, findings in findings_of(comparison, paths(), seconds=LONG):
        verdicts[verdict_of(findings)] += 1
        if bad := lines_of(findings, BAD):
            lines.append(f"{names[-1]}: {bad}")
    assert not lines, "\n".join(lines)
    return verdicts


def _write_v2(path: Path) -> None:
    group = zarr.open_group(path, mode="w", zarr_format=2)
    chain = {"chunks": (4, 6), "compressors": numcodecs.Zlib(1), "filters": [numcodecs.Shuffle(4)]}
    group.create_array("a", shape=VALUES.shape, dtype="<i4", fill_value=-1, **chain)[:8] = VALUES[:8]
    inner = group.create_group("g").create_array("b", shape=(6,), dtype="<f8", chunks=(3,), compressors=None)
    inner[:] = np.arange(6) / 4
    zarr.consolidate_metadata(group.store)


def _write_v3(path: Path) -> None:
    group = zarr.open_group(path, mode="w", zarr_format=3)
    checked = group.create_array(
        "a",
        shape=VALUES.shape,
        dtype="<i4",
        chunks=(4, 6),
        compressors=[ZstdCodec(level=1), Crc32cCodec()],
        fill_value=-1,
    )
    checked[:8] = VALUES[:8]
    group.create_group("g").create_array("t", shape=(4,), dtype="<f4", chunks=(2,), compressors=[BloscCodec()])[:] = 1.5


def _write_shards(path: Path) -> None:
    group = zarr.open_group(path, mode="w", zarr_format=3)
    group.create_array("s", shape=VALUES.shape, dtype="<i4", chunks=(2, 3), shards=(4, 6), fill_value=7)[:6] = VALUES[
        :6
    ]


STORES: dict[str, Callable[[Path], None]] = {"v2": _write_v2, "v3": _write_v3, "shards": _write_shards}


def test_zarr_beside_zarr_python(tmp_path: Path) -> None:
    def mutants() -> Iterator[tuple[str, Path]]:
        for form, write in STORES.items():
            whole = tmp_path / f"{form}.zarr"
            write(whole)
            yield form, whole
            files = sorted(item.relative_to(whole) for item in whole.rglob("*") if item.is_file())
            for seed in range(MUTANTS):
                path = tmp_path / f"{form}_{seed}.zarr"
                shutil.copytree(whole, path)
                yield f"{form} {seed}: {_damage(path, files, random.Random(seed))}", path

    verdicts = _check("zarr", mutants())
    assert verdicts["refused"] > MUTANTS
    assert verdicts["equal"] > MUTANTS


def _damage(path: Path, files: list[Path], chance: random.Random) -> str:
    """Damage a file of a store; return what was done."""
    first, second = chance.choice(files), chance.choice(files)
    way = chance.choice(("bytes", "bytes", "bytes", "cut", "delete", "swap"))
    data, other = (path / first).read_bytes(), (path / second).read_bytes()
    if way == "delete":
        (path / first).unlink()
    elif way == "swap":
        (path / second).write_bytes(data)
        (path / first).write_bytes(other)
    elif way == "cut":
        (path / first).write_bytes(data[: chance.randrange(len(data))])
    else:
        (path / first).write_bytes(mutated(data, chance))
    return f"{way} {first} {second}"


def _write_data_file(path: Path) -> bytes:
    """Write variables of every kind of storage, and return their document."""
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(5)
    kind.set_strpad(h5py.h5t.STR_SPACEPAD)
    with h5py.File(path, "w") as file:
        chain: dict[str, Any] = {"chunks": (4, 6), "compression": 1, "shuffle": True, "fletcher32": True}
        file.create_dataset("checked", VALUES.shape, "<i4", fillvalue=-1, **chain)[:8] = VALUES[:8]
        file.create_dataset("deflated", data=VALUES * 2.5, chunks=(5, 3), compression=4, shuffle=False)
        file["whole"] = VALUES.astype(">i2")
        file.create_dataset("text", (4,), kind, chunks=(2,))[:] = np.array([b"a b", b"", b"xyz", b"abcde"])
    return document(insitu.scan(path, decode=False), path.name).encode()


def test_damaged_data_files_beside_h5py(tmp_path: Path) -> None:
    """The document is whole, and stands for the metadata of the file."""
    described = _write_data_file(tmp_path / "whole.h5")
    data = (tmp_path / "whole.h5").read_bytes()

    def mutants() -> Iterator[tuple[str, Path]]:
        for seed in range(-1, MUTANTS):
            path = tmp_path / f"{seed}.h5"
            path.write_bytes(data if seed < 0 else mutated(data, random.Random(seed)))
            side = tmp_path / f"{seed}.h5.dmrpp"
            side.write_bytes(described)
            yield f"seed {seed}", side

    verdicts = _check("dmrpp", mutants())
    assert verdicts["refused"] > MUTANTS // 20
    assert verdicts["equal"] > MUTANTS // 10


def test_damaged_documents(tmp_path: Path) -> None:
    """There is no other reader: whatever is said otherwise must be refused, or read without harm."""
    described = _write_data_file(tmp_path / "whole.h5")
    side = tmp_path / "whole.h5.dmrpp"

    def read(data: bytes) -> None:
        side.write_bytes(data)
        read_all(side)

    refused = count_refused((mutated(described, random.Random(seed)) for seed in range(4 * MUTANTS)), read)
    assert MUTANTS < refused < 4 * MUTANTS
