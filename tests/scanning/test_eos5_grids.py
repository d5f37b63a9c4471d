"""Coordinates of the grids of HDF-EOS5 files."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import insitu

TEXT = """GROUP=GridStructure
    GROUP=GRID_1
        GridName="grid"
        XDim=4
        YDim=2
        UpperLeftPointMtrs=(-180000000.000000,90000000.000000)
        LowerRightMtrs=(180000000.000000,-90000000.000000)
        Projection=HE5_GCTP_GEO
        MORE
        GROUP=DataField
            OBJECT=DataField_1
                DataFieldName="t"
                DimList=("YDim","XDim")
            END_OBJECT=DataField_1
        END_GROUP=DataField
    END_GROUP=GRID_1
END_GROUP=GridStructure
END
"""
FIELDS = "HDFEOS/GRIDS/grid/Data Fields"


def _write(path: Path, text: str) -> None:
    with h5py.File(path, "w") as file:
        file["HDFEOS INFORMATION/StructMetadata.0"] = np.bytes_(text.encode())
        file[f"{FIELDS}/t"] = np.arange(8.0).reshape(2, 4)


@pytest.mark.parametrize(
    ("more", "rows", "columns"),
    [
        ("", [45, -45], [-135, -45, 45, 135]),
        ("PixelRegistration=HE5_HDFE_CORNER", [90, 0], [-180, -90, 0, 90]),
        ("GridOrigin=HE5_HDFE_GD_LL", [-45, 45], [-135, -45, 45, 135]),
        ("GridOrigin=HE5_HDFE_GD_UR", [45, -45], [135, 45, -45, -135]),
    ],
)
def test_latitudes_and_longitudes(tmp_path: Path, more: str, rows: list[float], columns: list[float]) -> None:
    path = tmp_path / "x.he5"
    _write(path, TEXT.replace("MORE", more))
    dataset = insitu.open_dataset(path, group=FIELDS)
    assert dataset["YDim"].values.tolist() == rows
    assert dataset["XDim"].values.tolist() == columns
    assert dataset["YDim"].attrs["units"] == "degrees_north"
    assert dataset["t"].sel(YDim=rows[1], XDim=columns[2]).item() == 6
    assert "XDim" in insitu.open_datatree(path)[FIELDS].coords


def test_metres(tmp_path: Path) -> None:
    path = tmp_path / "x.he5"
    _write(path, TEXT.replace("GEO", "SNSOID").replace("000000.000000", ""))
    dataset = insitu.open_dataset(path, group=FIELDS)
    assert dataset["XDim"].attrs["standard_name"] == "projection_x_coordinate"
    assert dataset["XDim"].values.tolist() == [-135, -45, 45, 135]


@pytest.mark.parametrize("wrong", ["XDim=5", "UpperLeftPointMtrs=(nan)", "UpperLeftPointMtrs=(1.2.3,4)"])
def test_a_grid_that_does_not_fit_has_none(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "x.he5"
    key = wrong.partition("=")[0]
    lines = [wrong if line.strip().startswith(key) else line for line in TEXT.splitlines()]
    _write(path, "\n".join(lines))
    assert "XDim" not in insitu.open_dataset(path, group=FIELDS).variables
    assert insitu.scan(path, decode=False).details.structure is None
