"""All interfaces return the values that xarray shows: kinds of variables × formats × functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import insitu
from insitu.cli import app
from insitu.errors import UnsupportedError

STEPS, WIDTH = 4, 3
FILES = 3


def _write(path: Path, number: int, kind: str) -> None:
    """One file of an archive along time, with one variable of the kind."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", WIDTH)
        time = file.createVariable("time", "f8", ("time",))
        time.units, time.calendar = "days since 2000-01-01", "standard"
        time[:] = np.arange(number * STEPS, (number + 1) * STEPS)
        x = file.createVariable("x", "f4", ("x",))
        x[:] = np.arange(WIDTH) / 2
        numbers = np.arange(number * STEPS * WIDTH, (number + 1) * STEPS * WIDTH).reshape(STEPS, WIDTH)
        _VARIABLES[kind](file, numbers, number)


def _plain(file: Any, numbers: Any, number: int) -> None:
    file.createVariable("v", "f4", ("time", "x"))[:] = numbers / 7


def _packed(file: Any, numbers: Any, number: int, scale: float = 0.1) -> None:
    v = file.createVariable("v", "i2", ("time", "x"), fill_value=-999)
    v.set_auto_maskandscale(False)
    v.scale_factor, v.add_offset = scale, 2.0
    stored = numbers.astype("i2")
    stored[0, 0] = -999
    v[:] = stored


def _packed_differently(file: Any, numbers: Any, number: int) -> None:
    _packed(file, numbers, number, 0.1 * (number + 1))


def _unsigned(file: Any, numbers: Any, number: int) -> None:
    v = file.createVariable("v", "i1", ("time", "x"))
    v.setncattr("_Unsigned", "true")
    v.set_auto_maskandscale(False)
    v[:] = (numbers + 120).astype("u1").view("i1")


def _times(file: Any, numbers: Any, number: int) -> None:
    v = file.createVariable("v", "i4", ("time", "x"))
    v.units = "hours since 1990-01-01"
    v[:] = numbers


def _characters(file: Any, numbers: Any, number: int) -> None:
    file.createDimension("letters", 4)
    v = file.createVariable("v", "S1", ("time", "x", "letters"))
    v[:] = netCDF4.stringtochar(np.array([[f"{n:04d}" for n in row] for row in numbers.tolist()], "S4"))


def _enum(file: Any, numbers: Any, number: int) -> None:
    sky = file.createEnumType(np.uint8, "sky", {"clear": 0, "cloudy": 1, "rain": 2})
    file.createVariable("v", sky, ("time", "x"), fill_value=0)[:] = numbers % 3


def _bool(file: Any, numbers: Any, number: int) -> None:
    v = file.createVariable("v", "i1", ("time", "x"))
    v.dtype_ = "bool"
    v.setncattr("dtype", "bool")
    v[:] = numbers % 2


_VARIABLES: dict[str, Callable[[Any, Any, int], None]] = {
    "plain": _plain,
    "packed": _packed,
    "packed_differently": _packed_differently,
    "unsigned": _unsigned,
    "times": _times,
    "characters": _characters,
    "enum": _enum,
    "bool": _bool,
}
KINDS = list(_VARIABLES)
NUMBERS = ("plain", "packed", "packed_differently", "unsigned", "enum", "bool")
SAME_FILES = tuple(kind for kind in KINDS if kind != "packed_differently")

FORMS = ("file", "store_of_one", "store_of_many", "kerchunk_json", "kerchunk_parquet", "icechunk", "zarr")


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], tuple[str, xr.Dataset]]:
    """What an archive of a kind in a form is called, and what xarray shows of it."""
    root = tmp_path_factory.mktemp("meaning")
    made: dict[tuple[str, str], tuple[str, xr.Dataset]] = {}

    def make(kind: str, form: str) -> tuple[str, xr.Dataset]:
        if (kind, form) not in made:
            made[kind, form] = _make(root / kind, kind, form)
        return made[kind, form]

    return make


