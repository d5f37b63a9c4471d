"""How fast are references built, joined, written and opened, and how large are they, beside
VirtualiZarr and fsspec?

    python bench/references.py [--quick] [--case build|join|parquet|json|store|open|value]

Stores of a hundred million chunks: `scale_store.py`.
"""

from __future__ import annotations

from typing import Any

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


CASES = {
    "build": build,
    "join": join,
    "parquet": lambda quick, rounds: written(quick, rounds, "parquet", ".parq", 10),
    "json": lambda quick, rounds: written(quick, rounds, "json", ".json", 1),
    "store": store,
    "open": open_,
    "value": value,
}


def main() -> None:
    """Run the cases."""
    options = arguments(__doc__)
    print(machine.describe())
    for case in options.case or CASES:
        CASES[case](options.quick, options.rounds)


if __name__ == "__main__":
    main()
