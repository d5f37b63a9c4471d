"""Append, drop, refresh and rollback give what combining the files anew gives."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import insitu
from insitu.cli import app
from insitu.errors import InsituError, StaleSourceError

STEPS = 3


def write(
    path: Path,
    start: int,
    *,
    scale: float | None = 0.1,
    offset: float = 1.0,
    fill: int | None = -999,
    missing: int | None = None,
    units: str = "K",
    chunks: tuple[int, int] = (2, 4),
    codec: str | None = "zlib",
    dtype: str = "i2",
    steps: int = STEPS,
    title: str = "a",
    calendar: str = "standard",
) -> Path:
    """A monthly file of a model: time with bounds, latitudes with bounds that do not vary."""
    path.unlink(missing_ok=True)
    with netCDF4.Dataset(path, "w") as file:
        file.title = title
        file.createDimension("time", None)
        file.createDimension("lat", 4)
        file.createDimension("bnds", 2)
        time = file.createVariable("time", "f8", ("time",))
        time.units, time.calendar, time.bounds = "days since 2000-01-01", calendar, "time_bnds"
        time[:] = np.arange(start, start + steps)
        bounds = file.createVariable("time_bnds", "f8", ("time", "bnds"))
        bounds[:] = np.stack([np.arange(start, start + steps), np.arange(start + 1, start + steps + 1)], 1)
        lat = file.createVariable("lat", "f8", ("lat",))
        lat.bounds = "lat_bnds"
        lat[:] = np.arange(4) * 10.0
        file.createVariable("lat_bnds", "f8", ("lat", "bnds"))[:] = np.arange(8).reshape(4, 2)
        tas = file.createVariable("tas", dtype, ("time", "lat"), fill_value=fill, chunksizes=chunks, compression=codec)
        tas.set_auto_maskandscale(False)
        tas.units = units
        if scale is not None:
            tas.scale_factor, tas.add_offset = scale, offset
        if missing is not None:
            tas.missing_value = np.asarray(missing, dtype)
        stored = np.arange(start * 4, (start + steps) * 4).reshape(steps, 4).astype(dtype)
        if fill is not None:
            stored[0, 0] = fill
        tas[:] = stored
    return path


def combined(*paths: Path) -> xr.Dataset:
    """What xarray makes of the files."""
    if len(paths) == 1:
        with xr.open_dataset(paths[0], engine="netcdf4") as one:
            return one.load()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        with xr.open_mfdataset([str(path) for path in paths], engine="netcdf4") as many:
            return many.load()


def check(target: Path, *paths: Path) -> None:
    found = insitu.open_dataset(target).load()
    xr.testing.assert_identical(found, combined(*paths))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [write(tmp_path / f"{number}.nc", number * STEPS, title=str(number)) for number in range(4)]


class TestAppend:
    @pytest.mark.parametrize("count", [1, 2])
    @pytest.mark.parametrize("new", [1, 2])
    def test_grows_to_what_all_files_make(self, files: list[Path], tmp_path: Path, count: int, new: int) -> None:
        target = tmp_path / "x.insitu"
        insitu.Archive.open(files[0] if count == 1 else list(map(str, files[:count]))).save(target)
        done = insitu.Archive.open(target).append([str(path) for path in files[count : count + new]])
        assert len(done.added) == new
        assert done.steps == new * STEPS
        check(target, *files[: count + new])

    def test_one_file_each_month(self, files: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.Archive.open(files[0]).save(target)
        for number in range(1, 4):
            insitu.open_dataset(files[number]).insitu.append(target, "time")
            check(target, *files[: number + 1])

    def test_the_second_time_nothing_is_added(self, files: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.Archive.open(files[0]).save(target)
        archive = insitu.Archive.open(target)
        assert archive.append(str(files[1])).added == (str(files[1]),)
        again = archive.append([str(files[0]), str(files[1])])
        assert again.added == ()
        assert set(again.skipped) == {str(files[0]), str(files[1])}
        check(target, *files[:2])
        result = CliRunner().invoke(app, ["append", str(target), str(files[1])])
        assert result.exit_code == 0
        assert "already there" in result.stderr
        check(target, *files[:2])

    def test_known_and_new_files_together(self, files: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.Archive.open(list(map(str, files[:2]))).save(target)
        done = insitu.open_mfdataset([str(path) for path in files], data_vars="all").insitu.append(target, "time")
        assert set(done.skipped) == {str(path) for path in files[:2]}
        check(target, *files)

    def test_a_changed_file_is_refused(self, files: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.Archive.open(list(map(str, files[:2]))).save(target)
        write(files[1], STEPS, scale=0.5)
        with pytest.raises(StaleSourceError, match="refresh"):
            insitu.Archive.open(target).append(str(files[1]))

    def test_overlapping_labels_are_refused(self, files: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.Archive.open(list(map(str, files[:2]))).save(target)
        overlap = write(tmp_path / "overlap.nc", STEPS + 1)
        with pytest.raises(InsituError, match=r"x\.insitu holds .* already"):
            insitu.Archive.open(target).append(str(overlap))
        check(target, *files[:2])

    def test_a_gap_is_fine(self, files: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.Archive.open(files[0]).save(target)
        insitu.Archive.open(target).append(str(files[2]))
        check(target, files[0], files[2])

    def test_another_calendar_is_refused(self, files: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.Archive.open(files[0]).save(target)
        other = write(tmp_path / "noleap.nc", STEPS, calendar="noleap")
        with pytest.raises(InsituError, match="mixed types"):
            insitu.Archive.open(target).append(str(other))
        check(target, files[0])

    def test_calendars_of_their_own_grow(self, tmp_path: Path) -> None:
        paths = [write(tmp_path / f"{n}.nc", n * STEPS, calendar="360_day") for n in range(3)]
        target = tmp_path / "x.insitu"
        insitu.Archive.open(paths[0]).save(target)
        insitu.Archive.open(target).append([str(path) for path in paths[1:]])
        check(target, *paths)


class TestDropAndRollback:
    def test_a_file_is_taken_out(self, files: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.Archive.open(list(map(str, files))).save(target)
        archive = insitu.Archive.open(target)
        archive.drop([str(files[1])])
        check(target, files[0], *files[2:])
        first = archive.rollback()
        check(target, *files)
        second = archive.rollback()
        check(target, files[0], *files[2:])
        # It says which of the two states it is, and of when.
        assert (first.state, first.undone) == (second.undone, second.state)
        assert first.state.sizes["time"] == STEPS * len(files) == first.undone.sizes["time"] + STEPS
        assert first.state.saved is not None
        assert first.undone.saved is not None
        assert first.state.saved < first.undone.saved
        assert f"now in {first.state}" in str(first)
        assert f"time: {STEPS * len(files)}" in str(first).partition("Another rollback")[0]

    def test_a_file_is_replaced(self, files: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.Archive.open(list(map(str, files))).save(target)
        other = write(tmp_path / "other.nc", STEPS, scale=0.7, steps=2)
        result = CliRunner().invoke(app, ["drop", str(target), str(files[1]), "--replace-with", str(other)])
        assert result.exit_code == 0, result.output
        check(target, files[0], other, *files[2:])
        overlapping = write(tmp_path / "overlapping.nc", 0)
        with pytest.raises(InsituError, match="two files have the label"):
            insitu.Archive.open(target).drop([str(other)], overlapping)
        check(target, files[0], other, *files[2:])

    def test_a_file_that_was_taken_out_can_be_added_again(self, files: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.Archive.open(list(map(str, files))).save(target)
        archive = insitu.Archive.open(target)
        archive.drop([str(files[-1])])
        assert insitu.check(target).ok
        assert archive.append(str(files[-1])).added == (str(files[-1]),)
        check(target, *files)

    def test_damage_is_found_by_check_and_when_it_is_read(self, files: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.Archive.open(list(map(str, files))).save(target)
        for path in sorted(target.glob("*.parquet")):
            whole = path.read_bytes()
            for at in (5, len(whole) // 2, len(whole) - 12):
                path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
                with pytest.raises(InsituError, match="damaged"):
                    insitu.open_dataset(target).load()
                if not path.name.startswith(("axes", "packings")):  # these are read when the store is opened
                    (found,) = insitu.check(target).damaged
                    assert found[0] == str(path)
            path.write_bytes(whole)
        check(target, *files)

    def test_an_unknown_file_is_refused(self, files: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.Archive.open(list(map(str, files))).save(target)
        with pytest.raises(InsituError, match=r"no file absent\.nc"):
            insitu.Archive.open(target).drop(["absent.nc"])


CHANGES: dict[str, dict[str, Any]] = {
    "scale_factor": {"scale": 5.0},
    "add_offset": {"offset": 7.0},
    "gains_packing": {"scale": 10.0},
    "_FillValue": {"fill": -1},
    "missing_value": {"missing": 16},
    "units": {"units": "degC"},
    "chunking": {"chunks": (1, 2)},
    "codec": {"codec": "zstd"},
    "dtype": {"dtype": "i4"},
    "length": {"steps": 2},
    "attribute": {"title": "changed"},
}


@pytest.mark.filterwarnings("ignore:.*missing.*:xarray.SerializationWarning", "ignore:.*multiple fill values")
class TestRefresh:
    @pytest.mark.parametrize("change", CHANGES)
    @pytest.mark.parametrize(("count", "which"), [(1, 0), (3, 0), (3, 1), (3, 2)])
    def test_is_what_a_fresh_scan_gives(self, tmp_path: Path, change: str, which: int, count: int) -> None:
        usual: dict[str, Any] = {"scale": None} if change == "gains_packing" else {}
        paths = [write(tmp_path / f"{n}.nc", n * STEPS, title=str(n), **usual) for n in range(count)]
        target = tmp_path / "x.insitu"
        insitu.Archive.open(paths[0] if count == 1 else list(map(str, paths))).save(target)
        write(paths[which], which * STEPS, **{"title": str(which), **usual, **CHANGES[change]})
        report = insitu.refresh(target)
        assert [finding.source.url for finding in report.stale] == [str(paths[which])]
        check(target, *paths)
        assert insitu.check(target).ok

    def test_from_another_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A relative path means the folder of its scan."""
        monkeypatch.chdir(tmp_path)
        for urls in ("a.nc", ["a.nc"]):
            path = write(tmp_path / "a.nc", 0)
            insitu.Archive.open(urls).save("x.insitu")
            (tmp_path / "elsewhere").mkdir(exist_ok=True)
            monkeypatch.chdir(tmp_path / "elsewhere")
            write(path, 0, scale=0.5)
            insitu.refresh(tmp_path / "x.insitu")
            check(tmp_path / "x.insitu", path)
            monkeypatch.chdir(tmp_path)

    def test_nothing_changed(self, files: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.Archive.open(list(map(str, files))).save(target)
        before = (target / "root.json").read_bytes()
        assert insitu.refresh(target).ok
        assert (target / "root.json").read_bytes() == before

    def test_a_file_that_overlaps_now_is_refused(self, files: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.Archive.open(list(map(str, files))).save(target)
        write(files[1], 0)
        with pytest.raises(StaleSourceError, match="do not match the rest"):
            insitu.refresh(target)

    def test_a_missing_file_is_named(self, files: list[Path], tmp_path: Path) -> None:
        target = tmp_path / "x.insitu"
        insitu.Archive.open(list(map(str, files))).save(target)
        files[1].unlink()
        with pytest.raises(StaleSourceError, match=r"1\.nc.*insitu drop"):
            insitu.refresh(target)


def test_constant_bounds_are_kept_once_in_references(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{number}.nc", number * STEPS, chunks=(STEPS, 4)) for number in range(4)]
    for form in (".json", ".parq", ".icechunk"):
        target = tmp_path / f"x{form}"
        result = CliRunner().invoke(app, ["scan", *map(str, files), "-o", str(target)], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        found = insitu.open_dataset(target).load()
        assert found.lat_bnds.dims == ("lat", "bnds")
        np.testing.assert_array_equal(found.tas.values, combined(*files).tas.values)


class TestRefreshOfOtherFormats:
    """One source of an archive of another format changes: the archive is what a fresh scan gives,
    or it says why not.
    """

    def test_zipped_members(self, tmp_path: Path) -> None:
        import zipfile

        def pack(scale: float) -> str:
            path = write(tmp_path / "a.nc", 0, scale=scale)
            (tmp_path / "runs.zip").unlink(missing_ok=True)
            with zipfile.ZipFile(tmp_path / "runs.zip", "w") as archive:
                archive.write(path, "deep/a.nc")
            return f"{tmp_path / 'runs.zip'}::deep/a.nc"

        url, target = pack(0.1), tmp_path / "x.insitu"
        insitu.Archive.open(url).save(target)
        pack(0.5)
        insitu.refresh(target)
        xr.testing.assert_identical(insitu.open_dataset(target).load(), combined(tmp_path / "a.nc"))

    def test_zipped_zarr(self, tmp_path: Path) -> None:
        import shutil

        def pack(factor: float) -> xr.Dataset:
            data = xr.Dataset({"v": ("x", factor * np.arange(10.0))})
            data.to_zarr(tmp_path / "x.zarr", zarr_format=2, mode="w")
            shutil.make_archive(str(tmp_path / "x.zarr"), "zip", tmp_path / "x.zarr")
            return data

        pack(1.0)
        target = tmp_path / "x.insitu"
        insitu.Archive.open(tmp_path / "x.zarr.zip").save(target)
        expected = pack(3.5)
        insitu.refresh(target)
        xr.testing.assert_equal(insitu.open_dataset(target).load(), expected)

    def test_tiff_with_a_short_last_strip(self, tmp_path: Path) -> None:
        import tifffile

        path, target = tmp_path / "a.tif", tmp_path / "x.insitu"
        tifffile.imwrite(path, np.arange(70, dtype="u2").reshape(7, 10), rowsperstrip=3)
        insitu.Archive.open(path).save(target)
        values = np.arange(70, 140, dtype="u2").reshape(7, 10)
        tifffile.imwrite(path, values, rowsperstrip=4, compression="zlib")
        insitu.refresh(target)
        np.testing.assert_array_equal(insitu.read(target, "band_data")[0], values)

    def test_tile_compressed_fits(self, tmp_path: Path) -> None:
        from astropy.io import fits

        def store(values: Any, kind: str) -> None:
            fits.HDUList([fits.PrimaryHDU(), fits.CompImageHDU(values, name="SCI", compression_type=kind)]).writeto(
                tmp_path / "a.fits", overwrite=True
            )

        first = np.arange(600, dtype="i4").reshape(20, 30)
        store(first, "RICE_1")
        target = tmp_path / "x.insitu"
        insitu.Archive.open(tmp_path / "a.fits").save(target)
        store(first * 3, "GZIP_1")
        insitu.refresh(target)
        (name,) = [path for path, _ in insitu.scan(target).all_arrays() if "sci" in path.lower()]
        np.testing.assert_array_equal(insitu.read(target, name), first * 3)
