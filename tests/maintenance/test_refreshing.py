"""After a refresh the references show what opening the files anew shows; or the refresh is refused,
with a reason and a way out.

A matrix: what changed in one source, in stores of one file and of several, in every form that can
be refreshed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import insitu
from insitu.errors import SourceError, StaleSourceError, UnsupportedError
from insitu.maintenance import check, refresh
from insitu.references import save

xr = pytest.importorskip("xarray")
pytest.importorskip("netCDF4")
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*[Zz]arr.*", "ignore:Consolidated", "ignore:Duplicate name", "ignore:variable .z. has several"
)

WIDTH = 30


def make(
    path: Path,
    number: int,
    *,
    steps: int = 4,
    chunks: tuple[int, int] = (2, WIDTH),
    level: int = 3,
    dtype: str = "i2",
    seed: int = 0,
    title: str = "an archive",
    extra: bool = False,
    x_units: str = "km",
    **attributes: Any,
) -> Path:
    """A packed variable and a plain one, along a time of its own."""
    values = np.random.default_rng(100 * number + seed).integers(0, 90, (steps, WIDTH))
    with h5py.File(path, "w") as file:
        file.attrs["title"] = title
        time = file.create_dataset("time", data=np.arange(steps) + 4 * number)
        time.attrs["units"] = "days since 2000-01-01"
        time.make_scale("time")
        x = file.create_dataset("x", data=np.arange(WIDTH) / 2)
        x.attrs["units"] = x_units
        x.make_scale("x")
        for name in ("z", "w", *(["more"] if extra else [])):
            data = file.create_dataset(
                name, data=values.astype(dtype if name == "z" else "f4"), chunks=chunks, compression=level
            )
            data.dims[0].attach_scale(time)
            data.dims[1].attach_scale(x)
        packing = {"scale_factor": 0.02, "add_offset": 1.0, "_FillValue": 7, "units": "degC", **attributes}
        for key, value in packing.items():
            if value is not None:
                file["z"].attrs[key] = np.array(value, dtype) if key in ("_FillValue", "missing_value") else value
        file["w"].attrs["units"] = "m"
    return path


CHANGES: dict[str, dict[str, Any]] = {
    "values": {},
    "scale_factor": {"scale_factor": 1.0},
    "add_offset": {"add_offset": 5.0},
    "fill value": {"_FillValue": 11},
    "missing value": {"missing_value": 12},
    "units": {"units": "K"},
    "chunks": {"chunks": (3, WIDTH)},
    "codec": {"level": 9},
    "type": {"dtype": "i4"},
    "length": {"steps": 3},
    "attribute": {"comment": "made anew"},
    "attribute of the file": {"title": "another"},
    "units of labels": {"x_units": "m"},
    "gains a variable": {"extra": True},
    "loses the packing": {"scale_factor": None, "add_offset": None},
}
GAINS: dict[str, dict[str, Any]] = {
    "gains scale_factor": {"scale_factor": 10.0},
    "gains missing_value": {"missing_value": 12},
    "gains units": {"units": "K"},
}
PLAIN: dict[str, Any] = {"scale_factor": None, "add_offset": None, "_FillValue": None, "units": None}


def open_files(paths: list[Path]) -> Any:
    return insitu.open_dataset(paths[0]) if len(paths) == 1 else insitu.open_mfdataset(paths)


def from_dataset(paths: list[Path], target: Path) -> None:
    open_files(paths).insitu.save(target)


def from_scan(paths: list[Path], target: Path) -> None:
    save(insitu.scan(paths[0]), target)


def save_inline(paths: list[Path], target: Path) -> None:
    save(insitu.scan(paths[0]), target, inline_threshold=40)


FORMS: dict[str, tuple[str, Callable[[list[Path], Path], None], tuple[int, ...]]] = {
    "insitu": ("x.insitu", from_dataset, (1, 3)),
    "insitu-scan": ("x.insitu", from_scan, (1,)),
    "json": ("x.json", from_dataset, (1, 3)),
    "json-scan": ("x.json", from_scan, (1,)),
    "json-inline": ("x.json", save_inline, (1,)),
    "parq": ("x.parq", from_dataset, (1, 3)),
    "parquet-scan": ("x.parquet", from_scan, (1,)),
}
CASES = [
    pytest.param(form, count, which, before, change, id=f"{form}-{count}-{which}-{name}".replace(" ", "_"))
    for form, (_, _, counts) in FORMS.items()
    for count in counts
    for which in ((0, count - 1) if count > 1 else (0,))
    for before, changes in (({}, CHANGES), (PLAIN, GAINS))
    for name, change in changes.items()
]


def rewrite_file(path: Path, number: int, **how: Any) -> None:
    """Write a file anew, a while later."""
    path.unlink()
    make(path, number, **how)
    os.utime(path, (2e9, 2e9))


@pytest.mark.parametrize(("form", "count", "which", "before", "change"), CASES)
def test_what_is_refreshed_is_what_opening_anew_gives(
    tmp_path: Path, form: str, count: int, which: int, before: dict[str, Any], change: dict[str, Any]
) -> None:
    name, saved, _ = FORMS[form]
    paths = [make(tmp_path / f"{n}.nc", n, **before) for n in range(count)]
    target = tmp_path / name
    saved(paths, target)
    rewrite_file(paths[which], which, seed=1, **{**before, **change})
    # What does not say how it was made keeps the variables that it has: the others may have been
    # left out on purpose.
    left_out = [] if form == "insitu" else ["more"]
    mended = refresh_and_compare(target, lambda: open_files(paths).drop_vars(left_out, errors="ignore").load())
    if form == "insitu" and change.get("dtype") is None:
        assert mended, "a saved dataset can be made again"


def refresh_error(target: Path) -> StaleSourceError | None:
    """Refresh; return the error, if there is one."""
    try:
        refresh(target)
    except StaleSourceError as problem:
        return problem
    return None


def refresh_and_compare(target: Path, expected: Callable[[], Any]) -> bool:
    """Refresh, and compare with the files opened anew; return False if it raised an error with a
    reason.
    """
    if (problem := refresh_error(target)) is not None:
        assert problem.url
        assert problem.hint
        assert len(problem.message) > 20
        return False
    xr.testing.assert_identical(insitu.open_dataset(target).load(), expected())
    if target.suffix == ".insitu":
        assert check(target).ok
    return True


def test_one_file_with_the_same_meaning_is_renewed_in_every_form(tmp_path: Path) -> None:
    """Not everything is refused: other values in the same places are taken."""
    for number, (form, (name, saved, _)) in enumerate(FORMS.items()):
        folder = tmp_path / form
        folder.mkdir()
        path = make(folder / "0.nc", number)
        saved([path], folder / name)
        rewrite_file(path, number, seed=1, level=9)
        assert refresh_and_compare(folder / name, lambda path=path: insitu.open_dataset(path).load()), form


def test_the_oracle_is_xarray(tmp_path: Path) -> None:
    paths = [make(tmp_path / f"{n}.nc", n) for n in range(3)]
    open_files(paths).insitu.save(tmp_path / "x.insitu")
    rewrite_file(paths[0], 0, scale_factor=1.0, units="K")
    refresh(tmp_path / "x.insitu")
    with xr.open_mfdataset(paths, engine="netcdf4") as files:
        xr.testing.assert_identical(insitu.open_dataset(tmp_path / "x.insitu").load(), files.load())


@pytest.mark.parametrize("name", ["z", "w"])
def test_datasets_that_were_changed_before_they_were_saved_are_refused(tmp_path: Path, name: str) -> None:
    """Nothing says how they were made: renamed, reversed, computed, with attributes of the user's."""
    made: dict[str, Callable[[Any], Any]] = {
        "renamed": lambda ds: ds.rename(z="w", w="z"),
        "reversed": lambda ds: ds.isel(time=slice(None, None, -1)),
        "part": lambda ds: ds[[name]],
        "attributes": lambda ds: ds.assign_attrs(title="mine"),
    }
    for number, (what, change) in enumerate(made.items()):
        path = make(tmp_path / f"{number}.nc", 0, chunks=(1, WIDTH))
        target = tmp_path / f"{what}.insitu"
        change(insitu.open_dataset(path)).insitu.save(target)
        rewrite_file(path, 0, seed=1, chunks=(1, WIDTH))
        with pytest.raises(StaleSourceError, match=r"cannot be rebuilt from its files.*Combine the archive anew"):
            refresh(target)
    dataset = insitu.open_dataset(make(tmp_path / "own.nc", 0))
    dataset[name].attrs["units"] = "furlong"
    dataset.insitu.save(tmp_path / "own.insitu")
    rewrite_file(tmp_path / "own.nc", 0, seed=1)
    with pytest.raises(StaleSourceError, match="changed after it was opened"):
        refresh(tmp_path / "own.insitu")