def _make(folder: Path, kind: str, form: str) -> tuple[str, xr.Dataset]:
    files = [folder / f"{number}.nc" for number in range(FILES)]
    if not folder.exists():
        folder.mkdir()
        for number, path in enumerate(files):
            _write(path, number, kind)
    with xr.open_dataset(files[0], engine="netcdf4") as one:
        first = one.load()
    parts = []
    for path in files:
        with xr.open_dataset(path, engine="netcdf4") as one:
            parts.append(one.load())
    many = xr.concat(parts, "time", data_vars="minimal", coords="minimal", compat="override", join="override")
    if form == "file":
        return str(files[0]), first
    suffix = {"kerchunk_json": ".json", "kerchunk_parquet": ".parq", "icechunk": ".icechunk", "zarr": ".zarr"}
    target = folder / f"{form}{suffix.get(form, '.insitu')}"
    if form == "zarr":
        first.drop_encoding().to_zarr(target, zarr_format=2)
        with xr.open_zarr(target) as copy:
            return str(target), copy.load()
    if form == "store_of_one":
        insitu.Archive.open(files[0]).save(target)
        return str(target), first
    insitu.Archive.open(list(map(str, files)), data_vars="minimal", coords="minimal", compat="override").save(target)
    return str(target), many


def _cases() -> list[Any]:
    # What Zarr cannot say is refused when it is saved (below), so there is nothing to read.
    return [
        pytest.param(kind, form, id=f"{kind}-{form}")
        for kind in KINDS
        for form in FORMS
        if kind != "packed_differently" or form in ("file", "store_of_one", "store_of_many", "zarr")
    ]


@pytest.mark.parametrize(("kind", "form"), _cases())
class TestEveryWay:
    def test_read(self, archives: Any, kind: str, form: str) -> None:
        url, expected = archives(kind, form)
        _assert_equal(insitu.read(url, "v"), expected.v.values)
        _assert_equal(insitu.read(url, "v", np.s_[1:, ::2]), expected.v.values[1:, ::2])
        _assert_equal(insitu.read(url, "time"), expected.time.values)

    def test_dataset(self, archives: Any, kind: str, form: str) -> None:
        url, expected = archives(kind, form)
        found = insitu.open_dataset(url).load()
        assert found.v.dtype == expected.v.dtype
        xr.testing.assert_equal(found, expected)

    def test_reduce(self, archives: Any, kind: str, form: str) -> None:
        url, expected = archives(kind, form)
        if kind not in NUMBERS:
            pytest.skip("no numbers")
        for method in ("mean", "min", "max", "sum", "count"):
            wanted = getattr(expected.v.astype("f8"), method)("time").values
            _assert_close(insitu.reduce(url, "v", method, dim="time"), wanted)

    def test_command_line(self, archives: Any, kind: str, form: str, tmp_path: Path) -> None:
        url, expected = archives(kind, form)
        table = _run(["read", url, "v[1]", "--as", "csv"]).splitlines()
        texts = [line.rsplit(",", 1)[1] for line in table[1:]]
        assert texts == [_as_csv(value) for value in expected.v.values[1]]
        _run(["read", url, "v[1]", "-o", str(tmp_path / "v.npy")])
        if expected.v.dtype.kind != "O":
            _assert_equal(np.load(tmp_path / "v.npy"), expected.v.values[1])
        assert _run(["read", url, "v[1]"]).strip() == np.array2string(expected.v.values[1], threshold=1000)
        if kind in NUMBERS:
            printed = json.loads(_run(["reduce", url, "v", "mean", "--as", "json"]))
            _assert_close(np.asarray(printed["mean"]), expected.v.astype("f8").mean().values)


def _run(arguments: list[str]) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def _as_csv(value: Any) -> str:
    if isinstance(value, np.datetime64):
        return str(np.datetime_as_string(value, unit="auto"))
    return str(value.item() if isinstance(value, np.generic) else value)


def _assert_equal(found: Any, expected: Any) -> None:
    assert found.dtype.kind == expected.dtype.kind or {found.dtype.kind, expected.dtype.kind} <= set("SU")
    np.testing.assert_array_equal(found, expected)


def _assert_close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found, "f8"), expected, rtol=1e-6, equal_nan=True)


