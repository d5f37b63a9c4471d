"""The explorer's `chunks` and `chunk`: compared with h5py's table of chunks and with the scan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

import insitu
from server.serving import Answer, Server, serving

SHAPE, CHUNKS = (6, 50, 70), (2, 20, 30)
UNWRITTEN_CELL, MASKED_CELL = (1, 2, 0), (2, 0, 1)


def write_file(path: Path, seed: int = 0) -> Path:
    """A file with shuffled and compressed chunks: one was never written, one skips a filter."""
    rng = np.random.default_rng(seed)
    with h5py.File(path, "w") as file:
        variable = file.create_dataset(
            "v", SHAPE, "<i2", chunks=CHUNKS, compression="gzip", compression_opts=4, shuffle=True, fillvalue=-7
        )
        for cell in np.ndindex(*(-(-n // c) for n, c in zip(SHAPE, CHUNKS, strict=True))):
            if cell == UNWRITTEN_CELL:
                continue
            where = tuple(slice(i * c, (i + 1) * c) for i, c in zip(cell, CHUNKS, strict=True))
            variable[where] = rng.integers(0, 10 + 500 * cell[2], variable[where].shape)
        raw = np.arange(np.prod(CHUNKS), dtype="<i2").tobytes()
        variable.id.write_direct_chunk(tuple(i * c for i, c in zip(MASKED_CELL, CHUNKS, strict=True)), raw, 0b11)
        variable.attrs.update(scale_factor=np.float64(0.5), add_offset=np.float64(10.0), units="<b>K</b>")
        file.create_dataset("line", data=np.arange(40), chunks=(7,))
        file.create_dataset("number", data=3.5)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chunks")


@pytest.fixture(scope="module")
def explorer(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving([folder], tmp_path_factory.mktemp("log") / "serve.log") as running:
        yield running


@pytest.fixture(scope="module")
def file(folder: Path) -> Path:
    return write_file(folder / "a.h5")


def ask(server: Server, name: str, url: Any, variable: str, **fields: Any) -> Answer:
    given = {key: json.dumps(value) if isinstance(value, (dict, list)) else value for key, value in fields.items()}
    return server.get(f"/explorer/api/{name}?{urlencode({'url': str(url), 'variable': variable, **given})}")


def picture(server: Server, url: Any, variable: str = "v", **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the arrays of a picture, decoded as the contract says."""
    answer = ask(server, "chunks", url, variable, **fields)
    assert answer.status == 200, answer.body
    size = int.from_bytes(answer.body[:4], "little")
    assert (4 + size) % 8 == 0
    header = json.loads(answer.body[4 : 4 + size])
    arrays = {}
    for about in header["arrays"]:
        count = int(np.prod(about["shape"]))
        data = np.frombuffer(answer.body, about["dtype"], count, 4 + size + about["offset"])
        arrays[about["name"]] = data.reshape(about["shape"])
    return header, arrays


def chunk(server: Server, url: Any, variable: str, index: dict[str, int]) -> dict[str, Any]:
    answer = ask(server, "chunk", url, variable, index=index)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


