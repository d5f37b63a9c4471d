"""Are headers that lie about sizes refused, without the memory that they ask for?"""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

import insitu
from insitu.errors import FormatError, InsituError
from insitu.sources import MemorySource

MOST_MEMORY = 64 << 20


def _header(**cards: Any) -> bytes:
    lines = []
    for name, value in cards.items():
        text = (
            ("T" if value else "F")
            if isinstance(value, bool)
            else f"'{value}'"
            if isinstance(value, str)
            else str(value)
        )
        lines.append(f"{name:8}= {text:>20}".ljust(80))
    return "".join([*lines, "END".ljust(80)]).encode().ljust(2880)


FIRST = _header(SIMPLE=True, BITPIX=8, NAXIS=0)
TABLE = {"XTENSION": "BINTABLE", "BITPIX": 8, "NAXIS": 2}
PACKED = {
    **TABLE, "NAXIS1": 8, "NAXIS2": 1, "PCOUNT": 0, "GCOUNT": 1, "TFIELDS": 1, "TTYPE1": "COMPRESSED_DATA",
    "TFORM1": "1PB(8)", "ZIMAGE": True,
    "ZCMPTYPE": "RICE_1", "ZBITPIX": 16, "ZNAXIS": 2,
}  # fmt: skip
CASES: dict[str, bytes] = {
    "an image of 2^60": _header(SIMPLE=True, BITPIX=-64, NAXIS=1, NAXIS1=1 << 60),
    "an image of 2^60 squared": _header(SIMPLE=True, BITPIX=-64, NAXIS=2, NAXIS1=1 << 60, NAXIS2=1 << 60),
    "999 axes": _header(SIMPLE=True, BITPIX=8, NAXIS=999, **{f"NAXIS{i}": 2 for i in range(1, 30)}),
    "less than no axes": _header(SIMPLE=True, BITPIX=8, NAXIS=-1),
    "axes of text": _header(SIMPLE=True, BITPIX=8, NAXIS="many"),
    "2^60 rows": FIRST + _header(**TABLE, NAXIS1=8, NAXIS2=1 << 60, PCOUNT=0, GCOUNT=1, TFIELDS=1, TFORM1="1K"),
    "rows of nothing": FIRST + _header(**TABLE, NAXIS1=0, NAXIS2=1 << 40, PCOUNT=0, GCOUNT=1, TFIELDS=1, TFORM1="0A"),
    "cells of 2^60": FIRST + _header(**TABLE, NAXIS1=8, NAXIS2=1, PCOUNT=0, GCOUNT=1, TFIELDS=1,
    TFORM1="1152921504606846976J"),
    "bits of 2^60": FIRST + _header(**TABLE, NAXIS1=8, NAXIS2=1, PCOUNT=0, GCOUNT=1, TFIELDS=1,
    TFORM1="1152921504606846976X"),
    "2^40 columns": FIRST + _header(**TABLE, NAXIS1=8, NAXIS2=1, PCOUNT=0, GCOUNT=1, TFIELDS=1 << 40),
    "a heap at 2^60": FIRST + _header(**TABLE, NAXIS1=8, NAXIS2=1, PCOUNT=1 << 60, GCOUNT=1, TFIELDS=1, TFORM1="1PJ",
    THEAP=1 << 60) + b"\x7f" * 2880,
    "cells of text as wide as the world": FIRST + _header(XTENSION="TABLE", BITPIX=8, NAXIS=2, NAXIS1=8, NAXIS2=1,
    PCOUNT=0, GCOUNT=1, TFIELDS=1, TFORM1="I99999999", TBCOL1=1) + bytes(2880),
    "tiles of 2^60": FIRST + _header(**PACKED, ZNAXIS1=1 << 60, ZNAXIS2=1, ZTILE1=1 << 60, ZTILE2=1) + bytes(2880),
    "2^60 tiles": FIRST + _header(**PACKED, ZNAXIS1=1 << 60, ZNAXIS2=1, ZTILE1=1, ZTILE2=1) + bytes(2880),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_large_numbers_cost_nothing(case: str) -> None:
    tracemalloc.start()
    try:
        source = MemorySource(CASES[case])
        group = insitu.scan(source, decode=False)
        for path, array in group.all_arrays():
            if array.nbytes <= 1 << 20:
                insitu.read(group, path, decode=False)
    except InsituError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < MOST_MEMORY


def test_a_header_without_end() -> None:
    with pytest.raises(FormatError, match="truncated within a header"):
        insitu.scan(MemorySource(FIRST.replace(b"END", b"   ")), decode=False)
    with pytest.raises(FormatError, match="no END card"):
        insitu.scan(MemorySource(FIRST.replace(b"END", b"   ") + b" " * 2880 * 4200), decode=False)