def test_chunks_in_another_order_are_not_put_in_place(tmp_path: Path) -> None:
    """kerchunk's references to a dataset that was reversed, a chunk for each step: the file says
    nothing of that.
    """
    path = make(tmp_path / "0.nc", 0, chunks=(1, WIDTH))
    insitu.open_dataset(path)[["w"]].drop_vars("time").isel(time=slice(None, None, -1)).insitu.save(tmp_path / "x.json")
    rewrite_file(path, 0, seed=1, chunks=(1, WIDTH))
    with pytest.raises(StaleSourceError):
        refresh(tmp_path / "x.json")


def test_how_it_was_combined_is_kept(tmp_path: Path) -> None:
    """Nested lists, a dimension from names, only some variables, attributes that conflict dropped."""
    paths = [make(tmp_path / f"r{n}.nc", 0, title=f"run {n}") for n in range(3)]
    hows: list[dict[str, Any]] = [
        {"concat_dim": {"run": r"(r\d)"}, "combine_attrs": "drop_conflicts"},
        {"combine": "nested", "concat_dim": "run", "variables": ["z"]},
    ]
    for number, how in enumerate(hows):
        insitu.open_mfdataset(paths, **how).insitu.save(tmp_path / f"{number}.insitu")
    rewrite_file(paths[1], 0, seed=1, scale_factor=3.0, title="run 7")
    for number, how in enumerate(hows):
        refresh(tmp_path / f"{number}.insitu")
        found = insitu.open_dataset(tmp_path / f"{number}.insitu").load()
        xr.testing.assert_identical(found, insitu.open_mfdataset(paths, **how).load())


