"""Coordinates of the fields of HDF-EOS5 swaths and zonal averages."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import insitu
from insitu import references
from insitu.scanning.vendor_conventions.eos5_swaths import geolocation_of

SWATH = "HDFEOS/SWATHS/O3"
DATA = f"{SWATH}/Data Fields"


def _field(kind: str, number: int, name: str, dims: tuple[str, ...]) -> str:
    listed = ",".join(f'"{dim}"' for dim in dims)
    return f"""OBJECT={kind}_{number}
    {kind}Name="{name}"
    DataType=H5T_NATIVE_FLOAT
    DimList=({listed})
    MaxdimList=({listed})
END_OBJECT={kind}_{number}
"""


def _structure(geo: dict[str, tuple[str, ...]], data: dict[str, tuple[str, ...]], maps: str = "") -> str:
    """The text of a file with one swath, as the HDF-EOS5 library writes it."""
    geo_fields = "".join(_field("GeoField", i + 1, *item) for i, item in enumerate(geo.items()))
    data_fields = "".join(_field("DataField", i + 1, *item) for i, item in enumerate(data.items()))
    return f"""GROUP=SwathStructure
GROUP=SWATH_1
SwathName="O3"
GROUP=Dimension
END_GROUP=Dimension
{maps}
GROUP=GeoField
{geo_fields}END_GROUP=GeoField
GROUP=DataField
{data_fields}END_GROUP=DataField
GROUP=ProfileField
END_GROUP=ProfileField
GROUP=MergedFields
END_GROUP=MergedFields
END_GROUP=SWATH_1
END_GROUP=SwathStructure
GROUP=GridStructure
END_GROUP=GridStructure
END
"""


def _map(offset: int, increment: int) -> str:
    return f"""GROUP=DimensionMap
OBJECT=DimensionMap_1
    GeoDimension="GeoTrack"
    DataDimension="nTimes"
    Offset={offset}
    Increment={increment}
END_OBJECT=DimensionMap_1
END_GROUP=DimensionMap
GROUP=IndexDimensionMap
END_GROUP=IndexDimensionMap"""


INDEXED = """GROUP=IndexDimensionMap
OBJECT=IndexDimensionMap_1
    GeoDimension="GeoTrack"
    DataDimension="nTimes"
