"""How fast are references built, joined, written and opened, and how large are they, beside
VirtualiZarr and fsspec?

    python bench/references.py [--quick] [--case build|join|parquet|json|store|open|value|huge]

`huge` writes an insitu store of 100 million chunks once (about 400 MB in the folder of the
archives) and opens it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import machine
from archives import archive, folder
from table import Contestant, Result, Target, arguments, compete, show


def versus(case: str, ours: dict[str, Any], peers: dict[str, tuple[str, dict[str, Any]]], rounds: int) -> list[Result]:
    contestants = [Contestant("insitu", f"referencers:{case}_insitu", ours)]
    contestants += [Contestant(name, f"referencers:{call}", given) for name, (call, given) in peers.items()]
    return compete(contestants, rounds=rounds)


def build(quick: bool, rounds: int) -> None:
    count = 1_000_000 if quick else 10_000_000
    results = versus("build", {"count": count}, {"VirtualiZarr": ("build_virtualizarr", {"count": count})}, rounds)
    peak = max(results[0].peak, default=0) / 1e6
    show(
        f"build {count:,} references",
        results,
        targets=[Target("VirtualiZarr", 20)],
        notes=[f"insitu, memory at most: {peak:.0f} MB; target ≤ 400 MB."],
    )


def join(quick: bool, rounds: int) -> None:
    given = {"parts": 100 if quick else 1000, "count": 10_000}
    results = versus("join", given, {"VirtualiZarr": ("join_virtualizarr", given)}, rounds)
    show(f"join {given['parts']} arrays of 10,000 chunks", results, targets=[Target("VirtualiZarr", 5)])


def written(quick: bool, rounds: int, form: str, suffix: str, ratio: float) -> None:
    count = 100_000 if quick else 1_000_000
    base = folder()
    base.mkdir(parents=True, exist_ok=True)
    peers = {
        "VirtualiZarr": ("write_virtualizarr", {"count": count, "target": str(base / f"theirs{suffix}"), "form": form})
    }
    results = versus("write", {"count": count, "target": str(base / f"ours{suffix}")}, peers, rounds)
    show(f"write {count:,} references as kerchunk {form}", results, targets=[Target("VirtualiZarr", ratio)])


def store(quick: bool, rounds: int) -> None:
    count = 100_000 if quick else 1_000_000
    target = folder() / "ours.insitu"
    results = versus("write", {"count": count, "target": str(target)}, {}, rounds)
    size = sum(path.stat().st_size for path in target.iterdir())
    show(
        f"write {count:,} references as an insitu store",
        results,
        notes=[f"{size / count:.2f} bytes a chunk; target ≤ 6."],
    )


def open_(quick: bool, rounds: int) -> None:
    count = 100_000 if quick else 1_000_000
    rows = count // 1000
    for suffix in (".parq", ".insitu"):
        target = folder() / f"opened-{count}{suffix}"
        if not target.exists():
            import referencers

            referencers.write_insitu(count, str(target))()
        given = {"target": str(target), "row": rows - 2, "column": 500}
        peers = {"fsspec lazy mapper": ("open_fsspec", given), "VirtualiZarr parser": ("open_virtualizarr", given)}
        results = versus("open", given, peers if suffix == ".parq" else {}, rounds)
        show(
            f"open {count:,} references ({suffix}) and find one chunk",
            results,
            targets=[Target("fsspec lazy mapper", 1)],
        )


def value(quick: bool, rounds: int) -> None:
    import insitu
    from insitu.references import save

    path = archive("million_chunks", quick=False)
    for suffix in (".parq", ".insitu"):
        target = folder() / f"million{suffix}"
        if not target.exists():
            save(insitu.scan(str(path), decode=False), target)
        given = {"target": str(target)}
        peers = {"zarr over fsspec": ("value_fsspec", given), "zarr over VirtualiZarr": ("value_virtualizarr", given)}
        results = versus("value", given, peers if suffix == ".parq" else {}, rounds)
        show(
            f"open references of 1,000,000 chunks ({suffix}) and read a value",
            results,
            targets=[Target("zarr over fsspec", 1)],
        )


class Computed:
    """A table of any size that takes no memory."""

    def __init__(self, shape: tuple[int, ...], sources: Any) -> None:
        self.shape, self.sources = shape, sources

    def locate(self, cells: Any) -> Any:
        from insitu.model import ChunkLocations

        number = np.ravel_multi_index(tuple(np.broadcast_arrays(*cells)), self.shape).reshape(-1)
        per = -(-int(np.prod(self.shape)) // len(self.sources))
        noise = (number.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        noise = (noise ^ (noise >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        noise = ((noise ^ (noise >> np.uint64(32))) % np.uint64(2**31)).astype(np.int64)
        zero = np.zeros(len(number), np.int64)
        return ChunkLocations(
            number // per, 8192 + (number % per) * 50_000 + noise % 700, 40_000 + noise % 9000, zero, zero, zero, b""
        )


def huge(quick: bool, rounds: int) -> None:
    from insitu.model import Axis, Encoding, Source, Tile, VirtualArray, VirtualGroup
    from insitu.references import open_references, save

    shape = (1000, 1000) if quick else (100_000, 1000)
    total = shape[0] * shape[1]
    target = Path(folder()) / f"huge-{total}.insitu"
    if not target.exists():
        sources = tuple(
            Source(f"https://data.example.org/archive/v1/file-{n:06d}.nc", 10**9, "e") for n in range(10_000)
        )
        axes = (Axis.regular(shape[0], 1), Axis.regular(shape[1], 1))
        array = VirtualArray.of(Tile(axes, (Encoding(np.dtype("f4")),), Computed(shape, sources)), dims=("t", "x"))
        begin = time.perf_counter()
        save(VirtualGroup({"a": array}), target)
        print(f"\n{total:,} chunks written in {time.perf_counter() - begin:.1f} s")
    size = sum(path.stat().st_size for path in target.iterdir())
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        group = open_references(str(target))
        opened = time.perf_counter() - begin
        assert group is not None
        state: Any = group.array("a").tiles[0].chunks[shape[0] - 2, 500]
        times.append((opened, time.perf_counter() - begin, state.length))
    opened, first, _ = sorted(times)[len(times) // 2]
    print(
        f"\n## an insitu store of {total:,} chunks\n\n{size / total:.2f} bytes a chunk. Opened in {1000 * opened:.1f} "
        f"ms (target ≤ 100), first chunk found after {1000 * first:.1f} ms."
    )


CASES = {
    "build": build,
    "join": join,
    "parquet": lambda quick, rounds: written(quick, rounds, "parquet", ".parq", 10),
    "json": lambda quick, rounds: written(quick, rounds, "json", ".json", 1),
    "store": store,
    "open": open_,
    "value": value,
    "huge": huge,
}


def main() -> None:
    """Run the cases."""
    options = arguments(__doc__)
    print(machine.describe())
    for case in options.case or CASES:
        CASES[case](options.quick, options.rounds)


if __name__ == "__main__":
    main()
