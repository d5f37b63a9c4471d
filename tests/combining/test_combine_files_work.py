"""Work grows with the number of files only as needed: no dataset for each, one tile for all of one
chunk shape.

Modules: combining/combine_rules.py, combining/scan_many.py
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from fixtures.make_archive import Part, write_all
from insitu.combining.combine import combine_by_coords, combine_nested
from insitu.combining.combine_rules import CombineRules
from insitu.combining.scan_many import scan_many
from insitu.model import VirtualArray
from insitu.scanning.member import Member
from insitu.scanning.scan_member import Job, make_loader
from insitu.xarray_bridge import open_mfdataset


def _count_datasets(monkeypatch: pytest.MonkeyPatch, paths: list[str]) -> int:
    made = []
    original = xr.Dataset.__init__

    def counted(self: xr.Dataset, *args: object, **how: object) -> None:
        made.append(self)
        original(self, *args, **how)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(xr.Dataset, "__init__", counted)
        open_mfdataset(paths)
    return len(made)


def test_no_dataset_for_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_all(tmp_path, [Part(first=2 * i) for i in range(12)])
    open_mfdataset(paths[:2])
    assert _count_datasets(monkeypatch, paths) == _count_datasets(monkeypatch, paths[:3])


def _many(tmp_path: Path, count: int) -> list[Member]:
    """As many members as wanted, made of one real file, a day apart."""
    (path,) = write_all(tmp_path, [Part(days=1, stored="i2", packing=3)])
    (first,) = scan_many([path], Job())
    assert isinstance(first, Member)
    members = []
    for number in range(count):
        time = first.variables["time"]
        assert isinstance(time.data, np.ndarray)
        moved = replace(time, data=time.data + np.timedelta64(number, "D"))
        members.append(replace(first, variables={**first.variables, "time": moved}, source=f"file {number}"))
    return members


def test_thousands_of_files_are_one_tile(tmp_path: Path) -> None:
    members = _many(tmp_path, 3000)
    rules = CombineRules(load=make_loader(None))
    combined = combine_by_coords(list(reversed(members)), rules)
    tas = combined.variables["tas"]
    assert tas.shape[0] == 3000
    assert isinstance(tas.data, VirtualArray)
    assert len(tas.data.tiles) == 1
    same = combine_nested({(number,): member for number, member in enumerate(members)}, ["time"], rules)
    np.testing.assert_array_equal(same.variables["time"].data, combined.variables["time"].data)
