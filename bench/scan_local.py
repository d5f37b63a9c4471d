"""How long does it take to find every chunk of local HDF5 files, beside kerchunk, VirtualiZarr,
h5py, pyfive and hidefix?

python bench/scan_local.py [--quick] [--case million|cmip]
"""

from __future__ import annotations

import statistics

import machine
from archives import archive
from table import Contestant, Target, arguments, compete, show

PEERS = {
    "hidefix": "hidefix",
    "h5py chunk_iter": "h5py_chunk_iter",
    "pyfive": "pyfive",
    "VirtualiZarr HDFParser": "virtualizarr",
    "kerchunk": "kerchunk",
}
MEMORY = 100e6


def _contestants(paths: list[str], warm: str, cores: int | None, only: list[str] | None) -> list[Contestant]:
    chosen = {"insitu": "insitu", "insitu, decoded as xarray shows it": "insitu_decoded"}
    chosen |= {name: call for name, call in PEERS.items() if not only or name in only}
    return [
        Contestant(name, f"scanners:{call}", {"paths": paths, "warm": warm}, cores) for name, call in chosen.items()
    ]


def main() -> None:
    """Run both cases."""
    options = arguments(__doc__)
    print(machine.describe())
    cases = options.case or ["million", "cmip"]
    if "million" in cases:
        path = archive("million_chunks", quick=options.quick)
        warm = archive("million_chunks", quick=True)
        results = compete(_contestants([str(path)], str(warm), None, options.only), rounds=options.rounds)
        growth = [statistics.median(result.growth) for result in results if result.name == "insitu" and result.growth]
        notes = (
            [
                f"Memory kept by insitu: {growth[0] / 1e6:.0f} MB; target ≤ 100 MB: "
                f"{'yes' if growth[0] <= MEMORY else '**no**'}."
            ]
            if growth
            else []
        )
        targets = [Target("VirtualiZarr HDFParser", 25), Target("h5py chunk_iter", 7), Target("hidefix", 1)]
        show(
            f"One file, {10_000 if options.quick else 1_000_000:,} chunks",
            results,
            targets=targets,
            notes=notes,
        )
    if "cmip" in cases:
        files = sorted(str(path) for path in archive("cmip_like", quick=options.quick).glob("*.nc"))
        results = compete(_contestants(files, files[0], 1, options.only), rounds=options.rounds)
        targets = [Target("VirtualiZarr HDFParser", 15), Target("hidefix", 1)]
        show(f"{len(files)} CMIP-like files, one core", results, targets=targets)


if __name__ == "__main__":
    main()
