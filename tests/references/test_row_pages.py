"""Single pages of rows: what they hold is what pyarrow reads of the whole file, and damage is an
error.

Modules: references/arrow.py
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import insitu
from insitu.errors import FormatError, InsituError
from insitu.model import Axis, Columns, Encoding, Source, Tile, VirtualArray, VirtualGroup
from insitu.references import open_references, save
from insitu.references.arrow import binary_array, number_array
from insitu.references.store import open_store, row_file, stored_rows, table_writer
from insitu.references.store.row_file import ROWS_PER_GROUP, RowFile
from insitu.references.store.row_file_writer import RowFileWriter, describe_file
from insitu.references.store.row_pages import PageIndex

SCHEMA = pa.schema([("small", pa.int32()), ("wide", pa.int64()), ("inline", pa.large_binary())])


@pytest.fixture(autouse=True)
def _no_small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_file, "SMALL_FILE", 0)


def write_rows(path: Path, rows: int, page_rows: int | None = 1024, texts: int = 0) -> tuple[RowFile, Any]:
    """Write a file of rows; return it as ours, and as pyarrow reads it."""
    dice = np.random.default_rng(rows)
    wide = dice.integers(-(2**40), 2**40, rows)
    with path.open("w+b") as file:
        writer = RowFileWriter(file, SCHEMA, ("small", "wide"), page_rows)
        for begin in range(0, rows, 50_000):
            here = slice(begin, begin + 50_000)
            raw = [b"x" * int(n) if n < texts else None for n in dice.integers(0, 100, len(wide[here]))]
            inline = binary_array(raw, pa.large_binary())
            small = number_array(np.arange(rows)[here] // 7, np.int32)
            writer.add({"small": small, "wide": number_array(wide[here]), "inline": inline})
        writer.close()
        about = describe_file(file)
    made = RowFile(
        str(path), rows, about["bytes"], about["footer"], about["checksum"],
        tuple(tuple(sums) for sums in about["group_checksums"]),
    )  # fmt: skip
    return made, pq.read_table(path)


@pytest.mark.parametrize("rows", [1, 1023, 1024, 9 * 1024, 15 * 1024, 16 * 1024 + 1, 65_536, 65_537, 203_000])
@pytest.mark.parametrize("texts", [0, 40])
def test_pages_hold_what_pyarrow_reads(tmp_path: Path, rows: int, texts: int) -> None:
    file, table = write_rows(tmp_path / "x.parquet", rows, texts=texts)
    index = file.page_index()
    assert index is not None
    assert (index.page_rows, index.pages_per_group) == (min(rows, 1024), min(-(-rows // 1024), 64))
    count = -(-rows // 1024)
    chosen = np.unique(np.random.default_rng(1).integers(0, count, 20))
    values, page_rows = file.pages(chosen, ("wide", "small"))
    at = np.concatenate([np.arange(n * page_rows, min((n + 1) * page_rows, rows)) for n in chosen])
    assert values[0].tolist() == table["wide"].to_numpy()[at].tolist()
    assert values[1].tolist() == table["small"].to_numpy()[at].tolist()
    # The same rows, by groups, and the whole file, as before.
    assert file.columns(0, ("wide",))["wide"].to_pylist() == table["wide"].to_pylist()[:ROWS_PER_GROUP]
    file.verify()


def test_files_without_a_page_index_are_read_by_groups(tmp_path: Path) -> None:
    file, table = write_rows(tmp_path / "x.parquet", 70_000, page_rows=None)
    assert file.page_index() is None
    assert file.columns(1, ("wide",))["wide"].to_pylist() == table["wide"].to_pylist()[ROWS_PER_GROUP:]
    with pytest.raises(FormatError, match="no page index"):
        file.pages(np.array([0]), ("wide",))


def test_page_indexes_of_other_writers_are_not_used() -> None:
    """Pages of unequal sizes, dictionaries, statistics: whole groups are read then."""
    table = pa.table({"a": np.arange(5000) // 100})
    for how in ({"use_dictionary": True}, {"write_statistics": True}, {"compression": "snappy"}):
        file = io.BytesIO()
        given = {"use_dictionary": False, "write_statistics": False, "compression": "zstd", "data_page_size": 1000}
        pq.write_table(table, file, write_page_index=True, **{**given, **how})  # type: ignore[arg-type]
        data = file.getvalue()
        meta = pq.read_metadata(io.BytesIO(data))
        footer = int.from_bytes(data[-8:-4], "little") + 8
        last = meta.row_group(meta.num_row_groups - 1).column(0)
        end = (last.dictionary_page_offset or last.data_page_offset) + last.total_compressed_size
        assert PageIndex.parse(data[end:-footer], meta) is None
        assert PageIndex.parse(data[end : -footer - 3], meta) is None


def test_every_bit_of_a_page_counts(tmp_path: Path) -> None:
    """A page with a flipped bit is an error, or holds the same numbers."""
    file, _ = write_rows(tmp_path / "x.parquet", 300)
    index = file.page_index()
    assert index is not None
    right = file.pages(np.array([0]), ("small",))[0].tolist()
    offset, size = index.locate(np.array([0]), ("small",))
    data = (tmp_path / "x.parquet").read_bytes()
    begin, end = int(offset[0, 0]), int((offset + size)[0, 0])
    refused = 0
    for bit in range(8 * begin, 8 * end):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        (tmp_path / "x.parquet").write_bytes(damaged)
        try:
            assert file.pages(np.array([0]), ("small",))[0].tolist() == right, bit
        except InsituError:
            refused += 1
    assert refused > 0.9 * 8 * (end - begin)


def grid(tmp_path: Path, shape: tuple[int, int] = (700, 500)) -> tuple[Path, Columns]:
    """A store of some groups of rows, a part of which is inline, and its table."""
    dice = np.random.default_rng(3)
    source = dice.integers(0, 40, shape)
    source[dice.random(shape) < 0.01] = -1
    source[dice.random(shape) < 0.01] = -2
    offset, length = dice.integers(0, 10**9, shape), dice.integers(1, 10**6, shape)
    inline = dice.random(shape) < 0.01
    source[inline], length[inline] = -3, 3
    offset[inline] = 3 * np.arange(np.count_nonzero(inline))
    sources = tuple(Source(f"s3://b/{n}.nc", n) for n in range(40))
    raw = dice.integers(0, 256, 3 * np.count_nonzero(inline), np.uint8).tobytes()
    table = Columns(shape, sources, source, offset, length, inline=raw)
    tile = Tile((Axis.regular(shape[0], 1), Axis.regular(shape[1], 1)), (Encoding(np.dtype("f4")),), table)
    save(VirtualGroup({"a": VirtualArray.of(tile, dims=("t", "x"))}), tmp_path / "x.insitu")
    return tmp_path / "x.insitu", table


def compare(chunks: Any, table: Columns, cells: list[Any]) -> None:
    """Compare the states of cells."""
    found = chunks.locate(cells)
    right = table.locate(cells)
    stored = np.asarray(right.source) >= 0
    assert (found.source == right.source)[~stored].all()
    for name in ("source", "offset", "length"):
        assert (np.asarray(getattr(found, name))[stored] == np.asarray(getattr(right, name))[stored]).all(), name
    for at in np.flatnonzero(np.asarray(right.source) == -3).tolist():
        mine, reference = int(found.offset[at]), int(right.offset[at])
        assert found.inline[mine : mine + 3] == right.inline[reference : reference + 3]


@pytest.mark.parametrize("page_rows", [None, 1024])
def test_cells_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_rows: int | None) -> None:
    monkeypatch.setattr(table_writer, "PAGE_ROWS", page_rows)
    path, table = grid(tmp_path)
    dice = np.random.default_rng(5)
    group = open_references(str(path))
    assert group is not None
    chunks = group.array("a").tiles[0].chunks
    for count in (1, 7, 300, 3000):
        cells = [dice.integers(0, length, count) for length in table.shape]
        compare(chunks, table, cells)
        compare(chunks, table, cells)
        compare(chunks, table, [np.sort(cells[0]), cells[1]])
    compare(chunks, table, [np.arange(700), np.full(700, 77)])
    compare(chunks, table, list(np.ix_(np.arange(130, 180), np.arange(500))))
    compare(chunks, table, list(np.ix_(np.arange(700), np.arange(500))))
    monkeypatch.setattr(stored_rows, "_PAGES_AT_ONCE", 3)
    group = open_references(str(path))
    assert group is not None
    compare(group.array("a").tiles[0].chunks, table, [dice.integers(0, length, 500) for length in table.shape])


def test_few_cells_read_few_bytes(tmp_path: Path) -> None:
    path, table = grid(tmp_path)
    opened = open_store(str(path))
    chunks = opened.group().array("a").tiles[0].chunks
    opened.chunks[0].page_index()
    with insitu.trace() as trace:
        compare(chunks, table, [np.array([3, 300, 600]), np.array([4, 5, 6])])
    size = sum(part.nbytes for part in opened.chunks)
    assert trace.bytes < size / 50, (trace.bytes, size)
    with insitu.trace() as trace:
        compare(chunks, table, [np.array([3, 300, 600]), np.array([4, 5, 6])])
    assert trace.bytes == 0


def test_one_chunk_from_far_away_takes_two_round_trips(tmp_path: Path, site: Any) -> None:
    path, table = grid(tmp_path)
    assert sum(part.nbytes for part in open_store(str(path)).chunks) > 1_000_000
    group = open_references(f"{site.url}/x.insitu")
    assert group is not None
    chunks = group.array("a").tiles[0].chunks
    site.requests.clear()
    assert chunks[600, 5] == table[600, 5]
    # The footer and the group of rows, one after the other; the sources beside them.
    names = [name.partition("/")[2].partition("-")[0] for name in site.requests]
    assert names.count("chunks") == 2, site.requests
    assert names.count("sources") <= 2, site.requests
    site.requests.clear()
    assert chunks[601, 5] == table[601, 5]
    assert not site.requests
    # Many places: pages, in one batch.
    compare(chunks, table, [np.random.default_rng(7).integers(0, length, 300) for length in table.shape])


def test_large_tables_are_cut_into_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: Any) -> None:
    monkeypatch.setattr(table_writer, "MAX_FILE_ROWS", 60_000)
    path, table = grid(tmp_path)
    far = open_references(f"{site.url}/x.insitu")
    assert far is not None
    compare(far.array("a").tiles[0].chunks, table, [np.arange(700), np.full(700, 77)])
    opened = open_store(str(path))
    assert [part.rows for part in opened.chunks] == [60_000] * 5 + [50_000]
    compare(opened.group().array("a").tiles[0].chunks, table, list(np.ix_(np.arange(700), np.arange(500))))