class TestStoredValues:
    @pytest.mark.parametrize("form", ["file", "store_of_one", "store_of_many", "kerchunk_json", "icechunk"])
    def test_raw_values_are_those_of_the_file(self, archives: Any, form: str) -> None:
        url, _ = archives("packed", form)
        found = insitu.read(url, "v", decode=False)
        assert found.dtype == np.dtype("i2")
        assert found[0].tolist() == [-999, 1, 2]
        assert insitu.reduce(url, "v", "min", decode=False) == -999
        assert _run(["read", url, "v[0]", "--raw"]).strip() == "[-999    1    2]"

    def test_files_that_are_packed_differently_have_none(self, archives: Any) -> None:
        url, _ = archives("packed_differently", "store_of_many")
        with pytest.raises(UnsupportedError, match=r"packed differently.*0\.nc.*1\.nc"):
            insitu.read(url, "v", decode=False)

    def test_xarrays_keywords_give_what_xarray_gives(self, archives: Any) -> None:
        for form in ("file", "store_of_one"):
            url, _ = archives("packed", form)
            path, _ = archives("packed", "file")
            found = insitu.open_dataset(url, mask_and_scale=False).load()
            with xr.open_dataset(path, mask_and_scale=False) as expected:
                xr.testing.assert_equal(found, expected.load())


def test_zarr_forms_refuse_what_they_cannot_say(archives: Any, tmp_path: Path) -> None:
    url, _ = archives("packed_differently", "store_of_many")
    with pytest.raises(UnsupportedError, match=r"v: .*packed"):
        insitu.Archive.open(url).save(tmp_path / "x.json")


@pytest.fixture(scope="module")
def server(archives: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server next to all of the archives."""
    from server.serving import serving

    url, _ = archives("plain", "store_of_many")
    with serving([Path(url).parents[1]], tmp_path_factory.mktemp("server") / "log") as started:
        yield started


@pytest.mark.parametrize("form", ["file", "store_of_one", "store_of_many"])
@pytest.mark.parametrize("kind", KINDS)
class TestServer:
    def test_reductions(self, archives: Any, server: Any, kind: str, form: str) -> None:
        url, expected = archives(kind, form)
        near = insitu.open_dataset(url, active=server.url, active_required=True)
        xr.testing.assert_equal(near.load(), expected)
        if kind not in NUMBERS:
            pytest.skip("no numbers")
        near = insitu.open_dataset(url, active=server.url, active_required=kind != "bool")
        for method in ("mean", "min", "max", "sum", "count"):
            _assert_close(
                getattr(near.v.astype("f8"), method)("time").values, getattr(expected.v.astype("f8"), method)("time")
            )
        printed = json.loads(
            _run(["reduce", url, "v", "mean", "--dim", "time", "--active", server.url, "--as", "json"])
        )
        _assert_close(np.asarray(printed["mean"]), expected.v.astype("f8").mean("time").values)

    def test_zarr_view(self, archives: Any, server: Any, kind: str, form: str) -> None:
        path, expected = archives(kind, form)
        url = f"{server.url}/zarr{path}!/"
        found = insitu.read(url, "v", np.s_[1:, ::2])
        wanted = expected.v.values[1:, ::2]
        _assert_equal(found.astype(str) if wanted.dtype.kind == "U" else found, wanted)
        _assert_equal(insitu.read(url, "time"), expected.time.values)
        xr.testing.assert_equal(insitu.open_dataset(url).load(), expected)
        table = _run(["read", url, "v[1]", "--as", "csv"]).splitlines()
        assert [line.rsplit(",", 1)[1] for line in table[1:]] == [_as_csv(value) for value in expected.v.values[1]]
        if kind in NUMBERS:
            _assert_close(insitu.reduce(url, "v", "mean", dim="time"), expected.v.astype("f8").mean("time").values)


def test_a_dictionary_of_references_is_an_archive(archives: Any) -> None:
    url, expected = archives("packed", "kerchunk_json")
    references = json.loads(Path(url).read_text())
    xr.testing.assert_equal(insitu.open_dataset(references).load(), expected)
    for fo in (url, references):
        found = insitu.open_dataset("reference://", storage_options={"fo": fo})
        xr.testing.assert_equal(found.load(), expected)