def stored_chunks(path: Path) -> dict[tuple[int, ...], Any]:
    """h5py's table of chunks, by the cell."""
    with h5py.File(path) as opened:
        dataset = opened["v"].id
        rows = [dataset.get_chunk_info(number) for number in range(dataset.get_num_chunks())]
    return {tuple(o // c for o, c in zip(row.chunk_offset, CHUNKS, strict=True)): row for row in rows}


def dims_of(path: Path) -> tuple[str, ...]:
    with insitu.open_dataset(path) as found:
        return tuple(str(dim) for dim in found.v.dims)


@pytest.mark.parametrize("plane", [(1, 2), (2, 1), (0, 2), (1, 0)])
def test_rectangles_are_the_chunks_that_h5py_lists(explorer: Server, file: Path, plane: tuple[int, int]) -> None:
    known, dims = stored_chunks(file), dims_of(file)
    fixed = ({0, 1, 2} - set(plane)).pop()
    for at in (0, SHAPE[fixed] - 1):
        header, arrays = picture(
            explorer, file, y=dims[plane[0]], x=dims[plane[1]], index={dims[fixed]: at}, colour="bytes"
        )
        assert header["form"] == "cells"
        assert (header["y"]["dim"], header["x"]["dim"]) == (dims[plane[0]], dims[plane[1]])
        assert header["index"] == {dims[fixed]: at}
        seen = set()
        for y0, y1, x0, x1, state, value in zip(
            *(arrays[name].tolist() for name in ("y0", "y1", "x0", "x1", "state", "value")), strict=True
        ):
            cell = [0, 0, 0]
            cell[plane[0]], cell[plane[1]] = y0 // CHUNKS[plane[0]], x0 // CHUNKS[plane[1]]
            cell[fixed] = at // CHUNKS[fixed]
            assert y1 == min(y0 + CHUNKS[plane[0]], SHAPE[plane[0]])
            assert x1 == min(x0 + CHUNKS[plane[1]], SHAPE[plane[1]])
            found = known.get(tuple(cell))
            assert header["states"][state] == ("unwritten" if found is None else "stored")
            assert np.isnan(value) if found is None else value == found.size
            seen.add(tuple(cell))
        assert len(seen) == len(arrays["state"]) == header["cells"]
        assert header["counts"]["stored"] + header["counts"]["unwritten"] == len(seen)


def test_ratio_codec_and_packing(explorer: Server, file: Path) -> None:
    known, dims = stored_chunks(file), dims_of(file)
    header, arrays = picture(explorer, file, y=dims[1], x=dims[2], colour="ratio")
    for y0, x0, value in zip(arrays["y0"], arrays["x0"], arrays["value"], strict=True):
        size = known[0, int(y0) // CHUNKS[1], int(x0) // CHUNKS[2]].size
        assert value == pytest.approx(np.prod(CHUNKS) * 2 / size)
    assert header["legend"]["kind"] == "number"
    assert header["legend"]["min"] == pytest.approx(arrays["value"].min())
    for colour, name in (
        ("codec", "int16, shuffle → zlib(4)"),
        ("packing", "× 0.5 + 10; to float64"),
        ("file", str(file)),
    ):
        header, arrays = picture(explorer, file, y=dims[1], x=dims[2], colour=colour)
        entries = header["legend"]["entries"]
        assert [entry["name"] for entry in entries] == [name]
        assert set(arrays["category"].tolist()) == {entries[0]["number"]}
        assert entries[0]["count"] == header["cells"]


def test_every_chunk_by_click(explorer: Server, file: Path) -> None:
    known, dims = stored_chunks(file), dims_of(file)
    grid = tuple(-(-n // c) for n, c in zip(SHAPE, CHUNKS, strict=True))
    for cell in np.ndindex(*grid):
        index = {d: min(i * c + 1, n - 1) for d, i, c, n in zip(dims, cell, CHUNKS, SHAPE, strict=True)}
        found = chunk(explorer, file, "v", index)
        bounds = {d: [i * c, min((i + 1) * c, n)] for d, i, c, n in zip(dims, cell, CHUNKS, SHAPE, strict=True)}
        assert found["cell"] == bounds
        assert found["grid"] == list(cell)
        assert found["chunk_shape"] == list(CHUNKS)
        row = known.get(cell)
        if row is None:
            assert (found["state"], found["file"], found["offset"], found["fill"]) == ("unwritten", None, None, "-7")
            continue
        assert (found["state"], found["file"]) == ("stored", str(file))
        assert (found["offset"], found["length"], found["filter_mask"]) == (row.byte_offset, row.size, row.filter_mask)
        assert found["range"] == f"bytes={row.byte_offset}-{row.byte_offset + row.size - 1}"
        assert [codec["name"] for codec in found["codecs"]] == ["shuffle", "zlib"]
        assert [codec["skipped"] for codec in found["codecs"]] == [cell == MASKED_CELL] * 2
        assert found["ratio"] == pytest.approx(np.prod(CHUNKS) * 2 / row.size)
        assert (found["packing"]["scale"], found["packing"]["offset"]) == (0.5, 10.0)
    assert set(known) == set(np.ndindex(*grid)) - {UNWRITTEN_CELL}


def test_bytes_of_a_clicked_chunk_are_the_stored_ones(explorer: Server, file: Path) -> None:
    found = chunk(explorer, file, "v", dict(zip(dims_of(file), (4, 0, 30), strict=True)))
    with open(file, "rb") as opened:
        opened.seek(found["offset"])
        data = opened.read(found["length"])
    assert data == np.arange(np.prod(CHUNKS), dtype="<i2").tobytes()


def test_a_mosaic_of_files_has_a_colour_for_each(explorer: Server, folder: Path) -> None:
    """Files of different chunking, joined along time."""
    inside = folder / "mosaic"
    inside.mkdir()
    times = ([0, 1, 2, 3], [4, 5], [6, 7, 8])
    for number, hours in enumerate(times):
        data = xr.DataArray(np.full((len(hours), 6), number, "f4"), dims=("time", "x"), coords={"time": hours})
        data.to_dataset(name="v").to_netcdf(
            inside / f"{number}.nc", engine="h5netcdf", encoding={"v": {"chunksizes": (2 - number % 2, 3)}}
        )
    header, arrays = picture(explorer, f"{inside}/*.nc", "v", y="time", x="x")
    names = {entry["number"]: entry["name"] for entry in header["legend"]["entries"]}
    with insitu.open_mfdataset(f"{inside}/*.nc") as whole:
        assert whole.v.shape == (9, 6)
    drawn = np.full((9, 6), -1)
    for y0, y1, x0, x1, category in zip(*(arrays[name] for name in ("y0", "y1", "x0", "x1", "category")), strict=True):
        assert (drawn[y0:y1, x0:x1] == -1).all()
        drawn[y0:y1, x0:x1] = category
    for number, hours in enumerate(times):
        shown = {names[category] for category in np.unique(drawn[hours]).tolist()}
        assert shown == {str(inside / f"{number}.nc")}
    click = chunk(explorer, f"{inside}/*.nc", "v", {"time": 5, "x": 4})
    assert click["file"] == str(inside / "1.nc")
    assert click["cell"] == {"time": [5, 6], "x": [3, 6]}
    with h5py.File(inside / "1.nc") as opened:
        row = opened["v"].id.get_chunk_info_by_coord((1, 3))
    assert (click["offset"], click["length"]) == (row.byte_offset, row.size)


def test_a_saved_archive_of_many_chunks_is_a_raster(explorer: Server, folder: Path) -> None:
    path = folder / "many.h5"
    with h5py.File(path, "w") as opened:
        variable = opened.create_dataset("v", (300, 400), "u1", chunks=(1, 1))
        variable[:100] = 1  # two thirds were never written
    store = folder / "many.insitu"
    insitu.Archive.open(path).save(store)
    dims = dims_of(path)
    for url in (path, store):
        header, arrays = picture(explorer, url, y=dims[0], x=dims[1], rows=30, columns=40)
        assert (header["form"], header["shape"], header["cells"]) == ("raster", [30, 40], 120_000)
        assert (arrays["stored"][:10] == 1).all()
        assert (arrays["unwritten"][10:] == 1).all()
        assert not arrays["absent"].any()
        assert header["counts"] == {"stored": 40_000, "inline": 0, "unwritten": 80_000, "absent": 0, "computed": 0}
        assert (arrays["category"][:10] == 0).all()
        assert (arrays["category"][10:] == -1).all()
        zoomed, cells = picture(explorer, url, y=dims[0], x=dims[1], box=[95, 105, 0, 10])
        assert zoomed["form"] == "cells"
        assert len(cells["state"]) == 100
        assert zoomed["counts"]["unwritten"] == 50


def test_a_zarr_store_is_listed(explorer: Server, folder: Path) -> None:
    path = folder / "x.zarr"
    data = xr.DataArray(np.arange(24.0).reshape(4, 6), dims=("y", "x")).to_dataset(name="v").chunk(y=2, x=3)
    data.to_zarr(path, zarr_format=3, consolidated=False)
    (path / "v/c/1/1").unlink()
    header, arrays = picture(explorer, path, y="y", x="x", colour="bytes")
    assert header["cells"] == 4
    for y0, x0, state, value in zip(*(arrays[name].tolist() for name in ("y0", "x0", "state", "value")), strict=True):
        stored = path / f"v/c/{y0 // 2}/{x0 // 3}"
        assert header["states"][state] == ("stored" if stored.exists() else "unwritten")
        assert value == stored.stat().st_size if stored.exists() else np.isnan(value)
    assert header["counts"]["unwritten"] == 1
    found = chunk(explorer, path, "v", {"y": 3, "x": 0})
    assert (found["state"], found["file"]) == ("stored", str(path / "v/c/1/0"))
    assert found["length"] == (path / "v/c/1/0").stat().st_size
    assert chunk(explorer, path, "v", {"y": 3, "x": 5})["state"] == "unwritten"


def test_a_zarr_store_of_too_many_objects_is_not_listed(explorer: Server, folder: Path) -> None:
    """Whether its objects exist is not known then, and the answer says so."""
    path = folder / "many.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=3)
    group.create_array("v", shape=(1000, 300), chunks=(1, 1), dtype="u1", dimension_names=("y", "x"))
    header, arrays = picture(explorer, path, y="y", x="x", rows=100, columns=100)
    assert header["counts"] == {"stored": 0, "inline": 0, "unwritten": 0, "absent": 0, "computed": 300_000}
    assert (arrays["stored"] == 1).all()
    found = chunk(explorer, path, "v", {"y": 7, "x": 0})
    assert (found["state"], found["length"], found["file"]) == ("computed", None, str(path / "v/c/7/0"))


def test_zarr_arrays_that_declare_any_number_of_chunks(explorer: Server, folder: Path) -> None:
    path = folder / "vast.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=3)
    group.create_array("v", shape=(1 << 50,), chunks=(1,), dtype="u1", dimension_names=("x",))
    group.create_array("s", shape=(1 << 50,), chunks=(1,), shards=(16,), dtype="u1", dimension_names=("x",))
    answer = explorer.get(f"/explorer/api/archive?{urlencode({'url': path})}")
    assert answer.status == 200, answer.body
    chunks = {about["name"]: about["chunks"] for group in answer.json["groups"] for about in group["variables"]}
    assert chunks == {"v": 1 << 50, "s": 1 << 50}
    header, arrays = picture(explorer, path, y="", x="x", rows=1, columns=50)
    assert header["cells"] == 1 << 50
    assert (arrays["stored"] == 1).all()


def test_arrays_of_one_and_no_dimension(explorer: Server, file: Path) -> None:
    header, arrays = picture(explorer, file, "line")
    assert (header["y"], header["x"]["size"]) == ({"dim": None, "size": 1}, 40)
    assert arrays["x1"].tolist() == [7, 14, 21, 28, 35, 40]
    header, arrays = picture(explorer, file, "number")
    assert (header["x"]["dim"], header["cells"]) == (None, 1)
    assert chunk(explorer, file, "number", {})["cell"] == {}


def test_an_answer_that_the_client_has_is_not_sent_again(explorer: Server, file: Path) -> None:
    path = f"/explorer/api/chunks?{urlencode({'url': str(file), 'variable': 'v'})}"
    first = explorer.get(path)
    assert first.headers["Content-Type"] == "application/octet-stream"
    again = explorer.get(path, {"If-None-Match": first.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"y": "nowhere"}, 400, "no dimension 'nowhere'"),
        ({"index": {"nowhere": 1}}, 400, "no dimension 'nowhere'"),
        ({"colour": "age"}, 400, "colour must be one of file, codec, packing, bytes, ratio"),
        ({"box": [0, 1000, 0, 1]}, 400, "must lie within"),
        ({"rows": 0}, 400, "rows must be at least 1"),
        ({"rows": "x"}, 400, "rows must be a whole number"),
    ],
)
def test_refused_pictures(explorer: Server, file: Path, fields: dict[str, Any], status: int, message: str) -> None:
    answer = ask(explorer, "chunks", file, "v", **fields)
    assert answer.status == status
    assert message in answer.message


def test_rows_and_columns_of_one_dimension_are_refused(explorer: Server, file: Path) -> None:
    dim = dims_of(file)[0]
    answer = ask(explorer, "chunks", file, "v", y=dim, x=dim)
    assert answer.status == 400
    assert "two dimensions" in answer.message


def test_refused_clicks(explorer: Server, file: Path) -> None:
    dims = dims_of(file)
    for index, message in (
        ({dims[0]: 0}, "a chunk is found by a position along"),
        ({dims[0]: 0, dims[1]: 0, dims[2]: 70}, "outside the dimension"),
        ({dims[0]: 0, dims[1]: 0, dims[2]: "a"}, "must be a whole number"),
    ):
        answer = ask(explorer, "chunk", file, "v", index=index)
        assert answer.status == 400
        assert message in answer.message
    assert ask(explorer, "chunk", file, "w", index={}).status == 404


def test_nothing_outside_the_roots_is_shown(explorer: Server, folder: Path, tmp_path: Path) -> None:
    outside = write_file(tmp_path / "secret.h5")
    assert ask(explorer, "chunks", outside, "v").status == 403
    store = folder / "outside.insitu"
    insitu.Archive.open(outside).save(store)
    for name, fields in (("chunks", {}), ("chunk", {"index": dict.fromkeys(dims_of(outside), 0)})):
        answer = ask(explorer, name, store, "v", **fields)
        assert b"secret" not in answer.body


def test_a_token_is_needed_where_the_server_has_one(folder: Path, file: Path, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("open-sesame\n")
    with serving([folder], tmp_path / "log", "--token-file", str(tmp_path / "tokens")) as running:
        assert ask(running, "chunks", file, "v").status == 401
        path = f"/explorer/api/chunks?{urlencode({'url': str(file), 'variable': 'v'})}"
        assert running.get(path, {"Authorization": "Bearer open-sesame"}).status == 200
