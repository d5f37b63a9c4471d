"""A damaged root of an insitu store is an error: every bit of it, and every field changed in every
way that JSON allows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from insitu.errors import FormatError, InsituError, UnsupportedError
from insitu.maintenance import append_tree as append
from insitu.model import (
    Axis,
    Codec,
    Columns,
    Encoding,
    GroupDetails,
    Packing,
    PackingKind,
    Packings,
    Source,
    Tile,
    VirtualArray,
    VirtualGroup,
    concatenate,
    scatter,
)
from insitu.references import open_references, save
from insitu.references.store import NAME, open_store, root, row_file, row_tables
from insitu.references.store.validation import check_boxes, check_cells


def piece(number: int, width: int = 2) -> VirtualArray:
    """One file of an archive: clipped chunks, a packing of its own, three dimensions."""
    axes = (Axis.regular(5, 2), Axis.regular(4, width), Axis.regular(3, 3))
    grid = tuple(axis.count for axis in axes)
    offset = 1000 * number + 10 * np.arange(int(np.prod(grid))).reshape(grid)
    table = Columns(grid, (Source(f"s3://b/{number}.nc", 10**6, f"e{number}", 1.5),), np.asarray(0), offset, offset + 5)
    kind = PackingKind(dtype="float32", masked="float32", scaled="float32", scale_dtype="float64")
    packings = Packings.of([Packing(scale=0.5 + number, missing=(np.int16(number),), kind=kind)])
    encoding = Encoding(np.dtype("<i2"), (Codec("zlib", {"level": number % 2}),), (0, 2, 1), b"\1\0")
    return VirtualArray.of(
        Tile(axes, (encoding,), table, packings), dims=("time", "y", "x"), attributes={"units": "K"}, fill_value=np.nan
    )


def archive(path: Path) -> bytes:
    """A store that has every kind of table, axis and part; returns its root."""
    mosaic = concatenate([piece(0), piece(1, width=4), piece(2, width=4)], "time")
    assert len(mosaic.tiles) == 2
    table = scatter((40, 50), (Source("/a.nc"),), np.array([[5, 7], [0, 3], [39, 0]]), [10, 20, 30], [1, 2, 3])
    sparse = VirtualArray.of(
        Tile((Axis.regular(40, 1), Axis.regular(50, 1)), (Encoding(np.dtype("u1")),), table), dims=("a", "b")
    )
    inline = VirtualArray.of(
        Tile((Axis.regular(2, 2),), (Encoding(np.dtype("u1")),), Columns.of_inline((1,), b"ab")), dims=("c",)
    )
    empty = VirtualArray.of(
        Tile((Axis.regular(4, 2),), (Encoding(np.dtype("u1")),), Columns.of_unwritten((2,))), dims=("d",)
    )
    deep = VirtualGroup(
        {"inline": inline, "empty": empty, "one": piece(9)[1].expand_dims(0, "time")}, problems={"x": "lost"}
    )
    group = VirtualGroup({"t": mosaic, "sparse": sparse}, {"deep": deep}, {"title": "x"}, GroupDetails(format="hdf5"))
    save(group, path)
    append(
        VirtualGroup({"t": piece(4, width=4)}, {"deep": VirtualGroup({"one": piece(8)[1].expand_dims(0, "time")})}),
        path,
        "time",
    )
    return (path / NAME).read_bytes()


def meaning(path: Path) -> Any:
    """Everything that a store says, for comparison."""
    group = open_references(str(path))
    assert group is not None
    return _meaning(group)


def _meaning(group: VirtualGroup) -> Any:
    arrays = {}
    for name, array in group.arrays.items():
        tiles = []
        for origin, tile in zip(array.origins.tolist(), array.tiles, strict=True):
            table = tile.chunks
            found = table.locate(list(np.unravel_index(np.arange(int(np.prod(table.shape))), table.shape)))
            places: list[tuple[Any, ...]] = []
            for at, source in enumerate(found.source.tolist()):
                where = table.sources[source] if source >= 0 else source
                span = (int(found.offset[at]), int(found.length[at]))
                data = found.inline[span[0] : sum(span)] if source == -3 else span if source >= 0 else None
                if source >= 0 or source == -3:
                    coded = (tile.encodings[int(found.encoding[at])], tile.packings[int(found.packing[at])])
                    places.append((where, data, int(found.filter_mask[at]), coded))
                else:
                    places.append((where,))
            axes = [tuple(c.tolist() for c in axis.show(np.arange(axis.count))) for axis in tile.axes]
            tiles.append((origin, tile.dimensions, axes, places))
        facts = (array.shape, array.dtype.str, array.dims, repr(dict(array.attributes)), repr(array.fill_value))
        arrays[name] = (facts, repr(array.details), tiles)
    groups = {name: _meaning(inner) for name, inner in group.groups.items()}
    return list(arrays.items()), list(groups.items()), repr(group.attributes), repr(group.details), repr(group.problems)


def test_every_bit_of_the_root(tmp_path: Path) -> None:
    path = tmp_path / "x.insitu"
    good = archive(path)
    right = meaning(path)
    quiet = []
    for at in range(len(good)):
        for bit in range(8):
            data = good[:at] + bytes([good[at] ^ (1 << bit)]) + good[at + 1 :]
            try:
                root.parse_root(data, str(path))
            except FormatError:
                continue
            except UnsupportedError as problem:
                assert "version" in str(problem)  # noqa: PT017
                continue
            (path / NAME).write_bytes(data)
            if meaning(path) != right:
                quiet.append((at, bit))
    assert quiet == []


def test_the_checksum_is_of_the_meaning(tmp_path: Path) -> None:
    path = tmp_path / "x.insitu"
    document = json.loads(archive(path))
    right = meaning(path)
    (path / NAME).write_text(json.dumps(document, indent=2))  # as an editor or another tool would write it
    assert meaning(path) == right
    document["tree"]["attributes"]["title"] = "y"
    (path / NAME).write_text(json.dumps(document))
    with pytest.raises(FormatError, match="checksum"):
        open_references(str(path))
    del document["checksum"]  # as version 1 was written before
    (path / NAME).write_text(json.dumps(document))
    assert dict(open_store(str(path)).group().attributes) == {"title": "y"}


def test_roots_without_a_checksum_open(tmp_path: Path) -> None:
    path = tmp_path / "x.insitu"
    document = json.loads(archive(path))
    right = meaning(path)
    del document["checksum"]
    (path / NAME).write_text(json.dumps(document))
    assert meaning(path) == right
    append(VirtualGroup({"t": piece(5)}), path, "time")
    assert "checksum" in json.loads((path / NAME).read_text())


UNPLACED = (
    "attributes",
    "details",
    "problems",
    "configuration",
    "codecs",
    "order",
    "kinds",
    "fill",
    "fill_value",
    "dtype",
    "dims",
    "id",
)
"""What says what values mean, and not where they lie: no rule tells a wrong one, only the checksum
does.
"""
GAPS = ("shape", "length", "padded", "size")
"""An array may have places that no tile covers, and a chunk may be larger than what is shown of it:
likewise.
"""


def only_the_checksum_tells(where: tuple[Any, ...], document: Any) -> bool:
    """Whether a field may be changed into another that is right as far as anybody can tell."""
    if any(key in UNPLACED or key in GAPS or key == "constant" for key in where):
        return True
    if where[-1] == "tiles" or where[-2:-1] in (("arrays",), ("groups",), ("tiles",)):
        return True  # the whole of a tile, an array or a group, or its name
    holder: Any = document
    for key in where[:-1]:
        holder = holder[key]
    return isinstance(holder, dict) and (holder.get("kind"), where[-1]) in (("sparse", "count"), ("constant", "source"))


def nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a document."""
    if path:
        yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from nodes(inner, (*path, key))


