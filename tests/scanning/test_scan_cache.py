"""The second time that an archive is opened it is not scanned, and never shows what it was before."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import h5py
import numpy as np
import pytest
import xarray as xr

import insitu
from fixtures.tree_products import write_swath_product
from forked_commands import run_command, start_command
from insitu.archive import readable_archive
from insitu.combining import cached_archive, combine, scan_many
from insitu.scanning import scan_cache
from insitu.scanning.scan_cache import ScanCache, ScanRecorder
from insitu.sources.opened_urls import record_opened_urls
from waiting import LONG

HOW: dict[str, Any] = {"combine": "nested", "concat_dim": "time"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScanCache:
    """Make a cache of its own, which keeps everything at once."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("INSITU_SCAN_CACHE", str(folder))
    monkeypatch.setattr(scan_cache, "RECENT_NS", 0)
    monkeypatch.setattr(cached_archive, "MIN_SCAN_SECONDS", 0.0)
    monkeypatch.setattr(cached_archive, "MIN_FILE_SECONDS", 0.0)
    monkeypatch.setattr(cached_archive, "MIN_FILE_BYTES", 0)
    return ScanCache(folder)


@pytest.fixture(params=["file", "store"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Keep archives of both forms: small ones as a file, large ones as an insitu store."""
    monkeypatch.setattr(cached_archive, "MAX_PACKED_CHUNKS", 1 << 16 if request.param == "file" else -1)
    return str(request.param)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = []
    for number in range(3):
        paths.append(str(tmp_path / f"{number}.nc"))
        values = {"tas": (("time", "x"), np.full((2, 3), float(number))), "x": [1.0, 2.0, 3.0]}
        xr.Dataset(values, {"time": [2 * number, 2 * number + 1]}, {"title": "a"}).to_netcdf(paths[-1])
    return paths


def _recorded(act: Callable[[], Any]) -> tuple[Any, set[str]]:
    with record_opened_urls() as found:
        ds = act()
    return ds, {url for url in found if url.endswith((".nc", ".h5"))}


def _opened(paths: Any, **how: Any) -> tuple[xr.Dataset, set[str]]:
    return _recorded(lambda: insitu.open_mfdataset(paths, **{**HOW, **how}))


def test_found_again_without_opening_a_file(cache: ScanCache, files: list[str], form: str) -> None:
    first, scanned = _opened(files)
    assert {path.is_file() for path in cache.folder.glob("*/scan")} == {form == "file"}
    again, opened = _opened(files)
    assert scanned == set(files)
    assert not opened
    assert [entry.title for entry in cache.entries()] == [f"{files[0]} and {len(files) - 1} more"]
    with xr.open_mfdataset(files, engine="netcdf4", **HOW) as expected:
        xr.testing.assert_identical(again.load(), expected.load())
    assert again.encoding == first.encoding
    assert {name: sorted(v.encoding) for name, v in again.variables.items()} == {
        name: sorted(v.encoding) for name, v in first.variables.items()
    }
    assert "3 files combined" in str(again.insitu.report())


def test_a_tree_of_groups(cache: ScanCache, tmp_path: Path, form: str) -> None:
    files = [str(write_swath_product(tmp_path / f"{number}.nc", number)) for number in range(3)]
    first, scanned = _recorded(lambda: insitu.open_mfdatatree(files))
    again, opened = _recorded(lambda: insitu.open_mfdatatree(files))
    assert scanned == set(files)
    assert not opened
    xr.testing.assert_identical(again.load(), first.load())
    assert again.insitu.report().groups["/PRODUCT"].files == 3
    _, opened = _recorded(lambda: insitu.open_mfdataset(files, group="PRODUCT"))
    assert opened == set(files)  # another question


@pytest.mark.parametrize("change", ["values", "size", "replaced", "gone"])
def test_a_change_is_noticed(cache: ScanCache, files: list[str], change: str) -> None:
    _opened(files)
    before = os.stat(files[1])
    if change == "values":
        with h5py.File(files[1], "r+") as file:
            file["tas"][...] = 77.0
        os.utime(files[1], ns=(before.st_atime_ns, before.st_mtime_ns))  # the same size and modification time
    elif change == "size":
        xr.Dataset({"tas": (("time", "x"), np.zeros((4, 3)))}, {"time": range(4)}).to_netcdf(files[1])
    elif change == "replaced":
        os.replace(files[2], files[1])
        files.pop()
    else:
        os.unlink(files[1])
        with pytest.raises(FileNotFoundError):
            _opened(files)
        return
    again, opened = _opened(files)
    assert opened == set(files)
    with xr.open_mfdataset(files, engine="netcdf4", **HOW) as expected:
        xr.testing.assert_equal(again.load(), expected.load())


def test_a_small_archive_is_found_without_slow_imports(cache: ScanCache, files: list[str]) -> None:
    """Arrow takes longer to import than these files to scan; combining imports xarray and pandas."""
    _opened(files)
    code = (
        "import sys, insitu\n"
        f"archive = insitu.Archive.open({files!r}, combine='nested', concat_dim='time')\n"
        "print(archive.member().variables['tas'].shape, *({'pandas', 'pyarrow', 'xarray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "(6, 3)"
    assert len(cache.entries()) == 1


def test_recent_files_are_not_kept(cache: ScanCache, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_cache, "RECENT_NS", 3600 * 10**9)
    _opened(files)
    assert not cache.entries()


def test_other_options_are_another_entry(cache: ScanCache, files: list[str]) -> None:
    _opened(files)
    for paths, how in (
        (files, {"concat_dim": "other"}),
        (files, {"variables": "tas"}),
        (files[::-1], {}),
        (files, {"data_vars": "all"}),
        (files, {"verify": False}),
    ):
        _, opened = _opened(paths, **how)
        assert opened == set(paths), how


def test_what_is_not_the_same_every_time_is_not_kept(cache: ScanCache, files: list[str]) -> None:
    _opened(files, preprocess=lambda ds: ds)
    _opened(files, concat_dim={"label": lambda path: path[-4]})
    bad = str(Path(files[0]).with_name("bad.nc"))
    Path(bad).write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(200))
    _opened([*files, bad], errors="skip")
    assert not cache.entries()


@pytest.mark.parametrize(
    "how",
    [
        {"decode_times": False},
        {"mask_and_scale": False},
        {"drop_variables": "other"},
        {"use_cftime": True},
        {"decode_timedelta": True},
        {"decode_cf": False},
        {"decode_coords": "all"},
        {"concat_characters": False},
    ],
    ids=lambda how: next(iter(how)),
)
@pytest.mark.parametrize("one", [True, False], ids=["one", "many"])
@pytest.mark.usefixtures("form")
def test_other_decoding(
    cache: ScanCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], one: bool
) -> None:
    """What is found again is what was opened, with every option of decoding."""
    paths = []
    for number in range(2):
        paths.append(str(tmp_path / f"packed{number}.nc"))
        _write_packed(paths[-1], number)
    given: Any = paths[0] if one else paths
    more = {} if one else HOW
    open_it = insitu.open_dataset if one else insitu.open_mfdataset
    first = open_it(given, **more, **how)
    assert len(cache.entries()) == 1
    with monkeypatch.context() as patch:
        for module, name in ((readable_archive, "scan_member"), (scan_many, "scan_many"), (combine, "scan_many")):
            patch.setattr(module, name, None)
        again, opened = _recorded(lambda: open_it(given, **more, **how))
    assert not opened & set(paths)
    _assert_same(again, first)
    usual = open_it(given, **more)
    assert len(cache.entries()) == 2
    _assert_same(open_it(given, **more), usual)


def _write_packed(path: str, number: int) -> None:
    ds = xr.Dataset(
        {
            "tas": (("time", "x"), np.array([[1.5, np.nan], [2.5, 3.5]]) + number),
            "other": ("x", [1, 2], {"coordinates": "height"}),
            "name": ("x", np.array([b"ab", b"cd"])),
            "lag": ("x", np.array([1, 2], "m8[D]").astype("m8[ns]")),
            "height": ((), 2.0),
        },
        {"time": np.array(["2001-01-01", "2001-01-02"], "M8[ns]") + np.timedelta64(2 * number, "D")},
    )
    packed = {"dtype": "i2", "scale_factor": 0.5, "add_offset": 1.0, "_FillValue": -1}
    ds.to_netcdf(path, encoding={"tas": packed, "lag": {"units": "days"}}, unlimited_dims=["time"])


def _assert_same(found: xr.Dataset, expected: xr.Dataset) -> None:
    assert found.encoding == expected.encoding
    for name, variable in expected.variables.items():
        assert sorted(found.variables[name].encoding) == sorted(variable.encoding), name
    xr.testing.assert_identical(found.load(), expected.load())


def test_names_of_files_by_functions_are_told_apart(cache: ScanCache, files: list[str]) -> None:
    """Nothing tells one function from another, so nothing is kept."""
    one, _ = _opened(files, concat_dim={"label": lambda path: int(path[-4])})
    other, _ = _opened(files, concat_dim={"label": lambda path: 10 * int(path[-4])})
    assert one.label.values.tolist() == [0, 1, 2]
    assert other.label.values.tolist() == [0, 10, 20]


def test_one_file(cache: ScanCache, files: list[str]) -> None:
    def opened() -> tuple[xr.Dataset, set[str]]:
        return _recorded(lambda: insitu.open_dataset(files[0]))

    assert opened()[1] == {files[0]}
    (entry,) = cache.entries()
    assert entry.title == files[0]
    ds, found = opened()
    assert not found
    with xr.open_dataset(files[0], engine="netcdf4") as expected:
        xr.testing.assert_identical(ds.load(), expected.load())
        assert ds.encoding.keys() == insitu.open_dataset(files[0]).encoding.keys()
    with h5py.File(files[0], "r+") as file:
        file["tas"][...] = 9.0
    ds, found = opened()
    assert found == {files[0]}
    assert float(ds.tas.max()) == 9.0


def test_a_group_of_one_file_is_another_entry(cache: ScanCache, tmp_path: Path) -> None:
    path = str(tmp_path / "groups.nc")
    for group, value in (("a", 1.0), ("b", 2.0)):
        xr.Dataset({"v": ("x", [value])}).to_netcdf(path, group=group, mode="a" if group == "b" else "w")
    for _ in range(2):
        for group, value in (("a", 1.0), ("b", 2.0)):
            assert insitu.open_dataset(path, group=group)["v"].values.tolist() == [value]
    assert len(cache.entries()) == 2
    assert set(insitu.open_datatree(path).groups) == {"/", "/a", "/b"}


def test_files_in_the_memory_of_the_process_are_not_kept(cache: ScanCache, files: list[str]) -> None:
    memory = fsspec.filesystem("memory")
    for number in (0, 1):
        memory.pipe("/scan_cache.nc", Path(files[number]).read_bytes())
        ds = insitu.open_mfdataset(["memory://scan_cache.nc"], **HOW)
        assert float(ds.tas.max()) == number
    assert not cache.entries()
    memory.rm("/scan_cache.nc")


class _Objects(BaseHTTPRequestHandler):
    """Objects with ETags, by path; counts the requests."""

    objects: ClassVar[dict[str, tuple[bytes, str | None]]] = {}
    requests: ClassVar[list[str]] = []
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        data, etag = self.objects[self.path]
        self.requests.append(self.path)
        wanted = self.headers.get("Range", f"bytes=0-{len(data) - 1}").removeprefix("bytes=")
        first, _, last = wanted.partition("-")
        begin = int(first) if first else len(data) - int(last)
        end = min(int(last), len(data) - 1) if first and last else len(data) - 1
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{end}/{len(data)}")
        self.send_header("Content-Length", str(end - begin + 1))
        if etag is not None:
            self.send_header("ETag", etag)
        self.end_headers()
        self.wfile.write(data[begin : end + 1])

    def log_message(self, *given: object) -> None:
        """Be quiet."""


@pytest.fixture
def remote(files: list[str]) -> Iterator[tuple[type[_Objects], list[str]]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Objects)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    _Objects.objects.clear()
    for number, path in enumerate(files):
        _Objects.objects[f"/{number}.nc"] = (Path(path).read_bytes(), f'"v{number}"')
    yield _Objects, [f"http://127.0.0.1:{server.server_port}/{number}.nc" for number in range(3)]
    server.shutdown()
    server.server_close()
    thread.join()


def _requests_of(remote: type[_Objects], act: Callable[[], Any]) -> tuple[Any, int]:
    remote.requests.clear()
    return act(), len(remote.requests)


def test_remote_objects_are_asked_once(cache: ScanCache, remote: Any) -> None:
    objects, urls = remote
    first, scanned = _requests_of(objects, lambda: insitu.open_mfdataset(urls, **HOW))
    again, requested = _requests_of(objects, lambda: insitu.open_mfdataset(urls, **HOW))
    assert len(cache.entries()) == 1
    assert requested == 3
    assert scanned >= 3
    xr.testing.assert_identical(again.load(), first.load())
    one, _ = _requests_of(objects, lambda: insitu.open_dataset(urls[1]))
    assert len(cache.entries()) == 2
    found, requested = _requests_of(objects, lambda: insitu.open_dataset(urls[1]))
    assert requested == 1
    xr.testing.assert_identical(found.load(), one.load())


def test_a_changed_object_is_noticed(cache: ScanCache, remote: Any) -> None:
    objects, urls = remote
    insitu.open_mfdataset(urls, **HOW)
    objects.objects["/1.nc"] = (objects.objects["/2.nc"][0], '"v1b"')  # as long as before
    again = insitu.open_mfdataset(urls, **HOW)
    assert again.tas.values[:, 0].tolist() == [0, 0, 2, 2, 2, 2]


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_objects_that_nothing_identifies_are_not_kept(cache: ScanCache, remote: Any, etag: str | None) -> None:
    objects, urls = remote
    objects.objects["/1.nc"] = (objects.objects["/1.nc"][0], etag)
    insitu.open_mfdataset(urls, **HOW)
    insitu.open_dataset(urls[1])
    assert not cache.entries()


def test_other_credentials_are_another_entry(cache: ScanCache, remote: Any) -> None:
    objects, urls = remote
    insitu.open_mfdataset(urls, **HOW)
    for headers in ({"Authorization": "a"}, {"Authorization": "b"}):
        how = {**HOW, "storage_options": {"headers": headers}}
        _, scanned = _requests_of(objects, lambda: insitu.open_mfdataset(urls, **how))  # noqa: B023
        _, requested = _requests_of(objects, lambda: insitu.open_mfdataset(urls, **how))  # noqa: B023
        assert requested == 3 <= scanned
    assert len(cache.entries()) == 3
    text = b"".join(path.read_bytes() for path in cache.folder.rglob("*") if path.is_file())
    assert b"Authorization" not in text


def test_a_file_that_another_one_names(cache: ScanCache, tmp_path: Path) -> None:
    """A virtual dataset whose source does not exist yet: that it appears is noticed."""
    path, other = tmp_path / "virtual.h5", tmp_path / "other.h5"
    layout = h5py.VirtualLayout((4,), "f8")
    layout[:] = h5py.VirtualSource(str(other), "v", (4,))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("v", layout, fillvalue=-1.0)
    how: dict[str, Any] = {"combine": "nested", "concat_dim": "new"}
    assert insitu.open_mfdataset([path], **how)["v"].values.tolist() == [[-1.0] * 4]
    assert len(cache.entries()) == 1
    assert insitu.open_mfdataset([path], **how)["v"].values.tolist() == [[-1.0] * 4]
    with h5py.File(other, "w") as file:
        file["v"] = np.arange(4.0)
    assert insitu.open_mfdataset([path], **how)["v"].values.tolist() == [[0.0, 1.0, 2.0, 3.0]]
    with h5py.File(other, "r+") as file:
        file["v"][0] = 9.0
    assert insitu.open_mfdataset([path], **how)["v"].values.tolist() == [[9.0, 1.0, 2.0, 3.0]]


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
def test_a_folder_that_others_may_write_to_is_not_used(cache: ScanCache, files: list[str]) -> None:
    cache.folder.mkdir()
    cache.folder.chmod(0o777)
    _opened(files)
    assert not cache.entries()
    cache.folder.chmod(0o700)
    _opened(files)
    cache.folder.chmod(0o770)
    assert _opened(files)[1] == set(files)


def test_switched_off(cache: ScanCache, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSITU_SCAN_CACHE", "off")
    _opened(files)
    monkeypatch.setenv("INSITU_SCAN_CACHE", str(cache.folder))
    monkeypatch.setattr(insitu.options, "scan_cache", False)
    _opened(files)
    assert not cache.entries()


def test_damaged_entries_are_scanned_again(cache: ScanCache, files: list[str]) -> None:
    _opened(files)
    for path in cache.folder.rglob("*"):
        if path.is_file() and path.name != "lock":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    again, _ = _opened(files)
    assert again["tas"].values[:, 0].tolist() == [0, 0, 1, 1, 2, 2]


def test_a_damaged_file_is_never_unpickled(cache: ScanCache, files: list[str]) -> None:
    _opened(files)
    (path,) = cache.folder.glob("*/scan")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    again, opened = _opened(files)
    assert opened == set(files)
    assert again["tas"].values[:, 0].tolist() == [0, 0, 1, 1, 2, 2]


class RunsSomething:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


def test_a_file_that_would_run_something_is_scanned_again(cache: ScanCache, files: list[str], tmp_path: Path) -> None:
    """Also where its checksum is right."""
    _opened(files)
    (path,) = cache.folder.glob("*/scan")
    path.write_bytes(cached_archive._pack(RunsSomething(tmp_path / "made")))  # type: ignore[arg-type]
    again, opened = _opened(files)
    assert opened == set(files)
    assert not (tmp_path / "made").exists()
    assert again["tas"].values[:, 0].tolist() == [0, 0, 1, 1, 2, 2]


def _put(cache: ScanCache, key: str, files: list[str], size: int) -> bool:
    def write(path: str) -> None:
        os.mkdir(path)
        Path(path, "rows").write_bytes(bytes(size))

    return cache.put(key, ScanRecorder(), files, write, {})


def test_it_is_bounded(cache: ScanCache, files: list[str]) -> None:
    small = ScanCache(cache.folder, 25_000)
    for number in range(5):
        assert _put(small, f"{number:032x}", files, 10_000)
    assert 0 < sum(entry.size for entry in small.entries()) <= 25_000
    assert small.find(f"{4:032x}", files) is not None
    assert small.find(f"{0:032x}", files) is None


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be deleted there")
def test_an_entry_that_is_open_is_not_deleted(cache: ScanCache, files: list[str]) -> None:
    ds, _ = _opened(files)
    ds, opened = _opened(files)
    assert not opened
    code = "import sys; from insitu.scanning.scan_cache import ScanCache; print(ScanCache(sys.argv[1]).clear())"
    left = run_command([cache.folder], code=code)
    assert int(left.stdout) > 0
    assert ds["tas"].values[:, 0].tolist() == [0, 0, 1, 1, 2, 2]


def test_processes_at_the_same_time(cache: ScanCache, files: list[str]) -> None:
    code = (
        "import sys, insitu\n"
        "from insitu.scanning import scan_cache\n"
        "from insitu.combining import cached_archive\n"
        "scan_cache.RECENT_NS, cached_archive.MIN_SCAN_SECONDS = 0, 0.0\n"
        "for _ in range(5):\n"
        "    ds = insitu.open_mfdataset(sys.argv[1:], combine='nested', concat_dim='time')\n"
        "    assert ds.tas.values[:, 0].tolist() == [0, 0, 1, 1, 2, 2]\n"
    )
    runs = [start_command(files, code=code) for _ in range(3)]
    assert [run.wait(LONG) for run in runs] == [0, 0, 0]
    assert len(cache.entries()) == 1
    assert not list(cache.folder.glob("part-*"))
