"""Fields of HDF-EOS5 files have the dimensions that StructMetadata names.

Modules: formats/eos_structure.py
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

import insitu
from insitu.formats.hdf5.conventions.eos5 import parse_field_dims

TEXT = """GROUP=SwathStructure
    GROUP=SWATH_1
        SwathName="My Swath"
        GROUP=GeoField
            OBJECT=GeoField_1
                GeoFieldName="Latitude"
                DimList=("AlongTrack","CrossTrack")
                MaxdimList=("AlongTrack","CrossTrack")
            END_OBJECT=GeoField_1
        END_GROUP=GeoField
        GROUP=DataField
            OBJECT=DataField_1
                DataFieldName="Field"
                DimList=("Band",
                         "AlongTrack","CrossTrack")
            END_OBJECT=DataField_1
            OBJECT=DataField_2
                DataFieldName="Wrong"
                DimList=("Band")
            END_OBJECT=DataField_2
        END_GROUP=DataField
    END_GROUP=SWATH_1
END_GROUP=SwathStructure
GROUP=GridStructure
    GROUP=GRID_1
        GridName="grid"
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


def _write(path: Path, text: str) -> None:
    half = len(text) // 2
    with h5py.File(path, "w") as file:
        for number, part in enumerate((text[:half], text[half:])):
            file[f"HDFEOS INFORMATION/StructMetadata.{number}"] = np.bytes_(part.encode())
        swath = file.create_group("HDFEOS/SWATHS/My Swath")
        swath["Geolocation Fields/Latitude"] = np.zeros((3, 4))
        swath["Data Fields/Field"] = np.zeros((2, 3, 4))
        swath["Data Fields/Wrong"] = np.zeros((2, 2))
        file["HDFEOS/GRIDS/grid/Data Fields/t"] = np.zeros((5, 5))


def test_dimensions_from_the_structure(tmp_path: Path) -> None:
    path = tmp_path / "x.he5"
    _write(path, TEXT)
    group = insitu.scan(path, decode=False)
    swath = "HDFEOS/SWATHS/My Swath"
    assert group.array(f"{swath}/Geolocation Fields/Latitude").dims == ("AlongTrack", "CrossTrack")
    assert group.array(f"{swath}/Data Fields/Field").dims == ("Band", "AlongTrack", "CrossTrack")
    assert all(name.startswith("phony_dim_") for name in group.array(f"{swath}/Data Fields/Wrong").dims)
    assert group.array("HDFEOS/GRIDS/grid/Data Fields/t").dims == ("YDim", "XDim")
    part = insitu.scan(path, group=swath, decode=False)
    assert part.groups["Data Fields"].arrays["Field"].dims == ("Band", "AlongTrack", "CrossTrack")
    assert part.groups["Data Fields"].details.dims["Band"] == 2


def test_a_structure_that_is_damaged_or_wrong_names_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.he5"
    _write(path, TEXT.replace('"YDim","XDim"', '"YDim","XDim","XDim"').replace("END_OBJECT", "=((("))
    assert insitu.scan(path, decode=False).array("HDFEOS/GRIDS/grid/Data Fields/t").dims[0].startswith("phony_dim_")
    assert parse_field_dims('GROUP=GridStructure\nDimList=("a\n' * 3) == {}