def change_field(document: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    copy = json.loads(json.dumps(document))
    holder = copy
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return copy


def _set(value: Any) -> Callable[[Any, Any], None]:
    def change(holder: Any, key: Any) -> None:
        holder[key] = value

    return change


def _rename(holder: Any, key: Any) -> None:
    holder[f"{key}x"] = holder.pop(key)


def _delete(holder: Any, key: Any) -> None:
    del holder[key]


def _repeat(holder: Any, key: Any) -> None:
    holder.append(holder[key])


def changes(document: Any, path: tuple[Any, ...]) -> Iterator[tuple[str, Callable[[Any, Any], None]]]:
    value: Any = document
    for key in path:
        value = value[key]
    yield "delete", _delete
    yield ("rename", _rename) if isinstance(path[-1], str) else ("repeat", _repeat)
    others: tuple[Any, ...] = (None, "x", [], True)
    for other in others:
        if other != value or type(other) is not type(value):
            yield f"= {other!r}", _set(other)
    if type(value) is int:
        for number in sorted({value + 1, value - 1, value ^ 2, -value - 1, value + 2**40, 2**63} - {value}):
            yield f"= {number}", _set(number)


def test_every_field_of_the_root(tmp_path: Path) -> None:
    """Without the checksum: what places values is an error, or opens with the same meaning."""
    path = tmp_path / "x.insitu"
    document = json.loads(archive(path))
    del document["checksum"]
    right = meaning(path)
    quiet, refused = [], 0
    for where in nodes(document):
        if only_the_checksum_tells(where, document):
            continue
        for label, change in changes(document, where):
            data = json.dumps(change_field(document, where, change)).encode()
            (path / NAME).write_bytes(data)
            try:
                found = _meaning(open_store(str(path)).group())
            except InsituError:
                refused += 1
                continue
            if found != right:
                quiet.append((where, label))
    assert quiet == []
    assert refused > 1000


def test_an_origin_that_was_moved(tmp_path: Path) -> None:
    path = tmp_path / "x.insitu"
    document = json.loads(archive(path))
    document.pop("checksum", None)
    for origin in ([2, 0, 0], [0, 1, 0], [0, 0, 4]):
        document["tree"]["arrays"]["t"]["tiles"][0]["origin"] = origin
        (path / NAME).write_text(json.dumps(document))
        with pytest.raises(FormatError, match=r"tile.* t\b|overlap"):
            open_references(str(path))


def test_boxes_against_counting(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    outcomes = set()
    for _ in range(300):
        ndim, count = int(random.integers(1, 4)), int(random.integers(1, 6))
        shape = random.integers(1, 7, ndim)
        origins = random.integers(0, 6, (count, ndim))
        shapes = random.integers(0, 4, (count, ndim))
        seen = np.zeros(tuple(shape + 10), int)
        for origin, extent in zip(origins, shapes, strict=True):
            seen[tuple(slice(a, a + b) for a, b in zip(origin, extent, strict=True))] += 1
        fits = bool((origins + shapes <= shape).all()) and seen.max() < 2
        outcomes.add(fits)
        if fits:
            check_boxes(tuple(shape), origins, shapes)
        else:
            with pytest.raises(FormatError):
                check_boxes(tuple(shape), origins, shapes)
    assert outcomes == {True, False}
    # Many tiles: compared in blocks, and not each with each.
    corners = np.stack(np.meshgrid(np.arange(120), np.arange(120), indexing="ij"), -1).reshape(-1, 2)
    check_boxes((120, 120), corners, np.ones_like(corners))
    with pytest.raises(FormatError, match="overlap"):
        check_boxes((120, 120), np.concatenate([corners, corners[-1:]]), np.ones((len(corners) + 1, 2), int))


@pytest.mark.parametrize(
    "row",
    [
        (-1, 0, 1, 4), (3, 2, 1, 4), (2, 1, -2, 4), (2, 0, 1, 0), (1, 1, 0, 0), (1, 0, 1, -1), (1, -1, 1, 4),
        (2**62, 0, 2**62, 4), (2**62, 0, 0, 0),
    ],
)  # fmt: skip
def test_cells_that_show_what_is_not_there(row: tuple[int, ...]) -> None:
    names = ("extent", "skip", "step", "stored")
    check_cells({name: np.array([value], np.int64) for name, value in zip(names, (3, 0, 1, 4), strict=True)})
    with pytest.raises(FormatError, match="axes"):
        check_cells({name: np.array([value], np.int64) for name, value in zip(names, row, strict=True)})


def test_groups_of_a_sparse_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first cell of each group of rows is in the root: a wrong one is noticed when cells are
    looked for near it.
    """
    from insitu.references.store import row_file_writer, stored_rows, table_writer, validation

    for module in (row_file, row_file_writer, row_tables, stored_rows, validation, table_writer):
        monkeypatch.setattr(module, "ROWS_PER_GROUP", 4)
    index = np.array([[0, n] for n in range(10, 90, 5)])
    table = scatter((5, 1000), (Source("/a.nc"),), index, np.arange(len(index)), np.ones(len(index), int))
    array = VirtualArray.of(
        Tile((Axis.regular(5, 1), Axis.regular(1000, 1)), (Encoding(np.dtype("u1")),), table), dims=("a", "b")
    )
    path = tmp_path / "x.insitu"
    save(VirtualGroup({"a": array}), path)
    right = meaning(path)
    document = json.loads((path / NAME).read_text())
    del document["checksum"]
    starts = document["tree"]["arrays"]["a"]["tiles"][0]["chunks"]["starts"]
    assert starts == [10, 30, 50, 70]
    for at in range(4):
        for shift in (-3, -1, 1, 3, 8):
            other = json.loads(json.dumps(document))
            other["tree"]["arrays"]["a"]["tiles"][0]["chunks"]["starts"][at] += shift
            (path / NAME).write_text(json.dumps(other))
            chunks = open_store(str(path)).group().array("a").tiles[0].chunks
            refused = 0
            for cell, place in enumerate(right[0][0][1][2][0][3][:100]):
                try:
                    state = chunks[0, cell]
                except FormatError:
                    refused += 1
                    continue
                assert (place[0] == -2) == (type(state).__name__ == "Unwritten"), (at, shift, cell)
            assert refused