def test_a_function_cannot_be_repeated(tmp_path: Path) -> None:
    paths = [make(tmp_path / f"{n}.nc", n) for n in range(2)]
    insitu.open_mfdataset(paths, preprocess=lambda ds: ds[["z"]]).insitu.save(tmp_path / "x.insitu")
    rewrite_file(paths[1], 1, seed=1)
    with pytest.raises(StaleSourceError, match="preprocess="):
        refresh(tmp_path / "x.insitu")


def test_what_was_appended_is_appended_again(tmp_path: Path) -> None:
    paths = [make(tmp_path / f"{n}.nc", n) for n in range(4)]
    target = tmp_path / "x.insitu"
    open_files(paths[:2]).insitu.save(target)
    for _ in range(2):
        insitu.open_mfdataset(paths[1:]).insitu.append(target, "time")
    rewrite_file(paths[2], 2, seed=1, scale_factor=3.0)
    refresh(target)
    xr.testing.assert_identical(insitu.open_dataset(target).load(), open_files(paths).load())
    assert insitu.open_dataset(paths[3]).insitu.append(target, "time").steps == 0


def test_an_archive_that_moved_is_refreshed_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    paths = [make(tmp_path / "a" / f"{n}.nc", n) for n in range(2)]
    open_files(paths).insitu.save(tmp_path / "a" / "x.insitu", relative=True)
    (tmp_path / "a").rename(tmp_path / "b")
    moved = [tmp_path / "b" / path.name for path in paths]
    rewrite_file(moved[1], 1, seed=1)
    refresh(tmp_path / "b" / "x.insitu")
    (tmp_path / "b").rename(tmp_path / "c")
    found = insitu.open_dataset(tmp_path / "c" / "x.insitu").load()
    xr.testing.assert_identical(found, open_files([tmp_path / "c" / path.name for path in paths]).load())


def test_a_store_that_grew_in_the_meantime_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from insitu.maintenance import refreshing

    paths = [make(tmp_path / f"{n}.nc", n) for n in range(3)]
    target = tmp_path / "x.insitu"
    open_files(paths[:2]).insitu.save(target)
    rewrite_file(paths[0], 0, seed=1)
    original = refreshing.change_files

    def slow(*given: Any, **options: Any) -> Any:
        made = original(*given, **options)
        insitu.open_dataset(paths[2]).insitu.append(target, "time")
        return made

    monkeypatch.setattr(refreshing, "change_files", slow)
    with pytest.raises(SourceError, match="another writer"):
        refresh(target)
    monkeypatch.undo()
    assert insitu.open_dataset(target).sizes["time"] == 12
    refresh(target)
    xr.testing.assert_identical(insitu.open_dataset(target).load(), open_files(paths).load())