END_OBJECT=IndexDimensionMap_1
END_GROUP=IndexDimensionMap"""


def _write(path: Path, text: str, arrays: dict[str, np.ndarray]) -> None:
    with h5py.File(path, "w") as file:
        file["HDFEOS INFORMATION/StructMetadata.0"] = np.bytes_(text.encode())
        for name, values in arrays.items():
            file[name] = values


@pytest.fixture
def limb(tmp_path: Path) -> Path:
    """Profiles along a track, as the limb sounders of Aura have them (MLS, HIRDLS, TES)."""
    path = tmp_path / "limb.he5"
    geo = {"Latitude": ("nTimes",), "Time": ("nTimes",), "Pressure": ("nLevels",), "Angles": ("nTimes", "nCorner")}
    data = {"O3": ("nTimes", "nLevels"), "Status": ("nTimes",), "Kernel": ("nTimes", "nLevels", "nLevels")}
    arrays = {
        f"{SWATH}/Geolocation Fields/Latitude": np.linspace(-80, 80, 5, dtype="f4"),
        f"{SWATH}/Geolocation Fields/Time": np.arange(5.0),
        f"{SWATH}/Geolocation Fields/Pressure": np.array([1000, 100, 10], "f4"),
        f"{SWATH}/Geolocation Fields/Angles": np.zeros((5, 2), "f4"),
        f"{DATA}/O3": np.arange(15, dtype="f4").reshape(5, 3),
        f"{DATA}/Status": np.arange(5),
        f"{DATA}/Kernel": np.zeros((5, 3, 3), "f4"),
    }
    _write(path, _structure(geo, data), arrays)
    return path


def test_geolocation_is_the_coordinates_of_data(limb: Path) -> None:
    dataset = insitu.open_dataset(limb, group=DATA)
    assert set(dataset.coords) == {"Latitude", "Time", "Pressure", "Angles"}
    assert dataset["O3"].dims == ("nTimes", "nLevels")
    assert dataset["Kernel"].dims == ("nTimes", "nLevels", "nLevels_2")
    assert set(dataset["O3"].coords) >= {"Latitude", "Time", "Pressure"}
    assert dataset["O3"].where(dataset["Latitude"] > 0, drop=True).values.tolist() == [[9, 10, 11], [12, 13, 14]]
    assert dataset["O3"].set_index(nLevels="Pressure").sel(nLevels=100)[4].item() == 13


def test_a_tree_has_them_too(limb: Path) -> None:
    tree = insitu.open_datatree(limb)
    assert set(tree[DATA].coords) == {"Latitude", "Time", "Pressure", "Angles"}
    assert "Latitude" in tree[f"{SWATH}/Geolocation Fields"].data_vars
    assert set(insitu.open_datatree(limb, group=SWATH)["Data Fields"].coords) == set(tree[DATA].coords)
    assert set(insitu.open_datatree(limb, group=DATA).coords) == set(tree[DATA].coords)


def test_some_variables_come_with_their_coordinates(limb: Path) -> None:
    dataset = insitu.open_dataset(limb, group=DATA, variables=["Status"])
    assert set(dataset.variables) == {"Status", "Latitude", "Time", "Angles"}


def test_a_saved_swath_keeps_its_coordinates(limb: Path, tmp_path: Path) -> None:
    dataset = insitu.open_dataset(limb, group=DATA)
    for name in ("x.insitu", "x.json"):
        dataset.insitu.save(tmp_path / name)
        again = insitu.open_dataset(tmp_path / name)
        assert set(again.coords) == set(dataset.coords)
        np.testing.assert_array_equal(again["Latitude"], dataset["Latitude"])


def test_a_saved_scan_means_what_the_file_means(limb: Path, tmp_path: Path) -> None:
    references.save(insitu.scan(limb), str(tmp_path / "x.insitu"))
    again = insitu.open_dataset(tmp_path / "x.insitu", group=DATA)
    xr.testing.assert_identical(again.load(), insitu.open_dataset(limb, group=DATA).load())
    assert set(insitu.open_datatree(tmp_path / "x.insitu")[DATA].coords) == set(again.coords)


def test_many_swaths_join(limb: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.he5"
    second.write_bytes(limb.read_bytes())
    with h5py.File(second, "r+") as file:
        file[f"{SWATH}/Geolocation Fields/Time"][...] += 5
    dataset = insitu.open_mfdataset([limb, second], group=DATA, combine="nested", concat_dim="nTimes")
    assert dataset["O3"].shape == (10, 3)
    assert dataset["Time"].values.tolist() == list(range(10))


@pytest.mark.parametrize(
    ("maps", "count", "dims", "message"),
    [
        (_map(0, 1), 8, ("nTimes",), None),
        (_map(1, 2), 4, ("GeoTrack",), "GeoTrack on nTimes: offset 1, increment 2"),
        (_map(0, -2), 16, ("GeoTrack",), "GeoTrack on nTimes: offset 0, increment -2"),
        (INDEXED, 3, ("GeoTrack",), "GeoTrack on nTimes: by a list of indices"),
        ("", 3, ("GeoTrack",), None),
    ],
)
def test_dimension_maps(tmp_path: Path, maps: str, count: int, dims: tuple[str, ...], message: str | None) -> None:
    path = tmp_path / "x.he5"
    text = _structure({"Latitude": ("GeoTrack",)}, {"O3": ("nTimes",)}, maps)
    arrays = {f"{SWATH}/Geolocation Fields/Latitude": np.arange(count, dtype="f4"), f"{DATA}/O3": np.arange(8.0)}
    _write(path, text, arrays)
    dataset = insitu.open_dataset(path, group=DATA)
    assert dataset.coords["Latitude"].dims == dims
    assert dataset["Latitude"].attrs.get("dimension_map") == message
    if maps == _map(1, 2):
        assert dataset["GeoTrack"].values.tolist() == [1, 3, 5, 7]
        assert dataset["Latitude"].interp(GeoTrack=[2, 4]).values.tolist() == [0.5, 1.5]
    else:
        assert "GeoTrack" not in dataset.coords


def test_geolocation_that_does_not_fit_stays_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.he5"
    geo = {"Latitude": ("nTimes",), "O3": ("nTimes",), "Time": ("nTimes",)}
    arrays = {
        f"{SWATH}/Geolocation Fields/Latitude": np.arange(7.0),
        f"{SWATH}/Geolocation Fields/Time": np.arange(7.0),
        f"{SWATH}/Geolocation Fields/O3": np.arange(7.0),
        f"{DATA}/O3": np.arange(8.0),
    }
    _write(path, _structure(geo, {"O3": ("nTimes",)}), arrays)
    assert set(insitu.open_dataset(path, group=DATA).variables) == {"O3"}


def test_a_swath_without_geolocation(tmp_path: Path) -> None:
    path = tmp_path / "x.he5"
    _write(path, _structure({}, {"O3": ("nTimes",)}), {f"{DATA}/O3": np.arange(8.0)})
    assert insitu.open_dataset(path, group=DATA)["O3"].dims == ("nTimes",)


def test_zonal_averages_and_points(tmp_path: Path) -> None:
    path = tmp_path / "x.he5"
    fields = {"Latitude": ("nLats",), "Pressure": ("nLevels",), "O3": ("nLevels", "nLats")}
    text = 'GROUP=ZaStructure\nGROUP=ZA_1\nZaName="mean"\nGROUP=DataField\n'
    text += "".join(_field("DataField", i + 1, *item) for i, item in enumerate(fields.items()))
    text += "END_GROUP=DataField\nEND_GROUP=ZA_1\nEND_GROUP=ZaStructure\nEND\n"
    table = np.zeros(4, [("Time", "f8"), ("Speed", "f4")])
    table["Speed"] = np.arange(4)
    arrays = {
        "HDFEOS/ZAS/mean/Data Fields/Latitude": np.array([-45.0, 45.0]),
        "HDFEOS/ZAS/mean/Data Fields/Pressure": np.array([100.0, 10.0, 1.0]),
        "HDFEOS/ZAS/mean/Data Fields/O3": np.zeros((3, 2)),
        "HDFEOS/POINTS/buoy/Data/Measured": table,
    }
    _write(path, text, arrays)
    zonal = insitu.open_dataset(path, group="HDFEOS/ZAS/mean/Data Fields")
    assert set(zonal.coords) == {"Latitude", "Pressure"}
    assert zonal["O3"].dims == ("nLevels", "nLats")
    points = insitu.open_dataset(path, group="HDFEOS/POINTS/buoy/Data")
    assert points["Measured"].dims == ("Measured_record",)
    assert points["Measured"].values["Speed"].tolist() == [0, 1, 2, 3]


def test_which_group_holds_the_geolocation() -> None:
    assert geolocation_of("HDFEOS/SWATHS/x/Profile Fields/") == "HDFEOS/SWATHS/x/Geolocation Fields"
    assert geolocation_of("HDFEOS/SWATHS/x") is None
    assert geolocation_of(None) is None