# Other formats: every cell with an encoding and a packing of its own.


def make_fits(path: Path, seed: int) -> None:
    fits = pytest.importorskip("astropy.io.fits")
    values = np.random.default_rng(seed).normal(100, 5, (40, 50)).astype("f4")
    image = fits.CompImageHDU(values, compression_type="RICE_1", tile_shape=(10, 50), quantize_level=16)
    fits.HDUList([fits.PrimaryHDU(), image]).writeto(path, overwrite=True)


def make_grib(path: Path, seed: int) -> None:
    """Two messages of two fields each."""
    eccodes = pytest.importorskip("eccodes")
    random = np.random.default_rng(seed)
    with open(path, "wb") as file:
        for step in (0, 6):
            multi = eccodes.codes_grib_multi_new()
            for number in (2, 3):
                handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
                eccodes.codes_set(handle, "parameterCategory", 2)
                eccodes.codes_set(handle, "parameterNumber", number)
                eccodes.codes_set(handle, "forecastTime", step)
                count = eccodes.codes_get_size(handle, "values")
                eccodes.codes_set(handle, "bitsPerValue", 12 + 2 * (seed % 2))
                eccodes.codes_set_values(handle, random.normal(10 * number, 5, count))
                eccodes.codes_grib_multi_append(handle, 4, multi)
                eccodes.codes_release(handle)
            eccodes.codes_grib_multi_write(multi, file)
            eccodes.codes_grib_multi_release(multi)


def make_tiff(path: Path, seed: int) -> None:
    """Strips of 16 rows, the last of 2."""
    tifffile = pytest.importorskip("tifffile")
    values = np.random.default_rng(seed).integers(0, 999, (50, 30)).astype("u2")
    tifffile.imwrite(path, values, rowsperstrip=16, compression="zlib", metadata=None)


def make_zip(path: Path, seed: int) -> None:
    zarr = pytest.importorskip("zarr")
    with zarr.storage.ZipStore(path, mode="w") as store:
        group = zarr.create_group(store, zarr_format=2)
        array = group.create_array("t", shape=(7, 5), chunks=(3, 5), dtype="i4", fill_value=0)
        array.attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]
        array[:] = np.random.default_rng(seed).integers(0, 99, (7, 5))


MAKERS: dict[str, Callable[[Path, int], None]] = {
    "a.fits": make_fits, "a.grib2": make_grib, "a.tif": make_tiff, "a.zarr.zip": make_zip,
}  # fmt: skip


@pytest.mark.parametrize("target", ["x.insitu", "scan.insitu", "x.json", "x.parq"])
@pytest.mark.parametrize("name", list(MAKERS))
def test_other_formats(tmp_path: Path, name: str, target: str) -> None:
    path = tmp_path / name
    MAKERS[name](path, 0)
    group = insitu.scan(path, decode=False)
    prefix = next((at for at, node in group.walk() if node.arrays), "")
    if name in ("a.fits", "a.tif") and not target.endswith(".insitu"):
        with pytest.raises(UnsupportedError, match="cannot hold"):  # several encodings, or a shorter last strip
            save(group, tmp_path / target)
        return
    if target == "x.insitu":
        insitu.open_dataset(path, group=prefix or None).insitu.save(tmp_path / target)
    else:
        save(group, tmp_path / target)
    path.unlink()
    MAKERS[name](path, 1)
    os.utime(path, (2e9, 2e9))
    if (problem := refresh_error(tmp_path / target)) is not None:
        assert target != "x.insitu", problem
        assert problem.url
        assert problem.hint
        return
    where = None if target == "x.insitu" else prefix or None
    found = insitu.open_dataset(tmp_path / target, group=where).load()
    xr.testing.assert_identical(found, insitu.open_dataset(path, group=prefix or None).load())


def test_a_repository_is_refused_by_name(tmp_path: Path) -> None:
    pytest.importorskip("icechunk")
    path = make(tmp_path / "0.nc", 0)
    insitu.open_dataset(path).insitu.save(tmp_path / "x.icechunk")
    copy = path.read_bytes()
    rewrite_file(path, 0, scale_factor=1.0)
    with pytest.raises(StaleSourceError, match=r"changed since it was referred to.*0\.nc.*save again"):
        refresh(tmp_path / "x.icechunk")
    shutil.rmtree(tmp_path / "x.icechunk")
    assert path.read_bytes() != copy
